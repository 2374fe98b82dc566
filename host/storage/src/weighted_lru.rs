//! A map that knows the sum of its entries' weights and which of them was used least recently.

use std::hash::Hash;

use lru::LruCache;

/// The map. It never evicts on its own: its owner decides when, since there is a file to remove with each entry.
pub(crate) struct WeightedLru<K: Hash + Eq, V> {
    entries: LruCache<K, (V, u64)>,
    weight: u64,
}

impl<K: Hash + Eq, V> WeightedLru<K, V> {
    pub(crate) fn new() -> Self {
        Self { entries: LruCache::unbounded(), weight: 0 }
    }

    /// Sum of the weights of all entries.
    pub(crate) fn weight(&self) -> u64 {
        self.weight
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Puts an entry in as the most recently used one, in place of an older one of that key.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: u64) {
        if let Some((_, old)) = self.entries.put(key, (value, weight)) {
            self.weight -= old;
        }
        self.weight += weight;
    }

    /// Finds an entry and makes it the most recently used one.
    pub(crate) fn touch(&mut self, key: &K) -> Option<&mut V> {
        self.entries.get_mut(key).map(|(value, _)| value)
    }

    /// Finds an entry and leaves the order alone.
    pub(crate) fn peek_mut(&mut self, key: &K) -> Option<&mut V> {
        self.entries.peek_mut(key).map(|(value, _)| value)
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.entries.contains(key)
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let (value, weight) = self.entries.pop(key)?;
        self.weight -= weight;
        Some(value)
    }

    /// Takes out the least recently used entry.
    pub(crate) fn pop_oldest(&mut self) -> Option<(K, V)> {
        let (key, (value, weight)) = self.entries.pop_lru()?;
        self.weight -= weight;
        Some((key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weight_follows_every_change() {
        let mut lru = WeightedLru::new();
        lru.insert("a", 1, 10);
        lru.insert("b", 2, 20);
        lru.insert("a", 3, 5);
        assert_eq!((lru.weight(), lru.len()), (25, 2));
        assert_eq!(lru.remove(&"a"), Some(3));
        assert_eq!(lru.weight(), 20);
        assert_eq!(lru.pop_oldest(), Some(("b", 2)));
        assert_eq!((lru.weight(), lru.len()), (0, 0));
        assert_eq!(lru.pop_oldest(), None);
    }

    #[test]
    fn touching_changes_the_order_and_peeking_does_not() {
        let mut lru = WeightedLru::new();
        for key in ["a", "b", "c"] {
            lru.insert(key, (), 1);
        }
        lru.touch(&"a");
        lru.peek_mut(&"b");
        assert_eq!(lru.pop_oldest().map(|(key, ())| key), Some("b"));
        assert_eq!(lru.pop_oldest().map(|(key, ())| key), Some("c"));
    }
}
