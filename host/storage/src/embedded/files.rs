//! Blobs as files: looked up, opened, published, evicted. Blocking code.
//!
//! Two kinds of locks. The index lock is held for look-ups only, never over a system call. A stripe lock, one of a
//! few chosen by digest, is held while a file *and* its index entry change together; without it an eviction that
//! has left the index but not yet the disk could delete the file that an upload has just put there. Order: stripe
//! before index. Room is made before a stripe is locked, since evicting locks the victims' stripes.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use pointsman_digest::Digest;
use tempfile::NamedTempFile;
use tracing::{debug, warn};

use super::config::{EmbeddedConfig, EmbeddedStats, OpenError};
use super::index::{Entry, Index, cost};
use super::layout::{Layout, persist};
use super::scan;
use crate::error::StorageError;
use crate::memory::MemoryCache;
use crate::verify::Verifier;

const STRIPES: usize = 64;

/// Digests looked up under one hold of the index lock, so that a request for a huge tree does not stall others.
const LOOKUPS_PER_LOCK: usize = 1024;

/// Bytes read at a time when a file is hashed.
const HASH_CHUNK_BYTES: usize = 256 << 10;

/// What is written to disk and what is known of it.
pub(super) struct BlobFiles {
    layout: Arc<Layout>,
    index: Mutex<Index>,
    stripes: [Mutex<()>; STRIPES],
    pub(super) memory: MemoryCache,
    evicted: AtomicU64,
    damaged: AtomicU64,
}

/// The answer of the index.
pub(super) struct Found {
    /// Not here, each once, in the order asked.
    pub(super) missing: Vec<Digest>,
    /// Here as far as is known, but not looked at for a while: to be given to [`BlobFiles::recheck`].
    pub(super) unsure: Vec<Digest>,
}

impl BlobFiles {
    /// Reads what is on disk. Evicts at once what does not fit a bound that was lowered.
    pub(super) fn open(layout: Arc<Layout>, config: &EmbeddedConfig) -> Result<Self, OpenError> {
        if config.max_bytes == 0 {
            return Err(OpenError::Zero { setting: "max_bytes" });
        }
        let mut index = Index::new(config.max_bytes);
        for digest in scan::blobs(&layout)? {
            index.insert(digest, Entry { verified: None, checked: Instant::now() });
        }
        let victims = index.evict();
        let files = Self {
            layout,
            index: Mutex::new(index),
            stripes: [const { Mutex::new(()) }; STRIPES],
            memory: MemoryCache::new(config.memory_max_bytes, config.memory_blob_max_bytes),
            evicted: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
        };
        files.unlink_evicted(victims);
        Ok(files)
    }

    pub(super) fn stats(&self) -> EmbeddedStats {
        let (memory_blobs, memory_bytes) = self.memory.size();
        let index = self.index();
        EmbeddedStats {
            blobs: index.len(),
            bytes: index.used_bytes(),
            action_results: 0,
            memory_blobs,
            memory_bytes,
            evicted_blobs: self.evicted.load(Ordering::Relaxed),
            damaged_blobs: self.damaged.load(Ordering::Relaxed),
        }
    }

    /// Looks `digests` up in the index; no system call.
    pub(super) fn find_missing(&self, digests: &[Digest]) -> Found {
        let now = Instant::now();
        let mut found = Found { missing: Vec::new(), unsure: Vec::new() };
        for batch in digests.chunks(LOOKUPS_PER_LOCK) {
            let mut index = self.index();
            for digest in batch {
                match index.touch(digest, now) {
                    Some(false) => {}
                    Some(true) => found.unsure.push(*digest),
                    None => found.missing.push(*digest),
                }
            }
        }
        let mut seen = std::collections::HashSet::new();
        found.missing.retain(|digest| !digest.is_empty_blob() && seen.insert(*digest));
        found
    }

