//! A circuit breaker: a policy that fails each time is left alone for a while, as each try may burn all of its fuel.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Failures in a row that open the circuit.
const FAILURES: u32 = 5;
/// How long it is open at first; doubled by each try that fails.
const OPEN_MIN: Duration = Duration::from_secs(1);
/// How long at most.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// Counts failures in a row.
#[derive(Debug)]
pub(crate) struct Breaker {
    start: Instant,
    in_a_row: AtomicU32,
    /// How often it opened since the last success.
    opened: AtomicU32,
    /// Until when it is open, in milliseconds since `start`; 0: it is closed.
    open_until_ms: AtomicU64,
}

impl Default for Breaker {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            in_a_row: AtomicU32::new(0),
            opened: AtomicU32::new(0),
            open_until_ms: AtomicU64::new(0),
        }
    }
}

impl Breaker {
    /// May the policy be called? When the time is over one caller may try, and the others wait for what comes of it.
    pub(crate) fn allows(&self) -> Result<(), Duration> {
        match self.open_until_ms.load(Relaxed) {
            0 => Ok(()),
            _ => self.try_again(self.now_ms()),
        }
    }

    fn try_again(&self, now_ms: u64) -> Result<(), Duration> {
        let until = self.open_until_ms.load(Relaxed);
        if now_ms < until {
            return Err(Duration::from_millis(until - now_ms));
        }
        let next = now_ms.max(1) + self.pause_ms();
        match self.open_until_ms.compare_exchange(until, next, Relaxed, Relaxed) {
            Ok(_) => Ok(()),
            Err(_) => Err(Duration::from_millis(self.pause_ms())),
        }
    }

    /// Is it open?
    pub(crate) fn is_open(&self) -> bool {
        self.open_until_ms.load(Relaxed) != 0
    }

    /// A call succeeded. Gives whether that closed it.
    pub(crate) fn success(&self) -> bool {
        if self.in_a_row.load(Relaxed) == 0 {
            return false;
        }
        self.in_a_row.store(0, Relaxed);
        self.opened.store(0, Relaxed);
        self.open_until_ms.swap(0, Relaxed) != 0
    }

    /// A call failed. Gives for how long it is open now, if that opened it.
    pub(crate) fn failure(&self) -> Option<Duration> {
        self.failure_at(self.now_ms())
    }

    fn failure_at(&self, now_ms: u64) -> Option<Duration> {
        if self.in_a_row.fetch_add(1, Relaxed) + 1 < FAILURES {
            return None;
        }
        let pause = self.pause_ms();
        self.opened.fetch_add(1, Relaxed);
        self.open_until_ms.store(now_ms + pause, Relaxed);
        Some(Duration::from_millis(pause))
    }

    fn pause_ms(&self) -> u64 {
        let doubled = OPEN_MIN.saturating_mul(1 << self.opened.load(Relaxed).min(10));
        doubled.min(OPEN_MAX).as_millis() as u64
    }

    fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_after_failures_in_a_row_and_lets_one_try() {
        let breaker = Breaker::default();
        for _ in 0..4 {
            assert_eq!(breaker.failure_at(100), None);
        }
        assert!(!breaker.success() && !breaker.is_open(), "a success in between counts");
        for _ in 0..4 {
            assert_eq!(breaker.failure_at(100), None);
        }
        assert_eq!(breaker.failure_at(100), Some(OPEN_MIN));
        assert_eq!(breaker.try_again(600), Err(Duration::from_millis(500)));
        assert_eq!(breaker.try_again(1_100), Ok(()));
        assert!(breaker.try_again(1_101).is_err(), "one tries, the others don't");
        assert_eq!(breaker.failure_at(1_200), Some(OPEN_MIN * 2));
        assert!(breaker.try_again(3_100).is_err());
        assert_eq!(breaker.try_again(3_200), Ok(()));
        assert!(breaker.success() && !breaker.is_open());
        assert_eq!(breaker.failure_at(4_000), None, "it counts from the beginning");
    }

    #[test]
    fn pauses_are_bounded() {
        let breaker = Breaker::default();
        let longest = (0..40).filter_map(|_| breaker.failure_at(1)).max();
        assert_eq!(longest, Some(OPEN_MAX));
    }
}
