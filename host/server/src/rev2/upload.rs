//! Uploads: bytes in either encoding, in any pieces, into the storage.

use bytes::Bytes;
use pointsman_storage::{BlobWriter, Digest, Storage};
use tonic::Status;

use super::compression::Decompressor;
use super::resource_name::Encoding;
use super::status;

/// An upload in progress. Dropped, it leaves nothing behind.
pub(super) struct Upload {
    writer: Box<dyn BlobWriter>,
    decompressor: Option<Decompressor>,
}

impl Upload {
    pub(super) async fn begin(
        storage: &dyn Storage,
        digest: &Digest,
        encoding: Encoding,
    ) -> Result<Self, Status> {
        let writer = storage.write(digest).await.map_err(|error| status::from_storage(&error))?;
        let decompressor = match encoding {
            Encoding::Identity => None,
            Encoding::Zstd => Some(Decompressor::new(*digest)?),
        };
        Ok(Self { writer, decompressor })
    }

    /// Takes the next bytes, as they came.
    pub(super) async fn push(&mut self, data: Bytes) -> Result<(), Status> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.decompressor {
            Some(decompressor) => decompressor.unpack(&data, &mut *self.writer).await,
            None => self.writer.write(data).await.map_err(|error| status::from_storage(&error)),
        }
    }

    /// Checks the blob and makes it visible.
    pub(super) async fn commit(self) -> Result<(), Status> {
        if let Some(decompressor) = &self.decompressor {
            decompressor.finish()?;
        }
        self.writer.commit().await.map_err(|error| status::from_storage(&error))
    }
}

/// Stores a blob that came whole.
pub(super) async fn store(
    storage: &dyn Storage,
    digest: &Digest,
    encoding: Encoding,
    data: Bytes,
) -> Result<(), Status> {
    if encoding == Encoding::Identity {
        return storage.write_blob(digest, data).await.map_err(|error| status::from_storage(&error));
    }
    let mut upload = Upload::begin(storage, digest, encoding).await?;
    upload.push(data).await?;
    upload.commit().await
}
