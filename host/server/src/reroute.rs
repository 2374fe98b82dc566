//! When policies change, what is queued is decided anew, and when an attempt fails, that action is: in the background,
//! first come first, in small batches, and with most of a core left to those who wait for answers. Meanwhile everything
//! can be assigned by its old route.

use std::sync::Arc;
use std::time::Instant;

use pointsman_policy::Trigger;
use pointsman_proto::{pack, unpack, v1};
use pointsman_scheduler::ids::TaskId;
use pointsman_scheduler::task::Attempt;
use prost_types::Any;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::attempts;
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
            for (_, task, payload, tried) in batch {
                again(&driver, &router, task, &payload, &tried, Trigger::Rerouted).await;
            }
            tokio::time::sleep(worked.elapsed() * REST).await;
        }
        if count > 0 {
            tracing::info!(generation = number, actions = count, elapsed = ?started.elapsed(), "routed the queue again");
        }
    }
}

/// Actions that were retried and wait to be routed again; what comes beyond them keeps its route.
const RETRIED_MAX: usize = 4096;

/// Routes actions again that run again because an attempt has failed. Meanwhile each can be assigned by its old route.
pub async fn run_retried(driver: Arc<Driver>, router: Arc<Router>, shutdown: CancellationToken) {
    let (sender, mut retried) = mpsc::channel(RETRIED_MAX);
    driver.tell_of_retried(sender);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            _ = retried.recv_many(&mut batch, BATCH) => {}
            () = shutdown.cancelled() => return,
        }
        let worked = Instant::now();
        for task in batch.drain(..) {
            let Some((payload, tried)) = driver.queued(task) else { continue };
            // By default an attempt that failed changes nothing.
            if router.asks_again(&payload.instance_name) {
                again(&driver, &router, task, &payload, &tried, Trigger::Retried).await;
            }
        }
        tokio::time::sleep(worked.elapsed() * REST).await;
    }
}

/// Asks about an action once more, with the attempts so far.
async fn again(
    driver: &Driver,
    router: &Arc<Router>,
    task: TaskId,
    payload: &Payload,
    tried: &[Attempt],
    trigger: Trigger,
) {
    // Nobody routes there any more: what a policy wanted of another attempt still holds.
    if !router.asks(&payload.instance_name) && !tried.iter().all(Attempt::has_failed) {
        return;
    }
    let facts = attempts::with_attempts(&payload.facts, tried);
    match router.route_again(&Arc::new(routing::facts_again(&facts, trigger)), payload.enlarged).await {
        Ok(routed) => {
            let action = routing::routed_action(payload.action.clone(), &routed);
            let decision = with_history(&payload.shown.decision, routed.decision, tried);
            let shown = Arc::new(Shown { decision, ..(*payload.shown).clone() });
            let environment = routing::environment(&routed.route);
            let payload = Payload { action, shown, environment, facts, ..payload.clone() };
            driver.reroute(task, tried.len(), routed.route, routed.asked, payload);
        }
        Err(status) => driver.refuse(task, status.message()),
    }
}

/// A new decision says too what became of earlier attempts, if there were any.
fn with_history(old: &Any, new: Any, tried: &[Attempt]) -> Any {
    if tried.iter().all(Attempt::has_failed) {
        return new;
    }
    // Whoever made them packed them as what they are.
    let [old, mut decision] = [old, &new].map(|any| unpack::<v1::RoutingDecision>(any).unwrap_or_default());
    decision.run_again = old.run_again;
    pack(&decision)
}
