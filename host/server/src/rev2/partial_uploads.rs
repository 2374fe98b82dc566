//! Uploads that broke off, kept for a while so that their clients can go on where they were.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
use pointsman_storage::Storage;
use tokio::time::Instant;
use tonic::Status;

use super::resource_name::UploadName;
use super::upload::Upload;

/// Kept at one time. A compressed one holds a decoder of up to 8 MiB in memory, the others what they have on disk.
const KEPT_MAX: usize = 64;

/// How long one is kept. Clients try again within seconds; what nobody goes on with takes room that blobs could have.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The uploads kept, longest kept first.
#[derive(Clone)]
pub(super) struct PartialUploads(Arc<Inner>);

struct Inner {
    kept: Mutex<VecDeque<Partial>>,
    kept_for: Duration,
}

struct Partial {
    name: UploadName,
    upload: Upload,
    received: i64,
    until: Instant,
}

impl Default for PartialUploads {
    fn default() -> Self {
        Self::new(KEPT_FOR)
    }
}

impl PartialUploads {
    pub(super) fn new(kept_for: Duration) -> Self {
        Self(Arc::new(Inner { kept: Mutex::default(), kept_for }))
    }

    /// Bytes received of an upload that broke off, as they were sent.
    pub(super) fn received(&self, name: &UploadName) -> Option<i64> {
        self.0.lock().iter().find(|partial| partial.name == *name).map(|partial| partial.received)
    }

    /// Begins an upload at `offset`, or goes on with one.
    ///
    /// # Errors
    /// `ABORTED` when the bytes before `offset` are not here. Clients then ask how much is, and go on from there; they
    /// would give up on `INVALID_ARGUMENT`, also when it is the server that was restarted.
    pub(super) async fn begin(
        &self,
        storage: &dyn Storage,
        name: UploadName,
        offset: i64,
    ) -> Result<Receiving, Status> {
        let known = self.take(&name, offset)?;
        let upload = match known {
            Some(upload) => upload,
            None => Upload::begin(storage, &name.blob.digest, name.blob.encoding).await?,
        };
        Ok(Receiving { partials: self.clone(), name, upload: Some(upload), received: offset })
    }

    /// The upload to go on with; none at offset 0, where all begins anew.
    fn take(&self, name: &UploadName, offset: i64) -> Result<Option<Upload>, Status> {
        if offset < 0 {
            return Err(Status::invalid_argument(format!("write_offset {offset} is negative")));
        }
        let mut kept = self.0.lock();
        let index = kept.iter().position(|partial| partial.name == *name);
        let received = index.and_then(|index| kept.get(index)).map_or(0, |partial| partial.received);
        if offset != 0 && offset != received {
            return Err(Status::aborted(format!(
                "write_offset is {offset}, but {received} bytes of this upload are here: go on there, or begin at 0"
            )));
        }
        let partial = index.and_then(|index| kept.remove(index));
        drop(kept);
        Ok(partial.filter(|_| offset != 0).map(|partial| partial.upload))
    }

    fn keep(&self, name: UploadName, upload: Upload, received: i64) {
        let until = Instant::now() + self.0.kept_for;
        let mut kept = self.0.lock();
        let first = kept.is_empty();
        // Another call may have begun the same upload anew meanwhile: the newest counts.
        let older = kept.iter().position(|partial| partial.name == name);
        let older = older.and_then(|index| kept.remove(index));
        kept.push_back(Partial { name, upload, received, until });
        let oldest = if kept.len() > KEPT_MAX { kept.pop_front() } else { None };
        drop(kept);
        drop((older, oldest));
        if let (true, Ok(runtime)) = (first, tokio::runtime::Handle::try_current()) {
            runtime.spawn(expire(Arc::downgrade(&self.0)));
        }
    }
}

impl Inner {
    /// Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Partial>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops what was kept long enough, until nothing is left. It does not keep the storage open.
async fn expire(inner: Weak<Inner>) {
    loop {
        let next = inner.upgrade().and_then(|inner| inner.lock().front().map(|partial| partial.until));
        let Some(next) = next else { return };
        tokio::time::sleep_until(next).await;
        let Some(inner) = inner.upgrade() else { return };
        let mut kept = inner.lock();
        let now = Instant::now();
        let count = kept.iter().take_while(|partial| partial.until <= now).count();
        let expired: Vec<Partial> = kept.drain(..count).collect();
        drop(kept);
        drop(expired);
    }
}

/// An upload whose bytes are coming. Dropped, it is kept for its client to go on.
pub(super) struct Receiving {
    partials: PartialUploads,
    name: UploadName,
    /// Taken out while bytes are written: what breaks off in there, or fails, is of no more use.
    upload: Option<Upload>,
    received: i64,
}

impl Receiving {
    /// Bytes received, as they were sent.
    pub(super) fn received(&self) -> i64 {
        self.received
    }

    /// Takes the next bytes, as they came.
    pub(super) async fn push(&mut self, data: Bytes) -> Result<(), Status> {
        let mut upload = self.upload.take().ok_or_else(failed_before)?;
        let length = data.len() as i64;
        upload.push(data).await?;
        self.upload = Some(upload);
        self.received += length;
        Ok(())
    }

    /// Checks the blob and makes it visible.
    pub(super) async fn commit(mut self) -> Result<(), Status> {
        self.upload.take().ok_or_else(failed_before)?.commit().await
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        if let (Some(upload), true) = (self.upload.take(), self.received > 0) {
            self.partials.keep(self.name.clone(), upload, self.received);
        }
    }
}

fn failed_before() -> Status {
    Status::internal("an earlier part of this upload could not be written")
}
