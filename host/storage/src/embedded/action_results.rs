//! Action results as small files. Blocking code.
//!
//! A file is a check sum and the encoded result. Without the sum a file that a power cut left empty would decode as
//! a result that says "succeeded, no outputs".

use std::fs::{self, File, FileTimes};
use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use pointsman_digest::Digest;
use sha2::{Digest as _, Sha256};
use tracing::warn;

use super::config::OpenError;
use super::layout::{Layout, persist};
use super::scan;
use crate::error::StorageError;
use crate::weighted_lru::WeightedLru;

/// How long a use may go unrecorded on disk.
const RECORD_USE_AFTER: Duration = Duration::from_secs(300);

const SUM_BYTES: usize = 32;

/// The name of a result: a hash over everything that tells two actions apart.
pub(super) type Key = [u8; 32];

/// Computes the name of a result. The parts can't be mistaken for each other: neither of the first two has a NUL.
pub(super) fn key(instance_name: &str, action: &Digest) -> Key {
    let mut hasher = Sha256::new();
    for part in [instance_name, action.function().path_name(), &action.to_string()] {
        hasher.update(part.as_bytes());
        hasher.update([0]);
    }
    hasher.finalize().into()
}

/// Computes the check sum. The key is part of it, so that a file under another result's name is found out.
fn sum(key: &Key, data: &[u8]) -> [u8; SUM_BYTES] {
    let mut hasher = Sha256::new();
    hasher.update(key);
    hasher.update(data);
    hasher.finalize().into()
}

pub(super) struct ActionResults {
    layout: Arc<Layout>,
    /// When each was last recorded as used. The lock is also held over the rename or removal that goes with a
    /// change, so that map and files agree; writing the file itself happens outside.
    known: Mutex<WeightedLru<Key, Instant>>,
    max: usize,
}

impl ActionResults {
    pub(super) fn open(layout: Arc<Layout>, max: usize) -> Result<Self, OpenError> {
        if max == 0 {
            return Err(OpenError::Zero { setting: "max_action_results" });
        }
        let mut known = WeightedLru::new();
        for key in scan::actions(&layout)? {
            known.insert(key, Instant::now(), 1);
        }
        let results = Self { layout, known: Mutex::new(known), max };
        results.evict(&mut results.lock());
        Ok(results)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// The encoded result; a damaged file is removed and counts as a miss.
    pub(super) fn get(&self, key: &Key) -> Result<Option<Bytes>, StorageError> {
        let Some(recorded) = self.lock().touch(key).copied() else { return Ok(None) };
        let path = self.layout.action(key);
        let data = match fs::read(&path) {
            Ok(data) => data,
            // Evicted at this moment, or removed by hand.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed("read", &path, error)),
        };
        if recorded.elapsed() >= RECORD_USE_AFTER {
            self.record_use(key, &path);
        }
        match data.split_first_chunk::<SUM_BYTES>() {
            Some((expected, result)) if *expected == sum(key, result) => {
                Ok(Some(Bytes::from(data).slice(SUM_BYTES..)))
            }
            _ => {
                self.forget(key, &path, &data);
                Ok(None)
            }
        }
    }

    /// Stores an encoded result, in place of an older one.
    pub(super) fn put(&self, key: &Key, data: &[u8]) -> Result<(), StorageError> {
        let path = self.layout.action(key);
        let mut file = self.layout.temporary()?;
        let written = file.write_all(&sum(key, data)).and_then(|()| file.write_all(data));
        written.map_err(|error| failed("write", &path, error))?;
        let mut known = self.lock();
        persist(file, &path).map_err(|error| failed("rename", &path, error))?;
        known.insert(*key, Instant::now(), 1);
        self.evict(&mut known);
        Ok(())
    }

    fn evict(&self, known: &mut WeightedLru<Key, Instant>) {
        while known.len() > self.max {
            let Some((key, _)) = known.pop_oldest() else { return };
            remove(&self.layout.action(&key));
        }
    }

    /// Removes a damaged file, unless it was replaced since it was read.
    fn forget(&self, key: &Key, path: &Path, read: &[u8]) {
        let mut known = self.lock();
        if fs::read(path).is_ok_and(|now| now == read) {
            warn!(path = %path.display(), "stored action result is damaged, removed; it is a miss");
            remove(path);
            known.remove(key);
        }
    }

    fn record_use(&self, key: &Key, path: &Path) {
        let times = FileTimes::new().set_accessed(SystemTime::now());
        if let Err(error) = File::open(path).and_then(|file| file.set_times(times)) {
            warn!(path = %path.display(), %error, "access time of an action result was not recorded");
        }
        if let Some(recorded) = self.lock().peek_mut(key) {
            *recorded = Instant::now();
        }
    }

    fn lock(&self) -> MutexGuard<'_, WeightedLru<Key, Instant>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn failed(verb: &str, path: &Path, error: io::Error) -> StorageError {
    StorageError::io(format!("{verb} {}", path.display()), error)
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(path = %path.display(), %error, "action result can't be removed");
        }
        _ => {}
    }
}
