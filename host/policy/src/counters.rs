//! What happened so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::failure::FailureKind;

/// Live counters.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    calls: AtomicU64,
    rejections: AtomicU64,
    fallbacks: AtomicU64,
    instances: AtomicU64,
    installs: AtomicU64,
    refused_loads: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
}

/// Counters at one moment; all only grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CountersSnapshot {
    /// Actions routed.
    pub calls: u64,
    /// Of those, refused by a policy.
    pub rejections: u64,
    /// Of those, decided by the embedded default policy because the one in force failed.
    pub fallbacks: u64,
    /// Instances made.
    pub instances: u64,
    /// Policies put in force.
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

impl Counters {
    pub(crate) fn call(&self) {
        self.calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn rejection(&self) {
        self.rejections.fetch_add(1, Relaxed);
    }

    pub(crate) fn fallback(&self) {
        self.fallbacks.fetch_add(1, Relaxed);
    }

    pub(crate) fn instance(&self) {
        self.instances.fetch_add(1, Relaxed);
    }

    pub(crate) fn install(&self) {
        self.installs.fetch_add(1, Relaxed);
    }

    pub(crate) fn refused_load(&self) {
        self.refused_loads.fetch_add(1, Relaxed);
    }

    pub(crate) fn failure(&self, kind: FailureKind) {
        self.failures[kind as usize].fetch_add(1, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> CountersSnapshot {
        CountersSnapshot {
            calls: self.calls.load(Relaxed),
            rejections: self.rejections.load(Relaxed),
            fallbacks: self.fallbacks.load(Relaxed),
            instances: self.instances.load(Relaxed),
            installs: self.installs.load(Relaxed),
            refused_loads: self.refused_loads.load(Relaxed),
            failures: FailureKind::ALL
                .into_iter()
                .map(|kind| (kind, self.failures[kind as usize].load(Relaxed)))
                .collect(),
        }
    }
}
