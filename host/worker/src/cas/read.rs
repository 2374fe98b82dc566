//! Reading blobs.
use super::{STALL, Store};
use crate::{cache::TempFile, error::Failure};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use pointsman_digest::{Digest, Hasher};
use pointsman_proto::{bytestream::ReadRequest, rev2::BatchReadBlobsRequest};
use std::{collections::HashMap, path::Path, sync::Arc};
use tokio::{fs::File, io::AsyncWriteExt as _};
use tonic::{Code, Status};

/// Where a blob that was read goes.
pub(crate) trait Sink: Send + Sync + 'static {
    /// Takes a whole blob, verified. May block: it is called on a thread for that.
    fn keep(&self, blob: &Digest, data: &Bytes) -> Result<(), Failure>;
    /// A file to stream a large blob to.
    fn temp(&self) -> TempFile;
    /// Takes a large blob that was streamed, verified. May block.
    fn keep_file(&self, blob: &Digest, temp: TempFile) -> Result<(), Failure>;
    /// The disk is full: gives back what can be spared. May block.
    fn make_room(&self);
}

impl Store {
    /// Reads many blobs into `sink`, in parallel; gives those that the storage does not have. Goes on after
    /// a missing one, so that the client hears of all at once.
    pub(crate) async fn read_all(
        &self,
        blobs: Vec<Digest>,
        sink: &Arc<impl Sink>,
    ) -> Result<Vec<Digest>, Failure> {
        let (batches, large) = self.split(blobs);
        let mut small: FuturesUnordered<_> =
            batches.into_iter().map(|batch| self.read_into(batch, sink)).collect();
        let mut big: FuturesUnordered<_> =
            large.into_iter().map(|blob| self.stream_into(blob, sink)).collect();
        let mut missing = Vec::new();
        loop {
            tokio::select! {
                Some(batch) = small.next() => missing.extend(batch?),
                Some(absent) = big.next() => missing.extend(absent?),
                else => break,
            }
        }
        missing.sort();
        Ok(missing)
    }

    /// Reads one blob into memory: `None` when the storage does not have it.
    pub(crate) async fn read(&self, blob: &Digest) -> Result<Option<Bytes>, Failure> {
        let mut found = self.read_many(vec![*blob]).await?;
        Ok(found.remove(blob).flatten())
    }

    /// Reads blobs into memory; those that the storage does not have are `None`. For messages: the caller
    /// bounds their number and the storage their size.
    pub(crate) async fn read_many(
        &self,
        blobs: Vec<Digest>,
    ) -> Result<HashMap<Digest, Option<Bytes>>, Failure> {
        let (batches, large) = self.split(blobs);
        let mut found = HashMap::new();
        let mut small: FuturesUnordered<_> =
            batches.into_iter().map(|batch| self.read_batch(batch)).collect();
        while let Some(batch) = small.next().await {
            found.extend(batch?);
        }
        for blob in large {
            let data = self.read_large(&blob).await?;
            found.insert(blob, data);
        }
        Ok(found)
    }

    async fn read_into(&self, batch: Vec<Digest>, sink: &Arc<impl Sink>) -> Result<Vec<Digest>, Failure> {
        let found = self.read_batch(batch).await?;
        let sink = Arc::clone(sink);
        let store = move || {
            let mut missing = Vec::new();
            for (blob, data) in found {
                match data {
                    Some(data) => sink.keep(&blob, &data)?,
                    None => missing.push(blob),
                }
            }
            Ok(missing)
        };
        tokio::task::spawn_blocking(store).await.map_err(|e| Failure::join("keeping inputs", &e))?
    }

    async fn stream_into(&self, blob: Digest, sink: &Arc<impl Sink>) -> Result<Option<Digest>, Failure> {
        let mut temp = sink.temp();
        let mut found = self.read_to(&blob, temp.path()).await;
        if found.as_ref().is_err_and(|failure| failure.disk_full) {
            let roomy = Arc::clone(sink);
            let _ = tokio::task::spawn_blocking(move || roomy.make_room()).await;
            temp = sink.temp();
            found = self.read_to(&blob, temp.path()).await;
        }
        if !found? {
            return Ok(Some(blob));
        }
        let sink = Arc::clone(sink);
        let keep = move || sink.keep_file(&blob, temp);
        tokio::task::spawn_blocking(keep).await.map_err(|e| Failure::join("keeping an input", &e))??;
        Ok(None)
    }

