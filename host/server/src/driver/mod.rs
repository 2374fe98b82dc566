//! The core's driver: turns calls and timers into events, and effects into what callers see.
//!
//! The core sits behind one mutex, held for one step. Under it nothing is awaited, encoded or called; what a step
//! brings about is taken along and delivered without the lock. Deliveries of two steps may so cross: an operation's
//! states carry a sequence, and each poll is answered once.

mod at_once;
mod cache_look;
mod cell;
mod clock;
mod delivery;
mod operators;
mod payload;
mod policies;
mod polls;
mod queues;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use pointsman_proto::longrunning::Operation;
use pointsman_proto::{pack, rev2};
use pointsman_scheduler::candidates::CandidateView;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::effect::{Effect, Output, Refusal};
use pointsman_scheduler::event::{Event, Submit};
use pointsman_scheduler::ids::{ActionDigest, HostId, OperationId, PollId, TaskId};
use pointsman_scheduler::metrics::Metrics;
use pointsman_scheduler::properties::{Asked, Schema};
use pointsman_scheduler::route::Route;
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::task_metrics::TaskMetrics;
use pointsman_scheduler::time::Time;
use pointsman_scheduler::views::Counts;
use slotmap::SecondaryMap;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::learning::Learning;
use at_once::AtOnce;
pub use cache_look::CacheLook;
pub(crate) use cell::Cell;
pub use cell::OperationStream;
pub use clock::{Clock, timestamp};
use delivery::Delivery;
pub use operators::Selection;
pub use payload::{Payload, Shown, TraceContext, cached, done_at_once, failed};
pub use polls::{Given, PollAnswer, Rerun, WorkerCall};
pub use queues::{OperationPage, OperationRow, Paths};

/// Owns the core.
#[derive(Debug)]
pub struct Driver {
    core: Mutex<Core>,
    clock: Clock,
    schema: Arc<Schema>,
    next_poll: AtomicU64,
    at_once: AtOnce,
    /// Wakes the timer when something is due sooner than it thinks.
    sooner: Notify,
    /// Who is told of actions that run again.
    retried: OnceLock<mpsc::Sender<TaskId>>,
    /// Who learns from results.
    learning: OnceLock<Arc<Learning>>,
}

#[derive(Debug)]
struct Core {
    scheduler: Scheduler,
    payloads: SecondaryMap<TaskId, Arc<Payload>>,
    cells: SecondaryMap<OperationId, Arc<Cell>>,
    polls: hashbrown::HashMap<PollId, oneshot::Sender<PollAnswer>>,
    out: Output,
    /// When the timer will look.
    timer_at: Option<Time>,
    /// The operation that an operator is ending in this step.
    ended_by_operator: Option<OperationId>,
    /// No new work: the server stops.
    closing: bool,
    /// Nor will what waits here be served any more.
    ended: bool,
}

/// An action to submit, as routed.
#[derive(Clone, Debug)]
pub struct Submission {
    /// Digest of the Action, for the core.
    pub digest: ActionDigest,
    /// What is kept of it.
    pub payload: Payload,
    /// The decision.
    pub route: Arc<Route>,
    /// Its properties, typed.
    pub asked: Asked,
    /// Hosts in the order of a policy, if one was asked.
    pub preferred: Vec<HostId>,
}

impl Driver {
    /// A driver of an empty core.
    pub fn new(config: Config, schema: Arc<Schema>, pools: Arc<[DeclaredPool]>) -> Arc<Self> {
        let mut scheduler = Scheduler::new(config, schema.clone());
        scheduler.declare(pools);
        Arc::new(Self {
            core: Mutex::new(Core {
                scheduler,
                payloads: SecondaryMap::new(),
                cells: SecondaryMap::new(),
                polls: hashbrown::HashMap::new(),
                out: Output::default(),
                timer_at: None,
                ended_by_operator: None,
                closing: false,
                ended: false,
            }),
            clock: Clock::start(),
            schema,
            next_poll: AtomicU64::new(0),
            at_once: AtOnce::default(),
            sooner: Notify::new(),
            retried: OnceLock::new(),
            learning: OnceLock::new(),
        })
    }

    /// The clock of the core.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// From now on it learns from results. Only the first one does.
    pub fn teach(&self, learning: Arc<Learning>) {
        _ = self.learning.set(learning);
    }

