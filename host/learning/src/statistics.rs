//! All learning keys: a bounded number, of which the least recently used are dropped.

use std::hash::Hasher as _;
use std::num::NonZeroUsize;
use std::sync::Arc;

use fnv::FnvHasher;
use lru::LruCache;

use crate::record::{Record, Run};

/// Bytes of a key that are kept; of a longer one its beginning and a hash, so that different keys stay different.
pub const KEY_BYTES_MAX: usize = 512;
/// Bytes of what stands for the rest of a longer one.
const REST: usize = "…#0123456789abcdef".len();

/// Records by learning key.
#[derive(Clone, Debug)]
pub struct Statistics {
    entries: LruCache<Arc<str>, Entry>,
    /// Keys whose records changed since that was last asked, each once.
    changed: Vec<Arc<str>>,
    dropped: u64,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    record: Record,
    changed: bool,
}

impl Statistics {
    /// Of so many keys at most.
    pub fn new(keys_max: NonZeroUsize) -> Self {
        Self { entries: LruCache::new(keys_max), changed: Vec::new(), dropped: 0 }
    }

    /// Takes in a run that ended at `now`, in seconds since the Unix epoch. The key is as [`bounded`] gives it.
    pub fn note(&mut self, key: &str, run: &Run, now: u32) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.record.note(run, now);
            if !std::mem::replace(&mut entry.changed, true)
                && let Some((key, _)) = self.entries.peek_mru()
            {
                self.changed.push(key.clone());
            }
            return;
        }
        let mut entry = Entry { changed: true, ..Entry::default() };
        entry.record.note(run, now);
        let key: Arc<str> = key.into();
        self.changed.push(key.clone());
        self.insert(key, entry);
    }

    /// Puts a record in that was kept elsewhere, as the one used last.
    pub fn restore(&mut self, key: Arc<str>, record: Record) {
        self.insert(key, Entry { record, changed: false });
    }

    /// Takes in a record that another server kept meanwhile: of two of one key that of more runs stays, and a new key comes
    /// in as the one used least recently, if there is room.
    pub fn merge(&mut self, key: Arc<str>, record: Record) {
        if let Some(entry) = self.entries.peek_mut(&key) {
            if record.attempts().0 > entry.record.attempts().0 {
                entry.record = record;
            }
        } else if self.entries.len() < self.entries.cap().get() {
            self.insert(key.clone(), Entry { record, changed: false });
            self.entries.demote(&key);
        }
    }

    fn insert(&mut self, key: Arc<str>, entry: Entry) {
        let before = self.entries.len();
        let replaced = self.entries.push(key.clone(), entry).is_some_and(|(old, _)| old == key);
        self.dropped += u64::from(!replaced && self.entries.len() == before);
    }

    /// What is known under a key.
    pub fn get(&self, key: &str) -> Option<&Record> {
        self.entries.peek(key).map(|entry| &entry.record)
    }

    /// Keys, those used last first.
    pub fn keys(&self) -> Vec<Arc<str>> {
        self.entries.iter().map(|(key, _)| key.clone()).collect()
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keys that were dropped, as others were used since.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Records of the next `at_most` keys that have changed since they were last taken here; `None`: there are no more such
    /// keys. They may be fewer, and even none, as some keys were dropped since.
    pub fn take_changed(&mut self, at_most: usize) -> Option<Vec<(Arc<str>, Record)>> {
        let from = self.changed.len().saturating_sub(at_most);
        let mut taken = Vec::with_capacity(self.changed.len() - from);
        if self.changed.is_empty() {
            return None;
        }
        for key in self.changed.drain(from..) {
            // A key that was dropped and came back is here twice.
            if let Some(entry) = self.entries.peek_mut(&key)
                && std::mem::take(&mut entry.changed)
            {
                taken.push((key, entry.record.clone()));
            }
        }
        Some(taken)
    }
}

