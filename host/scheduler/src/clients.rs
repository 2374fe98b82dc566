//! What clients and policies want: submit, listen, leave, cancel, decide anew.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::effect::{Change, Effect, End, Output, Refusal};
use crate::event::Submit;
use crate::ids::{ClassId, InvocationId, OperationId, PoolId, TaskId, Text, WorkerId};
use crate::properties::Asked;
use crate::route::Route;
use crate::scheduler::Scheduler;
use crate::sharing::{OPERATIONS_PER_TASK_MAX, ShareKey};
use crate::task::{Operation, QueueKey, Task, TaskState};
use crate::task_metrics::{Sharing, UNCOUNTED};
use crate::time::Time;
use crate::timers::Subject;

/// Tasks that arrive within one quantum are told apart by priority and arrival order alone.
const QUANTUM: Duration = Duration::from_secs(1);

/// Lengths that are told apart: powers of two, and nothing known.
const LENGTHS: i64 = 33;

/// Rounded up; 0 if nothing is known.
pub(crate) fn whole_seconds(expected: Option<Duration>) -> u32 {
    expected.map_or(0, |e| u32::try_from(e.as_millis().div_ceil(1000)).unwrap_or(u32::MAX))
}

impl Scheduler {
    pub(crate) fn submit(&mut self, submit: Submit, out: &mut Output) {
        let Submit { name, instance, digest, route, asked, preferred } = submit;
        if route.shared
            && let Some(task) = self.task_to_join(&ShareKey::new(&instance, &digest, &route))
        {
            return self.join(task, name, route, out);
        }
        if self.index.waiting.len() >= self.config.queued_tasks_max {
            return self.refuse(Refusal::QueueFull(self.index.waiting.len()), out);
        }
        let class = match self.class(&instance, &route, &asked) {
            Ok(class) => class,
            Err(refusal) => return self.refuse(refusal, out),
        };
        self.tally.submitted(false);
        let (sequence, priority, submitted) = (self.next_sequence, route.priority, route.clone());
        let expected_s = whole_seconds(asked.expected);
        let task = self.add_task(Task {
            sequence,
            instance,
            digest,
            route,
            class,
            key: self.queue_key(self.now, priority, expected_s, sequence),
            queued_at: self.now,
            state: TaskState::Queued,
            operations: SmallVec::new(),
            invocations: SmallVec::new(),
            attempts: Vec::new(),
            undelivered: 0,
            exhausted: 0,
            counted_in: UNCOUNTED,
            rests: false,
            aside_until: None,
            has_claim: false,
            expected_s,
            unserved_since: Some(self.now),
            armed: None,
        });
        let operation = self.add_operation(task, name, priority, submitted);
        out.effects.push(Effect::Submitted { operation, task, joined: false });
        match self.worker_on_one_of(task, &preferred) {
            Some(caller) => self.assign(task, caller, out),
            None => self.place_or_enqueue(task, out),
        }
        if self.tasks[task].route.shared {
            self.count_sharing(task, Sharing::New);
        }
        if self.tasks[task].is_queued() {
            self.tell(operation, out);
            out.changes.push(Change::PutTask(task));
        }
    }

    fn refuse(&mut self, refusal: Refusal, out: &mut Output) {
        self.tally.refused(refusal);
        out.effects.push(Effect::Refused(refusal));
    }

    fn join(&mut self, task: TaskId, name: Text, submitted: Arc<Route>, out: &mut Output) {
        self.tally.submitted(true);
        let priority = submitted.priority;
        let invocations = self.tasks[task].invocations.len();
        let operation = self.add_operation(task, name, priority, submitted);
        let is_other = self.tasks[task].invocations.len() > invocations;
        self.count_sharing(task, if is_other { Sharing::Other } else { Sharing::Same });
        out.effects.push(Effect::Submitted { operation, task, joined: true });
        if priority < self.tasks[task].route.priority {
            self.raise_priority(task, priority);
        }
        self.tell(operation, out);
        out.changes.push(Change::PutTask(task));
    }

    // === Tables ===

    /// Puts a task into the tables, not yet into a queue.
    pub(crate) fn add_task(&mut self, task: Task) -> TaskId {
        self.next_sequence = self.next_sequence.max(task.sequence + 1);
        self.index.use_class(task.class);
        let id = self.tasks.insert(task);
        self.share(id);
        id
    }