    /// The property schema.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// Lets time pass until `shutdown`.
    pub async fn run_timer(self: Arc<Self>, shutdown: CancellationToken) {
        loop {
            let next = {
                let mut core = self.lock();
                core.timer_at = core.scheduler.next_deadline();
                core.timer_at
            };
            let due = async {
                match next {
                    Some(at) => tokio::time::sleep_until(self.clock.instant(at).into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = due => self.step(Event::Deadline, None, |_, _| ()),
                () = self.sooner.notified() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic inside a step is a bug of the core; going on serves more builds than stopping does.
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One step; `also` happens under the same lock, right after it and before its effects are looked at.
    fn step<T>(
        &self,
        event: Event,
        response: Option<&rev2::ExecuteResponse>,
        also: impl FnOnce(&mut Core, &[Effect]) -> T,
    ) -> T {
        let (deliveries, result) = {
            let mut core = self.lock();
            self.step_locked(&mut core, event, also)
        };
        self.deliver(deliveries, response);
        result
    }

    /// The part of a step that needs the lock.
    fn step_locked<T>(
        &self,
        core: &mut Core,
        event: Event,
        also: impl FnOnce(&mut Core, &[Effect]) -> T,
    ) -> (Vec<Delivery>, T) {
        let mut out = std::mem::take(&mut core.out);
        core.scheduler.step(self.clock.now(), event, &mut out);
        let result = also(core, &out.effects);
        let deliveries = core.deliveries(&out.effects);
        out.clear();
        core.out = out;
        let next = core.scheduler.next_deadline();
        if next.is_some_and(|n| core.timer_at.is_none_or(|t| n < t)) {
            core.timer_at = next;
            self.sooner.notify_one();
        }
        (deliveries, result)
    }

    // === Clients ===

    /// Queues an action, or joins it to one in flight.
    ///
    /// # Errors
    /// A bound is reached.
    pub fn submit(self: &Arc<Self>, submission: Submission) -> Result<OperationStream, Refusal> {
        let Submission { digest, payload, route, asked, preferred } = submission;
        let takes_cached = payload.cache_look.is_allowed();
        let mut name = uuid::Uuid::encode_buffer();
        let name: Arc<str> = (&*uuid::Uuid::new_v4().hyphenated().encode_lower(&mut name)).into();
        let instance = payload.instance_name.clone();
        let submit = Event::Submit(Submit { name, instance, digest, route, asked, preferred });
        let accepted = self.step(submit, None, |core, effects| {
            let answer = effects.iter().find_map(|effect| match effect {
                Effect::Submitted { operation, task, joined } => Some(Ok((*operation, *task, *joined))),
                Effect::Refused(refusal) => Some(Err(*refusal)),
                _ => None,
            });
            answer.map(|accepted| {
                accepted.map(|(operation, task, joined)| {
                    if !joined {
                        core.payloads.insert(task, Arc::new(payload));
                    } else if !takes_cached {
                        core.execute_for_sure(task);
                    }
                    let cell = Arc::new(Cell::default());
                    if core.ended {
                        cell.close();
                    }
                    core.cells.insert(operation, cell.clone());
                    (operation, cell)
                })
            })
        });
        match accepted {
            Some(Ok((id, cell))) => {
                Ok(OperationStream { driver: self.clone(), id, cell, seen: 0, ended: false })
            }
            Some(Err(refusal)) => Err(refusal),
            // The core answers every submission with one of the two.
            None => Err(Refusal::QueueFull(self.counts().queued)),
        }
    }

    /// Hosts that could run an action at once, were it submitted now: `at_most` of them, as placement would take them.
    pub fn candidates(&self, submission: &Submission, at_most: usize) -> Vec<CandidateView> {
        let Submission { digest, payload, route, asked, .. } = submission;
        self.lock().scheduler.candidates(&payload.instance_name, digest, route, asked, at_most)
    }

    /// The states of the operation of that name from now on, if there is one.
    pub fn watch(self: &Arc<Self>, name: &str) -> Option<OperationStream> {
        let (id, cell) = self.find(name)?;
        self.step(Event::Watch(id), None, |_, _| ());
        Some(OperationStream { driver: self.clone(), id, cell, seen: 0, ended: false })
    }

    pub(crate) fn unwatch(&self, id: OperationId) {
        self.step(Event::Unwatch(id), None, |_, _| ());
    }

    /// The latest state of the operation of that name, if there is one. While it is not over, the reason is part of it
    /// (`pointsman.v1.Explanation`).
    pub fn operation(&self, name: &str) -> Option<Operation> {
        let Some((_, cell)) = self.find(name) else { return self.over_at_once(name) };
        let snapshot = cell.latest()?;
        if snapshot.is_done() {
            return Some(snapshot.operation());
        }
        let reason = self.explain(name).flatten().map(|(found, _)| pack(&crate::admin::explanation(&found)));
        Some(snapshot.operation_with(reason))
    }

    /// Keeps an operation that was over before it was queued, for whoever asks for it by name.
    pub fn keep_at_once(&self, operation: Operation) {
        self.at_once.keep(operation);
    }

    /// Such an operation, if it is still kept.
    pub fn over_at_once(&self, name: &str) -> Option<Operation> {
        self.at_once.find(name)
    }

    /// Ends the operation of that name. `false`: there is none.
    pub fn cancel(&self, name: &str) -> bool {
        // One that is over stays as it is.
        let Some((id, _)) = self.find(name) else { return self.over_at_once(name).is_some() };
        self.step(Event::Cancel(id), None, |_, _| ());
        true
    }

    fn find(&self, name: &str) -> Option<(OperationId, Arc<Cell>)> {
        let core = self.lock();
        let id = core.scheduler.operation(name)?;
        Some((id, core.cells.get(id)?.clone()))
    }

    /// The first `at_most` operations whose names come after `after`, by name; without a state in the instant before its
    /// first. The lock is held for as many look-ups.
    pub fn operations(&self, after: &str, at_most: usize) -> Vec<(Arc<str>, Option<Operation>)> {
        let cells: Vec<(Arc<str>, Option<Arc<Cell>>)> = {
            let core = self.lock();
            let names = core.scheduler.operations_after(after).take(at_most);
            names.map(|(name, id)| (name.clone(), core.cells.get(id).cloned())).collect()
        };
        let state = |cell: Option<Arc<Cell>>| Some(cell?.latest()?.operation());
        cells.into_iter().map(|(name, cell)| (name, state(cell))).collect()
    }

    // === Views and end ===

    /// Counts of what there is.
    pub fn counts(&self) -> Counts {
        self.lock().scheduler.counts()
    }

    /// Counts of how tasks and workers come and go, by declared pool. The lock is held for about a microsecond for each.
    pub fn task_metrics(&self) -> TaskMetrics {
        self.lock().scheduler.task_metrics()
    }

    /// Counts of what there is, and of what happened so far. The lock is held for some microseconds.
    pub fn metrics(&self) -> Metrics {
        let now = self.clock.now();
        self.lock().scheduler.metrics(now)
    }

    /// The same, and by pool how long what has waited longest has; see [`Scheduler::oldest_by_pool`] for `looked_at`.
    pub fn pools(&self, looked_at: usize) -> (Metrics, BTreeMap<Arc<str>, std::time::Duration>) {
        let now = self.clock.now();
        let core = self.lock();
        (core.scheduler.metrics(now), core.scheduler.oldest_by_pool(now, looked_at))
    }

    /// No more work for anybody: ends all waiting polls with idle. What runs may still report, and streams stay
    /// open for that; what is queued or comes now waits.
    pub fn close(&self) {
        let polls = {
            let mut core = self.lock();
            core.closing = true;
            core.polls.drain().collect::<Vec<_>>()
        };
        for (poll, answer) in polls {
            self.step(Event::PollDropped(poll), None, |_, _| ());
            // The caller may have gone.
            _ = answer.send(PollAnswer::Idle);
        }
    }

    /// Ends all streams with UNAVAILABLE, also those that begin from now on. Not before nothing can be waited for
    /// any more: some clients give up after a few attempts within seconds.
    pub fn end_streams(&self) {
        let cells: Vec<Arc<Cell>> = {
            let mut core = self.lock();
            core.ended = true;
            core.cells.values().cloned().collect()
        };
        cells.iter().for_each(|c| c.close());
    }
}

impl Core {
    /// Somebody has joined a task who wants no cached result.
    fn execute_for_sure(&self, task: TaskId) {
        if let Some(payload) = self.payloads.get(task) {
            payload.cache_look.forbid();
        }
    }

    /// Keeps something else of a task, made of what was kept.
    fn replace_payload(&mut self, task: TaskId, payload: Payload) {
        let old = self.payloads.insert(task, Arc::new(payload));
        // Somebody may have joined since.
        if old.is_some_and(|old| !old.cache_look.is_allowed()) {
            self.execute_for_sure(task);
        }
    }
}
