//! Values that policies store: one bounded store per policy name, kept when the policy is swapped.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::options::Limits;

/// All stores.
#[derive(Debug, Default)]
pub(crate) struct Stores {
    by_policy: Mutex<HashMap<Arc<str>, Arc<Store>>>,
}

impl Stores {
    /// The store of a policy; made when there is none.
    pub(crate) fn of(&self, policy: &Arc<str>, limits: &Limits) -> Arc<Store> {
        let mut stores = self.by_policy.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Store::new(limits.stored_values, limits.stored_bytes));
        stores.entry(policy.clone()).or_insert_with(new).clone()
    }
}

/// What one version of a policy sees of its store. A version on trial reads what is there, but what it sets goes to a
/// scratch store of its own, until it is promoted.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    base: Arc<Store>,
    scratch: Arc<Scratch>,
}

#[derive(Debug)]
struct Scratch {
    on: AtomicBool,
    store: Store,
}

impl Values {
    pub(crate) fn new(base: Arc<Store>, on_trial: bool) -> Self {
        let store = Store::new(base.values_max, base.bytes_max);
        Self { base, scratch: Arc::new(Scratch { on: AtomicBool::new(on_trial), store }) }
    }

    /// From now on what is set is set for good. What was tried out is forgotten.
    pub(crate) fn promote(&self) {
        self.scratch.on.store(false, Relaxed);
        self.scratch.store.clear();
    }

    pub(crate) fn get(&self, key: &str, now: f64) -> Option<Vec<u8>> {
        if self.scratch.on.load(Relaxed) && self.scratch.store.has(key) {
            return self.scratch.store.get(key, now);
        }
        self.base.get(key, now)
    }

    pub(crate) fn commit(&self, values: impl IntoIterator<Item = Pending>) {
        match self.scratch.on.load(Relaxed) {
            true => self.scratch.store.commit(values),
            false => self.base.commit(values),
        }
    }
}

/// A value on its way into a store: kept aside until the call that set it has succeeded.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) key: Arc<str>,
    pub(crate) value: Vec<u8>,
    /// Seconds since the Unix epoch.
    pub(crate) expires: f64,
}

/// The values of one policy.
#[derive(Debug)]
pub(crate) struct Store {
    values_max: usize,
    bytes_max: usize,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    entries: HashMap<Arc<str>, Entry>,
    /// Keys by age.
    order: BTreeMap<u64, Arc<str>>,
    next: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    value: Vec<u8>,
    expires: f64,
    order: u64,
}

impl Store {
    pub(crate) fn new(values_max: usize, bytes_max: usize) -> Self {
        Self { values_max, bytes_max, inner: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value, unless it has expired.
    pub(crate) fn get(&self, key: &str, now: f64) -> Option<Vec<u8>> {
        let inner = self.lock();
        inner.entries.get(key).filter(|entry| entry.expires > now).map(|entry| entry.value.clone())
    }

    fn has(&self, key: &str) -> bool {
        self.lock().entries.contains_key(key)
    }

    fn clear(&self) {
        *self.lock() = Inner::default();
    }

    /// Stores values and drops the oldest that no longer fit.
    pub(crate) fn commit(&self, values: impl IntoIterator<Item = Pending>) {
        let mut inner = self.lock();
        for Pending { key, value, expires } in values {
            inner.remove(&key);
            let order = inner.next;
            inner.next += 1;
            inner.bytes += key.len() + value.len();
            inner.order.insert(order, key.clone());
            inner.entries.insert(key, Entry { value, expires, order });
        }
        while inner.entries.len() > self.values_max || inner.bytes > self.bytes_max {
            let Some(oldest) = inner.order.first_key_value().map(|(_, key)| key.clone()) else { break };
            inner.remove(&oldest);
        }
    }
}

impl Inner {
    fn remove(&mut self, key: &str) {
        if let Some(entry) = self.entries.remove(key) {
            self.bytes -= key.len() + entry.value.len();
            self.order.remove(&entry.order);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(key: &str, size: usize, expires: f64) -> Pending {
        Pending { key: key.into(), value: vec![0; size], expires }
    }

    #[test]
    fn oldest_go_first() {
        let store = Store::new(3, 100);
        store.commit(["a", "b", "c"].map(|key| pending(key, 9, 10.0)));
        store.commit([pending("a", 9, 10.0), pending("d", 9, 10.0)]);
        assert_eq!(store.get("b", 0.0), None, "b is the oldest: a was set again");
        assert!(["a", "c", "d"].iter().all(|key| store.get(key, 0.0).is_some()));
        store.commit([pending("e", 85, 10.0)]);
        assert_eq!(store.lock().entries.len(), 2, "one of the small ones still fits");
        store.commit([pending("f", 1000, 10.0)]);
        let inner = store.lock();
        assert_eq!((inner.entries.len(), inner.bytes), (0, 0), "what fits nowhere is not kept");
    }

    #[test]
    fn what_is_set_on_trial_is_seen_by_the_trial_only() {
        let base = Arc::new(Store::new(3, 100));
        base.commit([pending("a", 1, 10.0), pending("b", 2, 10.0)]);
        let trial = Values::new(base.clone(), true);
        trial.commit([pending("a", 5, 10.0)]);
        assert_eq!(trial.get("a", 0.0).map(|v| v.len()), Some(5));
        assert_eq!(trial.get("b", 0.0).map(|v| v.len()), Some(2));
        assert_eq!(base.get("a", 0.0).map(|v| v.len()), Some(1));
        trial.promote();
        assert_eq!(trial.get("a", 0.0).map(|v| v.len()), Some(1), "what was tried out is forgotten");
        trial.commit([pending("a", 7, 10.0)]);
        assert_eq!(base.get("a", 0.0).map(|v| v.len()), Some(7));
    }

    #[test]
    fn values_expire() {
        let store = Store::new(3, 100);
        store.commit([pending("a", 1, 10.0)]);
        assert!(store.get("a", 9.9).is_some());
        assert!(store.get("a", 10.0).is_none());
    }
}
