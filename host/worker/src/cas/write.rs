//! Writing blobs.
use super::Store;
use crate::error::Failure;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, FuturesUnordered, Stream, StreamExt as _};
use pointsman_digest::Digest;
use pointsman_proto::{
    bytestream::WriteRequest,
    rev2::{BatchUpdateBlobsRequest, FindMissingBlobsRequest, batch_update_blobs_request::Request},
};
use std::{
    collections::{HashMap, HashSet},
    io,
    path::PathBuf,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{fs::File, io::AsyncReadExt as _};
use tonic::{Code, Status};

/// Bytes of one message of an upload.
const CHUNK: usize = 256 << 10;
/// A storage slower than this counts as stalled.
const BYTES_PER_SECOND_MIN: u64 = 128 << 10;

/// Where the bytes of a blob are.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    File(PathBuf),
    Bytes(Bytes),
}

impl Store {
    /// Uploads what the storage does not have yet, in parallel.
    pub(crate) async fn write_all(&self, sources: HashMap<Digest, Source>) -> Result<(), Failure> {
        let mut blobs: Vec<Digest> = sources.keys().cloned().collect();
        blobs.sort();
        let missing = self.find_missing(blobs).await?;
        let (batches, large) = self.split(missing);
        let sources = &sources;
        let mut small: FuturesUnordered<_> =
            batches.into_iter().map(|batch| self.write_batch(batch, sources)).collect();
        let mut big: FuturesUnordered<_> =
            large.into_iter().map(|blob| self.write_large(blob, sources)).collect();
        loop {
            tokio::select! {
                Some(done) = small.next() => done?,
                Some(done) = big.next() => done?,
                else => return Ok(()),
            }
        }
    }

    async fn find_missing(&self, blobs: Vec<Digest>) -> Result<Vec<Digest>, Failure> {
        let doing = "asking which outputs are known";
        let per_call = (self.cas.message_max / 192).clamp(300, 50_000);
        let mut missing = HashSet::new();
        for part in blobs.chunks(per_call) {
            let request = FindMissingBlobsRequest {
                instance_name: self.instance.clone(),
                blob_digests: part.iter().map(Digest::to_proto).collect(),
                digest_function: self.function.to_proto().into(),
            };
            let attempt = || {
                let request = request.clone();
                async move { self.cas.blobs().find_missing_blobs(request).await }
            };
            let reply =
                self.cas.retry(doing, attempt).await.map_err(|status| Failure::storage(doing, &status))?;
            for digest in reply.into_inner().missing_blob_digests {
                missing.insert(digest.hash);
            }
        }
        Ok(blobs.into_iter().filter(|blob| missing.contains(&blob.hash_hex())).collect())
    }

    async fn write_batch(
        &self,
        batch: Vec<Digest>,
        sources: &HashMap<Digest, Source>,
    ) -> Result<(), Failure> {
        let doing = "uploading outputs";
        let slot = self.cas.transfers.acquire().await;
        let mut requests = Vec::with_capacity(batch.len());
        for blob in batch {
            let data = match &sources[&blob] {
                Source::Bytes(data) => data.clone(),
                Source::File(path) => {
                    tokio::fs::read(path).await.map_err(|e| Failure::io("reading an output", &e))?.into()
                }
            };
            requests.push(Request { digest: Some(blob.to_proto()), data, compressor: 0 });
        }
        let request = BatchUpdateBlobsRequest {
            instance_name: self.instance.clone(),
            requests,
            digest_function: self.function.to_proto().into(),
        };
        let attempt = || {
            let request = request.clone();
            async move {
                let reply = self.cas.blobs().batch_update_blobs(request).await?.into_inner();
                for response in reply.responses {
                    let status = response.status.unwrap_or_default();
                    if status.code != Code::Ok as i32 {
                        return Err(Status::new(Code::from(status.code), status.message));
                    }
                }
                Ok(())
            }
        };
        let done = self.cas.retry(doing, attempt).await.map_err(|status| Failure::storage(doing, &status));
        drop(slot);
        done
    }

    async fn write_large(&self, blob: Digest, sources: &HashMap<Digest, Source>) -> Result<(), Failure> {
        let doing = "uploading an output";
        let _slot = self.cas.transfers.acquire().await;
        let mut pauses = super::Pauses::new(self.cas.patience);
        loop {
            let read_error = Arc::new(OnceLock::new());
            let outcome = self.write_once(&blob, &sources[&blob], &read_error).await;
            if let Some(error) = read_error.get() {
                return Err(Failure::io("reading an output", error));
            }
            match outcome {
                Ok(()) => return Ok(()),
                Err(status) => {
                    pauses.wait(doing, status).await.map_err(|status| Failure::storage(doing, &status))?;
                }
            }
        }
    }

    async fn write_once(
        &self,
        blob: &Digest,
        source: &Source,
        read_error: &Arc<OnceLock<io::Error>>,
    ) -> Result<(), Status> {
        let name = format!("{}uploads/{}/{}", self.resource_prefix(), uuid::Uuid::new_v4(), blob.path());
        let requests = pieces(name, blob.size_bytes(), source.clone(), Arc::clone(read_error));
        let limit = Duration::from_secs(60 + blob.size_bytes() / BYTES_PER_SECOND_MIN);
        let mut client = self.cas.streams();
        let reply = tokio::time::timeout(limit, client.write(requests))
            .await
            .map_err(|_| Status::deadline_exceeded(format!("the upload took more than {limit:?}")))??;
        let committed = reply.into_inner().committed_size;
        // A store that has the blob by now may answer early, with the full size.
        if committed == blob.size_bytes() as i64 {
            return Ok(());
        }
        Err(Status::unavailable(format!("{committed} of {} bytes were taken", blob.size_bytes())))
    }
}

/// The messages of one upload. Ends early when the source can't be read, leaving the error.
fn pieces(
    name: String,
    size: u64,
    source: Source,
    read_error: Arc<OnceLock<io::Error>>,
) -> impl Stream<Item = WriteRequest> + Send + 'static {
    stream::unfold((Reader::Closed(source), 0_u64, false), move |(mut reader, offset, done)| {
        let (name, read_error) = (name.clone(), Arc::clone(&read_error));
        async move {
            if done {
                return None;
            }
            let data = match reader.next().await {
                Ok(data) => data,
                Err(error) => {
                    let _ = read_error.set(error);
                    return None;
                }
            };
            let end = offset + data.len() as u64;
            let finish_write = data.is_empty() || end >= size;
            // Only the first message has to name the resource.
            let resource_name = if offset == 0 { name } else { String::new() };
            let request = WriteRequest { resource_name, write_offset: offset as i64, finish_write, data };
            Some((request, (reader, end, finish_write)))
        }
    })
}

enum Reader {
    Closed(Source),
    File(File),
    Bytes(Bytes),
}

impl Reader {
    async fn next(&mut self) -> io::Result<Bytes> {
        if let Self::Closed(source) = self {
            *self = match source {
                Source::File(path) => Self::File(File::open(path).await?),
                Source::Bytes(data) => Self::Bytes(data.clone()),
            };
        }
        match self {
            Self::File(file) => {
                let mut chunk = BytesMut::with_capacity(CHUNK);
                while chunk.len() < CHUNK && file.read_buf(&mut chunk).await? > 0 {}
                Ok(chunk.freeze())
            }
            Self::Bytes(data) => Ok(data.split_to(CHUNK.min(data.len()))),
            Self::Closed(_) => Ok(Bytes::new()),
        }
    }
}
