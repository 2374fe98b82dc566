//! The core's driver: turns calls and timers into events, and effects into what callers see.
//!
//! The core sits behind one mutex, held for one step. Under it nothing is awaited, encoded or called; what a step
//! brings about is taken along and delivered without the lock. Deliveries of two steps may so cross: an operation's
//! states carry a sequence, and each poll is answered once.

mod at_once;
mod cache_look;
mod cell;
mod clock;
mod payload;
mod polls;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use pointsman_proto::longrunning::Operation;
use pointsman_proto::{pack, rev2, rpc};
use pointsman_scheduler::candidates::CandidateView;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::effect::{Effect, End, HostNews, OperationStage, Output, Refusal, Reply};
use pointsman_scheduler::event::{Event, Submit};
use pointsman_scheduler::explain::Explanation;
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use pointsman_scheduler::ids::{ActionDigest, HostId, OperationId, PollId, TaskId};
use pointsman_scheduler::metrics::Metrics;
use pointsman_scheduler::properties::{Asked, Schema};
use pointsman_scheduler::route::Route;
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::task::{Attempt, Task};
use pointsman_scheduler::time::Time;
use pointsman_scheduler::views::{ClassView, Counts, HoldView, WorkerView};
use prost_types::Any;
use slotmap::SecondaryMap;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use at_once::AtOnce;
pub use cache_look::CacheLook;
pub(crate) use cell::Cell;
pub use cell::OperationStream;
pub use clock::{Clock, timestamp};
pub use payload::{Payload, Shown, TraceContext, cached, done_at_once, failed};
use payload::{Progress, Snapshot};
pub use polls::{Given, PollAnswer, Rerun, WorkerCall};

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

/// Which operations an operator means.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The one of that name.
    One(String),
    /// Those that wait with the same requirements as the one of that name.
    Alike(String),
    /// Those one of whose invocation keys is this.
    Invocation(String),
}

/// What is delivered without the lock.
#[derive(Debug)]
enum Delivery {
    Show { cell: Arc<Cell>, sequence: u64, name: Arc<str>, shown: Arc<Shown>, what: What },
    Answer(oneshot::Sender<PollAnswer>, PollAnswer),
    Log { host: Arc<str>, news: HostNews },
    Retried(TaskId),
}