    /// A new operation that waits for a task, with somebody who listens to it.
    pub(crate) fn add_operation(
        &mut self,
        id: TaskId,
        name: Text,
        priority: i32,
        submitted: Arc<Route>,
    ) -> OperationId {
        let invocation = self.index.invocations.enter(&submitted.invocation_keys);
        self.count_for(id, invocation);
        let operation = self.operations.insert(Operation {
            name: name.clone(),
            task: Some(id),
            priority,
            submitted: Some(submitted),
            invocation,
            watchers: 1,
            unwatched_since: self.now,
            sequence: 0,
            ended: None,
            ended_in: None,
            armed: None,
        });
        self.operation_by_name.insert(name, operation);
        let task = &mut self.tasks[id];
        task.operations.push(operation);
        if task.operations.len() == OPERATIONS_PER_TASK_MAX {
            self.stop_sharing(id);
        }
        operation
    }

    // === Invocations ===

    /// One operation more of an invocation waits for a task: the task waits, or runs, under that invocation too.
    fn count_for(&mut self, id: TaskId, invocation: InvocationId) {
        let task = &mut self.tasks[id];
        if let Some((_, n)) = task.invocations.iter_mut().find(|(i, _)| *i == invocation) {
            *n += 1;
            return self.index.invocations.leave(invocation);
        }
        let others: SmallVec<[InvocationId; 8]> = task.invocations.iter().map(|(i, _)| *i).collect();
        task.invocations.push((invocation, 1));
        self.change_invocations(id, invocation, &others, true);
    }

    /// One operation less.
    fn count_no_more_for(&mut self, id: TaskId, invocation: InvocationId) {
        let task = &mut self.tasks[id];
        let Some(at) = task.invocations.iter().position(|(i, _)| *i == invocation) else { return };
        task.invocations[at].1 -= 1;
        if task.invocations[at].1 > 0 {
            return;
        }
        task.invocations.remove(at);
        let others: SmallVec<[InvocationId; 8]> = task.invocations.iter().map(|(i, _)| *i).collect();
        self.change_invocations(id, invocation, &others, false);
        self.index.invocations.leave(invocation);
    }

    /// A task comes to an invocation, or leaves it, and `others` want it as well.
    fn change_invocations(
        &mut self,
        id: TaskId,
        invocation: InvocationId,
        others: &[InvocationId],
        comes: bool,
    ) {
        match self.tasks[id].state {
            TaskState::Queued if comes => self.index.push_under(id, invocation),
            TaskState::Queued => self.index.remove_under(id, invocation),
            TaskState::Running(worker) => {
                let pool = self.pool_of(worker);
                let tree = &self.index.invocations;
                let counted = tree.with_ancestors(others.iter().copied());
                let mut path = tree.with_ancestors([invocation]);
                path.retain(|i| !counted.contains(i));
                for at in path {
                    self.index.count_share(pool, at, comes);
                }
            }
        }
    }

    /// What is equal for all fair sharing: the pool of a worker.
    pub(crate) fn pool_of(&self, worker: WorkerId) -> PoolId {
        let kind = &self.index.kinds[self.fleet.workers[worker].kind];
        self.index.shapes[kind.shape].pool
    }

    // === Classes ===

    /// The class of an action, made if there is none. Hosts whose shape that changes are listed anew.
    pub(crate) fn class(
        &mut self,
        instance: &Text,
        route: &Route,
        asked: &Asked,
    ) -> Result<ClassId, Refusal> {
        let mut reshaped = Vec::new();
        let class = self.index.class(instance, route, asked, &mut reshaped)?;
        self.fleet.reshaped(&self.index, &reshaped);
        Ok(class)
    }

    /// Gives a task that is not in a queue another class.
    pub(crate) fn set_class(&mut self, id: TaskId, class: ClassId) {
        let task = &mut self.tasks[id];
        let old = std::mem::replace(&mut task.class, class);
        self.index.use_class(class);
        self.index.release_class(old);
    }

    // === Order ===

    /// Within a quantum and a priority what is expected to take longer goes first, by powers of two: so that it isn't what
    /// everybody waits for at the end.
    pub(crate) fn queue_key(
        &self,
        queued_at: Time,
        priority: i32,
        expected_s: u32,
        sequence: u64,
    ) -> QueueKey {
        let quanta = |d: Duration| i64::try_from(d.as_millis() / QUANTUM.as_millis()).unwrap_or(i64::MAX);
        let step = quanta(self.config.priority_step).max(1);
        let arrival = quanta(queued_at.since(Time::default()));
        let score = arrival.saturating_add(step.saturating_mul(i64::from(priority)));
        QueueKey {
            score: score.saturating_mul(LENGTHS).saturating_add(i64::from(expected_s.leading_zeros())),
            sequence,
        }
    }

