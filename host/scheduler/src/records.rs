//! What must survive, as plain data: deltas of the state, not events, so that a newer program with other rules can
//! still read them.

use std::sync::Arc;

use crate::effect::Refusal;
use crate::ids::{ActionDigest, OperationId, TaskId, Text};
use crate::properties::Schema;
use crate::route::Route;
use crate::scheduler::{Config, Scheduler};
use crate::task::{Attempt, Task, TaskState};
use crate::time::Time;

/// Version of the records below.
pub const RECORD_VERSION: u32 = 1;

/// A task, as it is written down. What the driver keeps for it (the Action, say) goes beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// Names the record.
    pub sequence: u64,
    /// Instance name.
    pub instance: Text,
    /// Digest of the Action.
    pub digest: ActionDigest,
    /// The decision in force.
    pub route: Arc<Route>,
    /// When it arrived.
    pub queued_at: Time,
    /// Failed tries.
    pub attempts: Vec<Attempt>,
    /// Name and priority of each operation that waits for it.
    pub operations: Vec<(Text, i32)>,
}

/// An ended operation, as it is written down. Its result is the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedRecord {
    /// Its name.
    pub name: Text,
    /// When it ended.
    pub ended: Time,
}

/// A restored task or operation, so that the driver can put its own part beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The task.
    pub task: TaskId,
    /// Its record's name.
    pub sequence: u64,
    /// Its operations.
    pub operations: Vec<OperationId>,
}

impl Scheduler {
    /// The record of a task that is in flight.
    pub fn task_record(&self, id: TaskId) -> Option<TaskRecord> {
        let task = self.tasks.get(id)?;
        let operations = task.operations.iter().filter_map(|o| self.operations.get(*o));
        Some(TaskRecord {
            sequence: task.sequence,
            instance: task.instance.clone(),
            digest: task.digest.clone(),
            route: task.route.clone(),
            queued_at: task.queued_at,
            attempts: task.attempts.clone(),
            operations: operations.map(|o| (o.name.clone(), o.priority)).collect(),
        })
    }

    /// The record of an ended operation.
    pub fn finished_record(&self, id: OperationId) -> Option<FinishedRecord> {
        let operation = self.operations.get(id).filter(|o| o.task.is_none())?;
        // It ended when it last changed, which is `now` in the step that ended it.
        Some(FinishedRecord { name: operation.name.clone(), ended: self.now })
    }

    /// The state that these records describe. What ran is queued again, in its old place.
    ///
    /// # Errors
    /// A task that today's schema or bounds refuse, with its record.
    pub fn restore(
        config: Config,
        schema: Arc<Schema>,
        now: Time,
        tasks: Vec<TaskRecord>,
        finished: Vec<FinishedRecord>,
    ) -> (Self, Vec<Restored>, Vec<(TaskRecord, String)>) {
        let mut scheduler = Self::new(config, schema);
        scheduler.now = now;
        let (mut restored, mut refused) = (Vec::new(), Vec::new());
        for record in tasks {
            match scheduler.restore_task(&record) {
                Ok(done) => restored.push(done),
                Err(why) => refused.push((record, why)),
            }
        }
        for record in finished {
            scheduler.remember(record.name, record.ended);
        }
        (scheduler, restored, refused)
    }

    fn restore_task(&mut self, record: &TaskRecord) -> Result<Restored, String> {
        let asked = self.schema.action(&record.route.platform).map_err(|e| e.to_string())?;
        let class =
            self.class(&record.instance, &record.route, &asked).map_err(|e: Refusal| e.to_string())?;
        let mut names = record.operations.iter();
        let Some((first, priority)) = names.next() else {
            return Err("no operation waits for it".to_owned());
        };
        let key = self.queue_key(record.queued_at, record.route.priority, record.sequence);
        let (task, operation) = self.add_task(
            Task {
                sequence: record.sequence,
                instance: record.instance.clone(),
                digest: record.digest.clone(),
                route: record.route.clone(),
                class,
                key,
                queued_at: record.queued_at,
                state: TaskState::Queued,
                operations: Default::default(),
                attempts: record.attempts.clone(),
            },
            first.clone(),
        );
        self.operations[operation].priority = *priority;
        for (name, priority) in names {
            let operation = self.new_operation(name.clone(), task, *priority);
            self.tasks[task].operations.push(operation);
        }
        self.enqueue(task);
        let operations = self.tasks[task].operations.to_vec();
        for operation in &operations {
            self.unwatch_restored(*operation);
        }
        Ok(Restored { task, sequence: record.sequence, operations })
    }
}
