//! Any REv2 store that is reached over gRPC.
//!
//! What is read is checked as if the disk were ours: a store that answers with other bytes shows as an error, and the
//! last piece of a blob is held back until all of it was found right. Calls that fail for a moment are made again for
//! as long as `patience` allows, which is to stay below what clients wait for one call (Bazel: 60 s); reads go on where
//! they broke off. What the store says for good is handed on with its words.

mod calls;
mod connection;
mod read;
mod write;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use pointsman_digest::Digest;
use pointsman_proto::rev2::action_cache_client::ActionCacheClient;
use pointsman_proto::rev2::content_addressable_storage_client::ContentAddressableStorageClient;
use pointsman_proto::rev2::{
    ActionResult, FindMissingBlobsRequest, GetActionResultRequest, UpdateActionResultRequest,
};
use tonic::Code;
use tonic::transport::Channel;

use crate::error::StorageError;
use crate::memory::MemoryCache;
use crate::references::{if_complete, references_of_result};
use crate::{BlobStream, BlobWriter, Storage};
use connection::Connection;
use write::RemoteWriter;

/// Digests in one question: a message stays far below the 4 MiB that every server takes.
const DIGESTS_PER_CALL: usize = 20_000;

/// Blobs above this are not kept in memory.
const MEMORY_BLOB_MAX_BYTES: u64 = 1 << 20;

/// Bytes of one message, either way.
const MESSAGE_MAX_BYTES: usize = 16 << 20;

/// Where the store is, and how to treat it.
#[derive(Clone, Debug)]
pub struct RemoteConfig {
    /// `grpc://HOST:PORT` or `http://HOST:PORT`.
    pub address: String,
    /// The instance name that the store is asked for; `None`: the one that each client gives.
    pub instance_name: Option<String>,
    /// How long a call that fails for a moment is made again, and how long a silent stream is waited for.
    pub patience: Duration,
    /// Memory for small blobs, in bytes.
    pub memory_max_bytes: u64,
}

/// The store, as seen with one instance name.
#[derive(Clone)]
pub struct RemoteStorage {
    remote: Arc<Remote>,
    instance_name: Arc<str>,
}

/// What all instance names share.
struct Remote {
    connection: Connection,
    config: RemoteConfig,
    memory: MemoryCache<(Arc<str>, Digest)>,
}

impl RemoteStorage {
    /// A client of the store. It connects when it is first used, so the store may come up later.
    ///
    /// # Errors
    /// The address is none.
    pub fn new(config: RemoteConfig) -> Result<Self, String> {
        let connection = Connection::new(&config.address, config.patience)?;
        let memory = MemoryCache::new(config.memory_max_bytes, MEMORY_BLOB_MAX_BYTES);
        let instance_name = config.instance_name.as_deref().unwrap_or_default().into();
        Ok(Self { remote: Arc::new(Remote { connection, config, memory }), instance_name })
    }

    /// What one instance name has uploaded another may not have.
    fn remember(&self, digest: &Digest, content: Bytes) {
        self.remote.memory.insert((self.instance_name.clone(), *digest), content);
    }

    fn instance_for(&self, clients: &str) -> String {
        self.remote.config.instance_name.as_deref().unwrap_or(clients).to_owned()
    }

    fn channel(&self) -> Channel {
        self.remote.connection.channel()
    }

    fn blobs(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel()).max_decoding_message_size(MESSAGE_MAX_BYTES)
    }

    fn results(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel()).max_decoding_message_size(MESSAGE_MAX_BYTES)
    }
}

#[async_trait]
impl Storage for RemoteStorage {
    fn for_instance(self: Arc<Self>, instance_name: &str) -> Arc<dyn Storage> {
        let instance_name = self.instance_for(instance_name);
        if *instance_name == *self.instance_name {
            return self;
        }
        Arc::new(Self { remote: self.remote.clone(), instance_name: instance_name.into() })
    }

