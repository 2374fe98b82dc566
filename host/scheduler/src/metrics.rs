//! Counts of what there is and of what happened, kept as things happen: to ask for them costs one look at each pool,
//! however many tasks wait and workers there are.
//!
//! Pools are told apart up to a bound, since whoever names pools may name ever new ones.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::effect::{End, Refusal};
use crate::ids::{Map, Text};
use crate::scheduler::Scheduler;
use crate::task::Failure;
use crate::time::Time;
use crate::views::Counts;
use crate::workers::Worker;

/// So many pools that nobody declared are told apart; what is of others is counted as of [`OTHER_POOLS`].
pub const POOLS_MAX: usize = 100;

/// Under this name are all pools beyond [`POOLS_MAX`].
pub const OTHER_POOLS: &str = "other";

/// Upper bounds of the buckets of a [`Histogram`], in milliseconds.
pub const BOUNDS_MS: [u64; 14] =
    [1, 10, 100, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 900_000, 1_800_000, 3_600_000];

/// How often something took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Of each bucket alone, the last one being for all that is longer than the last of [`BOUNDS_MS`].
    pub buckets: [u64; BOUNDS_MS.len() + 1],
    /// All of it together, in milliseconds.
    pub sum_ms: u64,
}

impl Histogram {
    /// How often in all.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, n)| *sum += n);
        self.sum_ms = self.sum_ms.saturating_add(other.sum_ms);
    }

    pub(crate) fn add(&mut self, length: Duration) {
        let ms = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        self.buckets[BOUNDS_MS.partition_point(|bound| *bound < ms)] += 1;
        self.sum_ms = self.sum_ms.saturating_add(ms);
    }
}

/// What a worker does, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerState {
    /// It has an action.
    Executing,
    /// Its call waits for work.
    Idle,
    /// It has nothing to do and is drained or paused by an operator.
    Held,
    /// It has nothing to do and has not called since its last answer.
    NotCalling,
}

impl WorkerState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Executing, Self::Idle, Self::Held, Self::NotCalling];

    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Executing => "executing",
            Self::Idle => "idle",
            Self::Held => "held",
            Self::NotCalling => "not_calling",
        }
    }

    pub(crate) fn of(worker: &Worker) -> Self {
        match worker {
            Worker { run: Some(_), .. } => Self::Executing,
            worker if worker.is_held() => Self::Held,
            Worker { waiting: Some(_), .. } => Self::Idle,
            _ => Self::NotCalling,
        }
    }
}

/// How tasks end.
const ENDS: [&str; 7] = ["reported", "cached", "cancelled", "gave_up", "unschedulable", "refused", "killed"];
/// Why tasks go back into the queue.
const RETRIES: [&str; 6] = ["lost", "given_back", "reported", "run_again", "undelivered", "exhausted"];
/// What becomes of claims on hosts.
const CLAIMS: [&str; 4] = ["made", "met", "moved", "dropped"];
/// Why submissions are refused.
const REFUSALS: [&str; 3] = ["queue_full", "too_many_classes", "too_many_demands"];

/// Why a task goes back into the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Retry {
    Failed(Failure),
    Undelivered,
    Exhausted,
}

/// What becomes of a claim on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    Made,
    Met,
    Moved,
    Dropped,
}

