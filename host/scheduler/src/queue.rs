//! One queue: tasks in order, of each digest only the first in sight.
//!
//! A host runs one of a digest at a time, so a worker passes over what its host runs already. Were all tasks of a
//! digest in sight, a client could make it pass over a hundred thousand; so it passes over as many as its host has
//! workers, at most.

use std::collections::BTreeMap;

use crate::ids::{ActionDigest, Map, TaskId};
use crate::task::QueueKey;

#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The first of each digest.
    in_sight: BTreeMap<QueueKey, TaskId>,
    /// Where in `in_sight` a digest is.
    first: Map<ActionDigest, QueueKey>,
    /// All others.
    behind: BTreeMap<(ActionDigest, QueueKey), TaskId>,
}

impl Queue {
    pub(crate) fn push(&mut self, key: QueueKey, digest: &ActionDigest, task: TaskId) {
        match self.first.get_mut(digest) {
            Some(first) if *first < key => {
                self.behind.insert((digest.clone(), key), task);
            }
            Some(first) => {
                let old = std::mem::replace(first, key);
                if let Some(other) = self.in_sight.remove(&old) {
                    self.behind.insert((digest.clone(), old), other);
                }
                self.in_sight.insert(key, task);
            }
            None => {
                self.first.insert(digest.clone(), key);
                self.in_sight.insert(key, task);
            }
        }
    }

    pub(crate) fn remove(&mut self, key: QueueKey, digest: &ActionDigest) {
        if self.in_sight.remove(&key).is_none() {
            self.behind.remove(&(digest.clone(), key));
            return;
        }
        match self.next_behind(digest) {
            Some(next) => {
                if let Some(task) = self.behind.remove(&(digest.clone(), next)) {
                    self.in_sight.insert(next, task);
                    self.first.insert(digest.clone(), next);
                }
            }
            None => _ = self.first.remove(digest),
        }
    }

    fn next_behind(&self, digest: &ActionDigest) -> Option<QueueKey> {
        if self.behind.is_empty() {
            return None;
        }
        let from = (digest.clone(), QueueKey { score: i64::MIN, sequence: 0 });
        let ((other, key), _) = self.behind.range(from..).next()?;
        (other == digest).then_some(*key)
    }

    /// Tasks in order, of each digest the first.
    pub(crate) fn in_sight(&self) -> impl Iterator<Item = (QueueKey, TaskId)> + '_ {
        self.in_sight.iter().map(|(k, t)| (*k, *t))
    }

    /// No other task of its digest is before it.
    pub(crate) fn is_in_sight(&self, key: QueueKey) -> bool {
        self.in_sight.contains_key(&key)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.in_sight.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.in_sight.len() + self.behind.len()
    }
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    #[test]
    fn of_each_digest_the_first_is_in_sight() {
        let mut ids: SlotMap<TaskId, ()> = SlotMap::with_key();
        let key = |sequence| QueueKey { score: 0, sequence };
        let digest = |n: u8| ActionDigest { function: 1, hash: [n; 32].into(), size_bytes: 1 };
        let mut queue = Queue::default();
        for (sequence, d) in [(5, 1), (3, 1), (4, 2), (9, 1), (1, 3)] {
            queue.push(key(sequence), &digest(d), ids.insert(()));
        }
        let order = |q: &Queue| q.in_sight().map(|(k, _)| k.sequence).collect::<Vec<_>>();
        assert_eq!((order(&queue), queue.len()), (vec![1, 3, 4], 5));
        queue.remove(key(3), &digest(1));
        assert_eq!(order(&queue), [1, 4, 5]);
        queue.remove(key(9), &digest(1));
        queue.remove(key(5), &digest(1));
        assert_eq!((order(&queue), queue.len()), (vec![1, 4], 2));
    }
}