/// A key of [`KEY_BYTES_MAX`] bytes at most: itself, or its beginning and a hash of all of it.
pub fn bounded(key: &str) -> std::borrow::Cow<'_, str> {
    if key.len() <= KEY_BYTES_MAX {
        return key.into();
    }
    // FNV-1a: nobody gains anything by two keys that meet, and it is the same everywhere and always.
    let mut hasher = FnvHasher::default();
    hasher.write(key.as_bytes());
    let hash = hasher.finish();
    let beginning = &key[..key.floor_char_boundary(KEY_BYTES_MAX - REST)];
    format!("{beginning}…#{hash:016x}").into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::ran;

    fn statistics(keys_max: usize) -> Statistics {
        Statistics::new(NonZeroUsize::new(keys_max).unwrap())
    }

    #[test]
    fn the_least_recently_used_are_dropped() {
        let mut all = statistics(3);
        for key in ["a", "b", "c", "a", "d", "e"] {
            all.note(key, &ran(1.0, 1.0, 1), 1);
        }
        let keys: Vec<_> = all.keys().iter().map(|k| k.to_string()).collect();
        assert_eq!((keys, all.dropped(), all.len()), (vec!["e".into(), "d".into(), "a".into()], 2, 3));
        assert_eq!(all.get("a").unwrap().attempts(), (2, 0));
        // A look is no use.
        assert!(all.get("b").is_none() && all.get("a").is_some());
        all.note("f", &ran(1.0, 1.0, 1), 1);
        assert!(all.get("a").is_none());
    }

    #[test]
    fn changes_are_taken_once_and_bit_by_bit() {
        let mut all = statistics(3);
        for key in ["a", "b", "a", "c", "d"] {
            all.note(key, &ran(1.0, 1.0, 1), 1);
        }
        // "b" was dropped for "d".
        let mut taken: Vec<_> = std::iter::from_fn(|| all.take_changed(2))
            .flatten()
            .map(|(key, record)| (key.to_string(), record.attempts().0))
            .collect();
        taken.sort();
        assert_eq!(taken, [("a".into(), 2), ("c".into(), 1), ("d".into(), 1)]);
        all.restore("x".into(), Record::default());
        assert!(all.take_changed(9).is_none());
        all.note("c", &ran(1.0, 1.0, 1), 1);
        assert_eq!(all.take_changed(9).unwrap().len(), 1);
    }

    #[test]
    fn keys_that_were_dropped_end_nothing() {
        let mut all = statistics(2);
        // Seven keys, of which the last two are there; the first of them comes back, and so is listed twice.
        for key in ["a", "b", "c", "d", "e", "f", "g", "a"] {
            all.note(key, &ran(1.0, 1.0, 1), 1);
        }
        let batches: Vec<usize> = std::iter::from_fn(|| Some(all.take_changed(2)?.len())).collect();
        assert_eq!(batches, [2, 0, 0, 0], "a and g once each");
    }

    #[test]
    fn what_another_kept_meanwhile_comes_in_beside() {
        let mut all = statistics(3);
        let of = |runs: u32| {
            let mut record = Record::default();
            (0..runs).for_each(|_| record.note(&ran(1.0, 1.0, 1), 1));
            record
        };
        all.restore("more".into(), of(2));
        all.restore("fewer".into(), of(5));
        for (key, runs) in [("more", 3), ("fewer", 4), ("new", 1), ("no room", 9)] {
            all.merge(key.into(), of(runs));
        }
        let known: Vec<_> =
            all.keys().iter().map(|key| (key.to_string(), all.get(key).unwrap().attempts().0)).collect();
        assert_eq!(known, [("fewer".into(), 5), ("more".into(), 3), ("new".into(), 1)]);
        assert_eq!(all.dropped(), 0);
    }

    #[test]
    fn long_keys_are_shortened_and_stay_different() {
        assert!(
            bounded(&"x".repeat(KEY_BYTES_MAX + 1)).ends_with("…#c464da8f01978f07"),
            "files have such keys"
        );
        let long = |end: &str| "é".repeat(400) + end;
        let (a, b) = (long("a"), long("b"));
        let (short_a, short_b) = (bounded(&a), bounded(&b));
        assert!(
            short_a.len() <= KEY_BYTES_MAX && short_a.starts_with("éé") && short_a != short_b,
            "{short_a}"
        );
        assert_eq!(bounded(&"x".repeat(KEY_BYTES_MAX)), "x".repeat(KEY_BYTES_MAX));
        assert_eq!(bounded(&short_a), short_a, "what is short stays as it is");
    }
}
