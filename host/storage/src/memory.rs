//! Small blobs kept in memory: Actions, Commands, Directories and Trees are read soon after they were uploaded.

use std::hash::Hash;

use bytes::Bytes;
use pointsman_digest::Digest;

use crate::bounded_cache::BoundedCache;

/// What an entry takes beside its content, roughly: key, links, allocation.
const ENTRY_BYTES: u64 = 200;

/// By digest; where instance names are kept apart, by both.
pub(crate) struct MemoryCache<K: Eq + Hash = Digest> {
    entries: BoundedCache<K, Bytes>,
    blob_max_bytes: u64,
}

impl<K: Eq + Hash> MemoryCache<K> {
    pub(crate) fn new(max_bytes: u64, blob_max_bytes: u64) -> Self {
        Self { entries: BoundedCache::new(max_bytes), blob_max_bytes }
    }

    /// Whether blobs of this size are kept.
    pub(crate) fn takes(&self, size_bytes: u64) -> bool {
        size_bytes <= self.blob_max_bytes && self.entries.takes(size_bytes + ENTRY_BYTES)
    }

    pub(crate) fn get(&self, key: &K) -> Option<Bytes> {
        self.entries.get(key)
    }

    /// Keeps content that was checked against its digest, if it is small enough. It must be an allocation of its own:
    /// a part of a network buffer would keep all of that alive.
    pub(crate) fn insert(&self, key: K, content: Bytes) {
        let size = content.len() as u64;
        if self.takes(size) {
            self.entries.insert(key, content, size + ENTRY_BYTES);
        }
    }

    pub(crate) fn remove(&self, key: &K) {
        self.entries.remove(key);
    }

    /// Number of blobs and bytes that they take.
    pub(crate) fn size(&self) -> (usize, u64) {
        self.entries.size()
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
