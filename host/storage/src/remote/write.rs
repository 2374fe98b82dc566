//! Uploading a blob: a small one is collected and sent as often as it takes, a large one goes through as it comes.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use pointsman_digest::Digest;
use pointsman_proto::bytestream::byte_stream_client::ByteStreamClient;
use pointsman_proto::bytestream::{WriteRequest, WriteResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::Status;

use super::RemoteStorage;
use crate::error::StorageError;
use crate::{BlobWriter, Storage as _, Verifier};

/// Blobs up to this size are collected first.
const SMALL_MAX_BYTES: u64 = 1 << 20;

/// Bytes of one message.
const CHUNK_MAX_BYTES: usize = 1 << 20;

/// Messages on their way to the store: a slow one slows the sender.
const CHUNKS_AHEAD: usize = 4;

const WRITING: &str = "writing a blob";

/// The upload of one blob.
pub(super) struct RemoteWriter {
    storage: RemoteStorage,
    digest: Digest,
    check: Option<Verifier>,
    way: Way,
}

enum Way {
    Collected(BytesMut),
    Through(Upload),
}

impl RemoteWriter {
    pub(super) fn new(storage: RemoteStorage, digest: Digest) -> Self {
        let way = match digest.size_bytes() <= SMALL_MAX_BYTES {
            true => Way::Collected(BytesMut::new()),
            false => Way::Through(Upload::start(&storage, &digest)),
        };
        Self { storage, digest, check: Some(Verifier::new(digest)), way }
    }
}

#[async_trait]
impl BlobWriter for RemoteWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<(), StorageError> {
        if let Some(check) = &mut self.check {
            check.update(&chunk)?;
        }
        match &mut self.way {
            Way::Collected(content) => {
                content.extend_from_slice(&chunk);
                Ok(())
            }
            Way::Through(upload) => upload.push(&self.storage, chunk).await,
        }
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StorageError> {
        let Self { storage, digest, check, way } = *self;
        match way {
            Way::Collected(content) => storage.write_blob(&digest, content.freeze()).await,
            Way::Through(upload) => {
                // The store gets the last piece only of what is right.
                check.map_or(Ok(()), Verifier::finish)?;
                upload.finish(&storage, &digest).await
            }
        }
    }
}

/// A large blob on its way. Dropped before its end, the call is reset; the store forgets what came, some after a while.
struct Upload {
    name: String,
    sender: mpsc::Sender<WriteRequest>,
    call: Call,
    offset: u64,
    /// Not sent yet: it may be the last.
    held: Bytes,
}

struct Call {
    task: AbortOnDropHandle<Result<WriteResponse, Status>>,
    /// What a store said before it had seen the end: it has the blob already.
    early: Option<WriteResponse>,
}

impl Call {
    async fn answer(&mut self, storage: &RemoteStorage) -> Result<WriteResponse, StorageError> {
        if let Some(early) = self.early {
            return Ok(early);
        }
        let answer = tokio::time::timeout(storage.remote.config.patience, &mut self.task).await;
        let answer = answer.map_err(|_| storage.silence(WRITING))?;
        let answer = answer.unwrap_or_else(|error| Err(Status::internal(error.to_string())));
        answer.map_err(|status| storage.failure(WRITING, &status))
    }
}

impl Upload {
    fn start(storage: &RemoteStorage, digest: &Digest) -> Self {
        let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
        let mut client = ByteStreamClient::new(storage.channel());
        let call =
            async move { client.write(ReceiverStream::new(receiver)).await.map(tonic::Response::into_inner) };
        let call = Call { task: AbortOnDropHandle::new(tokio::spawn(call)), early: None };
        Self { name: storage.upload_name(digest), sender, call, offset: 0, held: Bytes::new() }
    }

    async fn push(&mut self, storage: &RemoteStorage, mut chunk: Bytes) -> Result<(), StorageError> {
        while !chunk.is_empty() {
            let piece = chunk.split_to(chunk.len().min(CHUNK_MAX_BYTES));
            let before = std::mem::replace(&mut self.held, piece);
            if !before.is_empty() {
                self.send(storage, before, false).await?;
            }
        }
        Ok(())
    }

    async fn send(
        &mut self,
        storage: &RemoteStorage,
        data: Bytes,
        is_last: bool,
    ) -> Result<(), StorageError> {
        let request = WriteRequest {
            resource_name: self.name.clone(),
            write_offset: self.offset.cast_signed(),
            finish_write: is_last,
            data,
        };
        self.offset += request.data.len() as u64;
        if self.call.early.is_some() {
            return Ok(());
        }
        let sent = tokio::time::timeout(storage.remote.config.patience, self.sender.send(request)).await;
        // A call that has ended takes nothing more: its answer says whether that is well. If not, the client is told now,
        // not after the gigabytes that may follow.
        if sent.map_err(|_| storage.silence(WRITING))?.is_err() {
            self.call.early = Some(self.call.answer(storage).await?);
        }
        Ok(())
    }

    async fn finish(mut self, storage: &RemoteStorage, digest: &Digest) -> Result<(), StorageError> {
        let last = std::mem::take(&mut self.held);
        self.send(storage, last, true).await?;
        drop(self.sender);
        let answer = self.call.answer(storage).await?;
        storage.written(digest, &answer)
    }
}

impl RemoteStorage {
    /// Sends a blob that is held in memory, again if need be.
    pub(super) async fn upload(&self, digest: &Digest, data: &Bytes) -> Result<(), StorageError> {
        let send = || {
            let (mut client, name) = (ByteStreamClient::new(self.channel()), self.upload_name(digest));
            let requests = requests(name, data.clone());
            async move { client.write(stream::iter(requests)).await.map(tonic::Response::into_inner) }
        };
        let answer = self.call(WRITING, send).await?;
        self.written(digest, &answer)
    }

    fn upload_name(&self, digest: &Digest) -> String {
        self.resource_name(&format!("uploads/{}/{}", uuid::Uuid::new_v4(), digest.path()))
    }

    /// Whether the store has all of it. One that has the blob already may say so before it has seen the end.
    fn written(&self, digest: &Digest, answer: &WriteResponse) -> Result<(), StorageError> {
        if answer.committed_size == digest.size_bytes().cast_signed() {
            return Ok(());
        }
        let text = format!("it took {} bytes of {digest}", answer.committed_size);
        Err(self.failure(WRITING, &Status::unavailable(text)))
    }
}

fn requests(name: String, data: Bytes) -> Vec<WriteRequest> {
    let starts = (0..data.len().max(1)).step_by(CHUNK_MAX_BYTES);
    let request = |start: usize| {
        let end = data.len().min(start + CHUNK_MAX_BYTES);
        WriteRequest {
            resource_name: name.clone(),
            write_offset: start as i64,
            finish_write: end == data.len(),
            data: data.slice(start..end),
        }
    };
    starts.map(request).collect()
}
