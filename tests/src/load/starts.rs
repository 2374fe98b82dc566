//! When actions began to execute, told by workers to clients of the same process.
use crate::fake_worker::Work;
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

/// The newest start of each action.
#[derive(Debug)]
pub(super) struct Starts {
    base: Instant,
    /// Nanoseconds since `base`, by the action's index.
    times: Vec<AtomicU64>,
}

impl Starts {
    pub(super) fn new(actions: usize) -> Self {
        Self { base: Instant::now(), times: (0..actions).map(|_| AtomicU64::new(0)).collect() }
    }

    /// What an action is salted with so that its worker can tell which it is.
    pub(super) fn salt(index: usize) -> [u8; 8] {
        (index as u64).to_be_bytes()
    }

    /// It begins now.
    pub(super) fn mark(&self, work: &Work) {
        let salt = work.action.as_ref().and_then(|a| <[u8; 8]>::try_from(&a.salt[..]).ok());
        let index = salt.and_then(|s| usize::try_from(u64::from_be_bytes(s)).ok());
        if let Some(time) = index.and_then(|i| self.times.get(i)) {
            time.store(self.nanoseconds(Instant::now()), Ordering::Relaxed);
        }
    }

    /// Nanoseconds from `begin` to the last start of that action.
    pub(super) fn after(&self, begin: Instant, index: usize) -> u64 {
        self.times[index].load(Ordering::Relaxed).saturating_sub(self.nanoseconds(begin))
    }

    fn nanoseconds(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.base).as_nanos()).unwrap_or(u64::MAX)
    }
}