    async fn read_batch(&self, batch: Vec<Digest>) -> Result<Vec<(Digest, Option<Bytes>)>, Failure> {
        let request = BatchReadBlobsRequest {
            instance_name: self.instance.clone(),
            digests: batch.iter().map(Digest::to_proto).collect(),
            acceptable_compressors: Vec::new(),
            digest_function: self.function.to_proto().into(),
        };
        let doing = "reading blobs";
        let attempt = || {
            let request = request.clone();
            async move {
                let _slot = self.cas.transfers.acquire().await;
                let reply = self.cas.blobs().batch_read_blobs(request).await?.into_inner();
                // One passing failure repeats the batch: the rest of it is small by construction.
                for response in &reply.responses {
                    let status = response.status.clone().unwrap_or_default();
                    if !matches!(Code::from(status.code), Code::Ok | Code::NotFound) {
                        return Err(Status::new(Code::from(status.code), status.message));
                    }
                }
                Ok(reply)
            }
        };
        let reply =
            self.cas.retry(doing, attempt).await.map_err(|status| Failure::storage(doing, &status))?;
        let mut found: HashMap<Digest, Bytes> = HashMap::new();
        for response in reply.responses {
            let blob = self.digest("a blob in the answer of the storage", response.digest.as_ref());
            let absent = response.status.is_some_and(|status| status.code == Code::NotFound as i32);
            if let (Ok(blob), false) = (blob, absent) {
                verify(&blob, &response.data)?;
                found.insert(blob, response.data);
            }
        }
        Ok(batch.into_iter().map(|blob| (blob, found.get(&blob).cloned())).collect())
    }

    async fn read_large(&self, blob: &Digest) -> Result<Option<Bytes>, Failure> {
        let mut data = Vec::new();
        let found = self.stream(blob, &mut Target::Memory(&mut data)).await?;
        Ok(found.then(|| Bytes::from(data)))
    }

    /// Streams one blob to a new file; `false` when the storage does not have it.
    async fn read_to(&self, blob: &Digest, path: &Path) -> Result<bool, Failure> {
        let mut file = File::create(path).await.map_err(|e| keeping(&e))?;
        let found = self.stream(blob, &mut Target::File(&mut file)).await?;
        file.flush().await.map_err(|e| keeping(&e))?;
        Ok(found)
    }

    /// Hands the blob to `target` piece by piece and verifies it at the end. After a lost connection it goes
    /// on at the offset reached.
    async fn stream(&self, blob: &Digest, target: &mut Target<'_>) -> Result<bool, Failure> {
        let _slot = self.cas.transfers.acquire().await;
        let doing = "reading a blob";
        let mut pauses = super::Pauses::new(self.cas.patience);
        let mut hasher = Hasher::new(self.function);
        let mut offset = 0;
        loop {
            match self.stream_once(blob, &mut offset, &mut hasher, target).await {
                Ok(()) if offset == blob.size_bytes() => break,
                Ok(()) if offset > blob.size_bytes() => return Err(corrupt(blob)),
                Ok(()) => {
                    let status = Status::unavailable(format!("the stream ended after {offset} bytes"));
                    pauses.wait(doing, status).await.map_err(|status| Failure::storage(doing, &status))?;
                }
                Err(Stop::Status(status)) if status.code() == Code::NotFound => return Ok(false),
                Err(Stop::Status(status)) => {
                    pauses.wait(doing, status).await.map_err(|status| Failure::storage(doing, &status))?;
                }
                Err(Stop::Failure(failure)) => return Err(failure),
            }
        }
        if hasher.finish() != *blob {
            return Err(corrupt(blob));
        }
        Ok(true)
    }

    async fn stream_once(
        &self,
        blob: &Digest,
        offset: &mut u64,
        hasher: &mut Hasher,
        target: &mut Target<'_>,
    ) -> Result<(), Stop> {
        let stalled = |_| Stop::Status(Status::deadline_exceeded(format!("nothing came for {STALL:?}")));
        let request = ReadRequest {
            resource_name: format!("{}{}", self.resource_prefix(), blob.path()),
            read_offset: *offset as i64,
            read_limit: 0,
        };
        let mut client = self.cas.streams();
        let call = tokio::time::timeout(STALL, client.read(request)).await.map_err(stalled)?;
        let mut stream = call.map_err(Stop::Status)?.into_inner();
        while let Some(reply) =
            tokio::time::timeout(STALL, stream.message()).await.map_err(stalled)?.map_err(Stop::Status)?
        {
            *offset += reply.data.len() as u64;
            if *offset > blob.size_bytes() {
                break;
            }
            hasher.update(&reply.data);
            target.take(&reply.data).await.map_err(Stop::Failure)?;
        }
        Ok(())
    }
}

/// Where the pieces of a stream go.
enum Target<'a> {
    File(&'a mut File),
    Memory(&'a mut Vec<u8>),
}

impl Target<'_> {
    async fn take(&mut self, piece: &Bytes) -> Result<(), Failure> {
        match self {
            Self::File(file) => file.write_all(piece).await.map_err(|e| keeping(&e)),
            Self::Memory(data) => {
                data.extend_from_slice(piece);
                Ok(())
            }
        }
    }
}

enum Stop {
    Status(Status),
    Failure(Failure),
}

fn verify(blob: &Digest, data: &Bytes) -> Result<(), Failure> {
    if Digest::of(blob.function(), data) == *blob { Ok(()) } else { Err(corrupt(blob)) }
}

fn keeping(error: &std::io::Error) -> Failure {
    Failure::io("keeping an input file", error)
}

fn corrupt(blob: &Digest) -> Failure {
    Failure::new(
        Code::Internal,
        format!("the storage answered {} with other content; look for damage in the storage", blob.path()),
    )
}
