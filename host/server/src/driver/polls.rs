//! Calls of workers, which wait for their answers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pointsman_learning::Run;
use pointsman_proto::rev2;
use pointsman_scheduler::effect::Effect;
use pointsman_scheduler::event::{Event, Poll, Report, Verdict, WorkerSpec};
use pointsman_scheduler::ids::{ActionDigest, PollId, TaskId};
use pointsman_scheduler::properties::Asked;
use pointsman_scheduler::route::{Route, SizeClass};
use pointsman_scheduler::task::Attempt;
use tokio::sync::oneshot;

use super::{Core, Driver, Payload};
use crate::attempts;

/// What a worker's call is told.
#[derive(Clone, Debug)]
pub enum PollAnswer {
    /// Run this.
    Execute {
        /// What to run.
        payload: Arc<Payload>,
        /// By which execution strategy, where the route names any.
        strategy: Option<Arc<str>>,
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
    /// How the attempt went, where a policy has put its word in the place of the worker's result.
    pub ran: Option<Run>,
    /// What the result's action is to run as, if the report is that it is not taken.
    pub rerun: Option<Box<Rerun>>,
    /// It wants no more work.
    pub prefer_idle: bool,
    /// How long the answer may be put off while there is no work.
    pub wait: Duration,
}

/// What an action is when it runs again though it has a result.
#[derive(Clone, Debug)]
pub struct Rerun {
    /// The action.
    pub task: TaskId,
    /// Its attempts before the one with the result.
    pub attempts: usize,
    /// What is kept of it from then on.
    pub payload: Payload,
}

/// What a worker has been given and has not answered for.
#[derive(Clone, Debug)]
pub struct Given {
    /// The action.
    pub task: TaskId,
    /// What is kept of it.
    pub payload: Arc<Payload>,
    /// The decision by which it runs.
    pub route: Arc<Route>,
    /// Its attempts before this one.
    pub attempts: Vec<Attempt>,
    /// The worker's host, as clients see it.
    pub host: Arc<str>,
    /// What the worker is.
    pub spec: Arc<WorkerSpec>,
}

impl Driver {
    /// One call of a worker; answered when there is something to say.
    pub async fn poll(&self, call: WorkerCall) -> PollAnswer {
        let WorkerCall { worker, spec, report, response, ran, rerun, prefer_idle, wait } = call;
        let size_class = spec.size_class;
        let poll = PollId(self.next_poll.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        let dropped = DroppedPoll { driver: self, poll };
        let (deliveries, learning_key) = {
            let mut core = self.lock();
            core.polls.insert(poll, answer);
            let learning_key = core.learning_key(&worker, &report);
            let (wait, prefer_idle) = if core.closing { (Duration::ZERO, true) } else { (wait, prefer_idle) };
            let wait_until = self.clock.now() + wait;
            let rerun = rerun.filter(|rerun| core.is_still_on(&worker, rerun));
            let report = if rerun.is_some() { report } else { taken(report) };
            let event = Event::Poll(Poll { poll, worker, spec, report, prefer_idle, wait_until });
            let run_again =
                |core: &mut Core, _: &[Effect]| rerun.into_iter().for_each(|r| core.run_again(*r));
            (self.step_locked(&mut core, event, run_again).0, learning_key)
        };
        self.deliver(deliveries, response.as_ref());
        if let (Some(key), Some(learning)) = (learning_key, self.learning.get())
            && let Some(run) = ran.or_else(|| attempts::run(response.as_ref()?, size_class))
        {
            learning.note(&key, &run);
        }
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
        self.deliver(deliveries, Some(response));
        true
    }

    /// What a worker is that has been given something and has not answered for it.
    pub fn busy_as(&self, worker: &str) -> Option<Arc<WorkerSpec>> {
        let core = self.lock();
        core.scheduler.task_on(worker)?;
        core.scheduler.spec_of(worker).cloned()
    }

    /// The size by which an action gets to a larger class than `than`; see [`Scheduler::larger_than`].
    pub fn larger_than(
        &self,
        than: u32,
        instance: &Arc<str>,
        route: &Route,
        asked: &Asked,
    ) -> Option<SizeClass> {
        self.lock().scheduler.larger_than(than, instance, route, asked)
    }

    /// What a worker has been given and has not answered for, if that is the action of this digest.
    pub fn given_to(&self, worker: &str, digest: &ActionDigest) -> Option<Given> {
        let core = self.lock();
        let id = core.scheduler.task_on(worker)?;
        // Reports have no digest function.
        let task = core.scheduler.task(id).filter(|task| task.digest.hash() == digest.hash())?;
        let (host, _) = core.scheduler.running_on(id)?;
        Some(Given {
            task: id,
            payload: core.payloads.get(id)?.clone(),
            route: task.route.clone(),
            attempts: task.attempts.clone(),
            host: host.clone(),
            spec: core.scheduler.spec_of(worker)?.clone(),
        })
    }
}

impl Core {
    /// Under which key a report is learned from, if it is the end of what the worker was given: whoever joined the action
    /// has it under the same one, and what nobody waits for any more, or the action cache had, teaches nothing.
    fn learning_key(&self, worker: &str, report: &Report) -> Option<Arc<str>> {
        let Report::Completed(digest, Verdict::Answer | Verdict::Again(_)) = report else { return None };
        let task = self.scheduler.task(self.scheduler.task_on(worker)?)?;
        // Reports have no digest function.
        task.route.learning_key.clone().filter(|_| task.digest.hash() == digest.hash())
    }

    /// A worker still has what has been decided about: others may have spoken for it in between.
    fn is_still_on(&self, worker: &str, rerun: &Rerun) -> bool {
        let task = self.scheduler.task_on(worker).filter(|task| *task == rerun.task);
        let task = task.and_then(|task| self.scheduler.task(task));
        task.is_some_and(|task| task.attempts.len() == rerun.attempts)
    }

    /// An action goes on as something else, unless the core took its result after all.
    fn run_again(&mut self, rerun: Rerun) {
        let Rerun { task, attempts, payload } = rerun;
        if self.scheduler.task(task).is_some_and(|task| task.attempts.len() > attempts) {
            self.replace_payload(task, payload);
        }
    }
}

/// The result is the answer, whoever wanted another.
fn taken(report: Report) -> Report {
    match report {
        Report::Completed(digest, Verdict::Again(_)) => Report::Completed(digest, Verdict::Answer),
        other => other,
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
