//! Looks at queues as Buildbarn has them ([`crate::platform_queues`]), a slice at a time: whoever looks through all of something gives
//! the state back in between, and puts together and sorts what was copied on its own time. What changes meanwhile is seen
//! before or after.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::event::WorkerSpec;
use crate::holds::{Hold, Pattern};
use crate::ids::{ClassId, InvocationId, OperationId, TaskId, Text, WorkerId};
use crate::platform_queues::QueueName;
use crate::scheduler::Scheduler;
use crate::task::{Operation, TaskState};
use crate::time::Time;

/// A worker of a queue.
#[derive(Clone, Debug)]
pub struct Member {
    /// Names it in the next look.
    pub id: WorkerId,
    /// What it is.
    pub spec: Arc<WorkerSpec>,
    /// A call of it waits.
    pub waits: bool,
    /// It has something that it executes, wanted or not.
    pub is_busy: bool,
    /// Who wants what it executes.
    pub invocations: SmallVec<[InvocationId; 1]>,
    /// The operation with the smallest name of those that want it.
    pub operation: Option<OperationId>,
    /// An operator keeps it from getting anything new, or it is about to go.
    pub is_held: bool,
    /// When it counts as lost; `None` while a call waits.
    pub lost_at: Option<Time>,
}

/// A task that waits.
#[derive(Clone, Debug)]
pub struct WaitingTask {
    /// Order of arrival; names it in the next look.
    pub sequence: u64,
    /// The task.
    pub task: TaskId,
    /// In which queue it is shown.
    pub queue: Arc<QueueName>,
    /// Smaller goes first within an invocation; of equals the one that arrived first.
    pub score: i64,
    /// The smallest priority of those that want it.
    pub priority: i32,
    /// When it arrived.
    pub queued_at: Time,
    /// Those that want it, and for whom.
    pub operations: SmallVec<[(OperationId, InvocationId); 1]>,
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationPhase {
    /// Its task waits.
    Queued,
    /// A worker has its task.
    Executing,
    /// It is over.
    Completed,
}

/// One operation.
#[derive(Clone, Debug)]
pub struct OperationView {
    /// Itself.
    pub id: OperationId,
    /// Its name.
    pub name: Text,
    /// Its task, until it is over.
    pub task: Option<TaskId>,
    /// Where it is.
    pub phase: OperationPhase,
    /// The queue that shows it; `None` for one that no worker had when it ended.
    pub queue: Option<Arc<QueueName>>,
    /// Its invocation, coarsest key first. Nothing if the invocation is forgotten.
    pub invocation: Vec<Text>,
    /// What its client asked for.
    pub priority: i32,
    /// When its task arrived, while it has one.
    pub queued_at: Option<Time>,
    /// Its task's order of arrival, while it has one.
    pub sequence: Option<u64>,
    /// How long it is expected to execute, if that is known.
    pub expected: Option<Duration>,
    /// When it goes: since nobody listens, or since it is over.
    pub goes_at: Option<Time>,
}

/// Whose turn it is among invocations with the same parent: smaller goes first.
pub type Turn = (i64, u64, u64);

impl Scheduler {
    // === Queues ===

    /// Queues that have workers and whose names come after `after`, by name.
    pub fn queues_after(&self, after: Option<&QueueName>, at_most: usize) -> Vec<Arc<QueueName>> {
        self.fleet.queues.after(after).take(at_most).cloned().collect()
    }

    /// Queues of declared pools that have no workers.
    pub fn queues_declared(&self) -> Vec<QueueName> {
        let pools = self.index.declared.iter();
        let empty = pools.filter(|pool| self.fleet.census.workers_of(&pool.name) == 0);
        empty.map(|pool| pool.queue_name()).filter(|name| !self.has_workers(name)).collect()
    }

    /// There are workers in the queue.
    pub fn has_workers(&self, queue: &QueueName) -> bool {
        self.fleet.queues.workers(queue, None).is_some()
    }

    /// Workers of a queue that come after that one, in no particular but repeatable order.
    pub fn queue_members(&self, queue: &QueueName, after: Option<WorkerId>, at_most: usize) -> Vec<Member> {
        let workers = self.fleet.queues.workers(queue, after).into_iter().flatten();
        workers.take(at_most).filter_map(|id| self.member(id)).collect()
    }

    fn member(&self, id: WorkerId) -> Option<Member> {
        let worker = self.fleet.workers.get(id)?;
        let task = worker.run.as_ref().and_then(|run| self.tasks.get(run.task?));
        let named = |id: &&OperationId| self.operations.get(**id).map(|o| &o.name);
        let waits = worker.waiting.is_some();
        Some(Member {
            id,
            spec: worker.spec.clone(),
            waits,
            is_busy: worker.run.is_some(),
            invocations: task.map(|t| t.invocations.iter().map(|(i, _)| *i).collect()).unwrap_or_default(),
            operation: task.and_then(|t| t.operations.iter().min_by_key(named)).copied(),
            is_held: worker.is_held(),
            lost_at: (!waits).then_some(worker.deadline),
        })
    }

    /// The worker of that name has something that it executes, wanted or not.
    pub fn is_busy(&self, worker: &str) -> bool {
        let id = self.fleet.worker_by_key.get(worker);
        id.is_some_and(|id| self.fleet.workers[*id].run.is_some())
    }

