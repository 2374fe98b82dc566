//! Which size classes there are, and how many cores an action has on each: by what workers say, the pools of the
//! configuration, and the operator's word, which goes before both.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use pointsman_learning::ClassCores;
use pointsman_scheduler::declared::DeclaredPool;

use crate::driver::Driver;

/// A table of the size classes, made anew when somebody asks and it is too old.
#[derive(Debug)]
pub(super) struct Classes {
    driver: Mutex<Weak<Driver>>,
    /// The property that counts cores, and where it stands among amounts.
    cores: Option<String>,
    index: Option<usize>,
    /// `learning.class_cores`.
    given: BTreeMap<u32, f64>,
    pools: Arc<[DeclaredPool]>,
    table: ArcSwap<Table>,
    /// Held by who makes a new one.
    making: Mutex<()>,
}

#[derive(Debug, Default)]
struct Table {
    /// `None`: it has never been made.
    made: Option<Instant>,
    all: Arc<[ClassCores]>,
    by_pool: BTreeMap<Arc<str>, Arc<[ClassCores]>>,
}

/// So old may a table be: machines don't change within seconds, and making one looks at every host.
const AGE_MAX: Duration = Duration::from_secs(5);
/// The same while there is no choice between classes: workers come when a server has just started.
const AGE_MAX_WITHOUT_CHOICE: Duration = Duration::from_millis(500);

impl Classes {
    pub(super) fn new(
        cores: Option<String>,
        index: Option<usize>,
        given: BTreeMap<u32, f64>,
        pools: Arc<[DeclaredPool]>,
    ) -> Self {
        let (driver, table, making) = (Mutex::default(), ArcSwap::default(), Mutex::default());
        Self { driver, cores, index, given, pools, table, making }
    }

    pub(super) fn follow(&self, driver: &Arc<Driver>) {
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(driver);
    }

    /// The classes of a pool's workers, smallest first; of all pools without one. Never to be called while the core is
    /// locked. Whoever finds the table too old makes a new one, and others go by the old one meanwhile.
    pub(super) fn of(&self, pool: Option<&str>) -> Arc<[ClassCores]> {
        let table = self.table.load();
        let age_max = if table.all.len() < 2 { AGE_MAX_WITHOUT_CHOICE } else { AGE_MAX };
        let is_old = table.made.is_none_or(|made| made.elapsed() >= age_max);
        if is_old && let Ok(_making) = self.making.try_lock() {
            self.table.store(Arc::new(self.make()));
            return self.table.load().of(pool);
        }
        table.of(pool)
    }

    fn make(&self) -> Table {
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let mut found: BTreeMap<(Arc<str>, u32), Option<f64>> = BTreeMap::new();
        for capacity in driver.map(|d| d.capacities(self.cores.as_deref())).unwrap_or_default() {
            found.insert((capacity.pool, capacity.size_class), capacity.least);
        }
        // Of a pool without workers the configuration says what they are like.
        for pool in self.pools.iter() {
            let Some(size_class) = pool.size_class else { continue };
            let total =
                self.index.and_then(|i| pool.offers.totals.get(i)).copied().filter(|total| *total > 0);
            let cores = total.map(|total| total as f64 / f64::from(pool.max_inflight_tasks.max(1)));
            let known = found.entry((pool.name.clone(), size_class)).or_insert(cores);
            *known = known.or(cores);
        }
        let mut by_pool: BTreeMap<Arc<str>, BTreeMap<u32, Option<f64>>> = BTreeMap::new();
        let mut all: BTreeMap<u32, Option<f64>> = self.given.keys().map(|class| (*class, None)).collect();
        for ((pool, size_class), cores) in found {
            by_pool.entry(pool).or_default().insert(size_class, cores);
            let least = all.entry(size_class).or_default();
            *least = match (*least, cores) {
                (Some(least), Some(cores)) => Some(least.min(cores)),
                (least, cores) => least.or(cores),
            };
        }
        Table {
            made: Some(Instant::now()),
            all: self.list(all),
            by_pool: by_pool.into_iter().map(|(pool, classes)| (pool, self.list(classes))).collect(),
        }
    }

    fn list(&self, classes: BTreeMap<u32, Option<f64>>) -> Arc<[ClassCores]> {
        let given = |size_class| self.given.get(&size_class).copied();
        let class = |(size_class, cores): (u32, Option<f64>)| ClassCores {
            size_class,
            cores: given(size_class).or(cores),
        };
        classes.into_iter().map(class).collect()
    }
}

impl Table {
    fn of(&self, pool: Option<&str>) -> Arc<[ClassCores]> {
        match pool {
            None => self.all.clone(),
            Some(pool) => self.by_pool.get(pool).cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_scheduler::properties::{PropertyType, Schema, UnknownProperty};
    use pointsman_scheduler::route::Property;

    use super::*;

    fn pool(name: &str, size_class: Option<u32>, cores: &str, at_once: u32) -> DeclaredPool {
        let schema = Schema::new([("cpu_count".into(), PropertyType::Minimum)], UnknownProperty::Reject);
        let platform = [Property::new("cpu_count", cores)];
        DeclaredPool {
            name: name.into(),
            instance_name_prefix: None,
            size_class,
            asks: schema.action(&platform).unwrap(),
            offers: schema.worker(&platform).unwrap(),
            strategies: Vec::new(),
            max_inflight_tasks: at_once,
        }
    }

    fn classes(given: &[(u32, f64)]) -> Classes {
        let pools = [
            pool("a", Some(1), "6", 4),
            pool("a8", Some(8), "16", 0),
            pool("b", Some(1), "1", 0),
            pool("c", None, "9", 0),
        ];
        Classes::new(Some("cpu_count".into()), Some(0), given.iter().copied().collect(), pools.into())
    }

    fn of(classes: &Classes, pool: Option<&str>) -> Vec<(u32, Option<f64>)> {
        classes.of(pool).iter().map(|c| (c.size_class, c.cores)).collect()
    }

    #[test]
    fn pools_say_what_their_workers_have() {
        let classes = classes(&[]);
        assert_eq!(of(&classes, None), [(1, Some(1.0)), (8, Some(16.0))]);
        assert_eq!(of(&classes, Some("a")), [(1, Some(1.5))]);
        assert_eq!(of(&classes, Some("c")), []);
        assert_eq!(of(&classes, Some("nowhere")), []);
    }

    #[test]
    fn the_operators_word_goes_before() {
        let classes = classes(&[(1, 2.5), (4, 6.0)]);
        assert_eq!(of(&classes, None), [(1, Some(2.5)), (4, Some(6.0)), (8, Some(16.0))]);
        assert_eq!(of(&classes, Some("a")), [(1, Some(2.5))]);
    }
}
