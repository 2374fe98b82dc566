//! Reading a blob piece by piece, over broken connections, and checked.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use pointsman_digest::Digest;
use pointsman_proto::bytestream::byte_stream_client::ByteStreamClient;
use pointsman_proto::bytestream::{ReadRequest, ReadResponse};
use pointsman_proto::is_passing;
use tonic::{Status, Streaming};

use super::{MESSAGE_MAX_BYTES, RemoteStorage};
use crate::error::StorageError;
use crate::{BlobStream, Verifier};

/// Bytes of one piece.
const PIECE_MAX_BYTES: usize = 1 << 20;

const READING: &str = "reading a blob";

pub(super) async fn read(
    storage: &RemoteStorage,
    digest: &Digest,
    offset: u64,
    limit: Option<u64>,
) -> Result<BlobStream, StorageError> {
    let size = digest.size_bytes();
    if offset > size {
        return Err(StorageError::OutOfRange { digest: *digest, offset });
    }
    let end = limit.map_or(size, |limit| size.min(offset.saturating_add(limit)));
    let is_whole = offset == 0 && end == size;
    let mut reading = Reading {
        storage: storage.clone(),
        digest: *digest,
        offset,
        end,
        check: is_whole.then(|| Verifier::new(*digest)),
        stream: None,
        pieces: VecDeque::new(),
        pauses: Box::new(storage.pauses()),
    };
    // What is missing shows before anything is handed out.
    reading.fetch().await?;
    Ok(Box::pin(stream::try_unfold(reading, Reading::next)))
}

/// A blob on its way.
struct Reading {
    storage: RemoteStorage,
    digest: Digest,
    /// Next byte to come.
    offset: u64,
    end: u64,
    /// Of a whole blob; of a part nothing can be said.
    check: Option<Verifier>,
    stream: Option<Streaming<ReadResponse>>,
    /// Come and not handed out. While the blob is being checked the last one stays.
    pieces: VecDeque<Bytes>,
    pauses: Box<dyn Iterator<Item = Duration> + Send>,
}

impl Reading {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, StorageError> {
        while self.offset < self.end && self.pieces.len() < 2 {
            self.fetch().await?;
        }
        if self.offset == self.end
            && let Some(check) = self.check.take()
        {
            check.finish().map_err(|problem| self.lie(&problem.to_string()))?;
        }
        Ok(self.pieces.pop_front().map(|piece| (piece, self)))
    }

    /// Takes one message more, if there is more to come.
    async fn fetch(&mut self) -> Result<(), StorageError> {
        while self.offset < self.end {
            match self.message().await? {
                Ok(data) if data.is_empty() => {}
                Ok(data) => return self.take(data),
                Err(status) if is_passing(status.code()) => {
                    self.stream = None;
                    let Some(pause) = self.pauses.next() else {
                        return Err(self.storage.failure(READING, &status));
                    };
                    tracing::debug!(digest = %self.digest, offset = self.offset, %status, "reading on after a pause");
                    tokio::time::sleep(pause).await;
                }
                Err(status) => return Err(self.storage.failure_of(&self.digest, READING, &status)),
            }
        }
        Ok(())
    }

    /// The next message; the inner error is the store's.
    async fn message(&mut self) -> Result<Result<Bytes, Status>, StorageError> {
        let patience = self.storage.remote.config.patience;
        let silent = |_| self.storage.silence(READING);
        let stream = match &mut self.stream {
            Some(stream) => stream,
            None => {
                let opened =
                    tokio::time::timeout(patience, self.storage.open(&self.digest, self.offset, self.end));
                match opened.await.map_err(silent)? {
                    Ok(stream) => self.stream.insert(stream),
                    Err(status) => return Ok(Err(status)),
                }
            }
        };
        match tokio::time::timeout(patience, stream.message()).await {
            Ok(Ok(Some(message))) => Ok(Ok(message.data)),
            Ok(Ok(None)) => {
                Ok(Err(Status::unavailable(format!("the stream ended after {} bytes", self.offset))))
            }
            Ok(Err(status)) => Ok(Err(status)),
            Err(_) => Err(self.storage.silence(READING)),
        }
    }

    fn take(&mut self, mut data: Bytes) -> Result<(), StorageError> {
        self.pauses = Box::new(self.storage.pauses());
        self.offset += data.len() as u64;
        if self.offset > self.end {
            return Err(self.lie("more bytes came than were asked for"));
        }
        if let Some(check) = &mut self.check {
            check.update(&data).map_err(|problem| lie(&self.storage, &self.digest, &problem.to_string()))?;
        }
        while data.len() > PIECE_MAX_BYTES {
            self.pieces.push_back(data.split_to(PIECE_MAX_BYTES));
        }
        self.pieces.push_back(data);
        Ok(())
    }

    fn lie(&self, problem: &str) -> StorageError {
        lie(&self.storage, &self.digest, problem)
    }
}

fn lie(storage: &RemoteStorage, digest: &Digest, problem: &str) -> StorageError {
    let problem = format!("{} answered with something else: {problem}", storage.remote.config.address);
    tracing::error!(%digest, problem, "the remote store lies; look for damage there");
    StorageError::Corrupt { digest: *digest, problem }
}

impl RemoteStorage {
    async fn open(&self, digest: &Digest, offset: u64, end: u64) -> Result<Streaming<ReadResponse>, Status> {
        let request = ReadRequest {
            resource_name: self.resource_name(&digest.path()),
            read_offset: offset.cast_signed(),
            // 0 is no limit, as is right for a whole blob.
            read_limit: if end == digest.size_bytes() { 0 } else { (end - offset).cast_signed() },
        };
        let client = ByteStreamClient::new(self.channel());
        let call = client.max_decoding_message_size(MESSAGE_MAX_BYTES).read(request).await;
        call.map(tonic::Response::into_inner)
    }

    pub(super) fn resource_name(&self, path: &str) -> String {
        match &*self.instance_name {
            "" => path.to_owned(),
            name => format!("{name}/{path}"),
        }
    }
}
