//! What an action has on the workers of each size class.

use std::collections::BTreeMap;

use crate::ids::Text;
use crate::scheduler::Scheduler;

/// The hosts of one size class of one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Capacity {
    /// The pool.
    pub pool: Text,
    /// The size class.
    pub size_class: u32,
    /// Hosts with such workers.
    pub hosts: usize,
    /// What the host with the least has for each action that it runs at once; `None`: none of them has any.
    pub least: Option<f64>,
}

impl Scheduler {
    /// What there is of a `minimum` key by pool and size class, in order; without a key, or with one that is no `minimum`,
    /// only which of these there are.
    ///
    /// Looks at every host once for each kind of its workers: for who asks every few seconds.
    pub fn capacities(&self, minimum: Option<&str>) -> Vec<Capacity> {
        let index = minimum.and_then(|key| self.schema.minimums().iter().position(|k| &**k == key));
        let mut found: BTreeMap<(&Text, u32), (usize, Option<f64>)> = BTreeMap::new();
        for kind in self.index.kinds.values() {
            for host in &kind.hosts {
                let host = &self.fleet.hosts[*host];
                let total = index.and_then(|i| host.totals.get(i)).copied().filter(|total| *total > 0);
                let share = total.map(|total| total as f64 / host.max_inflight().max(1) as f64);
                let (hosts, least) = found.entry((&kind.key.pool, kind.key.size_class)).or_default();
                *hosts += 1;
                *least = match (*least, share) {
                    (Some(least), Some(share)) => Some(least.min(share)),
                    (least, share) => least.or(share),
                };
            }
        }
        let capacity = |((pool, size_class), (hosts, least)): ((&Text, u32), (usize, Option<f64>))| {
            Capacity { pool: pool.clone(), size_class, hosts, least }
        };
        found.into_iter().map(capacity).collect()
    }
}
