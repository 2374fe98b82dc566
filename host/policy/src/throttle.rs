//! Keeps what fails again and again from filling the log.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets one line through per interval and counts the others.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    state: Mutex<(Option<Instant>, u64)>,
}

impl Throttle {
    /// One line in this time.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::new((None, 0)) }
    }

    /// `Some` when a line may be written: how many were held back since the last one.
    pub fn pass(&self) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        if state.0.is_some_and(|last| now.duration_since(last) < self.interval) {
            state.1 += 1;
            return None;
        }
        let held_back = state.1;
        *state = (Some(now), 0);
        Some(held_back)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_per_interval() {
        let throttle = Throttle::new(Duration::from_millis(50));
        assert_eq!([throttle.pass(), throttle.pass(), throttle.pass()], [Some(0), None, None]);
        std::thread::sleep(Duration::from_millis(60));
        assert_eq!(throttle.pass(), Some(2));
    }
}
