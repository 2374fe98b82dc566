//! Read-only looks at the state, for front ends.

use std::sync::Arc;

use crate::event::Stage;
use crate::ids::{OperationId, TaskId, Text};
use crate::properties::Schema;
use crate::route::Route;
use crate::scheduler::Scheduler;
use crate::task::{Operation, Task, TaskState};

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

    /// Look-ups so far: what steps cost, whatever the machine.
    pub fn probes(&self) -> u64 {
        self.index.probes.get()
    }
}
