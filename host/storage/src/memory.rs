//! Small blobs kept in memory: Actions, Commands, Directories and Trees are read soon after they were uploaded.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use pointsman_digest::Digest;

use crate::weighted_lru::WeightedLru;

/// What an entry takes beside its content, roughly: key, links, allocation.
const ENTRY_BYTES: u64 = 200;

/// By digest; where instance names are kept apart, by both.
pub(crate) struct MemoryCache<K: Eq + Hash = Digest> {
    entries: Mutex<WeightedLru<K, Bytes>>,
    max_bytes: u64,
    blob_max_bytes: u64,
}

impl<K: Clone + Eq + Hash> MemoryCache<K> {
    pub(crate) fn new(max_bytes: u64, blob_max_bytes: u64) -> Self {
        Self { entries: Mutex::new(WeightedLru::new()), max_bytes, blob_max_bytes }
    }

    /// Whether blobs of this size are kept.
    pub(crate) fn takes(&self, size_bytes: u64) -> bool {
        size_bytes <= self.blob_max_bytes && size_bytes + ENTRY_BYTES <= self.max_bytes
    }

    pub(crate) fn get(&self, key: &K) -> Option<Bytes> {
        self.lock().touch(key).cloned()
    }

    /// Keeps content that was checked against its digest, if it is small enough. It must be an allocation of its own:
    /// a part of a network buffer would keep all of that alive.
    pub(crate) fn insert(&self, key: K, content: Bytes) {
        if !self.takes(content.len() as u64) {
            return;
        }
        let weight = content.len() as u64 + ENTRY_BYTES;
        let mut entries = self.lock();
        entries.insert(key, content, weight);
        while entries.weight() > self.max_bytes && entries.pop_oldest().is_some() {}
    }

    pub(crate) fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Number of blobs and bytes that they take.
    pub(crate) fn size(&self) -> (usize, u64) {
        let entries = self.lock();
        (entries.len(), entries.weight())
    }

    /// A panic elsewhere can't leave the map half-changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, WeightedLru<K, Bytes>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigestFunction;

    #[test]
    fn stays_within_its_bound_and_leaves_large_blobs_out() {
        let cache = MemoryCache::new(2 * (100 + ENTRY_BYTES), 100);
        let blobs: Vec<Vec<u8>> = (0..3).map(|byte| vec![byte; 100]).collect();
        let digests: Vec<Digest> =
            blobs.iter().map(|blob| Digest::of(DigestFunction::Sha256, blob)).collect();
        for (digest, blob) in digests.iter().zip(&blobs) {
            cache.insert(*digest, blob.clone().into());
        }
        assert_eq!(cache.get(&digests[0]), None);
        assert_eq!(cache.get(&digests[2]).as_deref(), Some(&blobs[2][..]));
        assert_eq!(cache.size(), (2, 2 * (100 + ENTRY_BYTES)));
        assert!(!cache.takes(101));
    }
}
