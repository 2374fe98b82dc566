//! The store in a folder of this machine: one file per blob, a bound in bytes, eviction of what was used longest ago.
//!
//! Promises: a blob becomes visible by one rename of a complete, checked file, so `kill -9` at any instant leaves
//! either the whole blob or a file in `tmp/` that the next start removes. Nothing is synced to the disk: after a
//! power cut files may be damaged, which shows when they are opened (size) and first read (hash), since no content
//! is trusted that this process has not hashed. Damaged files are removed and count as missing.
//!
//! `files` and `action_results` are plain blocking code, tested with threads; this module and `reader`, `writer`
//! move them to the runtime's blocking pool in pieces large enough to be worth it.

mod action_results;
mod blocking;
mod config;
mod files;
mod index;
mod layout;
mod reader;
mod scan;
#[cfg(test)]
mod tests;
mod writer;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use pointsman_digest::Digest;
use pointsman_proto::rev2::ActionResult;
use prost::Message;
use tracing::{info, warn};

use crate::error::StorageError;
use crate::references::{if_complete, references_of_result};
use crate::{BlobStream, BlobWriter, Storage};
use action_results::ActionResults;
pub use config::{EmbeddedConfig, EmbeddedStats, OpenError};
use files::BlobFiles;
use layout::Layout;

/// Blobs up to this size are collected in memory and stored by one trip to the blocking pool.
const SMALL_BLOB_MAX_BYTES: u64 = 1 << 20;

/// A store in a folder. Clones of the `Arc` around it are cheap; the folder is locked until the last one is gone.
pub struct EmbeddedStorage {
    files: Arc<BlobFiles>,
    action_results: Arc<ActionResults>,
}

impl EmbeddedStorage {
    /// Opens or creates the store: locks the folder, removes what a killed process left half-written, and reads
    /// the names, sizes and times of all files, which is what takes long in a large store.
    pub async fn open(config: EmbeddedConfig) -> Result<Self, OpenError> {
        let opened = tokio::task::spawn_blocking(move || Self::open_blocking(&config)).await;
        opened.unwrap_or_else(|panic| Err(OpenError::Storage(blocking::job_failed(panic))))
    }

    fn open_blocking(config: &EmbeddedConfig) -> Result<Self, OpenError> {
        let began = Instant::now();
        let layout = Arc::new(Layout::open(&config.folder)?);
        let files = Arc::new(BlobFiles::open(layout.clone(), config)?);
        let action_results = Arc::new(ActionResults::open(layout, config.max_action_results)?);
        let storage = Self { files, action_results };
        let EmbeddedStats { blobs, bytes, action_results, .. } = storage.stats();
        let took_ms = began.elapsed().as_millis() as u64;
        let folder = config.folder.display();
        let max_bytes = config.max_bytes;
        info!(%folder, blobs, bytes, max_bytes, action_results, took_ms, "storage opened");
        Ok(storage)
    }

    /// What the store holds now and has done since it was opened.
    pub fn stats(&self) -> EmbeddedStats {
        EmbeddedStats { action_results: self.action_results.len(), ..self.files.stats() }
    }

    /// The stored result, without a look at what it refers to.
    async fn stored_result(
        &self,
        instance_name: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, StorageError> {
        let results = self.action_results.clone();
        let key = action_results::key(instance_name, action);
        let Some(data) = blocking::run(move || results.get(&key)).await? else { return Ok(None) };
        match ActionResult::decode(data) {
            Ok(result) => Ok(Some(result)),
            Err(error) => {
                warn!(%action, %error, "stored action result can't be decoded, it is a miss");
                Ok(None)
            }
        }
    }
}

#[async_trait]
impl Storage for EmbeddedStorage {
    fn for_instance(self: Arc<Self>, _: &str) -> Arc<dyn Storage> {
        self
    }

    async fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, StorageError> {
        let found = self.files.find_missing(digests);
        if found.unsure.is_empty() {
            return Ok(found.missing);
        }
        let files = self.files.clone();
        let gone = blocking::run(move || Ok(files.recheck(&found.unsure))).await?;
        if gone.is_empty() {
            return Ok(found.missing);
        }
        // Rare enough to ask again for the sake of the order: what is gone is out of the index by now.
        Ok(self.files.find_missing(digests).missing)
    }

    async fn read(
        &self,
        digest: &Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<BlobStream, StorageError> {
        reader::stream(self.files.clone(), *digest, offset, limit).await
    }

    async fn read_blob(&self, digest: &Digest, max_bytes: u64) -> Result<Bytes, StorageError> {
        reader::whole(self.files.clone(), *digest, max_bytes).await
    }

    async fn write(&self, digest: &Digest) -> Result<Box<dyn BlobWriter>, StorageError> {
        writer::begin(self.files.clone(), *digest)
    }

    async fn write_blob(&self, digest: &Digest, data: Bytes) -> Result<(), StorageError> {
        if data.len() as u64 <= SMALL_BLOB_MAX_BYTES {
            return writer::store(self.files.clone(), *digest, vec![data]).await;
        }
        let mut writer = self.write(digest).await?;
        writer.write(data).await?;
        writer.commit().await
    }

    async fn get_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, StorageError> {
        let Some(result) = self.stored_result(instance_name, action).await? else { return Ok(None) };
        if_complete(self, action, result).await
    }

    async fn update_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), StorageError> {
        references_of_result(action.function(), result)?;
        let results = self.action_results.clone();
        let key = action_results::key(instance_name, action);
        let data = result.encode_to_vec();
        blocking::run(move || results.put(&key, &data)).await
    }
}
