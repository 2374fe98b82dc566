//! Pauses of a worker thread: after failed calls, and before a scheduler that does not let idle workers
//! wait.
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Upper bound of the first pause after a failure. Shorter than the 5 s of Buildbarn's workers, because a
/// scheduler that restarts is back within a second or two and queued actions wait for its workers; random
/// and growing, so that thousands of workers neither come at once nor for ever so often.
const FIRST: Duration = Duration::from_millis(200);
const LAST: Duration = Duration::from_secs(5);

/// Pauses between failed calls.
pub(crate) struct Pauses {
    failures: u32,
}

impl Pauses {
    pub(crate) fn new() -> Self {
        Self { failures: 0 }
    }

    /// Waits a random part of what is due, less when the worker is to stop.
    pub(crate) async fn wait(&mut self, shutdown: &CancellationToken) {
        let due = FIRST.saturating_mul(1 << self.failures.min(10)).min(LAST);
        self.failures = self.failures.saturating_add(1);
        let pause = due.mul_f64(fastrand::f64());
        if shutdown.is_cancelled() {
            tokio::time::sleep(pause.min(Duration::from_secs(1))).await;
            return;
        }
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = shutdown.cancelled() => {}
        }
    }

    /// Logs the first failure in a row and ever fewer of the following.
    pub(crate) fn log(&self, worker: &str, status: &Status) {
        let (code, error) = (status.code(), status.message());
        if (self.failures + 1).is_power_of_two() {
            tracing::warn!(worker, %code, error, failures = self.failures + 1, "call to the scheduler failed, trying again");
        } else {
            tracing::debug!(worker, %code, error, failures = self.failures + 1, "call to the scheduler failed, trying again");
        }
    }

    pub(crate) fn reset(&mut self, worker: &str) {
        if self.failures > 0 {
            tracing::info!(worker, failures = self.failures, "the scheduler answers again");
        }
        self.failures = 0;
    }
}

/// Slows down calls of an idle worker to a scheduler that answers them all at once, which would keep both
/// busy with nothing. One or two such answers in a row are normal.
#[derive(Default)]
pub(crate) struct IdlePace {
    quick: u32,
}

impl IdlePace {
    /// To be told when the thread got work: a scheduler that has some is no reason for pauses, not even after
    /// actions that fail at once, each of which ends with a moment of idleness.
    pub(crate) fn worked(&mut self) {
        self.quick = 0;
    }

    /// To be told after each call that left the thread idle.
    pub(crate) async fn answered(&mut self, took: Duration, shutdown: &CancellationToken) {
        if took > Duration::from_millis(50) {
            self.quick = 0;
            return;
        }
        self.quick = (self.quick + 1).min(10);
        if self.quick > 3 && !shutdown.is_cancelled() {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(1 << self.quick)) => {}
                () = shutdown.cancelled() => {}
            }
        }
    }
}