    /// Looks at files and records their use on disk; returns those that turn out to be gone.
    pub(super) fn recheck(&self, digests: &[Digest]) -> Vec<Digest> {
        let present = |digest: &Digest| match self.open_sized(digest) {
            Ok(file) => {
                record_use(&file);
                true
            }
            Err(StorageError::NotFound { .. }) => false,
            // Whatever keeps us from looking (say, too many open files) does not make the blob go away.
            Err(_) => true,
        };
        digests.iter().filter(|digest| !present(digest)).copied().collect()
    }

    /// Opens a blob that is known to be right: its size is checked each time, its hash the first time in this
    /// process and whenever the file was written to since.
    pub(super) fn open_blob(&self, digest: &Digest) -> Result<File, StorageError> {
        let Some(due) = self.index().touch(digest, Instant::now()) else {
            return Err(StorageError::NotFound { digest: *digest });
        };
        let mut file = self.open_sized(digest)?;
        if due {
            record_use(&file);
        }
        let metadata = file.metadata().map_err(|error| self.failed("look at", digest, error))?;
        let modified = metadata.modified().map_err(|error| self.failed("look at", digest, error))?;
        if self.verified_at(digest) == Some(modified) {
            return Ok(file);
        }
        self.verify_file(digest, &mut file, &metadata)?;
        if let Some(entry) = self.index().entry(digest) {
            entry.verified = Some(modified);
        }
        Ok(file)
    }

    /// A new file for an upload.
    pub(super) fn temporary(&self) -> Result<NamedTempFile, StorageError> {
        self.layout.temporary()
    }

    /// Whether a blob of this size can be stored at all.
    pub(super) fn check_fits(&self, digest: &Digest) -> Result<(), StorageError> {
        let max_bytes = self.index().max_bytes();
        if cost(digest.size_bytes()) <= max_bytes {
            return Ok(());
        }
        let reason =
            format!("blob {digest} is larger than the storage may be ({max_bytes} bytes); raise its bound");
        Err(StorageError::Full { reason })
    }

    /// Whether the blob is here; counts as a use.
    pub(super) fn touch(&self, digest: &Digest) -> bool {
        self.index().touch(digest, Instant::now()).is_some()
    }

    /// Room for an upload; grows as bytes come, so that a client that only claims to send much evicts nothing.
    pub(super) fn reservation(self: &Arc<Self>) -> Reservation {
        Reservation { files: self.clone(), bytes: 0 }
    }

    /// Makes a complete, checked file visible under its digest.
    pub(super) fn publish(
        &self,
        digest: &Digest,
        file: NamedTempFile,
        room: Reservation,
    ) -> Result<(), StorageError> {
        let modified = file.as_file().metadata().and_then(|metadata| metadata.modified());
        let modified = modified.map_err(|error| self.failed("look at", digest, error))?;
        let _stripe = self.stripe(digest);
        persist(file, &self.layout.blob(digest)).map_err(|error| self.failed("rename", digest, error))?;
        let mut index = self.index();
        index.release(room.bytes);
        index.insert(*digest, Entry { verified: Some(modified), checked: Instant::now() });
        drop(index);
        room.used();
        Ok(())
    }

