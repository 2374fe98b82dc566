//! The core: `step(now, event)` changes the state and says what is to be done.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use slotmap::SlotMap;
use smallvec::{SmallVec, smallvec};

use crate::classes::{Bounds, Index, Reshaped};
use crate::effect::{Change, Effect, End, OperationStage, Output, Refusal, Reply};
use crate::event::{Event, Poll, Report, Submit, Verdict};
use crate::ids::{ActionDigest, Map, OperationId, PollId, TaskId, Text, WorkerId};
use crate::properties::{Asked, Schema};
use crate::route::Route;
use crate::task::{Attempt, Operation, QueueKey, Task, TaskState};
use crate::time::Time;
use crate::timers::{Subject, Timers};
use crate::workers::Fleet;

/// Bounds and times. Every one has a key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A worker that doesn't call for so long is lost. Buildbarn: 60 s.
    pub worker_expiry: Duration,
    /// An operation that nobody listens to for so long is dropped, and its task with it if it was the last. Buildbarn: 60 s.
    pub abandoned: Duration,
    /// How long an ended operation is remembered. Buildbarn: 60 s.
    pub completed_retention: Duration,
    /// How often a task is tried; at least 1.
    pub max_attempts: usize,
    /// What one unit of REv2 priority is worth, in time waited.
    pub priority_step: Duration,
    /// Queued tasks at most.
    pub queued_tasks_max: usize,
    /// Different sets of requirements at most.
    pub classes_max: usize,
    /// Different vectors of `minimum` values at most. Every use of a host costs time in proportion to those in use.
    pub demands_max: usize,
    /// Workers at most.
    pub workers_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker_expiry: Duration::from_secs(60),
            abandoned: Duration::from_secs(60),
            completed_retention: Duration::from_secs(60),
            max_attempts: 3,
            priority_step: Duration::from_secs(60),
            queued_tasks_max: 200_000,
            classes_max: 200_000,
            demands_max: 64,
            workers_max: 100_000,
        }
    }
}

/// Tasks that arrive within one quantum are told apart by priority and arrival order alone.
const QUANTUM: Duration = Duration::from_secs(1);

/// A worker passes over at most so many tasks of a lane that it may not run (their digest runs there, or they failed there).
pub(crate) const PASSED_OVER_MAX: usize = 64;

/// A worker that says it is idle although it was given a task is given it once more, since the answer may have been
/// lost. After that the task goes elsewhere.
const SENT_AGAIN_MAX: u32 = 1;

/// The whole state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) schema: Arc<Schema>,
    pub(crate) now: Time,
    pub(crate) tasks: SlotMap<TaskId, Task>,
    pub(crate) operations: SlotMap<OperationId, Operation>,
    pub(crate) operation_by_name: Map<Text, OperationId>,
    /// Tasks that an equal submission joins.
    pub(crate) sharable: Map<(Text, ActionDigest), SmallVec<[TaskId; 1]>>,
    /// Queued tasks by arrival, for whoever walks the queue.
    pub(crate) queued_by_arrival: std::collections::BTreeMap<u64, TaskId>,
    /// Queued tasks that have failed somewhere: a host that goes may make another acceptable for them.
    retrying: BTreeSet<TaskId>,
    pub(crate) index: Index,
    pub(crate) fleet: Fleet,
    timers: Timers,
    /// Ended operations, oldest first.
    finished: VecDeque<(Time, OperationId)>,
    pub(crate) next_sequence: u64,
}

impl Scheduler {
    /// An empty one.
    pub fn new(config: Config, schema: Arc<Schema>) -> Self {
        let bounds = Bounds { classes: config.classes_max, demands: config.demands_max };
        Self {
            config,
            schema,
            now: Time::default(),
            tasks: SlotMap::with_key(),
            operations: SlotMap::with_key(),
            operation_by_name: Map::default(),
            sharable: Map::default(),
            queued_by_arrival: std::collections::BTreeMap::new(),
            retrying: BTreeSet::new(),
            index: Index::new(bounds),
            fleet: Fleet::default(),
            timers: Timers::default(),
            finished: VecDeque::new(),
            next_sequence: 0,
        }
    }

