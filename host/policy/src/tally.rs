//! What happened so far, in numbers: of all policies together, and of each version.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::decision::Hook;
use crate::failure::FailureKind;

/// Counters of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: Sharded<AtomicU64>,
    pub(crate) rejections: AtomicU64,
    pub(crate) fallbacks: AtomicU64,
    pub(crate) instances: AtomicU64,
    pub(crate) installs: AtomicU64,
    pub(crate) refused_loads: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
}

/// Counters of a runtime at one moment; all only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Actions routed.
    pub calls: u64,
    /// Of those, refused by a policy.
    pub rejections: u64,
    /// Of those, decided without a policy that was to decide, because it failed.
    pub fallbacks: u64,
    /// Instances made.
    pub instances: u64,
    /// Generations put in force.
    pub installs: u64,
    /// Policies that could not be loaded.
    pub refused_loads: u64,
    /// Failed calls by kind, all kinds named.
    pub failures: Vec<(FailureKind, u64)>,
}

impl CountersSnapshot {
    /// Failed calls of one kind.
    pub fn failures_of(&self, kind: FailureKind) -> u64 {
        self.failures.iter().filter(|(known, _)| *known == kind).map(|(_, count)| count).sum()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Relaxed);
}

impl Counters {
    pub(crate) fn failure(&self, kind: FailureKind) {
        count(&self.failures[kind as usize]);
    }

    pub(crate) fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            calls: self.calls.sum(|calls| calls),
            rejections: self.rejections.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
            instances: self.instances.load(Relaxed),
            installs: self.installs.load(Relaxed),
            refused_loads: self.refused_loads.load(Relaxed),
            failures: by_kind(&self.failures),
        }
    }
}

fn by_kind(failures: &[AtomicU64; FailureKind::ALL.len()]) -> Vec<(FailureKind, u64)> {
    FailureKind::ALL.into_iter().zip(failures).map(|(kind, count)| (kind, count.load(Relaxed))).collect()
}

/// Upper bounds of the latency buckets, in microseconds; one more bucket is without a bound.
pub const LATENCY_BUCKETS_US: [u64; 15] =
    [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 100_000, 1_000_000];

/// A call that takes longer is slow: other tasks of its thread wait for it.
pub(crate) const SLOW: Duration = Duration::from_micros(200);
/// Over so many calls it is judged whether a policy is slow, which it is when more than one in a hundred are.
const WINDOW: u32 = 256;
/// After so many calls a thread tells the others.
const TOLD: u32 = 32;

/// Counters that threads share as little as they can.
#[derive(Debug)]
pub(crate) struct Sharded<T> {
    shards: Box<[T]>,
}

/// More threads than that share some.
const SHARDS: usize = 16;

impl<T: Default> Default for Sharded<T> {
    fn default() -> Self {
        Self { shards: (0..SHARDS).map(|_| T::default()).collect() }
    }
}

impl<T> Sharded<T> {
    /// This thread's.
    pub(crate) fn own(&self) -> &T {
        &self.shards[thread_index() % SHARDS]
    }

    fn sum(&self, of: impl Fn(&T) -> &AtomicU64) -> u64 {
        self.shards.iter().map(|shard| of(shard).load(Relaxed)).sum()
    }
}

/// Counters of one version of a policy.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    shards: Sharded<Shard>,
    pace: Pace,
}

#[derive(Debug, Default)]
struct Shard {
    calls: [AtomicU64; Hook::ALL.len()],
    rejections: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    fuel: AtomicU64,
    latency_us: AtomicU64,
    latency: [AtomicU64; LATENCY_BUCKETS_US.len() + 1],
    /// Calls that `pace` has not heard of.
    untold: AtomicU32,
}

/// Whether its calls are slow.
#[derive(Debug, Default)]
struct Pace {
    calls: AtomicU32,
    slow_calls: AtomicU32,
    slow: AtomicBool,
}

/// Counters of one version of a policy at one moment; all only grow.
#[derive(Clone, Debug, Default)]
pub struct TallySnapshot {
    /// Calls by hook, failed ones included.
    pub calls: Vec<(Hook, u64)>,
    /// Of those, rejections.
    pub rejections: u64,
    /// Failed calls by kind, all kinds named.
    pub failures: Vec<(FailureKind, u64)>,
    /// Fuel of all calls that succeeded.
    pub fuel: u64,
    /// Time of all calls.
    pub latency_sum: Duration,
    /// Calls by the bucket of [`LATENCY_BUCKETS_US`] that their time falls into; the last is what exceeds all.
    pub latency: Vec<u64>,
}

