//! A cache of anything, bounded by the sum of its entries' weights and shared between threads.

use std::fmt;
use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::weighted_lru::WeightedLru;

/// The cache. What was used least recently goes first.
pub struct BoundedCache<K: Eq + Hash, V> {
    entries: Mutex<WeightedLru<K, V>>,
    weight_max: u64,
}

impl<K: Eq + Hash, V: Clone> BoundedCache<K, V> {
    /// An empty one, for entries of so much weight together. 0 keeps nothing.
    pub fn new(weight_max: u64) -> Self {
        Self { entries: Mutex::new(WeightedLru::new()), weight_max }
    }

    /// Whether an entry of this weight is kept.
    pub fn takes(&self, weight: u64) -> bool {
        weight <= self.weight_max
    }

    /// What is under that key.
    pub fn get(&self, key: &K) -> Option<V> {
        self.lock().touch(key).cloned()
    }

    /// Keeps an entry, in place of an older one of that key, if it is not too heavy by itself.
    pub fn insert(&self, key: K, value: V, weight: u64) {
        if !self.takes(weight) {
            return;
        }
        let mut entries = self.lock();
        entries.insert(key, value, weight);
        while entries.weight() > self.weight_max && entries.pop_oldest().is_some() {}
    }

    /// Drops what is under that key.
    pub fn remove(&self, key: &K) {
        self.lock().remove(key);
    }

    /// Number of entries, and their weight.
    pub fn size(&self) -> (usize, u64) {
        let entries = self.lock();
        (entries.len(), entries.weight())
    }

    /// A panic elsewhere can't leave the map half-changed, so a poisoned lock is as good as any.
    fn lock(&self) -> MutexGuard<'_, WeightedLru<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash, V> fmt::Debug for BoundedCache<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoundedCache").field("weight_max", &self.weight_max).finish_non_exhaustive()
    }
}