    async fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, StorageError> {
        let mut missing = Vec::new();
        // The empty blob is everywhere, whatever a store says of it.
        let asked: Vec<Digest> = digests.iter().filter(|d| !d.is_empty_blob()).copied().collect();
        // A question is about one digest function.
        for of_one_function in asked.chunk_by(|a, b| a.function() == b.function()) {
            for part in of_one_function.chunks(DIGESTS_PER_CALL) {
                let function = part[0].function();
                let request = FindMissingBlobsRequest {
                    instance_name: self.instance_name.to_string(),
                    blob_digests: part.iter().map(Digest::to_proto).collect(),
                    digest_function: function.to_proto().into(),
                };
                let ask = || {
                    let (mut client, request) = (self.blobs(), request.clone());
                    async move { client.find_missing_blobs(request).await }
                };
                let answer = self.call("asking which blobs are missing", ask).await?.into_inner();
                for digest in &answer.missing_blob_digests {
                    missing.push(Digest::from_proto(function, digest)?);
                }
            }
        }
        Ok(missing)
    }

    async fn read(
        &self,
        digest: &Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<BlobStream, StorageError> {
        read::read(self, digest, offset, limit).await
    }

    async fn read_blob(&self, digest: &Digest, max_bytes: u64) -> Result<Bytes, StorageError> {
        if digest.size_bytes() > max_bytes {
            return Err(StorageError::TooLarge { digest: *digest, max_bytes });
        }
        if let Some(content) = self.remote.memory.get(&(self.instance_name.clone(), *digest)) {
            return Ok(content);
        }
        let mut pieces = self.read(digest, 0, None).await?;
        // The digest is the client's word: memory grows with what comes.
        let mut content = BytesMut::new();
        while let Some(piece) = pieces.try_next().await? {
            content.extend_from_slice(&piece);
        }
        let content = content.freeze();
        self.remember(digest, content.clone());
        Ok(content)
    }

    async fn write(&self, digest: &Digest) -> Result<Box<dyn BlobWriter>, StorageError> {
        Ok(Box::new(RemoteWriter::new(self.clone(), *digest)))
    }

    async fn write_blob(&self, digest: &Digest, data: Bytes) -> Result<(), StorageError> {
        crate::verify(digest, &data)?;
        self.upload(digest, &data).await?;
        if self.remote.memory.takes(digest.size_bytes()) {
            self.remember(digest, Bytes::copy_from_slice(&data));
        }
        Ok(())
    }

    async fn get_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, StorageError> {
        let request = GetActionResultRequest {
            instance_name: self.instance_for(instance_name),
            action_digest: Some(action.to_proto()),
            digest_function: action.function().to_proto().into(),
            ..GetActionResultRequest::default()
        };
        let ask = || {
            let (mut client, request) = (self.results(), request.clone());
            async move {
                match client.get_action_result(request).await {
                    Ok(found) => Ok(Some(found.into_inner())),
                    Err(status) if status.code() == Code::NotFound => Ok(None),
                    Err(status) => Err(status),
                }
            }
        };
        let Some(result) = self.call("looking an action up", ask).await? else { return Ok(None) };
        // Not every store looks whether the outputs are still there.
        let seen = Self { instance_name: self.instance_for(instance_name).into(), ..self.clone() };
        if_complete(&seen, action, result).await
    }

    async fn update_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), StorageError> {
        references_of_result(action.function(), result)?;
        let request = UpdateActionResultRequest {
            instance_name: self.instance_for(instance_name),
            action_digest: Some(action.to_proto()),
            action_result: Some(result.clone()),
            digest_function: action.function().to_proto().into(),
            ..UpdateActionResultRequest::default()
        };
        let write = || {
            let (mut client, request) = (self.results(), request.clone());
            async move { client.update_action_result(request).await }
        };
        self.call("writing the action cache", write).await.map(drop)
    }
}