impl TallySnapshot {
    /// All calls.
    pub fn total(&self) -> u64 {
        self.calls.iter().map(|(_, count)| count).sum()
    }

    /// All failures.
    pub fn failed(&self) -> u64 {
        self.failures.iter().map(|(_, count)| count).sum()
    }
}

impl Tally {
    /// A call has ended. `failure` is how, if it failed.
    pub(crate) fn call(&self, hook: Hook, elapsed: Duration, fuel: u64, failure: Option<FailureKind>) {
        let shard = self.shards.own();
        count(&shard.calls[hook as usize]);
        if let Some(kind) = failure {
            count(&shard.failures[kind as usize]);
        }
        shard.fuel.fetch_add(fuel, Relaxed);
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        shard.latency_us.fetch_add(us, Relaxed);
        count(&shard.latency[LATENCY_BUCKETS_US.partition_point(|bound| *bound < us)]);
        if elapsed > SLOW {
            self.pace.slow_calls.fetch_add(1, Relaxed);
        }
        if shard.untold.fetch_add(1, Relaxed) % TOLD == TOLD - 1 {
            self.pace.judge();
        }
    }

    pub(crate) fn rejection(&self) {
        count(&self.shards.own().rejections);
    }

    /// Is the 99th percentile of its time above [`SLOW`]?
    pub(crate) fn is_slow(&self) -> bool {
        self.pace.slow.load(Relaxed)
    }

    pub(crate) fn snapshot(&self) -> TallySnapshot {
        let sum = |of: &dyn Fn(&Shard) -> &AtomicU64| self.shards.sum(of);
        let calls = |hook: Hook| sum(&|shard| &shard.calls[hook as usize]);
        let failures = |kind: FailureKind| sum(&|shard| &shard.failures[kind as usize]);
        TallySnapshot {
            calls: Hook::ALL.into_iter().map(|hook| (hook, calls(hook))).collect(),
            rejections: sum(&|shard| &shard.rejections),
            failures: FailureKind::ALL.into_iter().map(|kind| (kind, failures(kind))).collect(),
            fuel: sum(&|shard| &shard.fuel),
            latency_sum: Duration::from_micros(sum(&|shard| &shard.latency_us)),
            latency: (0..=LATENCY_BUCKETS_US.len()).map(|at| sum(&|shard| &shard.latency[at])).collect(),
        }
    }
}

impl Pace {
    /// Some thread has made [`TOLD`] more calls.
    fn judge(&self) {
        if (self.calls.fetch_add(TOLD, Relaxed) + TOLD).is_multiple_of(WINDOW) {
            self.slow.store(self.slow_calls.swap(0, Relaxed) > WINDOW / 100, Relaxed);
        }
    }
}

/// Small numbers for threads, so that each comes back to what its core has in its cache.
pub(crate) fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: usize = NEXT.fetch_add(1, Relaxed);
    }
    INDEX.with(|index| *index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_what_is_not_above_their_bound() {
        let tally = Tally::default();
        for us in [0, 1, 2, 3, 200, 201, 5_000_000] {
            tally.call(Hook::OnAction, Duration::from_micros(us), 10, None);
        }
        let snapshot = tally.snapshot();
        assert_eq!(snapshot.latency[..3], [2, 1, 1]);
        assert_eq!(snapshot.latency[7..9], [1, 1]);
        assert_eq!(*snapshot.latency.last().unwrap(), 1);
        assert_eq!((snapshot.total(), snapshot.fuel), (7, 70));
    }

    #[test]
    fn one_in_a_hundred_makes_it_slow() {
        let tally = Tally::default();
        let calls = |slow: usize| {
            for at in 0..WINDOW as usize {
                let us = if at < slow { 300 } else { 3 };
                tally.call(Hook::OnAction, Duration::from_micros(us), 0, None);
            }
        };
        calls(2);
        assert!(!tally.is_slow());
        calls(3);
        assert!(tally.is_slow());
        calls(0);
        assert!(!tally.is_slow(), "it may get better");
    }
}
