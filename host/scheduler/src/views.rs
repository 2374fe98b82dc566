//! Read-only looks at the state, for front ends.

use std::sync::Arc;
use std::time::Duration;

use crate::event::{Stage, WorkerSpec};
use crate::explain::{ByKind, Explanation};
use crate::health::Trial;
use crate::holds::{Hold, Pattern};
use crate::ids::{OperationId, TaskId, Text};
use crate::properties::Schema;
use crate::records::HoldRecord;
use crate::route::Route;
use crate::scheduler::Scheduler;
use crate::task::{Operation, Task, TaskState};
use crate::workers::{Host, Worker};

/// Counts of what there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Tasks that wait.
    pub queued: usize,
    /// Tasks that workers have.
    pub running: usize,
    /// Operations, ended ones included.
    pub operations: usize,
    /// Hosts.
    pub hosts: usize,
    /// Workers.
    pub workers: usize,
    /// Sets of requirements.
    pub classes: usize,
    /// Queues, as workers see them.
    pub lanes: usize,
    /// Kinds of worker that requirements can tell apart.
    pub shapes: usize,
}

/// One worker, for people.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Its identity, as its front end made it.
    pub key: Text,
    /// What it said of itself: id, instance name prefix, properties, size class, pool.
    pub spec: Arc<WorkerSpec>,
    /// What it does.
    pub activity: Activity,
    /// An operator's pattern drains it.
    pub drained: bool,
    /// Why it is paused, if it is: by an operator's pattern, or since its host is out of resources.
    pub paused: Option<Text>,
    /// Why its host is in quarantine, if it is, and until when.
    pub quarantined: Option<Text>,
    /// Its host is kept free for the action of this operation.
    pub reserved_for: Option<Text>,
    /// Its host executes an exclusive action.
    pub exclusive: bool,
    /// What its host has of each `minimum` key that it has any of.
    pub amounts: Vec<AmountView>,
    /// Actions that its host runs.
    pub inflight: usize,
    /// Actions that its host runs at once at most: `max_inflight_tasks`, or as many as it has workers.
    pub inflight_max: usize,
}

/// What a worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Its call waits for work.
    Waiting,
    /// It has an action.
    Executing {
        /// Name of the first operation that waits for it; `None` if nobody does any more.
        operation: Option<Text>,
        /// How far it is; `None`: it hasn't said yet that it has it.
        stage: Option<Stage>,
        /// How long ago it was given the action.
        since: Duration,
    },
    /// It has nothing to do, and has not called since its last answer.
    NotCalling,
}

/// What a host has of one `minimum` key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmountView {
    /// The key.
    pub key: Text,
    /// What is left.
    pub free: u64,
    /// What there is in all.
    pub total: u64,
}

/// Queued tasks with the same requirements.
#[derive(Clone, Debug)]
pub struct ClassView {
    /// The one of them that arrived first; the explanation is its own.
    pub task: TaskId,
    /// How many there are.
    pub count: usize,
    /// Names of operations that wait for them: [`SAMPLE_OPERATIONS`] at most.
    pub operations: Vec<Text>,
    /// Why the first one waits, with its age.
    pub explanation: Explanation,
}

/// So many operations of a class are named.
pub const SAMPLE_OPERATIONS: usize = 5;

/// A drain or pause in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldView {
    /// Which of the two.
    pub hold: Hold,
    /// Of which workers.
    pub pattern: Pattern,
    /// For how long.
    pub age: Duration,
    /// Known workers that match.
    pub workers: usize,
    /// Those of them that have an action.
    pub busy: usize,
}

impl Scheduler {
    /// The schema that it was made with.
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The operation of that name.
    pub fn operation(&self, name: &str) -> Option<OperationId> {
        self.operation_by_name.get(name).copied()
    }

    /// An operation, ended or not.
    pub fn operation_by_id(&self, id: OperationId) -> Option<&Operation> {
        self.operations.get(id)
    }

