//! The file cache: input files on the local disk by digest, the least recently used leave first.
//!
//! What an action is about to use is *pinned* and can't leave. Of threads that want the same absent blob one
//! *claims* it and fetches, the others wait for its claim to end and look again.
use crate::{cas::Sink, error::Failure};
use bytes::Bytes;
use lru::LruCache;
use pointsman_digest::{Digest, DigestFunction, Hasher};
use std::{
    collections::HashSet,
    fs, io,
    io::{Read as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// The cache of one work directory.
pub(crate) struct FileCache {
    dir: PathBuf,
    max_bytes: u64,
    state: Mutex<State>,
    /// Told whenever claims end.
    pub(crate) released: Notify,
}

struct State {
    entries: LruCache<Digest, Entry>,
    bytes: u64,
    /// Of `bytes`, what somebody pins.
    pinned_bytes: u64,
    claimed: HashSet<Digest>,
}

struct Entry {
    pins: u32,
    /// False for a file that an earlier run left: it may be cut short by a crash, so it is hashed before
    /// its first use.
    checked: bool,
}

/// What one action holds of the cache; dropping it gives all back.
pub(crate) struct Lease {
    cache: Arc<FileCache>,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    pins: Vec<Digest>,
    claims: HashSet<Digest>,
}

/// Answer to [`Lease::take`]. All but `waiting` are now pinned or claimed by the lease.
#[derive(Default)]
pub(crate) struct Round {
    /// To be fetched by the caller.
    pub(crate) mine: Vec<Digest>,
    /// On disk since an earlier run, to be hashed by the caller.
    pub(crate) unchecked: Vec<Digest>,
    /// Being fetched by another action.
    pub(crate) waiting: Vec<Digest>,
}

impl FileCache {
    /// Opens the cache in `dir` and takes over what an earlier run left there.
    pub(crate) fn open(dir: PathBuf, max_bytes: u64) -> io::Result<Arc<Self>> {
        let _ = fs::remove_dir_all(dir.join("tmp"));
        fs::create_dir_all(dir.join("tmp"))?;
        let mut state =
            State { entries: LruCache::unbounded(), bytes: 0, pinned_bytes: 0, claimed: HashSet::new() };
        for fan in 0..=255_u8 {
            let fan = dir.join(format!("{fan:02x}"));
            fs::create_dir_all(&fan)?;
            for file in fs::read_dir(&fan)? {
                let file = file?;
                match blob_of(&file) {
                    Some(blob) => {
                        state.bytes += blob.size_bytes();
                        state.entries.put(blob, Entry { pins: 0, checked: false });
                    }
                    None => fs::remove_file(file.path())?,
                }
            }
        }
        let cache = Self { dir, max_bytes, state: Mutex::new(state), released: Notify::new() };
        cache.evict(&mut cache.lock(), max_bytes);
        Ok(Arc::new(cache))
    }

    pub(crate) fn lease(self: &Arc<Self>) -> Lease {
        Lease { cache: Arc::clone(self), held: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn path(&self, blob: &Digest) -> PathBuf {
        let fan = format!("{:02x}", blob.hash_bytes()[0]);
        self.dir.join(fan).join(format!("{}-{}", blob.function().path_name(), blob.file_name()))
    }

    /// Removes the least recently used files that nobody pins until `max_bytes` are left, or none can go.
    fn evict(&self, state: &mut State, max_bytes: u64) {
        // What is pinned can't go: without this, a set of inputs above the limit would be searched each time.
        let evictable = state.bytes - state.pinned_bytes;
        let mut excess = state.bytes.saturating_sub(max_bytes).min(evictable);
        let mut victims = Vec::new();
        for (blob, entry) in state.entries.iter().rev() {
            if excess == 0 {
                break;
            }
            if entry.pins == 0 {
                excess = excess.saturating_sub(blob.size_bytes());
                victims.push(*blob);
            }
        }
        for blob in victims {
            self.forget(state, &blob);
        }
    }

    fn forget(&self, state: &mut State, blob: &Digest) {
        if let Some(entry) = state.entries.pop(blob) {
            state.bytes -= blob.size_bytes();
            state.pinned_bytes -= if entry.pins > 0 { blob.size_bytes() } else { 0 };
        }
        if let Err(error) = fs::remove_file(self.path(blob))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%blob, %error, "could not remove a file from the cache");
        }
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }
}

impl Lease {
    /// Pins what is there, claims what is not.
    pub(crate) fn take(&self, wanted: Vec<Digest>) -> Round {
        let mut state = self.cache.lock();
        let mut held = self.held();
        let mut round = Round::default();
        for blob in wanted {
            let State { entries, pinned_bytes, .. } = &mut *state;
            let known = entries.get_mut(&blob).map(|entry| {
                if entry.checked {
                    *pinned_bytes += if entry.pins == 0 { blob.size_bytes() } else { 0 };
                    entry.pins += 1;
                }
                entry.checked
            });
            match known {
                Some(true) => held.pins.push(blob),
                _ if state.claimed.contains(&blob) => round.waiting.push(blob),
                known => {
                    state.claimed.insert(blob);
                    held.claims.insert(blob);
                    let list = if known.is_some() { &mut round.unchecked } else { &mut round.mine };
                    list.push(blob);
                }
            }
        }
        round
    }

    /// Hashes files of an earlier run; gives those that were damaged, which are to be fetched. Blocks.
    pub(crate) fn check(&self, unchecked: Vec<Digest>) -> Vec<Digest> {
        let mut damaged = Vec::new();
        for blob in unchecked {
            if hash_file(&self.cache.path(&blob), blob.function(), &CancellationToken::new())
                .is_ok_and(|found| found == blob)
            {
                self.commit(&blob);
            } else {
                self.cache.forget(&mut self.cache.lock(), &blob);
                damaged.push(blob);
            }
        }
        damaged
    }

    /// Gives up claims on blobs that could not be had.
    pub(crate) fn release(&self, blobs: &[Digest]) {
        let mut state = self.cache.lock();
        let mut held = self.held();
        for blob in blobs {
            if held.claims.remove(blob) {
                state.claimed.remove(blob);
            }
        }
        drop((state, held));
        self.cache.released.notify_waiters();
    }

    /// Opens a pinned file.
    pub(crate) fn open(&self, blob: &Digest) -> io::Result<fs::File> {
        fs::File::open(self.cache.path(blob)).inspect_err(|_| {
            // Somebody cleaned up behind our back: the next action shall fetch it again.
            self.cache.forget(&mut self.cache.lock(), blob);
        })
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claimed file is in its place now: claim becomes pin.
    fn commit(&self, blob: &Digest) {
        let mut state = self.cache.lock();
        let mut held = self.held();
        match state.entries.put(*blob, Entry { pins: 1, checked: true }) {
            None => state.bytes += blob.size_bytes(),
            Some(old) => state.pinned_bytes -= if old.pins > 0 { blob.size_bytes() } else { 0 },
        }
        state.pinned_bytes += blob.size_bytes();
        held.pins.push(*blob);
        held.claims.remove(blob);
        state.claimed.remove(blob);
        drop(held);
        self.cache.evict(&mut state, self.cache.max_bytes);
        drop(state);
        self.cache.released.notify_waiters();
    }

    fn write(&self, blob: &Digest, data: &Bytes) -> io::Result<()> {
        let temp = self.temp();
        fs::File::create_new(temp.path())?.write_all(data)?;
        temp.rename(&self.cache.path(blob))
    }
}

impl Sink for Lease {
    fn keep(&self, blob: &Digest, data: &Bytes) -> Result<(), Failure> {
        let mut written = self.write(blob, data);
        if written.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::StorageFull) {
            self.make_room();
            written = self.write(blob, data);
        }
        written.map_err(|e| Failure::io("keeping an input file", &e))?;
        self.commit(blob);
        Ok(())
    }

    fn temp(&self) -> TempFile {
        let name = uuid::Uuid::new_v4().simple().to_string();
        TempFile { path: self.cache.dir.join("tmp").join(name), kept: false }
    }

    fn keep_file(&self, blob: &Digest, temp: TempFile) -> Result<(), Failure> {
        temp.rename(&self.cache.path(blob)).map_err(|e| Failure::io("keeping an input file", &e))?;
        self.commit(blob);
        Ok(())
    }

    fn make_room(&self) {
        self.cache.evict(&mut self.cache.lock(), 0);
    }
}

/// A file on its way into the cache, removed unless it arrives.
pub(crate) struct TempFile {
    path: PathBuf,
    kept: bool,
}

impl TempFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn rename(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.path, target)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let held = std::mem::take(self.held.get_mut().unwrap_or_else(PoisonError::into_inner));
        let mut state = self.cache.lock();
        for blob in &held.claims {
            state.claimed.remove(blob);
        }
        let State { entries, pinned_bytes, .. } = &mut *state;
        for blob in &held.pins {
            if let Some(entry) = entries.peek_mut(blob).filter(|entry| entry.pins > 0) {
                entry.pins -= 1;
                *pinned_bytes -= if entry.pins == 0 { blob.size_bytes() } else { 0 };
            }
        }
        self.cache.evict(&mut state, self.cache.max_bytes);
        drop(state);
        self.cache.released.notify_waiters();
    }
}

