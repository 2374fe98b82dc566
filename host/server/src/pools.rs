//! What policies are told of pools (`host.pools`): a snapshot, a tenth of a second old at most.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use pointsman_policy::Pool;
use pointsman_scheduler::metrics::{Metrics, PoolMetrics, WorkerState};

use crate::driver::Driver;

/// The latest snapshot of a driver's pools, made when somebody asks and it is too old.
#[derive(Debug, Default)]
pub struct Pools {
    driver: Mutex<Weak<Driver>>,
    latest: Mutex<Option<(Instant, Arc<[Pool]>)>>,
}

/// So old may a snapshot be.
const AGE_MAX: Duration = Duration::from_millis(100);
/// So many of those who wait are looked at, the oldest first.
const LOOKED_AT: usize = 200;

impl Pools {
    /// From now on these are the pools of that driver; before there are none.
    pub fn follow(&self, driver: &Arc<Driver>) {
        *self.driver.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(driver);
    }

    /// All pools. Never to be called while the core is locked.
    pub fn snapshot(&self) -> Arc<[Pool]> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((made, pools)) = &*latest
            && made.elapsed() < AGE_MAX
        {
            return pools.clone();
        }
        let driver = self.driver.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        let pools = driver.map_or_else(|| Arc::from([]), |driver| pools(&driver));
        *latest = Some((Instant::now(), pools.clone()));
        pools
    }
}

fn pools(driver: &Driver) -> Arc<[Pool]> {
    let (Metrics { pools, .. }, oldest) = driver.pools(LOOKED_AT);
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let state = |pool: &PoolMetrics, state: WorkerState| pool.workers[state as usize];
    let pool = |pool: &PoolMetrics| Pool {
        name: pool.name.clone(),
        workers: count(pool.workers.iter().sum()),
        idle_workers: count(state(pool, WorkerState::Idle)),
        executing: count(state(pool, WorkerState::Executing)),
        queued: count(pool.queued),
        oldest_queued: oldest.get(&pool.name).copied().unwrap_or_default(),
    };
    pools.iter().map(pool).collect()
}
