//! Wall-clock time that never goes back: the core's clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use pointsman_scheduler::time::Time;
use prost_types::Timestamp;

/// The wall clock, read once, and a monotonic clock from there on.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
    /// Since the Unix epoch.
    started_at: Duration,
}

impl Clock {
    /// A clock that shows the time of day.
    pub fn start() -> Self {
        // Before 1970 the epoch will do: only differences matter.
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { started: Instant::now(), started_at }
    }

    /// Now, in milliseconds since the Unix epoch.
    pub fn now(&self) -> Time {
        Time::default() + (self.started_at + self.started.elapsed())
    }

    /// When `time` comes, on the runtime's clock.
    pub fn instant(&self, time: Time) -> Instant {
        self.started + time.since(Time::default() + self.started_at)
    }
}

/// `time` as a protobuf message.
pub fn timestamp(time: Time) -> Timestamp {
    let (seconds, ms) = (time.0 / 1000, time.0 % 1000);
    Timestamp {
        seconds: i64::try_from(seconds).unwrap_or(i64::MAX),
        nanos: i32::try_from(ms * 1_000_000).unwrap_or(0),
    }
}