/// Everything at one moment.
#[derive(Clone, Debug)]
pub struct Metrics {
    /// What there is.
    pub counts: Counts,
    /// How long the task has waited that waits longest; zero if none does.
    pub oldest_queued: Duration,
    /// Tasks that wait and that no worker could run that is known.
    pub unserved: usize,
    /// Drains and pauses in force.
    pub holds: usize,
    /// Hosts that are paused since they are out of resources.
    pub hosts_paused: usize,
    /// Hosts in quarantine, those on trial included.
    pub hosts_quarantined: usize,
    /// Submissions that made a task.
    pub submitted: u64,
    /// Submissions that joined a task in flight.
    pub joined: u64,
    /// Submissions refused, by reason.
    pub refused: [(&'static str, u64); REFUSALS.len()],
    /// Tasks that ended, by how they did.
    pub ended: [(&'static str, u64); ENDS.len()],
    /// How often tasks went back into the queue, by cause.
    pub retried: [(&'static str, u64); RETRIES.len()],
    /// Hosts that are kept free for a task.
    pub hosts_reserved: usize,
    /// How often hosts were, and what came of it.
    pub reservations: [(&'static str, u64); CLAIMS.len()],
    /// From when a host is kept free for a task until the task begins.
    pub reservation_wait: Histogram,
    /// By pool: those that are declared, and those that had workers.
    pub pools: Vec<PoolMetrics>,
}

/// One pool.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    /// Its name.
    pub name: Text,
    /// Tasks that wait and that its workers could run. One that workers of several pools could run counts in each.
    pub queued: usize,
    /// Its workers, by state in the order of [`WorkerState::ALL`].
    pub workers: [usize; WorkerState::ALL.len()],
    /// Tasks that wait for it or that its workers have, each counted in one pool, whether it has workers or not; `None` for a
    /// pool that nobody declared. See [`crate::task_metrics`].
    pub load: Option<u64>,
    /// Tasks given to its workers.
    pub assigned: u64,
    /// From a task's arrival until the first time that a worker is given it.
    pub wait: Histogram,
    /// From when a worker is given a task until it has the result.
    pub execution: Histogram,
}

/// A pool's place in the tables below.
pub(crate) type Slot = u16;

/// Workers by pool and state.
#[derive(Clone, Debug)]
pub(crate) struct Census {
    slots: Map<Text, Slot>,
    /// The first is for all pools beyond the bound.
    pools: Vec<Members>,
    undeclared: usize,
    pub(crate) paused: usize,
    pub(crate) quarantined: usize,
}

#[derive(Clone, Debug)]
struct Members {
    name: Text,
    workers: [usize; WorkerState::ALL.len()],
}

impl Default for Census {
    fn default() -> Self {
        let others = Members { name: OTHER_POOLS.into(), workers: Default::default() };
        Self { slots: Map::default(), pools: vec![others], undeclared: 0, paused: 0, quarantined: 0 }
    }
}

impl Census {
    /// A pool that is shown whether or not it has workers.
    pub(crate) fn declare(&mut self, name: &Text) {
        if !self.slots.contains_key(name) {
            self.add(name);
        }
    }

    fn add(&mut self, name: &Text) -> Slot {
        let Ok(slot) = Slot::try_from(self.pools.len()) else { return 0 };
        self.pools.push(Members { name: name.clone(), workers: Default::default() });
        self.slots.insert(name.clone(), slot);
        slot
    }

    /// The place of a pool. It stays when the pool has no workers any more: counters don't go back.
    pub(crate) fn slot(&mut self, name: &Text) -> Slot {
        match self.slots.get(name) {
            Some(slot) => *slot,
            None if self.undeclared >= POOLS_MAX => 0,
            None => {
                self.undeclared += 1;
                self.add(name)
            }
        }
    }

    /// Workers of a pool; of one beyond the bound, of all such.
    pub(crate) fn workers_of(&self, name: &Text) -> usize {
        let slot = self.slots.get(name).copied().unwrap_or(0);
        self.pools[usize::from(slot)].workers.iter().sum()
    }

    pub(crate) fn came(&mut self, slot: Slot, state: WorkerState) {
        self.pools[usize::from(slot)].workers[state as usize] += 1;
    }

    pub(crate) fn left(&mut self, slot: Slot, state: WorkerState) {
        self.pools[usize::from(slot)].workers[state as usize] -= 1;
    }
}

/// What happened so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    submitted: u64,
    joined: u64,
    refused: [u64; REFUSALS.len()],
    ended: [u64; ENDS.len()],
    retried: [u64; RETRIES.len()],
    claims: [u64; CLAIMS.len()],
    claim_wait: Histogram,
    /// By slot; those beyond the end have done nothing yet.
    pools: Vec<Done>,
}

#[derive(Clone, Debug, Default)]
struct Done {
    assigned: u64,
    wait: Histogram,
    execution: Histogram,
}

impl Tally {
    pub(crate) fn submitted(&mut self, joined: bool) {
        *if joined { &mut self.joined } else { &mut self.submitted } += 1;
    }

    pub(crate) fn refused(&mut self, refusal: Refusal) {
        let at = match refusal {
            Refusal::QueueFull(_) => 0,
            Refusal::TooManyClasses(_) => 1,
            Refusal::TooManyDemands(_) => 2,
        };
        self.refused[at] += 1;
    }

    pub(crate) fn ended(&mut self, end: &End) {
        let at = match end {
            End::Reported => 0,
            End::Cancelled => 2,
            End::GaveUp(_) => 3,
            End::Unschedulable(_) => 4,
            End::Refused(_) => 5,
            End::Killed(_) => 6,
        };
        self.ended[at] += 1;
    }

    /// The end that comes now is none of a worker's making.
    pub(crate) fn found_in_cache(&mut self) {
        self.ended[0] -= 1;
        self.ended[1] += 1;
    }

    pub(crate) fn retried(&mut self, why: Retry) {
        let at = match why {
            Retry::Failed(Failure::Lost) => 0,
            Retry::Failed(Failure::GivenBack) => 1,
            Retry::Failed(Failure::Reported) => 2,
            Retry::Failed(Failure::RunAgain) => 3,
            Retry::Undelivered => 4,
            Retry::Exhausted => 5,
        };
        self.retried[at] += 1;
    }

    pub(crate) fn claim(&mut self, what: Claim) {
        self.claims[what as usize] += 1;
    }

    /// So long a host was kept free until the task began that it was for.
    pub(crate) fn claim_waited(&mut self, wait: Duration) {
        self.claim_wait.add(wait);
    }

    /// A worker is given a task; `waited` is since it arrived, if no worker had it before.
    pub(crate) fn assigned(&mut self, slot: Slot, waited: Option<Duration>) {
        let pool = self.pool(slot);
        pool.assigned += 1;
        if let Some(waited) = waited {
            pool.wait.add(waited);
        }
    }

    /// A worker has the result of what it was given so long ago.
    pub(crate) fn executed(&mut self, slot: Slot, took: Duration) {
        self.pool(slot).execution.add(took);
    }

    fn pool(&mut self, slot: Slot) -> &mut Done {
        let slot = usize::from(slot);
        if self.pools.len() <= slot {
            self.pools.resize_with(slot + 1, Done::default);
        }
        &mut self.pools[slot]
    }
}

impl Scheduler {
    /// Counts of what there is at `now`, and of what happened so far. Takes time by the number of pools and nothing else.
    pub fn metrics(&self, now: Time) -> Metrics {
        let oldest = self.queued_by_arrival.first_key_value().map(|(_, id)| self.tasks[*id].queued_at);
        let census = &self.fleet.census;
        Metrics {
            counts: self.counts(),
            oldest_queued: oldest.map_or(Duration::ZERO, |at| now.since(at)),
            unserved: self.index.unserved,
            holds: self.holds.len(),
            hosts_paused: census.paused,
            hosts_quarantined: census.quarantined,
            submitted: self.tally.submitted,
            joined: self.tally.joined,
            refused: named(REFUSALS, self.tally.refused),
            ended: named(ENDS, self.tally.ended),
            retried: named(RETRIES, self.tally.retried),
            hosts_reserved: self.claims.len(),
            reservations: named(CLAIMS, self.tally.claims),
            reservation_wait: self.tally.claim_wait,
            pools: self.pool_metrics(),
        }
    }

    /// For each pool that something waits for, how long what has waited longest has; of those that are not among the
    /// first `looked_at` of all that wait, as long as the last of these. Takes time by `looked_at`.
    pub fn oldest_by_pool(&self, now: Time, looked_at: usize) -> BTreeMap<Text, Duration> {
        let mut oldest = BTreeMap::new();
        let mut last = Duration::ZERO;
        for (_, id) in self.queued_by_arrival.iter().take(looked_at) {
            last = now.since(self.tasks[*id].queued_at);
            // What rests before its next attempt is not in the index.
            let Some(waiting) = self.index.waiting.get(*id) else { continue };
            for pool in self.index.pool_names(waiting.class) {
                oldest.entry(pool.clone()).or_insert(last);
            }
        }
        for (pool, queued) in self.index.invocations.queued_by_pool() {
            if queued > 0 {
                oldest.entry(pool.clone()).or_insert(last);
            }
        }
        oldest
    }

    fn pool_metrics(&self) -> Vec<PoolMetrics> {
        let census = &self.fleet.census;
        let nothing = Done::default();
        let members = census.pools.iter().enumerate();
        let mut pools: Vec<PoolMetrics> = members
            .map(|(slot, members)| {
                let done = self.tally.pools.get(slot).unwrap_or(&nothing);
                PoolMetrics {
                    name: Arc::clone(&members.name),
                    queued: 0,
                    workers: members.workers,
                    load: self.task_tally.load(&members.name),
                    assigned: done.assigned,
                    wait: done.wait,
                    execution: done.execution,
                }
            })
            .collect();
        for (name, queued) in self.index.invocations.queued_by_pool() {
            pools[census.slots.get(name).copied().map_or(0, usize::from)].queued += queued;
        }
        // Most never have so many pools, and one of this name might be taken for a real one.
        let others = &pools[0];
        if others.assigned == 0 && others.queued == 0 && others.workers == <[usize; 4]>::default() {
            pools.remove(0);
        }
        pools
    }

    /// The counts are what counting gives.
    pub(crate) fn check_metrics(&self) -> Result<(), String> {
        let census = &self.fleet.census;
        let mut workers = vec![<[usize; WorkerState::ALL.len()]>::default(); census.pools.len()];
        for worker in self.fleet.workers.values() {
            workers[usize::from(worker.slot)][WorkerState::of(worker) as usize] += 1;
        }
        for (members, counted) in census.pools.iter().zip(workers) {
            if members.workers != counted {
                return Err(format!("pool {}: {counted:?} workers by state: {members:?}", members.name));
            }
        }
        let hosts = || self.fleet.hosts.values();
        let paused = hosts().filter(|h| h.health.pause.is_some()).count();
        let quarantined = hosts().filter(|h| h.health.quarantine.is_some()).count();
        if (paused, quarantined) != (census.paused, census.quarantined) {
            return Err(format!("{paused} hosts paused, {quarantined} in quarantine: {census:?}"));
        }
        self.index.check_queued()
    }
}

fn named<const N: usize>(names: [&'static str; N], counts: [u64; N]) -> [(&'static str, u64); N] {
    std::array::from_fn(|i| (names[i], counts[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_have_what_is_up_to_their_bound() {
        let mut histogram = Histogram::default();
        for ms in [0, 1, 2, 10, 11, 3_600_000, 3_600_001] {
            histogram.add(Duration::from_millis(ms));
        }
        assert_eq!(histogram.buckets[..3], [2, 2, 1]);
        assert_eq!(histogram.buckets[BOUNDS_MS.len() - 1..], [1, 1]);
        assert_eq!(histogram.sum_ms, 7_200_025);
    }

    #[test]
    fn pools_beyond_the_bound_are_one() {
        let mut census = Census::default();
        census.declare(&"declared".into());
        let slots: Vec<Slot> = (0..POOLS_MAX + 5).map(|i| census.slot(&format!("p{i}").into())).collect();
        assert_eq!(slots[0], 2);
        assert!(slots[..POOLS_MAX].iter().all(|s| *s > 1) && slots[POOLS_MAX..].iter().all(|s| *s == 0));
        assert_eq!((census.slot(&"p3".into()), census.slot(&"declared".into())), (slots[3], 1));
        assert_eq!(census.pools.len(), POOLS_MAX + 2);
    }
}