    /// Operations whose names come after `name`, by name.
    pub fn operations_after<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = (&'a Text, OperationId)> + use<'a> {
        let after = (std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded);
        self.operation_by_name.range::<str, _>(after).map(|(name, id)| (name, *id))
    }

    /// Operations in no particular but repeatable order.
    pub fn operations(&self) -> impl Iterator<Item = (OperationId, &Operation)> {
        self.operations.iter()
    }

    /// A task in flight.
    pub fn task(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(id)
    }

    /// Queued tasks that arrived after the one of that sequence, in order of arrival: its sequence, it, its decision.
    pub fn queued_after(&self, sequence: Option<u64>) -> impl Iterator<Item = (u64, TaskId, &Arc<Route>)> {
        let from = sequence.map_or(0, |s| s.saturating_add(1));
        self.queued_by_arrival.range(from..).map(|(s, id)| (*s, *id, &self.tasks[*id].route))
    }

    /// Host that runs a task, and how far it is.
    pub fn running_on(&self, id: TaskId) -> Option<(&Text, Option<Stage>)> {
        let TaskState::Running(worker) = self.tasks.get(id)?.state else { return None };
        let worker = &self.fleet.workers[worker];
        Some((&self.fleet.hosts[worker.host].key, worker.run.as_ref().and_then(|r| r.stage)))
    }

    /// The execution strategy that a running task's worker is to use; `None`: it is the worker's own affair.
    pub fn strategy_of(&self, id: TaskId) -> Option<&Text> {
        let task = self.tasks.get(id)?;
        let TaskState::Running(worker) = task.state else { return None };
        task.route.strategy_on(self.fleet.workers[worker].spec.strategies())
    }

    /// All workers, in no particular but repeatable order.
    pub fn workers(&self) -> impl Iterator<Item = WorkerView> + '_ {
        self.fleet.workers.values().map(|w| self.worker_view(w))
    }

    fn worker_view(&self, worker: &Worker) -> WorkerView {
        let host = &self.fleet.hosts[worker.host];
        let activity = match &worker.run {
            Some(run) => Activity::Executing {
                operation: run.task.and_then(|t| self.first_operation(t)),
                stage: run.stage,
                since: self.now.since(run.since),
            },
            None if worker.waiting.is_some() => Activity::Waiting,
            None => Activity::NotCalling,
        };
        let free = host.free();
        let amounts = self.schema.minimums().iter().zip(free.iter().zip(&host.totals));
        let amounts = amounts.filter(|(_, (_, total))| **total > 0);
        WorkerView {
            key: worker.key.clone(),
            spec: worker.spec.clone(),
            activity,
            drained: worker.drained,
            paused: self.why_paused(worker, host),
            quarantined: self.why_quarantined(host),
            reserved_for: host.reserved.and_then(|task| self.first_operation(task)),
            exclusive: host.alone > 0,
            amounts: amounts
                .map(|(key, (free, total))| AmountView { key: key.clone(), free: *free, total: *total })
                .collect(),
            inflight: host.running.len(),
            inflight_max: host.max_inflight(),
        }
    }

    fn why_paused(&self, worker: &Worker, host: &Host) -> Option<Text> {
        let by_itself = host.health.pause.as_ref().map(|pause| {
            let left = pause.until.since(self.now).as_secs();
            format!("out of resources, for {left} s or until it completes an action: {}", pause.cause).into()
        });
        if worker.paused { Some("by an operator".into()) } else { by_itself }
    }

    fn why_quarantined(&self, host: &Host) -> Option<Text> {
        let q = host.health.quarantine.as_ref()?;
        let next = match q.trial {
            Trial::Closed => format!("tried with one action in {} s", q.until.since(self.now).as_secs()),
            Trial::Open => "to be tried with one action".to_owned(),
            Trial::Out(_) => "being tried with one action".to_owned(),
        };
        Some(format!("actions failed there one after the other, at last: {}; {next}", q.cause).into())
    }

