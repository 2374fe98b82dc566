//! Calls of workers, which wait for their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pointsman_proto::rev2;
use pointsman_scheduler::event::{Event, Poll, Report, WorkerSpec};
use pointsman_scheduler::ids::{ActionDigest, PollId};
use tokio::sync::oneshot;

use super::{Driver, Payload, deliver};

/// What a worker's call is told.
#[derive(Clone, Debug)]
pub enum PollAnswer {
    /// Run this.
    Execute {
        /// What to run.
        payload: Arc<Payload>,
        /// How soon to report.
        heartbeat: Duration,
    },
    /// Go on.
    Continue {
        /// How soon to report again.
        heartbeat: Duration,
    },
    /// Do nothing.
    Idle,
    /// A newer call has taken this one's place.
    Superseded,
    /// There are as many workers as there may be.
    TooManyWorkers,
}

/// A worker's call.
#[derive(Clone, Debug)]
pub struct WorkerCall {
    /// Identity.
    pub worker: Arc<str>,
    /// What it is.
    pub spec: Arc<WorkerSpec>,
    /// What it does.
    pub report: Report,
    /// The result, if it has one.
    pub response: Option<rev2::ExecuteResponse>,
    /// It wants no more work.
    pub prefer_idle: bool,
    /// How long the answer may be put off while there is no work.
    pub wait: Duration,
}

impl Driver {
    /// One call of a worker; answered when there is something to say.
    pub async fn poll(&self, call: WorkerCall) -> PollAnswer {
        let WorkerCall { worker, spec, report, response, prefer_idle, wait } = call;
        let poll = PollId(self.next_poll.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        let dropped = DroppedPoll { driver: self, poll };
        let deliveries = {
            let mut core = self.lock();
            core.polls.insert(poll, answer);
            let (wait, prefer_idle) = if core.closing { (Duration::ZERO, true) } else { (wait, prefer_idle) };
            let wait_until = self.clock.now() + wait;
            let event = Event::Poll(Poll { poll, worker, spec, report, prefer_idle, wait_until });
            self.step_locked(&mut core, event, |_, _| ()).0
        };
        deliver(deliveries, response.as_ref());
        // It is delivered; the call may now wait for minutes.
        drop(response);
        let answer = answered.await;
        std::mem::forget(dropped);
        // The sender is dropped unused only with the driver.
        answer.unwrap_or(PollAnswer::Idle)
    }

    /// Ends what a worker was given, and has not yet been told of, with a result from the action cache. `false`: not
    /// done, as somebody has joined who wants no cached result, or the action is over.
    pub fn answer_from_cache(
        &self,
        worker: &str,
        payload: &Arc<Payload>,
        response: &rev2::ExecuteResponse,
    ) -> bool {
        let deliveries = {
            let mut core = self.lock();
            let task = core.scheduler.task_on(worker).filter(|task| {
                let is_this = core.payloads.get(*task).is_some_and(|p| Arc::ptr_eq(p, payload));
                is_this && payload.cache_look.is_allowed()
            });
            let Some(task) = task else { return false };
            self.step_locked(&mut core, Event::FoundInCache(task), |_, _| ()).0
        };
        deliver(deliveries, Some(response));
        true
    }

    /// What a worker has been given and has not answered for, if that is the action of this digest.
    pub fn given_to(&self, worker: &str, digest: &ActionDigest) -> Option<Arc<Payload>> {
        let core = self.lock();
        let task = core.scheduler.task_on(worker)?;
        // Reports have no digest function.
        let is_this = core.scheduler.task(task)?.digest.hash() == digest.hash();
        core.payloads.get(task).filter(|_| is_this).cloned()
    }
}

/// Tells the core when the caller of a poll has gone.
struct DroppedPoll<'a> {
    driver: &'a Driver,
    poll: PollId,
}

impl Drop for DroppedPoll<'_> {
    fn drop(&mut self) {
        self.driver.lock().polls.remove(&self.poll);
        self.driver.step(Event::PollDropped(self.poll), None, |_, _| ());
    }
}
