//! Workers that are refused. They call again and again: each is logged once in a while, and listed for operators, who
//! would otherwise see a fleet that is smaller than they ordered.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// `worker_id`.
type Id = BTreeMap<String, String>;

/// What is known of a worker that is refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Why, in the words that it is told.
    pub reason: String,
    /// How often it has been told.
    pub calls: u64,
    /// When it last was.
    pub last: Instant,
    logged: Instant,
}

/// Workers that were refused lately, by `worker_id`. Those beyond the limit are counted together, under the id that no
/// worker can have: the empty one.
#[derive(Debug, Default)]
pub struct RefusedWorkers {
    kept: Mutex<BTreeMap<Id, Refusal>>,
}

/// So many are told apart.
const KEPT_MAX: usize = 200;
/// One that has not called for so long has given up, or is mended.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// The log has a line about each so often at most.
const LOG_INTERVAL: Duration = Duration::from_secs(60);
/// Characters of a reason: values may be long.
const REASON_MAX: usize = 1000;

impl RefusedWorkers {
    /// Counts a call that is refused, and logs it when that is due.
    pub fn note(&self, id: &BTreeMap<&str, &str>, reason: &str) {
        let now = Instant::now();
        let mut id: Id = id.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let mut kept = self.lock();
        if !kept.contains_key(&id) && kept.len() >= KEPT_MAX {
            kept.retain(|_, refusal| now.duration_since(refusal.last) < KEPT_FOR);
            if kept.len() >= KEPT_MAX {
                id = Id::new();
            }
        }
        let reason: String = reason.chars().take(REASON_MAX).collect();
        let known = kept.get(&id);
        let calls = known.map_or(1, |refusal| refusal.calls + 1);
        // A new reason is news, but for those that are not told apart.
        let is_due = |refusal: &&Refusal| {
            let same = refusal.reason == reason || id.is_empty();
            same && now.duration_since(refusal.logged) < LOG_INTERVAL
        };
        let logged = known.filter(is_due).map_or(now, |refusal| refusal.logged);
        kept.insert(id.clone(), Refusal { reason: reason.clone(), calls, last: now, logged });
        drop(kept);
        if logged == now {
            // A map of strings always has a JSON form.
            let worker = serde_json::to_string(&id).unwrap_or_default();
            tracing::warn!(worker, calls, "refused a worker: {reason}");
        }
    }

    /// A worker of that id is served.
    pub fn forget(&self, id: &BTreeMap<&str, &str>) {
        let mut kept = self.lock();
        if !kept.is_empty() {
            kept.retain(|known, _| {
                !known.iter().map(|(k, v)| (k.as_str(), v.as_str())).eq(id.iter().map(|(k, v)| (*k, *v)))
            });
        }
    }

    /// Those that have called lately.
    pub fn list(&self) -> Vec<(Id, Refusal)> {
        let now = Instant::now();
        let kept = self.lock();
        let lately = kept.iter().filter(|(_, refusal)| now.duration_since(refusal.last) < KEPT_FOR);
        lately.map(|(id, refusal)| (id.clone(), refusal.clone())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Id, Refusal>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_counted_and_the_rest_together() {
        let refused = RefusedWorkers::default();
        let names: Vec<_> = (0..KEPT_MAX + 50).map(|i| i.to_string()).collect();
        for name in &names {
            for reason in ["one", "other"] {
                refused.note(&BTreeMap::from([("hostname", name.as_str())]), reason);
            }
        }
        let list = refused.list();
        assert_eq!(list.len(), KEPT_MAX + 1);
        assert_eq!((list[0].0.len(), list[0].1.calls), (0, 100), "the rest");
        assert_eq!((&*list[1].1.reason, list[1].1.calls), ("other", 2));

        refused.forget(&BTreeMap::from([("hostname", "7")]));
        assert_eq!(refused.list().len(), KEPT_MAX);
    }
}