    fn first_operation(&self, task: TaskId) -> Option<Text> {
        let first = self.tasks.get(task)?.operations.first()?;
        Some(self.operations.get(*first)?.name.clone())
    }

    /// What waits, by sets of requirements: those that wait longest first, `at_most` of them.
    ///
    /// Looks at every worker once, and per set at those that only capacity can keep from it.
    pub fn queue(&self, at_most: usize) -> Vec<ClassView> {
        let workers = self.workers_by_kind();
        let classes = self.waiting_classes(at_most).into_iter();
        classes.filter_map(|(task, count)| self.class_view(task, count, &workers)).collect()
    }

    /// One set of requirements of [`Self::waiting_classes`], by its task and its number, if the task still waits.
    ///
    /// Looks at every worker once.
    pub fn waiting_class(&self, task: TaskId, count: usize) -> Option<ClassView> {
        self.tasks.get(task).filter(|t| t.is_queued())?;
        self.class_view(task, count, &self.workers_by_kind())
    }

    fn class_view(&self, task: TaskId, count: usize, workers: &ByKind<'_>) -> Option<ClassView> {
        let class = &self.index.classes[self.tasks.get(task)?.class];
        let others = class.queued.iter().filter(|t| **t != task);
        let sample = std::iter::once(&task).chain(others).take(SAMPLE_OPERATIONS);
        let operations = sample.filter_map(|t| self.first_operation(*t)).collect();
        Some(ClassView { task, count, operations, explanation: self.explain_among(task, workers)? })
    }

    /// Drains and pauses in force. Looks at every worker once for each.
    pub fn drains(&self) -> Vec<HoldView> {
        let view = |record: HoldRecord| {
            let HoldRecord { hold, pattern, since } = record;
            let matching = || self.fleet.workers.values().filter(|w| pattern.matches(&w.spec.id));
            let (workers, busy) = (matching().count(), matching().filter(|w| w.run.is_some()).count());
            HoldView { hold, age: self.now.since(since), workers, busy, pattern }
        };
        self.holds().map(view).collect()
    }

    /// Operations in flight of an invocation, or of all those below a group of them: whose path of invocation keys
    /// begins with `keys`. For who wants to cancel them.
    pub fn operations_of_invocation(&self, keys: &[Text]) -> Vec<OperationId> {
        let is_of = |o: &Operation| o.submitted.as_ref().is_some_and(|r| r.invocation_keys.starts_with(keys));
        self.operations.iter().filter(|(_, o)| is_of(o)).map(|(id, _)| id).collect()
    }

    /// Operations that wait for queued tasks with the same requirements as this one. For who wants to cancel them.
    pub fn operations_alike(&self, task: TaskId) -> Vec<OperationId> {
        let Some(task) = self.tasks.get(task) else { return Vec::new() };
        let alike = self.index.classes[task.class].queued.iter();
        alike.flat_map(|t| self.tasks[*t].operations.iter().copied()).collect()
    }

    /// Counts of what there is.
    pub fn counts(&self) -> Counts {
        Counts {
            queued: self.index.waiting.len(),
            running: self.tasks.len() - self.index.waiting.len(),
            operations: self.operations.len(),
            hosts: self.fleet.hosts.len(),
            workers: self.fleet.workers.len(),
            classes: self.index.classes.len(),
            lanes: self.index.lanes.len(),
            shapes: self.index.shapes.len(),
        }
    }

    /// What the worker of that name has been given and has not answered for.
    pub fn task_on(&self, worker: &str) -> Option<TaskId> {
        let id = self.fleet.worker_by_key.get(worker)?;
        self.fleet.workers[*id].run.as_ref()?.task
    }

    /// What the worker of that name is, as far as it counts.
    pub fn spec_of(&self, worker: &str) -> Option<&Arc<WorkerSpec>> {
        Some(&self.fleet.workers[*self.fleet.worker_by_key.get(worker)?].spec)
    }

    /// Look-ups so far: what steps cost, whatever the machine.
    pub fn probes(&self) -> u64 {
        self.index.probes.get()
    }
}
