//! What a route comes to by what is known under its learning key: a size class, what to set aside, how long it will take.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use pointsman_learning::{Record, bounded, cores_needed, memory_needed};
use pointsman_scheduler::properties::{Amounts, Asked, Schema};
use pointsman_scheduler::route::{Route, SizeClass};

use super::Learning;
use crate::config::{self, PackBy};

/// `packing: { by: "measured" }`, with properties by their places among amounts.
#[derive(Clone, Debug)]
pub(super) struct Packing {
    cores: Option<usize>,
    memory: Option<usize>,
    memory_unit_bytes: u64,
    beyond_asked: bool,
}

/// Bytes of a key that a remark has.
const SHOWN_MAX: usize = 120;

impl Packing {
    pub(super) fn new(config: &config::Packing, schema: &Schema) -> Option<Self> {
        let place = |key: &Option<String>| {
            let key = key.as_deref()?;
            schema.minimums().iter().position(|k| **k == *key)
        };
        (config.by == PackBy::Measured).then(|| Self {
            cores: place(&config.cores),
            memory: place(&config.memory),
            memory_unit_bytes: config.memory_unit.bytes(),
            beyond_asked: config.beyond_asked,
        })
    }

    /// Amounts by measurement; `None` where nothing is known or they are what is asked for.
    fn measured(&self, demand: &Amounts, record: &Record, min_attempts: u32) -> Option<Amounts> {
        let mut amounts = demand.clone();
        let cores = self.cores.zip(cores_needed(record, min_attempts));
        let memory = self.memory.zip(memory_needed(record, min_attempts, self.memory_unit_bytes));
        for (place, needed) in cores.into_iter().chain(memory) {
            if let Some(amount) = amounts.get_mut(place) {
                *amount = if self.beyond_asked { needed } else { needed.min(*amount) };
            }
        }
        (amounts != *demand).then_some(amounts)
    }
}

impl Learning {
    /// Edits a route, and what it asks for, by what is known under its learning key; without one nothing is looked at. A
    /// remark says why, if a size class was chosen.
    pub fn decide(&self, route: &mut Arc<Route>, asked: &mut Asked) -> Option<Arc<str>> {
        let key = route.learning_key.clone()?;
        let key = bounded(&key);
        let wants_size = route.size == SizeClass::Learned;
        // Before the lock: it may have to be made.
        let classes = if wants_size { self.classes.of(route.pool.as_deref()) } else { Arc::default() };
        let suggestion = {
            let statistics = self.lock();
            let record = statistics.get(&key)?;
            asked.expected = record.wall(0.5);
            asked.measured = self
                .packing
                .as_ref()
                .and_then(|packing| packing.measured(&asked.demand, record, self.rule.min_attempts));
            self.suggest(record, &classes)?
        };
        self.counts.sized.fetch_add(1, Relaxed);
        let shown = &key[..key.floor_char_boundary(SHOWN_MAX)];
        let note: Arc<str> =
            format!("size at least {}: {} under key {shown}", suggestion.at_least, suggestion.why).into();
        let route = Arc::make_mut(route);
        route.size = SizeClass::AtLeast(suggestion.at_least);
        route.notes.push(note.clone());
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use pointsman_learning::{Ended, Run};
    use pointsman_scheduler::properties::{PropertyType, UnknownProperty};
    use std::time::Duration;

    use super::*;

    fn record(runs: u32, cores: f64, mib: u32) -> Record {
        let run = Run {
            ended: Ended::Succeeded,
            size_class: 0,
            wall: Duration::from_secs(1),
            cores: Some(cores),
            peak_memory_mib: Some(mib),
        };
        let mut record = Record::default();
        (0..runs).for_each(|_| record.note(&run, 1));
        record
    }

    fn packing(beyond_asked: bool) -> Packing {
        let types = ["cpu_count", "gpu", "memory"].map(|key| (key.into(), PropertyType::Minimum));
        let schema = Schema::new(types, UnknownProperty::Reject);
        let config = config::Packing {
            by: PackBy::Measured,
            cores: Some("cpu_count".into()),
            memory: Some("memory".into()),
            memory_unit: config::MemoryUnit::MiB,
            beyond_asked,
        };
        Packing::new(&config, &schema).unwrap()
    }

    fn measured(packing: &Packing, demand: [u64; 3], record: &Record) -> Option<Vec<u64>> {
        packing.measured(&Amounts::from_slice(&demand), record, 5).map(|amounts| amounts.to_vec())
    }

    #[test]
    fn what_is_asked_for_is_the_most() {
        let packing = packing(false);
        let known = record(9, 1.9, 600);
        assert_eq!(measured(&packing, [8, 1, 9000], &known), Some(vec![2, 1, 768]));
        assert_eq!(measured(&packing, [2, 1, 700], &known), None, "it is what it asks for");
        assert_eq!(measured(&packing, [0, 1, 0], &known), None, "it asks for none");
        assert_eq!(measured(&packing, [8, 1, 9000], &record(4, 1.9, 600)), None, "too little is known");
    }

    #[test]
    fn more_on_request() {
        let known = record(9, 1.9, 600);
        assert_eq!(measured(&packing(true), [1, 1, 0], &known), Some(vec![2, 1, 768]));
    }
}
