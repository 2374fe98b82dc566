//! Reading blobs without blocking the runtime.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use pointsman_digest::Digest;

use super::blocking;
use super::files::BlobFiles;
use crate::BlobStream;
use crate::error::StorageError;

/// Bytes per trip to the blocking pool, which are also one message to the client.
const CHUNK_BYTES: u64 = 256 << 10;

/// Streams a part of a blob. The file is opened, and proven right, before this returns.
pub(super) async fn stream(
    files: Arc<BlobFiles>,
    digest: Digest,
    offset: u64,
    limit: Option<u64>,
) -> Result<BlobStream, StorageError> {
    if offset > digest.size_bytes() {
        return Err(StorageError::OutOfRange { digest, offset });
    }
    let length = limit.unwrap_or(u64::MAX).min(digest.size_bytes() - offset);
    if let Some(content) = from_memory(&files, &digest) {
        let part = content.slice(offset as usize..(offset + length) as usize);
        return Ok(Box::pin(stream::iter((!part.is_empty()).then_some(Ok(part)))));
    }
    let whole = length == digest.size_bytes();
    let first = blocking::run(move || {
        let mut file = files.open_blob(&digest)?;
        file.seek(SeekFrom::Start(offset)).map_err(|error| files.failed("seek in", &digest, error))?;
        let mut rest = Rest { files, digest, file, remaining: length };
        let chunk = rest.next_chunk()?;
        if whole && rest.remaining == 0 && rest.files.memory.takes(length) {
            rest.files.memory.insert(digest, chunk.clone());
        }
        Ok((chunk, rest))
    });
    let (chunk, rest) = first.await?;
    if rest.remaining == 0 {
        return Ok(Box::pin(stream::iter((!chunk.is_empty()).then_some(Ok(chunk)))));
    }
    let state = State { ready: Some(chunk), rest };
    Ok(Box::pin(stream::try_unfold(state, |state| async move {
        let State { ready, mut rest } = state;
        if let Some(chunk) = ready {
            return Ok(Some((chunk, State { ready: None, rest })));
        }
        if rest.remaining == 0 {
            return Ok(None);
        }
        blocking::run(move || {
            let chunk = rest.next_chunk()?;
            Ok(Some((chunk, State { ready: None, rest })))
        })
        .await
    })))
}

/// Reads a whole blob.
pub(super) async fn whole(
    files: Arc<BlobFiles>,
    digest: Digest,
    max_bytes: u64,
) -> Result<Bytes, StorageError> {
    if digest.size_bytes() > max_bytes {
        return Err(StorageError::TooLarge { digest, max_bytes });
    }
    if let Some(content) = from_memory(&files, &digest) {
        return Ok(content);
    }
    let job = move || {
        let file = files.open_blob(&digest)?;
        let remaining = digest.size_bytes();
        let content = Rest { files: files.clone(), digest, file, remaining }.take(remaining)?;
        if files.memory.takes(remaining) {
            files.memory.insert(digest, content.clone());
        }
        Ok(content)
    };
    blocking::run(job).await
}

/// What is in memory of small blobs, in which a use counts for the file as well; the empty blob always is.
fn from_memory(files: &BlobFiles, digest: &Digest) -> Option<Bytes> {
    if digest.is_empty_blob() {
        return Some(Bytes::new());
    }
    let content = files.memory.get(digest)?;
    files.touch(digest).then_some(content)
}

/// A stream between two chunks.
struct State {
    ready: Option<Bytes>,
    rest: Rest,
}

/// What is still to be read.
struct Rest {
    files: Arc<BlobFiles>,
    digest: Digest,
    file: File,
    remaining: u64,
}

impl Rest {
    fn next_chunk(&mut self) -> Result<Bytes, StorageError> {
        self.take(CHUNK_BYTES)
    }

    /// Reads up to `bytes`, all of them unless the blob ends before.
    fn take(&mut self, bytes: u64) -> Result<Bytes, StorageError> {
        let wanted = bytes.min(self.remaining);
        // Read to the end of a part, not into a zeroed buffer: that would write every byte twice.
        let mut chunk = Vec::with_capacity(wanted as usize);
        let read = (&mut self.file).take(wanted).read_to_end(&mut chunk);
        read.map_err(|error| self.files.failed("read", &self.digest, error))?;
        if (chunk.len() as u64) < wanted {
            let problem = "its file became shorter while it was being read".to_owned();
            if let Ok(metadata) = self.file.metadata() {
                self.files.forget(&self.digest, Some(&metadata), &problem);
            }
            return Err(StorageError::Corrupt { digest: self.digest, problem });
        }
        self.remaining -= wanted;
        Ok(chunk.into())
    }
}
