//! Values that policies store: one bounded store per policy name, kept when the policy is swapped.

use std::collections::{BTreeMap, HashMap};
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
    fn values_expire() {
        let store = Store::new(3, 100);
        store.commit([pending("a", 1, 10.0)]);
        assert!(store.get("a", 9.9).is_some());
        assert!(store.get("a", 10.0).is_none());
    }
}
