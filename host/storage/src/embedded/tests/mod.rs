//! Tests of the embedded store: blobs, action results, and what goes wrong around them.

mod action_results;
mod blobs;
mod eviction;
mod faults;
mod processes;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::TryStreamExt;
use tempfile::TempDir;

use super::{EmbeddedConfig, EmbeddedStorage};
use crate::{Digest, DigestFunction, Storage, StorageError};

/// A store in a folder that goes with it.
struct Fixture {
    folder: TempDir,
    storage: EmbeddedStorage,
}

impl Fixture {
    async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// With a bound of so many blocks, and nothing kept in memory, so that reads show what is on disk.
    async fn on_disk(max_blocks: u64) -> Self {
        Self::with(|config| {
            config.max_bytes = max_blocks * 4096;
            config.memory_max_bytes = 0;
        })
        .await
    }

    async fn with(change: impl FnOnce(&mut EmbeddedConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = EmbeddedConfig::new(folder.path());
        change(&mut config);
        let storage = EmbeddedStorage::open(config).await.unwrap();
        Self { folder, storage }
    }

    /// Closes the store and opens the folder again.
    async fn reopen(self, change: impl FnOnce(&mut EmbeddedConfig)) -> Self {
        let Self { folder, storage } = self;
        drop(storage);
        let mut config = EmbeddedConfig::new(folder.path());
        config.memory_max_bytes = 0;
        change(&mut config);
        let storage = EmbeddedStorage::open(config).await.unwrap();
        Self { folder, storage }
    }

    async fn put(&self, content: &[u8]) -> Digest {
        let digest = digest(content);
        self.storage.write_blob(&digest, Bytes::copy_from_slice(content)).await.unwrap();
        digest
    }

    async fn get(&self, digest: &Digest) -> Result<Vec<u8>, StorageError> {
        collect(&self.storage, digest, 0, None).await
    }

    async fn has(&self, digest: &Digest) -> bool {
        self.storage.find_missing(&[*digest]).await.unwrap().is_empty()
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        let hash = digest.hash_hex();
        let name = format!("{hash}-{}", digest.size_bytes());
        self.folder.path().join("cas/sha256").join(&hash[..2]).join(name)
    }

    fn temporary_files(&self) -> usize {
        files_in(&self.folder.path().join("tmp"))
    }
}

fn digest(content: &[u8]) -> Digest {
    Digest::of(DigestFunction::Sha256, content)
}

/// Content that differs from that of any other seed, and in every block.
fn content(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i / 251 + i * 7) as u8 ^ seed).collect()
}

async fn collect(
    storage: &dyn Storage,
    digest: &Digest,
    offset: u64,
    limit: Option<u64>,
) -> Result<Vec<u8>, StorageError> {
    let chunks: Vec<Bytes> = storage.read(digest, offset, limit).await?.try_collect().await?;
    Ok(chunks.concat())
}

fn files_in(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// Makes a file look as if it was written and used so many hours ago.
fn age(path: &Path, hours: u64) {
    let then = SystemTime::now() - Duration::from_secs(hours * 3600);
    let times = std::fs::FileTimes::new().set_accessed(then).set_modified(then);
    std::fs::File::open(path).unwrap().set_times(times).unwrap();
}
