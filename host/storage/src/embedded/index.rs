//! What is on disk and how much of the bound it takes. In memory only; rebuilt from the files at start.

use std::time::{Duration, Instant, SystemTime};

use pointsman_digest::Digest;

use crate::weighted_lru::WeightedLru;

/// What a file takes on disk is counted in blocks of this size, so that many small blobs don't outgrow the bound.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// How long a use of a blob may go unrecorded on disk, and a file unlooked at. Within it a look-up costs no system
/// call; what the order of eviction loses by a restart is at most this.
const RECHECK_AFTER: Duration = Duration::from_secs(300);

/// Bytes of disk that a file of `size_bytes` takes.
pub(super) fn cost(size_bytes: u64) -> u64 {
    size_bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES).max(BLOCK_BYTES)
}

/// What is known of one file.
pub(super) struct Entry {
    /// The file's modification time when this process hashed its content and found it right; `None`: not yet.
    /// A file with another time has been written to since and is hashed again.
    pub(super) verified: Option<SystemTime>,
    /// When the file was last looked at and its use recorded.
    pub(super) checked: Instant,
}

/// All files, in the order of their last use.
pub(super) struct Index {
    entries: WeightedLru<Digest, Entry>,
    reserved_bytes: u64,
    max_bytes: u64,
}

impl Index {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self { entries: WeightedLru::new(), reserved_bytes: 0, max_bytes }
    }

    pub(super) fn max_bytes(&self) -> u64 {
        self.max_bytes
    }

    /// Bytes of blobs that are visible, without uploads in progress.
    pub(super) fn used_bytes(&self) -> u64 {
        self.entries.weight()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.entries.contains(digest)
    }

    /// Counts a use. `None`: not here; `Some(true)`: here, and the file is to be looked at again.
    pub(super) fn touch(&mut self, digest: &Digest, now: Instant) -> Option<bool> {
        let entry = self.entries.touch(digest)?;
        let due = now.duration_since(entry.checked) >= RECHECK_AFTER;
        if due {
            entry.checked = now;
        }
        Some(due)
    }

    pub(super) fn entry(&mut self, digest: &Digest) -> Option<&mut Entry> {
        self.entries.peek_mut(digest)
    }

    /// Adds a file as the most recently used one, in room that was reserved before or (at start) is there anyway.
    pub(super) fn insert(&mut self, digest: Digest, entry: Entry) {
        self.entries.insert(digest, entry, cost(digest.size_bytes()));
    }

    pub(super) fn remove(&mut self, digest: &Digest) -> bool {
        self.entries.remove(digest).is_some()
    }

    /// Sets `bytes` aside and returns what must be removed from disk to have them; `None` when uploads in
    /// progress alone leave no room. Nothing is evicted in that case.
    pub(super) fn reserve(&mut self, bytes: u64) -> Option<Vec<Digest>> {
        let reserved = self.reserved_bytes.saturating_add(bytes);
        if reserved > self.max_bytes {
            return None;
        }
        self.reserved_bytes = reserved;
        Some(self.evict())
    }

    /// Gives back what was set aside: the upload failed, or became an entry.
    pub(super) fn release(&mut self, bytes: u64) {
        self.reserved_bytes = self.reserved_bytes.saturating_sub(bytes);
    }

    /// Takes out entries until the rest and the reserved room fit the bound.
    pub(super) fn evict(&mut self) -> Vec<Digest> {
        let mut victims = Vec::new();
        while self.entries.weight().saturating_add(self.reserved_bytes) > self.max_bytes {
            match self.entries.pop_oldest() {
                Some((digest, _)) => victims.push(digest),
                None => break,
            }
        }
        victims
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigestFunction;

    fn digest(name: u8) -> Digest {
        Digest::of(DigestFunction::Sha256, &[name; 100])
    }

    fn entry() -> Entry {
        Entry { verified: None, checked: Instant::now() }
    }

    #[test]
    fn small_files_count_a_block() {
        assert_eq!((cost(0), cost(1), cost(4096), cost(4097)), (4096, 4096, 4096, 8192));
        assert!(cost(u64::MAX) >= u64::MAX / 2);
    }

    #[test]
    fn evicts_the_least_recently_used_for_room() {
        let mut index = Index::new(3 * BLOCK_BYTES);
        for name in 1..=3 {
            assert_eq!(index.reserve(BLOCK_BYTES), Some(vec![]));
            index.release(BLOCK_BYTES);
            index.insert(digest(name), entry());
        }
        assert_eq!(index.touch(&digest(1), Instant::now()), Some(false));
        assert_eq!(index.reserve(BLOCK_BYTES), Some(vec![digest(2)]));
        assert_eq!(index.reserve(3 * BLOCK_BYTES), None);
        assert!(index.contains(&digest(1)) && index.contains(&digest(3)));
        assert_eq!(index.reserve(2 * BLOCK_BYTES), Some(vec![digest(3), digest(1)]));
        assert_eq!(index.used_bytes(), 0);
    }

    #[test]
    fn a_use_is_recorded_now_and_then() {
        let mut index = Index::new(BLOCK_BYTES);
        index.insert(digest(1), entry());
        let later = Instant::now() + RECHECK_AFTER;
        assert_eq!(index.touch(&digest(1), later), Some(true));
        assert_eq!(index.touch(&digest(1), later), Some(false));
        assert_eq!(index.touch(&digest(2), later), None);
    }
}