fn blob_of(file: &fs::DirEntry) -> Option<Digest> {
    let name = file.file_name().into_string().ok()?;
    let (function, rest) = name.split_once('-')?;
    let function = DigestFunction::SERVED.iter().find(|served| served.path_name() == function)?;
    let blob = Digest::from_file_name(*function, rest)?;
    (file.metadata().ok()?.len() == blob.size_bytes()).then_some(blob)
}

/// Digest of a file's content.
pub(crate) fn hash_file(
    path: &Path,
    function: DigestFunction,
    cancel: &CancellationToken,
) -> io::Result<Digest> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Hasher::new(function);
    let mut buffer = vec![0; 128 << 10];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hasher.finish());
        }
        if cancel.is_cancelled() {
            return Err(io::Error::other("the action was cancelled"));
        }
        hasher.update(&buffer[..n]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(text: &str) -> (Digest, Bytes) {
        (Digest::of(DigestFunction::Sha256, text.as_bytes()), Bytes::copy_from_slice(text.as_bytes()))
    }

    fn fill(cache: &Arc<FileCache>, text: &str) -> Lease {
        let (blob, data) = blob(text);
        let lease = cache.lease();
        let round = lease.take(vec![blob]);
        assert_eq!(round.mine.as_slice(), std::slice::from_ref(&blob));
        lease.keep(&blob, &data).unwrap();
        lease
    }

    #[test]
    fn least_recently_used_leave_but_never_pinned_ones() {
        let tmp = tempfile::tempdir().unwrap();
        let cache = FileCache::open(tmp.path().into(), 8).unwrap();
        let pinned = fill(&cache, "aaaa");
        drop(fill(&cache, "bbbb"));
        drop(fill(&cache, "cccc"));
        assert_eq!(cache.bytes(), 8);
        let lease = cache.lease();
        let round = lease.take(vec![blob("aaaa").0, blob("bbbb").0, blob("cccc").0]);
        assert_eq!(round.mine.as_slice(), [blob("bbbb").0]);
        drop((lease, pinned));
        // More than the limit is pinned for a while; then all but the limit leaves.
        let leases = [fill(&cache, "dddddd"), fill(&cache, "eeeeee")];
        assert_eq!(cache.bytes(), 12);
        drop(leases);
        assert_eq!(cache.bytes(), 6);
    }

    #[test]
    fn a_claim_is_exclusive_and_ends_with_its_lease() {
        let tmp = tempfile::tempdir().unwrap();
        let cache = FileCache::open(tmp.path().into(), 100).unwrap();
        let (x, _) = blob("x");
        let (first, second) = (cache.lease(), cache.lease());
        assert_eq!(first.take(vec![x]).mine.len(), 1);
        assert_eq!(second.take(vec![x]).waiting.len(), 1);
        drop(first);
        assert_eq!(second.take(vec![x]).mine.len(), 1);
        second.release(std::slice::from_ref(&x));
        assert_eq!(cache.lease().take(vec![x]).mine.len(), 1);
    }

    #[test]
    fn files_of_an_earlier_run_are_checked_before_use() {
        let tmp = tempfile::tempdir().unwrap();
        let cache = FileCache::open(tmp.path().into(), 100).unwrap();
        drop((fill(&cache, "good"), fill(&cache, "evil")));
        fs::write(cache.path(&blob("evil").0), "EVIL").unwrap();
        fs::write(tmp.path().join("00").join("junk"), "junk").unwrap();
        drop(cache);
        let cache = FileCache::open(tmp.path().into(), 100).unwrap();
        assert_eq!(cache.bytes(), 8);
        let lease = cache.lease();
        let round = lease.take(vec![blob("good").0, blob("evil").0]);
        assert_eq!(round.unchecked.len(), 2);
        assert_eq!(lease.check(round.unchecked), [blob("evil").0]);
        assert!(lease.open(&blob("good").0).is_ok());
        assert_eq!(cache.bytes(), 4);
    }
}