    /// Drains that hold workers of a queue, and since when: its own, and those that name no queue.
    pub fn drains_of(&self, queue: &QueueName) -> Vec<(Pattern, Time)> {
        let is_of = |p: &Pattern| p.queue().is_none_or(|own| **own == *queue);
        let drains = self.holds.iter().filter(|((hold, p), _)| *hold == Hold::Drain && is_of(p));
        drains.map(|((_, pattern), since)| (pattern.clone(), *since)).collect()
    }

    // === What waits ===

    /// Tasks that wait and arrived after the one of that sequence, in order of arrival, with the queues that show them.
    pub fn waiting_after(&self, sequence: Option<u64>, at_most: usize) -> Vec<WaitingTask> {
        let mut of_class: BTreeMap<ClassId, Arc<QueueName>> = BTreeMap::new();
        let tasks = self.queued_after(sequence).take(at_most);
        let waiting = tasks.filter_map(|(sequence, id, route)| {
            let task = self.tasks.get(id)?;
            let queue = match of_class.get(&task.class) {
                Some(queue) => queue.clone(),
                None => {
                    let queue = self.queue_showing(id)?;
                    // One that nobody serves is called as the task asks, and others of its class may ask otherwise.
                    if self.has_workers(&queue) {
                        of_class.insert(task.class, queue.clone());
                    }
                    queue
                }
            };
            let operations = task.operations.iter();
            Some(WaitingTask {
                sequence,
                task: id,
                queue,
                score: task.key.score,
                priority: route.priority,
                queued_at: task.queued_at,
                operations: operations
                    .filter_map(|o| Some((*o, self.operations.get(*o)?.invocation)))
                    .collect(),
            })
        });
        waiting.collect()
    }

    /// What an action's place within its invocation would be, had it arrived then; see [`WaitingTask::score`].
    pub fn score_of(&self, queued_at: Time, priority: i32, expected: Option<Duration>) -> i64 {
        self.queue_key(queued_at, priority, crate::clients::whole_seconds(expected), 0).score
    }

    // === Invocations ===

    /// The way to an invocation, coarsest first; nothing if it is forgotten.
    pub fn invocation_path(&self, id: InvocationId) -> Vec<(InvocationId, Text)> {
        self.index.invocations.way(id)
    }

    /// Whose turn an invocation is among its siblings when a worker of the queue asks, if that is the smallest priority that waits
    /// there. Where nobody would ask, older ones go first.
    pub fn turn(&self, queue: &QueueName, id: InvocationId, priority: i32) -> Turn {
        let pool =
            self.fleet.queues.kind_of(queue).map(|kind| self.index.shapes[self.index.kinds[kind].shape].pool);
        self.index.invocations.turn(pool, id, priority)
    }

    // === Operations ===

    /// Where an operation is.
    pub fn phase(&self, operation: &Operation) -> OperationPhase {
        match operation.task.and_then(|t| self.tasks.get(t)).map(|t| t.state) {
            Some(TaskState::Queued) => OperationPhase::Queued,
            Some(TaskState::Running(_)) => OperationPhase::Executing,
            None => OperationPhase::Completed,
        }
    }

    /// One of the keys of an operation's invocation is this.
    pub fn has_invocation_key(&self, operation: &Operation, key: &str) -> bool {
        self.invocation_path(operation.invocation).iter().any(|(_, k)| **k == *key)
    }

    /// An operation, ended or not.
    pub fn operation_view(&self, id: OperationId) -> Option<OperationView> {
        let operation = self.operations.get(id)?;
        let task = operation.task.and_then(|t| Some((t, self.tasks.get(t)?)));
        let queue = match task {
            Some((id, task)) => {
                self.queue_of_running(id).or_else(|| self.queue_showing(id).filter(|_| task.is_queued()))
            }
            None => operation.ended_in.as_ref().and_then(|ended| ended.queue.clone()),
        };
        let goes_at = match (operation.ended, operation.watchers) {
            (Some(ended), _) => Some(ended + self.config.completed_retention),
            (None, 0) => Some(operation.unwatched_since + self.config.abandoned),
            (None, _) => None,
        };
        Some(OperationView {
            id,
            name: operation.name.clone(),
            task: operation.task,
            phase: self.phase(operation),
            queue,
            invocation: self.invocation_path(operation.invocation).into_iter().map(|(_, key)| key).collect(),
            priority: operation.priority,
            queued_at: task.map(|(_, t)| t.queued_at),
            sequence: task.map(|(_, t)| t.sequence),
            expected: task.and_then(|(_, t)| t.expected()),
            goes_at,
        })
    }

    /// The queue of the worker that has a task, if one has.
    pub(crate) fn queue_of_running(&self, id: TaskId) -> Option<Arc<QueueName>> {
        let TaskState::Running(worker) = self.tasks.get(id)?.state else { return None };
        Some(self.fleet.queues.name(self.fleet.workers.get(worker)?.queue).clone())
    }
}

/// In the order in which Buildbarn lists queues.
pub fn by_prefix_and_platform(a: &QueueName, b: &QueueName) -> std::cmp::Ordering {
    (&a.prefix, &a.platform, a.size_class).cmp(&(&b.prefix, &b.platform, b.size_class))
}
