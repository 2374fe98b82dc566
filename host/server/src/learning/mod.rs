//! What earlier runs of an action say about the next: kept by learning key, written to disk aside, read when an action is
//! routed and when policies ask.
//!
//! | File | Holds |
//! | --- | --- |
//! | `classes.rs` | which size classes there are, and what an action has on each |
//! | `decide.rs` | what a route comes to by what is known under its learning key |
//! | `file.rs` | the file: what is written when, and by whom |
//! | `lines.rs` | its lines |
//!
//! The rule itself is in `pointsman-learning`, which knows neither clock nor disk. Everything here that is on the way of an
//! action takes one lock for less than a microsecond; whoever reads all keys or writes them takes it for a few at a time.

mod classes;
mod decide;
mod file;
mod lines;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_learning::{ClassCores, Record, Rule, Run, Statistics, Suggestion, bounded};
use pointsman_policy::Summary;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::properties::Schema;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::driver::Driver;
use classes::Classes;
use decide::Packing;
use file::Keeper;

pub use file::OpenError;

/// Records by learning key, and what follows from them.
#[derive(Debug)]
pub struct Learning {
    statistics: Mutex<Statistics>,
    classes: Classes,
    rule: Rule,
    packing: Option<Packing>,
    keeper: Mutex<Keeper>,
    flush_every: Duration,
    counts: Counts,
}

/// What happened so far; all only grow.
#[derive(Debug, Default)]
pub struct Counts {
    /// Runs taken in.
    pub(crate) runs: AtomicU64,
    /// Lines of the file that were no record.
    pub(crate) broken: AtomicU64,
    /// Times that the file could not be written.
    pub(crate) flush_errors: AtomicU64,
    /// Routes that were given a size class.
    pub(crate) sized: AtomicU64,
}

/// Records that are read or copied between two times that the lock is free.
const BATCH: usize = 256;

impl Learning {
    /// What was kept in the configured folder, and what follows from it.
    ///
    /// # Errors
    /// The file is there and can't be read.
    pub fn start(
        config: &Config,
        schema: &Schema,
        pools: Arc<[DeclaredPool]>,
    ) -> Result<Arc<Self>, OpenError> {
        let own = &config.learning;
        let keys_max = NonZeroUsize::new(own.keys_max as usize).unwrap_or(NonZeroUsize::MIN);
        let (statistics, keeper, broken) = Keeper::load(&own.dir, keys_max, now())?;
        let index = own.cores.as_deref().and_then(|key| schema.minimums().iter().position(|k| **k == *key));
        Ok(Arc::new(Self {
            statistics: Mutex::new(statistics),
            classes: Classes::new(own.cores.clone(), index, own.class_cores.clone(), pools),
            rule: Rule { min_attempts: own.min_attempts, long: own.long, forget_after: own.forget_after },
            packing: Packing::new(&config.packing, schema),
            keeper: Mutex::new(keeper),
            flush_every: own.flush_every,
            counts: Counts { broken: AtomicU64::new(broken), ..Counts::default() },
        }))
    }

    /// From now on the size classes are those of that driver's workers; before there are only those of the configuration.
    pub fn follow(&self, driver: &Arc<Driver>) {
        self.classes.follow(driver);
    }

    /// Takes in a run.
    pub fn note(&self, key: &str, run: &Run) {
        let (key, now) = (bounded(key), now());
        self.lock().note(&key, run, now);
        self.counts.runs.fetch_add(1, Relaxed);
    }

    /// What policies are told of a key.
    pub fn summary(&self, key: &str) -> Option<Summary> {
        let key = bounded(key);
        let statistics = self.lock();
        let record = statistics.get(&key)?;
        let (attempts, failures) = record.attempts();
        Some(Summary {
            attempts,
            failures,
            p50_wall: record.wall(0.5).unwrap_or_default(),
            p95_wall: record.wall(0.95).unwrap_or_default(),
            mean_cores: record.mean_cores().unwrap_or_default(),
            p95_peak_memory_mib: record.memory_mib(0.95).unwrap_or_default(),
        })
    }

    /// What is known of a key; `None`: nothing.
    pub fn get(&self, key: &str) -> Option<Record> {
        self.lock().get(&bounded(key)).cloned()
    }

    /// All that is known. Takes the lock again and again, each time for a few microseconds.
    pub fn all(&self) -> Vec<(Arc<str>, Record)> {
        let keys = self.lock().keys();
        let mut all = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            let statistics = self.lock();
            all.extend(batch.iter().filter_map(|key| Some((key.clone(), statistics.get(key)?.clone()))));
        }
        all
    }

    /// The size classes there are, smallest first, whatever the pool.
    pub fn classes(&self) -> Arc<[ClassCores]> {
        self.classes.of(None)
    }

    /// The size class for the next run of an action, if something follows from its record.
    pub fn suggest(&self, record: &Record, classes: &[ClassCores]) -> Option<Suggestion> {
        pointsman_learning::suggest(record, classes, &self.rule, now())
    }

    /// How many keys are known, and how many were dropped as others were used since.
    pub fn keys(&self) -> (usize, u64) {
        let statistics = self.lock();
        (statistics.len(), statistics.dropped())
    }

    /// What happened so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Writes what changed, again and again until `shutdown`. The last time is [`Learning::close`].
    pub async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(self.flush_every) => {}
                () = shutdown.cancelled() => return,
            }
            let own = self.clone();
            // It waits for a disk. A panic in there has been logged, and the next time comes.
            _ = tokio::task::spawn_blocking(move || own.flush()).await;
        }
    }

    /// Writes what is not yet written. Waits for the disk.
    pub fn close(&self) {
        self.flush();
    }

    fn flush(&self) {
        let mut keeper = self.keeper.lock().unwrap_or_else(PoisonError::into_inner);
        if !keeper.flush(&self.statistics) {
            self.counts.flush_errors.fetch_add(1, Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Statistics> {
        self.statistics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds since the Unix epoch, as records have them.
fn now() -> u32 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since.as_secs()).unwrap_or(u32::MAX)
}
