//! The way of a task through queues and attempts to its end.

use smallvec::SmallVec;

use crate::attempts::{Tried, gave_up, used_up};
use crate::effect::{Change, Effect, End, OperationStage, Output};
use crate::ids::{InvocationId, OperationId, TaskId, Text};
use crate::lanes::Waiting;
use crate::metrics::{Claim, Retry};
use crate::scheduler::Scheduler;
use crate::task::{EndedIn, Failure, Operation, TaskState};
use crate::task_metrics::UNCOUNTED;
use crate::time::Time;
use crate::timers::Subject;

impl Scheduler {
    // === Queues ===

    pub(crate) fn enqueue(&mut self, id: TaskId) {
        self.count_running(id, false);
        let task = &mut self.tasks[id];
        task.state = TaskState::Queued;
        self.queued_by_arrival.insert(task.sequence, id);
        let waiting = Waiting {
            class: task.class,
            key: task.key,
            priority: task.route.priority,
            digest: task.digest.clone(),
            invocations: task.invocations.iter().map(|(i, _)| *i).collect(),
        };
        self.index.push(id, waiting);
        self.count_queued(id);
        let lane = self.index.classes[self.tasks[id].class].lane;
        self.index.lanes[lane].stalled.get_or_insert(self.now);
        self.arm_look();
    }

    /// If a worker has the task: it begins or ends to count for those who want it.
    pub(crate) fn count_running(&mut self, id: TaskId, begins: bool) {
        let task = &self.tasks[id];
        let TaskState::Running(worker) = task.state else { return };
        let invocations: SmallVec<[InvocationId; 1]> = task.invocations.iter().map(|(i, _)| *i).collect();
        self.index.count_running(self.pool_of(worker), &invocations, begins);
    }

    pub(crate) fn dequeue(&mut self, id: TaskId) {
        self.queued_by_arrival.remove(&self.tasks[id].sequence);
        self.index.remove(id);
    }

    /// Back into the queue with its old place, or over if it was tried often enough. The worker has been stopped. Whoever
    /// calls lets that worker's host choose first, and then places the task that is returned.
    pub(crate) fn requeue(
        &mut self,
        id: TaskId,
        failed: Option<(Tried, Failure, Text)>,
        out: &mut Output,
    ) -> Option<TaskId> {
        let mut on_host = None;
        if let Some((tried, failure, cause)) = failed {
            let host_id = self.fleet.workers[tried.worker].host;
            self.note_attempt(id, tried, failure, cause.clone());
            let task = &self.tasks[id];
            let sequence = task.sequence;
            if used_up(&self.config, &task.attempts) {
                let text = gave_up(&task.attempts);
                self.end_task(id, &End::GaveUp(text), out);
                self.host_failed(host_id, sequence, &cause, out);
                return None;
            }
            self.tally.retried(Retry::Failed(failure));
            self.avoid_where_it_failed(id);
            on_host = Some((host_id, sequence, cause));
        }
        self.tasks[id].unserved_since = Some(self.now);
        self.enqueue(id);
        out.changes.push(Change::PutTask(id));
        for operation in self.tasks[id].operations.clone() {
            self.tell(operation, out);
        }
        // Others may be offered work now, and the task is among it.
        if let Some((host, sequence, cause)) = on_host {
            out.effects.push(Effect::Retried(id));
            self.host_failed(host, sequence, &cause, out);
        }
        Some(id)
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

    // === Ends ===

    /// The task is over for everybody. A worker that still runs it learns so when it next calls.
    pub(crate) fn end_task(&mut self, id: TaskId, end: &End, out: &mut Output) {
        let queue = self.queue_of_running(id);
        let counted_in = self.count_ended(id, end);
        match self.tasks[id].state {
            TaskState::Queued => {
                self.dequeue(id);
                self.end_claim(id, Claim::Dropped);
            }
            TaskState::Running(worker) => {
                self.count_running(id, false);
                let run = self.fleet.workers.get_mut(worker).and_then(|w| w.run.as_mut());
                if let Some(run) = run.filter(|r| r.task == Some(id)) {
                    run.task = None;
                }
            }
        }
        self.stop_sharing(id);
        let Some(mut task) = self.tasks.remove(id) else { return };
        self.tally.ended(end);
        self.timers.disarm(Subject::Task(id), &mut task.armed);
        self.index.release_class(task.class);
        for (invocation, _) in &task.invocations {
            self.index.invocations.leave(*invocation);
        }
        for (i, operation) in task.operations.iter().enumerate() {
            self.end_operation(*operation, id, end, out);
            if let Some(operation) = self.operations.get_mut(*operation) {
                let counted_in = if i == 0 { counted_in } else { UNCOUNTED };
                operation.ended_in = Some(Box::new(EndedIn { queue: queue.clone(), counted_in }));
            }
        }
        out.changes.push(Change::DeleteTask(task.sequence));
        out.effects.push(Effect::Dropped(id));
    }

    pub(crate) fn end_operation(&mut self, id: OperationId, task: TaskId, end: &End, out: &mut Output) {
        let Some(operation) = self.operations.get_mut(id) else { return };
        operation.task = None;
        operation.submitted = None;
        operation.ended = Some(self.now);
        self.timers.disarm(Subject::Operation(id), &mut operation.armed);
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

    pub(crate) fn forget(&mut self, id: OperationId, out: &mut Output) {
        let Some(operation) = self.operations.remove(id) else { return };
        self.operation_by_name.remove(&operation.name);
        if let (Some(ended), Some(EndedIn { counted_in, .. })) =
            (operation.ended, operation.ended_in.as_deref())
            && *counted_in != UNCOUNTED
        {
            self.task_tally.pool(*counted_in).completed.add(self.now.since(ended));
        }
        out.effects.push(Effect::Forgotten(id));
        if operation.ended.is_some() {
            out.changes.push(Change::DeleteFinished(operation.name));
        }
    }

    /// Remembers an ended operation over a restart. They come in the order in which they ended.
    pub(crate) fn remember(&mut self, name: Text, ended: Time) {
        let operation = Operation {
            name: name.clone(),
            task: None,
            priority: 0,
            submitted: None,
            invocation: self.index.invocations.root(),
            watchers: 0,
            unwatched_since: ended,
            sequence: 1,
            ended: Some(ended),
            ended_in: None,
            armed: None,
        };
        let id = self.operations.insert(operation);
        self.operation_by_name.insert(name, id);
        self.finished.push_back((ended, id));
    }
}