    /// Lets one thing happen. `now` never goes back; `out` is added to.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Output) {
        self.now = self.now.max(now);
        match event {
            Event::Submit(submit) => self.submit(submit, out),
            Event::Watch(id) => self.watch(id),
            Event::Unwatch(id) => self.unwatch(id),
            Event::Cancel(id) => self.cancel(id, out),
            Event::Poll(poll) => self.poll(poll, out),
            Event::PollDropped(poll) => self.poll_dropped(poll),
            Event::Reroute { task, route, asked } => self.reroute(task, route, &asked, out),
            Event::Refuse { task, reason } => {
                if self.tasks.get(task).is_some_and(Task::is_queued) {
                    self.end_task(task, &End::Refused(reason), out);
                }
            }
            Event::Deadline => {}
        }
        self.deadlines(out);
    }

    /// When `Event::Deadline` is due at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let finished = self.finished.front().map(|(ended, _)| *ended + self.config.completed_retention);
        self.timers.next().into_iter().chain(finished).min()
    }

    // === Clients ===

    fn submit(&mut self, submit: Submit, out: &mut Output) {
        let Submit { name, instance, digest, route, asked } = submit;
        if let Some(task) = self.task_to_join(&instance, &digest, &route) {
            let operation = self.new_operation(name, task, route.priority);
            self.tasks[task].operations.push(operation);
            out.effects.push(Effect::Submitted { operation, task, joined: true });
            self.raise_priority(task, route.priority);
            self.tell(operation, out);
            out.changes.push(Change::PutTask(task));
            return;
        }
        if self.index.queued >= self.config.queued_tasks_max {
            return out.effects.push(Effect::Refused(Refusal::QueueFull(self.index.queued)));
        }
        let class = match self.class(&instance, &route, &asked) {
            Ok(class) => class,
            Err(refusal) => return out.effects.push(Effect::Refused(refusal)),
        };
        let sequence = self.next_sequence;
        let key = self.queue_key(self.now, route.priority, sequence);
        let (task, operation) = self.add_task(
            Task {
                sequence,
                instance,
                digest,
                route: route.clone(),
                class,
                key,
                queued_at: self.now,
                state: TaskState::Queued,
                operations: SmallVec::new(),
                attempts: Vec::new(),
            },
            name,
        );
        out.effects.push(Effect::Submitted { operation, task, joined: false });
        self.enqueue(task);
        if !self.place(task, out) {
            self.tell(operation, out);
        }
        out.changes.push(Change::PutTask(task));
    }

    /// Puts a task and its first operation into the tables, not yet into a queue.
    pub(crate) fn add_task(&mut self, task: Task, name: Text) -> (TaskId, OperationId) {
        self.next_sequence = self.next_sequence.max(task.sequence + 1);
        self.index.use_class(task.class);
        let share = task.route.shared.then(|| (task.instance.clone(), task.digest.clone()));
        let priority = task.route.priority;
        let id = self.tasks.insert(task);
        if let Some(share) = share {
            self.sharable.entry(share).or_default().push(id);
        }
        let operation = self.new_operation(name, id, priority);
        self.tasks[id].operations = smallvec![operation];
        (id, operation)
    }

    fn task_to_join(&mut self, instance: &Text, digest: &ActionDigest, route: &Route) -> Option<TaskId> {
        if !route.shared {
            return None;
        }
        self.index.probe();
        let candidates = self.sharable.get(&(instance.clone(), digest.clone()))?;
        candidates.iter().copied().find(|t| self.tasks[*t].may_serve(route))
    }

    pub(crate) fn new_operation(&mut self, name: Text, task: TaskId, priority: i32) -> OperationId {
        let operation = Operation {
            name: name.clone(),
            task: Some(task),
            priority,
            watchers: 1,
            unwatched_since: self.now,
            sequence: 0,
        };
        let id = self.operations.insert(operation);
        self.operation_by_name.insert(name, id);
        id
    }

    /// The task's class, made if there is none. Hosts whose shape that changes are listed anew.
    pub(crate) fn class(
        &mut self,
        instance: &Text,
        route: &Route,
        asked: &Asked,
    ) -> Result<crate::ids::ClassId, Refusal> {
        let mut reshaped = Reshaped::default();
        let class = self.index.class(instance, route, asked, &mut reshaped)?;
        if !reshaped.kinds.is_empty() || reshaped.demand.is_some() {
            self.fleet.reshaped(&self.index, &reshaped.kinds, reshaped.demand.is_some());
        }
        Ok(class)
    }

    pub(crate) fn queue_key(&self, queued_at: Time, priority: i32, sequence: u64) -> QueueKey {
        let quanta = |d: Duration| i64::try_from(d.as_millis() / QUANTUM.as_millis()).unwrap_or(i64::MAX);
        let step = quanta(self.config.priority_step).max(1);
        let arrival = quanta(queued_at.since(Time::default()));
        QueueKey { score: arrival.saturating_add(step.saturating_mul(i64::from(priority))), sequence }
    }

    /// A task goes by the most urgent of its operations.
    fn raise_priority(&mut self, id: TaskId, priority: i32) {
        let task = &self.tasks[id];
        if !task.is_queued() || priority >= task.route.priority {
            return;
        }
        let route = Route { priority, ..(*task.route).clone() };
        let key = self.queue_key(task.queued_at, priority, task.sequence);
        self.dequeue(id);
        let task = &mut self.tasks[id];
        (task.route, task.key) = (Arc::new(route), key);
        self.enqueue(id);
    }

    fn watch(&mut self, id: OperationId) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.watchers += 1;
        }
    }

    fn unwatch(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.watchers = operation.watchers.saturating_sub(1);
        operation.unwatched_since = self.now;
        if operation.watchers == 0 && operation.task.is_some() {
            self.timers.arm(Subject::Operation(id), &mut None, self.now + self.config.abandoned);
        }
    }

    fn cancel(&mut self, id: OperationId, out: &mut Output) {
        let Some(task) = self.operations.get(id).and_then(|o| o.task) else { return };
        self.end_operation(id, task, &End::Cancelled, out);
        self.leave(task, id, out);
    }

    /// Takes an operation from its task, which ends if that was the last.
    fn leave(&mut self, task: TaskId, operation: OperationId, out: &mut Output) {
        let operations = &mut self.tasks[task].operations;
        operations.retain(|o| *o != operation);
        if operations.is_empty() {
            self.end_task(task, &End::Cancelled, out);
        } else {
            out.changes.push(Change::PutTask(task));
        }
    }

    fn reroute(&mut self, id: TaskId, route: Arc<Route>, asked: &Asked, out: &mut Output) {
        let Some(task) = self.tasks.get(id).filter(|t| t.is_queued()) else { return };
        let instance = task.instance.clone();
        let class = match self.class(&instance, &route, asked) {
            Ok(class) => class,
            // It stays where it was: a bound on variety is no reason to lose an accepted action.
            Err(_) => return,
        };
        self.dequeue(id);
        self.forget_sharable(id);
        let urgent =
            self.tasks[id].operations.iter().filter_map(|o| self.operations.get(*o)).map(|o| o.priority);
        // One task may serve several clients; the policy was asked about the first.
        let route = match urgent.skip(1).min() {
            Some(p) if p < route.priority => Arc::new(Route { priority: p, ..(*route).clone() }),
            _ => route,
        };
        let task = &self.tasks[id];
        let key = self.queue_key(task.queued_at, route.priority, task.sequence);
        self.index.use_class(class);
        self.index.release_class(task.class);
        let task = &mut self.tasks[id];
        (task.class, task.key, task.route) = (class, key, route);
        if task.route.shared {
            let share = (task.instance.clone(), task.digest.clone());
            self.sharable.entry(share).or_default().push(id);
        }
        self.enqueue(id);
        self.place(id, out);
        out.changes.push(Change::PutTask(id));
    }

    fn forget_sharable(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        let key = (task.instance.clone(), task.digest.clone());
        if let Some(tasks) = self.sharable.get_mut(&key) {
            tasks.retain(|t| *t != id);
            if tasks.is_empty() {
                self.sharable.remove(&key);
            }
        }
    }

    // === Queues ===

    pub(crate) fn enqueue(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        task.state = TaskState::Queued;
        let alone = (!task.route.shared).then_some(&task.digest);
        self.index.push(task.class, task.key, id, alone);
        self.queued_by_arrival.insert(task.sequence, id);
        if !task.attempts.is_empty() {
            self.retrying.insert(id);
        }
    }

    pub(crate) fn dequeue(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        let alone = (!task.route.shared).then_some(&task.digest);
        self.index.remove(task.class, task.key, alone);
        self.queued_by_arrival.remove(&task.sequence);
        self.retrying.remove(&id);
    }

    // === Workers ===

    fn poll(&mut self, poll: Poll, out: &mut Output) {
        let worker = match self.fleet.worker_by_key.get(&poll.worker) {
            Some(worker) => *worker,
            None if self.fleet.workers.len() >= self.config.workers_max => {
                return out.effects.push(reply(poll.poll, Reply::TooManyWorkers));
            }
            None => {
                let id = self.fleet.register(&mut self.index, &poll.worker, &poll.spec, self.now);
                let host = self.fleet.workers[id].host;
                // It may have brought capacity to a host whose workers wait.
                self.offer(host, out);
                id
            }
        };
        // Of two calls of one worker the older is a connection that died unnoticed.
        if let Some(old) = self.fleet.stop_waiting(&self.index, worker) {
            out.effects.push(reply(old, Reply::Superseded));
        }
        self.fleet.workers[worker].deadline = self.now + self.config.worker_expiry;
        self.arm(worker);
        let bound = self.fleet.workers[worker].run.as_ref().map(|r| (r.task, r.digest.clone()));
        match (&poll.report, bound) {
            (Report::Executing(digest, stage), Some((Some(_), mine))) if *digest == mine => {
                if let Some(run) = &mut self.fleet.workers[worker].run {
                    run.stage = Some(*stage);
                }
                out.effects.push(reply(poll.poll, Reply::Continue));
            }
            (Report::Completed(digest, verdict), Some((Some(task), mine))) if *digest == mine => {
                self.completed(worker, task, verdict, out);
                self.next_work(worker, &poll, true, out);
            }
            (report, Some((Some(task), _))) => {
                // It was given a task and knows nothing of it: the answer was lost, or it has started anew.
                let blocking = !matches!(report, Report::Executing(..));
                self.remind(worker, task, &poll, blocking, out);
            }
            (report, _) => {
                // Whatever it does is no longer wanted; what it is told next makes it stop.
                let blocking = !matches!(report, Report::Executing(..));
                self.fleet.stop(&self.index, worker);
                self.next_work(worker, &poll, blocking, out);
            }
        }
    }

    /// It was given a task and doesn't say it runs it.
    fn remind(&mut self, worker: WorkerId, task: TaskId, poll: &Poll, blocking: bool, out: &mut Output) {
        let run = self.fleet.workers[worker].run.as_mut();
        let again = run.is_some_and(|r| {
            r.sent_again += 1;
            r.sent_again <= SENT_AGAIN_MAX
        });
        if again && !poll.prefer_idle {
            return out.effects.push(reply(poll.poll, Reply::Execute(task)));
        }
        self.fleet.stop(&self.index, worker);
        if poll.prefer_idle {
            // It leaves, and has not begun: nobody's fault.
            self.requeue(task, None, out);
        } else {
            let cause = "the worker was given the action and said it was idle: it may have crashed";
            self.requeue(task, Some((worker, cause.into())), out);
        }
        self.next_work(worker, poll, blocking, out);
    }

    fn completed(&mut self, worker: WorkerId, task: TaskId, verdict: &Verdict, out: &mut Output) {
        self.fleet.stop(&self.index, worker);
        match verdict {
            Verdict::Answer => self.end_task(task, &End::Reported, out),
            Verdict::Failed(cause) => self.requeue(task, Some((worker, cause.clone())), out),
        }
    }

    /// Gives the worker something to do, or lets its call wait.
    fn next_work(&mut self, worker: WorkerId, poll: &Poll, blocking: bool, out: &mut Output) {
        let task = if poll.prefer_idle { None } else { self.task_for(worker) };
        if let Some(task) = task {
            self.assign(task, worker, poll.poll, out);
        } else if poll.prefer_idle || !blocking || poll.wait_until <= self.now {
            out.effects.push(reply(poll.poll, Reply::Idle));
        } else {
            self.fleet.wait(&self.index, worker, poll.poll, poll.wait_until);
            self.arm(worker);
        }
        // What its last action took may let others of its host begin.
        let host = self.fleet.workers[worker].host;
        self.offer(host, out);
    }

    fn poll_dropped(&mut self, poll: PollId) {
        let Some(worker) = self.fleet.worker_by_poll.get(&poll).copied() else { return };
        self.fleet.stop_waiting(&self.index, worker);
        self.fleet.workers[worker].deadline = self.now + self.config.worker_expiry;
        self.arm(worker);
    }

    pub(crate) fn arm(&mut self, id: WorkerId) {
        let worker = &mut self.fleet.workers[id];
        self.timers.arm(Subject::Worker(id), &mut worker.armed, worker.deadline);
    }

    fn lost(&mut self, id: WorkerId, out: &mut Output) {
        if let Some(run) = self.fleet.stop(&self.index, id)
            && let Some(task) = run.task
        {
            let after = self.config.worker_expiry.as_secs();
            let cause = format!("the worker disappeared: it has not called for {after} s");
            self.requeue(task, Some((id, cause.into())), out);
        }
        let host = self.fleet.workers[id].host;
        if self.fleet.remove(&mut self.index, id) {
            // Tasks that had failed everywhere else may now go back to where they failed.
            let tasks: Vec<TaskId> = self.retrying.iter().copied().take(PASSED_OVER_MAX).collect();
            for task in tasks {
                self.place(task, out);
            }
        } else {
            self.offer(host, out);
        }
    }

    // === Ends ===

    /// Back into the queue with its old place, or over if it was tried often enough.
    fn requeue(&mut self, id: TaskId, failure: Option<(WorkerId, Text)>, out: &mut Output) {
        if let Some((worker, cause)) = failure {
            let host = self.fleet.hosts[self.fleet.workers[worker].host].key.clone();
            self.tasks[id].attempts.push(Attempt { host, cause, ended: self.now });
            if self.tasks[id].attempts.len() >= self.config.max_attempts {
                let text = crate::attempts::gave_up(&self.tasks[id].attempts);
                return self.end_task(id, &End::GaveUp(text), out);
            }
        }
        self.enqueue(id);
        out.changes.push(Change::PutTask(id));
        for operation in self.tasks[id].operations.clone() {
            self.tell(operation, out);
        }
        self.place(id, out);
    }

    /// The task is over for everybody. A worker that still runs it learns so when it next calls.
    fn end_task(&mut self, id: TaskId, end: &End, out: &mut Output) {
        match self.tasks[id].state {
            TaskState::Queued if self.is_in_queue(id) => self.dequeue(id),
            TaskState::Running(worker) => {
                if let Some(run) = self
                    .fleet
                    .workers
                    .get_mut(worker)
                    .and_then(|w| w.run.as_mut())
                    .filter(|r| r.task == Some(id))
                {
                    run.task = None;
                }
            }
            TaskState::Queued => {}
        }
        self.forget_sharable(id);
        let Some(task) = self.tasks.remove(id) else { return };
        self.index.release_class(task.class);
        for operation in &task.operations {
            self.end_operation(*operation, id, end, out);
        }
        out.changes.push(Change::DeleteTask(task.sequence));
        out.effects.push(Effect::Dropped(id));
    }

    fn is_in_queue(&self, id: TaskId) -> bool {
        self.queued_by_arrival.get(&self.tasks[id].sequence) == Some(&id)
    }

    fn end_operation(&mut self, id: OperationId, task: TaskId, end: &End, out: &mut Output) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.task = None;
        operation.sequence += 1;
        self.finished.push_back((self.now, id));
        out.effects.push(Effect::Finished {
            operation: id,
            task,
            sequence: operation.sequence,
            end: end.clone(),
        });
        out.changes.push(Change::PutFinished(id));
    }

    /// Tells an operation's clients where its task is.
    pub(crate) fn tell(&mut self, id: OperationId, out: &mut Output) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        let Some(task) = operation.task else { return };
        operation.sequence += 1;
        let stage = match self.tasks[task].state {
            TaskState::Queued => OperationStage::Queued,
            TaskState::Running(worker) => OperationStage::Executing {
                host: self.fleet.hosts[self.fleet.workers[worker].host].key.clone(),
            },
        };
        out.effects.push(Effect::Stage { operation: id, task, sequence: operation.sequence, stage });
    }

    // === Time ===

    fn deadlines(&mut self, out: &mut Output) {
        while let Some((at, subject)) = self.timers.pop_due(self.now) {
            match subject {
                Subject::Worker(id) => self.worker_due(id, at, out),
                Subject::Operation(id) => self.operation_due(id, out),
            }
        }
        while let Some((ended, id)) = self.finished.front().copied() {
            if ended + self.config.completed_retention > self.now {
                break;
            }
            self.finished.pop_front();
            self.forget(id, out);
        }
    }

    fn worker_due(&mut self, id: WorkerId, at: Time, out: &mut Output) {
        let Some(worker) = self.fleet.workers.get_mut(id) else { return };
        if worker.armed != Some(at) {
            return;
        }
        worker.armed = None;
        if worker.deadline > self.now {
            return self.arm(id);
        }
        match self.fleet.stop_waiting(&self.index, id) {
            Some(poll) => {
                out.effects.push(reply(poll, Reply::Idle));
                self.fleet.workers[id].deadline = self.now + self.config.worker_expiry;
                self.arm(id);
            }
            None => self.lost(id, out),
        }
    }

    fn operation_due(&mut self, id: OperationId, out: &mut Output) {
        let Some(operation) = self.operations.get(id) else { return };
        let due = operation.unwatched_since + self.config.abandoned;
        let (Some(task), 0) = (operation.task, operation.watchers) else { return };
        if due > self.now {
            return self.timers.arm(Subject::Operation(id), &mut None, due);
        }
        self.leave(task, id, out);
        self.forget(id, out);
    }

    fn forget(&mut self, id: OperationId, out: &mut Output) {
        let Some(operation) = self.operations.remove(id) else { return };
        self.operation_by_name.remove(&operation.name);
        out.effects.push(Effect::Forgotten(id));
        out.changes.push(Change::DeleteFinished(operation.name));
    }

    /// Remembers an ended operation over a restart.
    pub(crate) fn remember(&mut self, name: Text, ended: Time) -> OperationId {
        let operation = Operation {
            name: name.clone(),
            task: None,
            priority: 0,
            watchers: 0,
            unwatched_since: ended,
            sequence: 1,
        };
        let id = self.operations.insert(operation);
        self.operation_by_name.insert(name, id);
        self.finished.push_back((ended, id));
        id
    }

    /// Nobody listens to a restored operation yet.
    pub(crate) fn unwatch_restored(&mut self, id: OperationId) {
        self.operations[id].watchers = 1;
        self.unwatch(id);
    }
}

pub(crate) fn reply(poll: PollId, reply: Reply) -> Effect {
    Effect::Reply { poll, reply }
}
