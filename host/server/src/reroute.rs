//! When policies change, what is queued is decided anew: in the background, first come first, in small batches, and
//! with most of a core left to those who wait for answers. Meanwhile everything can be assigned by its old route.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::driver::{Driver, Payload, Shown};
use crate::routing::{self, Router};

/// Actions between two rests.
const BATCH: usize = 64;
/// Rests are so many times as long as the work before them: a quarter of one core at most.
const REST: u32 = 3;

/// Routes the queue again whenever `generation` changes.
pub async fn run(
    driver: Arc<Driver>,
    router: Arc<Router>,
    mut generation: watch::Receiver<u64>,
    shutdown: CancellationToken,
) {
    loop {
        tokio::select! {
            changed = generation.changed() => if changed.is_err() { return },
            () = shutdown.cancelled() => return,
        }
        let number = *generation.borrow_and_update();
        let started = Instant::now();
        let mut count = 0;
        let mut last = None;
        // A newer generation begins again from the front.
        while !generation.has_changed().unwrap_or(true) && !shutdown.is_cancelled() {
            let batch = driver.queued_after(last, BATCH);
            let Some((sequence, ..)) = batch.last() else { break };
            last = Some(*sequence);
            count += batch.len();
            let worked = Instant::now();
            for (_, task, payload) in batch {
                again(&driver, &router, task, &payload);
            }
            tokio::time::sleep(worked.elapsed() * REST).await;
        }
        if count > 0 {
            tracing::info!(generation = number, actions = count, elapsed = ?started.elapsed(), "routed the queue again");
        }
    }
}

fn again(driver: &Driver, router: &Router, task: pointsman_scheduler::ids::TaskId, payload: &Payload) {
    let facts = Arc::new(routing::facts_again(&payload.facts));
    match router.route(&facts) {
        Ok(routed) => {
            let action = routing::routed_action(payload.action.clone(), &routed);
            let shown = Arc::new(Shown { decision: routed.decision, ..(*payload.shown).clone() });
            let payload = Payload { action, shown, ..payload.clone() };
            driver.reroute(task, routed.route, routed.asked, payload);
        }
        Err(status) => driver.refuse(task, status.message()),
    }
}
