//! The periodic log of what waits and why: one block per set of requirements, in the words that operators of
//! NativeLink search for, and the oldest actions of each stage.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::explain::Reason;
use pointsman_scheduler::views::Activity;
use tokio_util::sync::CancellationToken;

use crate::driver::Driver;

/// Sets of requirements in one log: each is explained under the lock.
const CLASSES_MAX: usize = 20;
/// Actions named per stage.
const OLDEST: usize = 5;

/// Logs every `interval` until `shutdown`. Says nothing while nothing waits.
pub async fn run(driver: Arc<Driver>, interval: Duration, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => log(&driver),
            () = shutdown.cancelled() => return,
        }
    }
}

fn log(driver: &Driver) {
    let classes = driver.queue(CLASSES_MAX);
    // What only has to wait a moment is no news.
    if classes.iter().all(|(c, _)| c.explanation.reason == Reason::Next) {
        return;
    }
    for (class, payload) in &classes {
        let operations: Vec<&str> = class.operations.iter().map(|o| &**o).collect();
        tracing::info!(
            actions = class.count,
            instance_name = &*payload.instance_name,
            reason = class.explanation.reason.code(),
            operations = operations.join(" "),
            "{}",
            class.explanation
        );
        for line in class.explanation.log_lines() {
            tracing::info!("{line}");
        }
    }
    let queued = driver.oldest_queued(OLDEST);
    for (stage, oldest) in [("queued", queued), ("executing", longest_executing(driver))] {
        let named: Vec<_> =
            oldest.iter().map(|(name, age)| format!("{name} ({} s)", age.as_secs())).collect();
        tracing::info!(stage, actions = named.join(" "), "Oldest actions in state");
    }
}

fn longest_executing(driver: &Driver) -> Vec<(Arc<str>, Duration)> {
    let workers = driver.workers().into_iter();
    let mut executing: Vec<_> = workers
        .filter_map(|w| match w.activity {
            Activity::Executing { operation: Some(name), since, .. } => Some((name, since)),
            _ => None,
        })
        .collect();
    executing.sort_by_key(|(_, since)| Reverse(*since));
    executing.truncate(OLDEST);
    executing
}
