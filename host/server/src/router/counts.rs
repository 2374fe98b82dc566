//! What became of calls, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::unserved::Edit;

/// How a call was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// As policies decided.
    Routed,
    /// By the last route of such an action, as something failed.
    Known,
    /// By the platform that the client gave, as something failed.
    Native,
    /// A policy rejected the action.
    Rejected,
    /// The call or its Action is malformed, its Command is missing, or a policy asked for what can't be handed on.
    Refused,
    /// Something failed, and there was nothing to go by.
    Unavailable,
}

impl Outcome {
    pub(crate) const ALL: [Self; 6] =
        [Self::Routed, Self::Known, Self::Native, Self::Rejected, Self::Refused, Self::Unavailable];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Routed => "routed",
            Self::Known => "known",
            Self::Native => "native",
            Self::Rejected => "rejected",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Where a Command came from, or why it didn't.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fetch {
    /// Memory.
    Kept,
    /// The CAS.
    Fetched,
    /// Somebody else's fetch.
    Joined,
    /// It is not in the CAS.
    Missing,
    /// It can't be used.
    Bad,
    /// The CAS failed.
    Failed,
}

impl Fetch {
    pub(crate) const ALL: [Self; 6] =
        [Self::Kept, Self::Fetched, Self::Joined, Self::Missing, Self::Bad, Self::Failed];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kept => "kept",
            Self::Fetched => "fetched",
            Self::Joined => "joined",
            Self::Missing => "missing",
            Self::Bad => "bad",
            Self::Failed => "failed",
        }
    }
}

/// Upper bounds of the buckets in which calls are counted by the time they took, in microseconds; above is one more.
pub(crate) const LATENCY_BUCKETS_US: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 10_000, 50_000, 250_000, 1_000_000, 2_500_000];

/// Counters; all only grow.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    outcomes: [AtomicU64; Outcome::ALL.len()],
    fetches: [AtomicU64; Fetch::ALL.len()],
    dropped: [AtomicU64; Edit::ALL.len()],
    latency: [AtomicU64; LATENCY_BUCKETS_US.len() + 1],
    latency_sum_us: AtomicU64,
}

impl Counts {
    pub(super) fn outcome(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn fetch(&self, fetch: Fetch) {
        self.fetches[fetch as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn dropped(&self, edit: Edit) {
        self.dropped[edit as usize].fetch_add(1, Relaxed);
    }

    pub(super) fn took(&self, time: std::time::Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let bucket = LATENCY_BUCKETS_US.partition_point(|bound| *bound < us);
        self.latency[bucket].fetch_add(1, Relaxed);
        self.latency_sum_us.fetch_add(us, Relaxed);
    }

    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Outcome::ALL.map(Outcome::name).into_iter().zip(values(&self.outcomes))
    }

    pub(crate) fn fetches(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Fetch::ALL.map(Fetch::name).into_iter().zip(values(&self.fetches))
    }

    /// Those that there were.
    pub(crate) fn edits_dropped(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = Edit::ALL.map(Edit::name).into_iter().zip(values(&self.dropped));
        all.filter(|(_, count)| *count > 0)
    }

    /// Seconds of all calls, and calls by [`LATENCY_BUCKETS_US`].
    pub(crate) fn latency(&self) -> (f64, Vec<u64>) {
        (self.latency_sum_us.load(Relaxed) as f64 / 1e6, values(&self.latency).collect())
    }
}

fn values(counters: &[AtomicU64]) -> impl Iterator<Item = u64> {
    counters.iter().map(|counter| counter.load(Relaxed))
}
