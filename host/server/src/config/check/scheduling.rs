//! What the scheduler waits for, tries again and refuses: `timers`, `attempts`, `limits`.

use std::time::Duration;

use super::super::checked::{Attempts, Limits, Timers};
use super::super::raw::{RawAttempts, RawLimits, RawTimers};
use super::{Checker, MIB, SECOND};

/// The largest batch that known clients send when no limit is advertised is just below this.
const MESSAGE_SIZE_MIN: u64 = 4 * MIB;

impl Checker {
    pub(super) fn timers(&mut self, raw: &RawTimers) -> Timers {
        let heartbeat = self.timer("timers.heartbeat", raw.heartbeat, 10 * SECOND);
        let timers = Timers {
            heartbeat,
            heartbeat_max: self.timer("timers.heartbeat_max", raw.heartbeat_max, heartbeat.max(60 * SECOND)),
            idle_poll: self.timer("timers.idle_poll", raw.idle_poll, 120 * SECOND),
            worker_expiry: self.timer("timers.worker_expiry", raw.worker_expiry, 60 * SECOND),
            abandoned: self.timer("timers.abandoned", raw.abandoned, 60 * SECOND),
            completed_retention: self.timer(
                "timers.completed_retention",
                raw.completed_retention,
                60 * SECOND,
            ),
            default_action_timeout: self.timer(
                "timers.default_action_timeout",
                raw.default_action_timeout,
                30 * 60 * SECOND,
            ),
            maximum_action_timeout: self.timer(
                "timers.maximum_action_timeout",
                raw.maximum_action_timeout,
                2 * 3600 * SECOND,
            ),
            retry_backoff: Self::optional_timer(raw.retry_backoff, SECOND),
            retry_backoff_max: self.timer("timers.retry_backoff_max", raw.retry_backoff_max, 60 * SECOND),
            exhausted_pause: Self::optional_timer(raw.exhausted_pause, SECOND),
            exhausted_pause_max: self.timer(
                "timers.exhausted_pause_max",
                raw.exhausted_pause_max,
                60 * SECOND,
            ),
            quarantine: self.timer("timers.quarantine", raw.quarantine, 60 * SECOND),
            quarantine_max: self.timer("timers.quarantine_max", raw.quarantine_max, 300 * SECOND),
            reservation_after: Self::optional_timer(raw.reservation_after, 60 * SECOND),
            reservation_timeout: self.timer(
                "timers.reservation_timeout",
                raw.reservation_timeout,
                600 * SECOND,
            ),
            unschedulable_timeout: Self::optional_timer(raw.unschedulable_timeout, 15 * 60 * SECOND),
            shutdown_grace: self.timer("timers.shutdown_grace", raw.shutdown_grace, 10 * SECOND),
        };
        self.consistent(&timers, raw);
        timers
    }

    /// Times that only make sense in one order.
    fn consistent(&mut self, timers: &Timers, raw: &RawTimers) {
        self.ordered(
            ("heartbeat", timers.heartbeat, raw.heartbeat.is_some()),
            ("worker_expiry", timers.worker_expiry, raw.worker_expiry.is_some()),
            timers.heartbeat < timers.worker_expiry,
            "a worker that reports in time would be taken for lost",
        );
        self.ordered(
            ("default_action_timeout", timers.default_action_timeout, raw.default_action_timeout.is_some()),
            ("maximum_action_timeout", timers.maximum_action_timeout, raw.maximum_action_timeout.is_some()),
            timers.default_action_timeout <= timers.maximum_action_timeout,
            "actions that name no limit would be refused",
        );
        for (first, longest) in [
            (
                ("heartbeat", timers.heartbeat, raw.heartbeat.is_some()),
                ("heartbeat_max", timers.heartbeat_max, raw.heartbeat_max.is_some()),
            ),
            (
                ("retry_backoff", timers.retry_backoff, raw.retry_backoff.is_some()),
                ("retry_backoff_max", timers.retry_backoff_max, raw.retry_backoff_max.is_some()),
            ),
            (
                ("exhausted_pause", timers.exhausted_pause, raw.exhausted_pause.is_some()),
                ("exhausted_pause_max", timers.exhausted_pause_max, raw.exhausted_pause_max.is_some()),
            ),
            (
                ("quarantine", timers.quarantine, raw.quarantine.is_some()),
                ("quarantine_max", timers.quarantine_max, raw.quarantine_max.is_some()),
            ),
        ] {
            self.ordered(first, longest, first.1 <= longest.1, "the first would be longer than the longest");
        }
    }

