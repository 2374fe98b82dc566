//! Whether the action cache may answer an action after its arrival, and since when it has not.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pointsman_scheduler::time::Time;

/// Of a queued or running action. If the cache may answer it, it had nothing when the action arrived; while the action
/// waits, and once a worker has had it, that may change.
#[derive(Debug)]
pub struct CacheLook {
    /// When the cache had nothing, in milliseconds since the epoch; [`HANDED_OVER`]: before a worker had it;
    /// [`FORBIDDEN`]: it is not to be asked.
    at: AtomicU64,
}

impl Clone for CacheLook {
    fn clone(&self) -> Self {
        Self { at: AtomicU64::new(self.at.load(Ordering::Relaxed)) }
    }
}

const HANDED_OVER: u64 = 0;
const FORBIDDEN: u64 = u64::MAX;

impl CacheLook {
    /// The cache was asked just now.
    pub fn asked(now: Time) -> Self {
        Self { at: AtomicU64::new(now.0) }
    }

    /// The action is to be executed whatever the cache has.
    pub fn forbidden() -> Self {
        Self { at: AtomicU64::new(FORBIDDEN) }
    }

    /// Whether to ask again before the action is handed over: a while after the last time, and always if it was handed
    /// over before, since a worker that then vanished may have written its result.
    pub fn is_due(&self, now: Time, after: Duration) -> bool {
        match self.at.load(Ordering::Relaxed) {
            FORBIDDEN => false,
            HANDED_OVER => true,
            at => now >= Time(at) + after,
        }
    }

    /// A worker gets it.
    pub fn handed_over(&self) {
        // Only if it is not forbidden, which is for good.
        let mark = |at| (at != FORBIDDEN).then_some(HANDED_OVER);
        _ = self.at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, mark);
    }

    /// Somebody waits for it now who wants it executed.
    pub fn forbid(&self) {
        self.at.store(FORBIDDEN, Ordering::Relaxed);
    }

    /// Whether all who wait for it take a cached result.
    pub fn is_allowed(&self) -> bool {
        self.at.load(Ordering::Relaxed) != FORBIDDEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_again_after_a_while_and_after_each_hand_over() {
        let second = Duration::from_secs(1);
        let look = CacheLook::asked(Time(5000));
        assert!(!look.is_due(Time(5999), second) && look.is_due(Time(6000), second));
        look.handed_over();
        assert!(look.is_due(Time(5000), second));
        look.forbid();
        look.handed_over();
        assert!(!look.is_due(Time(9000), second) && !look.is_allowed());
    }
}