    /// A task goes by the most urgent of its operations; one that runs does so should it come back.
    fn raise_priority(&mut self, id: TaskId, priority: i32) {
        let was_queued = self.tasks[id].is_queued();
        if was_queued {
            self.dequeue(id);
        }
        let task = &self.tasks[id];
        let key = self.queue_key(task.queued_at, priority, task.expected_s, task.sequence);
        let task = &mut self.tasks[id];
        task.route = Arc::new(Route { priority, ..(*task.route).clone() });
        task.key = key;
        if was_queued {
            self.enqueue(id);
        }
    }

    /// A policy has decided anew about a queued task: it keeps its place, as far as its new priority lets it.
    pub(crate) fn reroute(&mut self, id: TaskId, route: Arc<Route>, asked: &Asked, out: &mut Output) {
        let Some(task) = self.tasks.get(id).filter(|t| t.is_queued()) else { return };
        let instance = task.instance.clone();
        let Ok(class) = self.class(&instance, &route, asked) else {
            // It stays where it was: a bound on variety is no reason to lose an accepted action.
            return;
        };
        self.dequeue(id);
        self.end_aside(id);
        self.tasks[id].expected_s = whole_seconds(asked.expected);
        self.adopt(id, class, route);
        out.changes.push(Change::PutTask(id));
        self.place_or_enqueue(id, out);
    }

    /// Puts a new decision in force for a task that is in no queue. It keeps its place, as far as its priority lets it,
    /// and avoids what it avoided.
    pub(crate) fn adopt(&mut self, id: TaskId, mut class: ClassId, route: Arc<Route>) {
        let avoid = self.tasks[id].avoid();
        if !avoid.is_empty() {
            class = self.index.class_avoiding(class, avoid);
        }
        self.stop_sharing(id);
        if class != self.tasks[id].class {
            self.tasks[id].unserved_since = Some(self.now);
        }
        self.set_class(id, class);
        self.move_first_operation(id, &route);
        let task = &self.tasks[id];
        // One task may serve several clients; the policy was asked about the first.
        let others = task.operations.iter().skip(1).filter_map(|o| self.operations.get(*o));
        let route = match others.map(|o| o.priority).min() {
            Some(p) if p < route.priority => Arc::new(Route { priority: p, ..(*route).clone() }),
            _ => route,
        };
        let key = self.queue_key(task.queued_at, route.priority, task.expected_s, task.sequence);
        let task = &mut self.tasks[id];
        (task.key, task.route) = (key, route);
        self.share(id);
    }

    /// The first operation of a task that is in no queue counts for another invocation.
    fn move_first_operation(&mut self, id: TaskId, route: &Arc<Route>) {
        let first = self.tasks[id].operations.first();
        let Some(operation) = first.and_then(|o| self.operations.get_mut(*o)) else { return };
        operation.submitted = Some(route.clone());
        let to = self.index.invocations.enter(&route.invocation_keys);
        let from = std::mem::replace(&mut operation.invocation, to);
        self.count_for(id, to);
        self.count_no_more_for(id, from);
    }

    // === Listening ===

    pub(crate) fn watch(&mut self, id: OperationId) {
        if let Some(operation) = self.operations.get_mut(id) {
            operation.watchers += 1;
        }
    }

    pub(crate) fn unwatch(&mut self, id: OperationId) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.watchers = operation.watchers.saturating_sub(1);
        if operation.watchers == 0 && operation.task.is_some() {
            operation.unwatched_since = self.now;
            let due = self.now + self.config.abandoned;
            self.timers.arm(Subject::Operation(id), &mut operation.armed, due);
        }
    }

    pub(crate) fn operation_due(&mut self, id: OperationId, out: &mut Output) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.armed = None;
        let (Some(task), 0) = (operation.task, operation.watchers) else { return };
        let due = operation.unwatched_since + self.config.abandoned;
        if due > self.now {
            return self.timers.arm(Subject::Operation(id), &mut operation.armed, due);
        }
        self.leave(task, id, out);
        self.forget(id, out);
    }

    pub(crate) fn cancel(&mut self, id: OperationId, out: &mut Output) {
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
            if let Some(left) = self.operations.get(operation) {
                self.count_no_more_for(task, left.invocation);
            }
            out.changes.push(Change::PutTask(task));
        }
    }
}