    /// Which share of the hosts may be kept free.
    pub(super) fn reserved_percent(&mut self, raw: Option<u32>) -> u32 {
        let percent = raw.unwrap_or(10);
        if !(1..=100).contains(&percent) {
            self.wrong("reserved_percent", format!("is {percent}; it has to be from 1 to 100"));
        }
        percent
    }

    /// Budgets for each thing that may go wrong. What the file leaves out is bounded by `max_attempts` alone.
    pub(super) fn attempts(&mut self, raw: &RawAttempts, max_attempts: u32) -> Attempts {
        let mut budget = |key: &str, given: Option<u32>| {
            let path = format!("attempts.{key}");
            let budget = self.positive(&path, given, max_attempts);
            if budget > max_attempts && max_attempts > 0 {
                self.wrong(
                    &path,
                    format!(
                        "is {budget}, but max_attempts is {max_attempts} and ends an action before; lower it or raise \
                         max_attempts"
                    ),
                );
            }
            budget
        };
        Attempts {
            lost_max: budget("lost", raw.lost),
            given_back_max: budget("given_back", raw.given_back),
            reported_max: budget("reported", raw.reported),
            // 0 is allowed: the first time counts, too.
            exhausted_forgiven_max: raw.exhausted_forgiven.unwrap_or(10),
        }
    }

    /// Complains about whichever of the two the file has, with both values.
    fn ordered(
        &mut self,
        lesser: (&str, Duration, bool),
        greater: (&str, Duration, bool),
        holds: bool,
        else_: &str,
    ) {
        if holds || lesser.1.is_zero() || greater.1.is_zero() {
            return;
        }
        let blamed = if lesser.2 { lesser.0 } else { greater.0 };
        let text = format!(
            "{} is {} and {} is {}: {else_}; lower the first or raise the second",
            lesser.0,
            humantime::format_duration(lesser.1),
            greater.0,
            humantime::format_duration(greater.1)
        );
        self.wrong(&format!("timers.{blamed}"), text);
    }

    pub(super) fn limits(&mut self, raw: &RawLimits) -> Limits {
        let limits = Limits {
            queued_actions_max: self.positive("limits.queued_actions", raw.queued_actions, 200_000),
            properties_per_action_max: self.positive(
                "limits.properties_per_action",
                raw.properties_per_action,
                100,
            ),
            command_size_max_bytes: self.size("limits.command_size", raw.command_size, 16 * MIB),
            message_size_max_bytes: self.size("limits.message_size", raw.message_size, 64 * MIB),
            streams_per_connection_max: self.positive(
                "limits.streams_per_connection",
                raw.streams_per_connection,
                20_000,
            ),
            classes_max: self.positive("limits.classes", raw.classes, 200_000),
            demands_max: self.positive("limits.demands", raw.demands, 64),
            workers_max: self.positive("limits.workers", raw.workers, 100_000),
            heartbeats_per_s_max: self.positive(
                "limits.heartbeats_per_second",
                raw.heartbeats_per_second,
                1_000,
            ),
            holds_max: self.positive("limits.holds", raw.holds, 1_000),
        };
        if (1..MESSAGE_SIZE_MIN).contains(&limits.message_size_max_bytes) {
            self.wrong(
                "limits.message_size",
                "is below 4MiB, the size of batches that clients send; raise it",
            );
        }
        limits
    }
}