#[derive(Debug)]
enum What {
    Stage(OperationStage),
    End(End),
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
        })
    }

    /// The clock of the core.
    pub fn clock(&self) -> Clock {
        self.clock
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

    /// Does what is done without the lock.
    fn deliver(&self, deliveries: Vec<Delivery>, response: Option<&rev2::ExecuteResponse>) {
        // Encoded once for all operations that share the execution.
        let mut reported: Option<Arc<Any>> = None;
        for delivery in deliveries {
            match delivery {
                Delivery::Log { host, news } => match news {
                    HostNews::Paused { .. } | HostNews::Quarantined { .. } => {
                        tracing::warn!(host = &*host, "{news}");
                    }
                    HostNews::Resumed | HostNews::OnTrial | HostNews::Released => {
                        tracing::info!(host = &*host, "{news}");
                    }
                },
                Delivery::Retried(task) => {
                    // Where there is no room it stays where it is.
                    _ = self.retried.get().map(|to| to.try_send(task));
                }
                Delivery::Answer(to, answer) => {
                    // Its caller may have gone; the core hears of that from the guard.
                    _ = to.send(answer);
                }
                Delivery::Show { cell, sequence, name, shown, what } => {
                    let progress = match what {
                        What::Stage(stage) => Progress::Ongoing(stage),
                        What::End(End::Reported) => {
                            let response = || Arc::new(response.map(pack).unwrap_or_default());
                            Progress::Done(reported.get_or_insert_with(response).clone())
                        }
                        What::End(end) => Progress::Done(Arc::new(pack(&ended(&end)))),
                    };
                    cell.show(sequence, Snapshot { name, shown, progress });
                }
            }
        }
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

    // === Policies ===

    /// Queued actions that arrived after the one of that sequence: its own, what is kept of it, its attempts so far.
    pub fn queued_after(
        &self,
        sequence: Option<u64>,
        at_most: usize,
    ) -> Vec<(u64, TaskId, Arc<Payload>, Vec<Attempt>)> {
        let core = self.lock();
        let tasks = core.scheduler.queued_after(sequence).take(at_most);
        let task = |(s, id, _)| {
            let attempts = core.scheduler.task(id)?.attempts.clone();
            Some((s, id, core.payloads.get(id)?.clone(), attempts))
        };
        tasks.filter_map(task).collect()
    }

    /// A queued action: what is kept of it, and its attempts so far.
    pub fn queued(&self, task: TaskId) -> Option<(Arc<Payload>, Vec<Attempt>)> {
        let core = self.lock();
        let queued = core.scheduler.task(task).filter(|t| t.is_queued())?;
        Some((core.payloads.get(task)?.clone(), queued.attempts.clone()))
    }

    /// Tells of each action that runs again since an attempt has failed. What finds no room there is not told.
    pub fn tell_of_retried(&self, to: mpsc::Sender<TaskId>) {
        // A second one would be a mistake of whoever starts the server, and is not listened to.
        _ = self.retried.set(to);
    }

    /// Puts a new decision in force for a queued action; nothing happens if it is not queued any more, or has been tried
    /// since the decision was made, after so many attempts.
    pub fn reroute(&self, task: TaskId, attempts: usize, route: Arc<Route>, asked: Asked, payload: Payload) {
        let deliveries = {
            let mut core = self.lock();
            let is_that = |t: &Task| t.is_queued() && t.attempts.len() == attempts;
            if !core.scheduler.task(task).is_some_and(is_that) {
                return;
            }
            // The payload first: the step may hand the task to a worker.
            core.replace_payload(task, payload);
            self.step_locked(&mut core, Event::Reroute { task, route, asked }, |_, _| ()).0
        };
        self.deliver(deliveries, None);
    }

    /// Ends a queued action that a policy refuses now.
    pub fn refuse(&self, task: TaskId, reason: &str) {
        self.step(Event::Refuse { task, reason: reason.into() }, None, |_, _| ());
    }

    // === Operators ===

    /// Why the operation of that name is where it is. `None`: there is none; `Some(None)`: it is over.
    pub fn explain(&self, name: &str) -> Option<Option<(Explanation, Arc<Payload>)>> {
        let core = self.lock();
        let operation = core.scheduler.operation_by_id(core.scheduler.operation(name)?)?;
        Some(operation.task.and_then(|t| Some((core.scheduler.explain(t)?, core.payloads.get(t)?.clone()))))
    }

    /// What would become of an action, without queueing one.
    pub fn plan(&self, instance_name: &Arc<str>, route: &Route, asked: &Asked) -> Explanation {
        self.lock().scheduler.plan(instance_name, route, asked)
    }

    /// What waits, by sets of requirements, longest waiting first.
    pub fn queue(&self, at_most: usize) -> Vec<(ClassView, Arc<Payload>)> {
        let classes = self.lock().scheduler.waiting_classes(at_most);
        // Each looks at every worker, so others get the lock in between.
        let explained = classes.into_iter().filter_map(|(task, count)| {
            let core = self.lock();
            Some((core.scheduler.waiting_class(task, count)?, core.payloads.get(task)?.clone()))
        });
        explained.collect()
    }

    /// The operations that have waited longest, `at_most` of them, with their ages.
    pub fn oldest_queued(&self, at_most: usize) -> Vec<(Arc<str>, Duration)> {
        let core = self.lock();
        let now = self.clock.now();
        let tasks = core.scheduler.queued_after(None).take(at_most);
        let named = tasks.filter_map(|(_, id, _)| {
            let task = core.scheduler.task(id)?;
            let operation = core.scheduler.operation_by_id(*task.operations.first()?)?;
            Some((operation.name.clone(), now.since(task.queued_at)))
        });
        named.collect()
    }

    /// All workers.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.lock().scheduler.workers().collect()
    }

    /// Drains and pauses in force.
    pub fn holds(&self) -> Vec<HoldView> {
        self.lock().scheduler.drains()
    }

    /// Puts a drain or pause in force, or ends it.
    pub fn hold(&self, hold: Hold, pattern: Pattern, add: bool) -> HoldOutcome {
        let event = if add { Event::AddHold(hold, pattern) } else { Event::RemoveHold(hold, pattern) };
        let outcome = self.step(event, None, |_, effects| {
            effects.iter().find_map(|effect| match effect {
                Effect::Hold { outcome, .. } => Some(*outcome),
                _ => None,
            })
        });
        // The core answers every hold.
        outcome.unwrap_or(HoldOutcome::Unknown)
    }

    /// Lets hosts of these workers out of quarantine, and ends pauses that they asked for. Names them.
    pub fn release(&self, pattern: Pattern) -> Vec<Arc<str>> {
        self.step(Event::Release(pattern), None, |_, effects| {
            let hosts = effects.iter().filter_map(|effect| match effect {
                Effect::Host { host, news: HostNews::Released | HostNews::Resumed } => Some(host.clone()),
                _ => None,
            });
            hosts.collect()
        })
    }

    /// Ends the operations meant, and names them.
    pub fn cancel_selected(&self, selection: &Selection) -> Vec<String> {
        let chosen: Vec<(OperationId, String)> = {
            let core = self.lock();
            let scheduler = &core.scheduler;
            let in_flight =
                |id: &OperationId| scheduler.operation_by_id(*id).is_some_and(|o| o.task.is_some());
            let ids = match selection {
                Selection::One(name) => scheduler.operation(name).into_iter().filter(in_flight).collect(),
                Selection::Alike(name) => {
                    let task = scheduler.operation(name).and_then(|id| scheduler.operation_by_id(id)?.task);
                    task.map(|t| scheduler.operations_alike(t)).unwrap_or_default()
                }
                Selection::Invocation(key) => {
                    let is_of = |r: &Arc<Route>| r.invocation_keys.iter().any(|k| **k == **key);
                    let all = scheduler.operations().filter(|(_, o)| o.submitted.as_ref().is_some_and(is_of));
                    all.map(|(id, _)| id).collect()
                }
            };
            let named =
                ids.into_iter().filter_map(|id| Some((id, scheduler.operation_by_id(id)?.name.to_string())));
            named.collect()
        };
        for (id, _) in &chosen {
            self.step(Event::Cancel(*id), None, |core, _| core.ended_by_operator = Some(*id));
        }
        chosen.into_iter().map(|(_, name)| name).collect()
    }

    // === Views and end ===

    /// Counts of what there is.
    pub fn counts(&self) -> Counts {
        self.lock().scheduler.counts()
    }

    /// Counts of what there is, and of what happened so far. The lock is held for some microseconds.
    pub fn metrics(&self) -> Metrics {
        let now = self.clock.now();
        self.lock().scheduler.metrics(now)
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

    /// Looks up what the effects speak of, while it is still there.
    fn deliveries(&mut self, effects: &[Effect]) -> Vec<Delivery> {
        let mut deliveries = Vec::with_capacity(effects.len());
        for effect in effects {
            match effect {
                Effect::Submitted { .. } | Effect::Refused(_) | Effect::Hold { .. } => {}
                Effect::Retried(task) => deliveries.push(Delivery::Retried(*task)),
                Effect::Stage { operation, task, sequence, stage } => {
                    deliveries.extend(self.show(*operation, *task, *sequence, What::Stage(stage.clone())));
                }
                Effect::Finished { operation, task, sequence, end } => {
                    let end = match self.ended_by_operator.take_if(|ended| ended == operation) {
                        Some(_) => End::Refused(ENDED_BY_OPERATOR.into()),
                        None => end.clone(),
                    };
                    deliveries.extend(self.show(*operation, *task, *sequence, What::End(end)));
                }
                Effect::Forgotten(operation) => _ = self.cells.remove(*operation),
                Effect::Dropped(task) => _ = self.payloads.remove(*task),
                Effect::Host { host, news } => {
                    deliveries.push(Delivery::Log { host: host.clone(), news: news.clone() });
                }
                Effect::Reply { poll, reply } => {
                    let heartbeat = self.scheduler.heartbeat();
                    let answer = match reply {
                        Reply::Execute(task) => match self.payloads.get(*task) {
                            Some(payload) => PollAnswer::Execute { payload: payload.clone(), heartbeat },
                            None => PollAnswer::Idle,
                        },
                        Reply::Continue => PollAnswer::Continue { heartbeat },
                        Reply::Idle => PollAnswer::Idle,
                        Reply::Superseded => PollAnswer::Superseded,
                        Reply::TooManyWorkers => PollAnswer::TooManyWorkers,
                    };
                    deliveries.extend(self.polls.remove(poll).map(|to| Delivery::Answer(to, answer)));
                }
            }
        }
        deliveries
    }

    fn show(&self, operation: OperationId, task: TaskId, sequence: u64, what: What) -> Option<Delivery> {
        let cell = self.cells.get(operation)?.clone();
        let shown = self.payloads.get(task)?.shown.clone();
        let name = self.scheduler.operation_by_id(operation)?.name.clone();
        Some(Delivery::Show { cell, sequence, name, shown, what })
    }
}

/// Not CANCELLED, the word for what a client cancels itself: Bazel executes such an action again, five times.
const ENDED_BY_OPERATOR: &str = "an operator ended the operation (pointsman cancel)";

/// The answer when no worker gave one.
fn ended(end: &End) -> rev2::ExecuteResponse {
    match end {
        End::Reported | End::Cancelled => {
            failed(rpc::Code::Cancelled, "the operation was cancelled", Vec::new())
        }
        // Clients retry UNAVAILABLE and INTERNAL: not what an action needs that has used up its attempts.
        End::GaveUp(text) | End::Unschedulable(text) => {
            failed(rpc::Code::FailedPrecondition, &**text, Vec::new())
        }
        End::Refused(text) => failed(rpc::Code::FailedPrecondition, &**text, Vec::new()),
    }
}