    /// Opens a blob's file, whose size must be the one in its name.
    fn open_sized(&self, digest: &Digest) -> Result<File, StorageError> {
        let not_found = StorageError::NotFound { digest: *digest };
        let file = match File::open(self.layout.blob(digest)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Mostly an eviction between the look into the index and here; also a file removed by hand.
                self.forget(digest, None, "its file is gone");
                return Err(not_found);
            }
            Err(error) => return Err(self.failed("open", digest, error)),
        };
        let metadata = file.metadata().map_err(|error| self.failed("look at", digest, error))?;
        if metadata.len() != digest.size_bytes() {
            self.forget(digest, Some(&metadata), &format!("its file has {} bytes", metadata.len()));
            return Err(not_found);
        }
        Ok(file)
    }

    /// Hashes a file that was just opened and leaves it at its beginning.
    fn verify_file(&self, digest: &Digest, file: &mut File, metadata: &Metadata) -> Result<(), StorageError> {
        let failed = |error| self.failed("read", digest, error);
        let mut verifier = Verifier::new(*digest);
        let mut chunk = vec![0; HASH_CHUNK_BYTES.min(digest.size_bytes() as usize + 1)];
        let verdict = loop {
            match file.read(&mut chunk).map_err(failed)? {
                0 => break verifier.finish(),
                read => {
                    if let Err(error) = verifier.update(&chunk[..read]) {
                        break Err(error);
                    }
                }
            }
        };
        if let Err(error) = verdict {
            self.forget(digest, Some(metadata), &error.to_string());
            return Err(StorageError::NotFound { digest: *digest });
        }
        io::Seek::rewind(file).map_err(failed)
    }

    /// Stops serving a blob whose file is gone or damaged; `bad` is the damaged file. If another file is in its
    /// place by now (somebody uploaded the blob again), that one stays.
    pub(super) fn forget(&self, digest: &Digest, bad: Option<&Metadata>, problem: &str) {
        let path = self.layout.blob(digest);
        let _stripe = self.stripe(digest);
        match (fs::metadata(&path), bad) {
            (Err(error), _) if error.kind() == io::ErrorKind::NotFound => {}
            (Ok(now), Some(bad)) if identity(&now) == identity(bad) => remove(&path),
            _ => return,
        }
        if self.index().remove(digest) {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            warn!(%digest, problem, "blob is damaged on disk, removed and reported as missing");
        }
        self.memory.remove(digest);
    }

    /// Removes the files of blobs that have left the index.
    fn unlink_evicted(&self, victims: Vec<Digest>) {
        for digest in victims {
            let _stripe = self.stripe(&digest);
            // Uploaded again since: the file is the new one.
            if self.index().contains(&digest) {
                continue;
            }
            remove(&self.layout.blob(&digest));
            self.memory.remove(&digest);
            self.evicted.fetch_add(1, Ordering::Relaxed);
            debug!(%digest, "blob evicted");
        }
    }

    fn verified_at(&self, digest: &Digest) -> Option<SystemTime> {
        self.index().entry(digest)?.verified
    }

    /// Every change of the index is one call that can't panic half-way, so a poisoned lock is as good as any.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stripe(&self, digest: &Digest) -> MutexGuard<'_, ()> {
        // The first byte chooses the folder; the last one is as random.
        let byte = digest.hash_bytes().last().copied().unwrap_or_default();
        self.stripes[usize::from(byte) % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn failed(&self, verb: &str, digest: &Digest, error: io::Error) -> StorageError {
        StorageError::io(format!("{verb} {}", self.layout.blob(digest).display()), error)
    }
}

/// Bytes set aside for an upload in progress; given back when dropped.
pub(super) struct Reservation {
    files: Arc<BlobFiles>,
    bytes: u64,
}

impl Reservation {
    /// Sees to it that room for a file of `size_bytes` is set aside, by evicting if need be.
    pub(super) fn grow_to(&mut self, size_bytes: u64) -> Result<(), StorageError> {
        let more = cost(size_bytes).saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let reserved = self.files.index().reserve(more);
        let Some(victims) = reserved else {
            let max_bytes = self.files.index().max_bytes();
            let reason =
                format!("uploads in progress take all of its {max_bytes} bytes; retry, or raise its bound");
            return Err(StorageError::Full { reason });
        };
        self.bytes += more;
        self.files.unlink_evicted(victims);
        Ok(())
    }

    /// The room belongs to a blob now and was released under the lock that added it.
    fn used(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.files.index().release(self.bytes);
        }
    }
}

/// What tells one file in a place from the next one there.
fn identity(metadata: &Metadata) -> (u64, u64, i64, i64) {
    (metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

/// Sets the access time, which orders eviction after a restart. Explicitly, since most disks are mounted without
/// exact access times. Losing one is harmless.
fn record_use(file: &File) {
    if let Err(error) = file.set_times(FileTimes::new().set_accessed(SystemTime::now())) {
        debug!(%error, "access time of a blob was not recorded");
    }
}

fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            warn!(path = %path.display(), %error, "file can't be removed, it takes space that is not counted");
        }
        _ => {}
    }
}
