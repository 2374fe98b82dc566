//! Writing blobs without blocking the runtime.

use std::io::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use pointsman_digest::Digest;
use tempfile::NamedTempFile;
use tokio::task::JoinHandle;

use super::SMALL_BLOB_MAX_BYTES;
use super::blocking;
use super::files::{BlobFiles, Reservation};
use crate::BlobWriter;
use crate::error::{InvalidBlob, StorageError};
use crate::verify::{Verifier, verify};

/// Bytes collected before a trip to the blocking pool; as many again may be on their way to the disk.
const FLUSH_BYTES: u64 = 512 << 10;

/// Begins an upload, in the way that suits its size.
pub(super) fn begin(files: Arc<BlobFiles>, digest: Digest) -> Result<Box<dyn BlobWriter>, StorageError> {
    files.check_fits(&digest)?;
    let incoming = Incoming { digest, chunks: Vec::new(), chunk_bytes: 0, received_bytes: 0 };
    if digest.size_bytes() <= SMALL_BLOB_MAX_BYTES {
        return Ok(Box::new(SmallWriter { files, incoming }));
    }
    let part = Part { files, digest, written: None, verifier: Verifier::new(digest) };
    Ok(Box::new(LargeWriter { incoming, state: PartState::Here(Box::new(part)) }))
}

/// Checks and stores a small blob by one job: on the way of every source file, so it is kept short.
pub(super) async fn store(
    files: Arc<BlobFiles>,
    digest: Digest,
    chunks: Vec<Bytes>,
) -> Result<(), StorageError> {
    blocking::run(move || store_blocking(&files, &digest, chunks)).await
}

fn store_blocking(
    files: &Arc<BlobFiles>,
    digest: &Digest,
    mut chunks: Vec<Bytes>,
) -> Result<(), StorageError> {
    let content = match chunks.len() {
        1 => chunks.remove(0),
        _ => chunks.concat().into(),
    };
    verify(digest, &content)?;
    // Checked even when there is nothing to store: a client that sends the wrong bytes wants to know.
    if digest.is_empty_blob() || files.touch(digest) {
        return Ok(());
    }
    files.check_fits(digest)?;
    let mut room = files.reservation();
    room.grow_to(digest.size_bytes())?;
    let mut file = files.temporary()?;
    file.write_all(&content).map_err(|error| files.failed("write", digest, error))?;
    files.publish(digest, file, room)?;
    if files.memory.takes(content.len() as u64) {
        files.memory.insert(*digest, Bytes::copy_from_slice(&content));
    }
    Ok(())
}

/// Chunks that have come and are not yet on their way to the disk.
struct Incoming {
    digest: Digest,
    chunks: Vec<Bytes>,
    chunk_bytes: u64,
    received_bytes: u64,
}

impl Incoming {
    /// Takes a chunk, unless it is more than the digest says: what a wrong client sends is not collected.
    fn push(&mut self, chunk: Bytes) -> Result<(), StorageError> {
        self.received_bytes += chunk.len() as u64;
        if self.received_bytes > self.digest.size_bytes() {
            return Err(InvalidBlob::TooLong { expected: self.digest }.into());
        }
        self.chunk_bytes += chunk.len() as u64;
        self.chunks.push(chunk);
        Ok(())
    }

    fn take(&mut self) -> Vec<Bytes> {
        self.chunk_bytes = 0;
        std::mem::take(&mut self.chunks)
    }
}

/// Collects a small blob in memory.
struct SmallWriter {
    files: Arc<BlobFiles>,
    incoming: Incoming,
}

#[async_trait]
impl BlobWriter for SmallWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<(), StorageError> {
        self.incoming.push(chunk)
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StorageError> {
        let chunks = self.incoming.take();
        store(self.files, self.incoming.digest, chunks).await
    }
}

/// Writes a large blob as it comes. While one part is hashed and written, the next one is received.
struct LargeWriter {
    incoming: Incoming,
    state: PartState,
}

/// Where the file is: here, with a job that hands it back, or lost to a job that failed.
enum PartState {
    Here(Box<Part>),
    Working(JoinHandle<Result<Box<Part>, StorageError>>),
    Failed,
}

impl LargeWriter {
    /// Waits for the job in progress and takes the file over.
    async fn part(&mut self) -> Result<Box<Part>, StorageError> {
        match std::mem::replace(&mut self.state, PartState::Failed) {
            PartState::Here(part) => Ok(part),
            PartState::Working(job) => blocking::finish(job).await,
            PartState::Failed => {
                let gone = std::io::Error::other("an earlier part of this upload could not be written");
                Err(StorageError::io(format!("write blob {}", self.incoming.digest), gone))
            }
        }
    }
}

#[async_trait]
impl BlobWriter for LargeWriter {
    async fn write(&mut self, chunk: Bytes) -> Result<(), StorageError> {
        self.incoming.push(chunk)?;
        if self.incoming.chunk_bytes < FLUSH_BYTES {
            return Ok(());
        }
        let mut part = self.part().await?;
        let chunks = self.incoming.take();
        self.state = PartState::Working(tokio::task::spawn_blocking(move || {
            part.append(&chunks)?;
            Ok(part)
        }));
        Ok(())
    }

    async fn commit(mut self: Box<Self>) -> Result<(), StorageError> {
        let mut part = self.part().await?;
        let chunks = self.incoming.take();
        blocking::run(move || {
            part.append(&chunks)?;
            part.finish()
        })
        .await
    }
}

impl Drop for LargeWriter {
    /// Removing a large file takes a while, so it happens elsewhere. A job in progress drops the file by itself.
    fn drop(&mut self) {
        if let PartState::Here(part) = std::mem::replace(&mut self.state, PartState::Failed)
            && part.written.is_some()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn_blocking(move || drop(part));
        }
    }
}

/// A file being written, its check and its room.
struct Part {
    files: Arc<BlobFiles>,
    digest: Digest,
    /// Created with the first bytes: a client that sends none costs nothing.
    written: Option<(NamedTempFile, Reservation)>,
    verifier: Verifier,
}

impl Part {
    fn append(&mut self, chunks: &[Bytes]) -> Result<(), StorageError> {
        let (file, room) = match &mut self.written {
            Some(written) => written,
            None => self.written.insert((self.files.temporary()?, self.files.reservation())),
        };
        for chunk in chunks {
            self.verifier.update(chunk)?;
            room.grow_to(self.verifier.seen_bytes())?;
            file.write_all(chunk).map_err(|error| self.files.failed("write", &self.digest, error))?;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), StorageError> {
        let received_bytes = self.verifier.seen_bytes();
        self.verifier.finish()?;
        match self.written {
            Some((file, room)) => self.files.publish(&self.digest, file, room),
            None => Err(InvalidBlob::TooShort { expected: self.digest, received_bytes }.into()),
        }
    }
}
