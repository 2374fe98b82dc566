//! What must survive, as plain data: deltas of the state, not events, so that a newer program with other rules can
//! still read them.

use std::sync::Arc;
use std::time::Duration;

use crate::clients::whole_seconds;
use crate::holds::{Hold, Pattern};
use crate::ids::{ActionDigest, OperationId, TaskId, Text};
use crate::properties::{Amounts, Schema};
use crate::route::Route;
use crate::scheduler::{Config, Scheduler};
use crate::task::{Attempt, Operation, Task, TaskState};
use crate::time::Time;

/// Version of the records below.
pub const RECORD_VERSION: u32 = 5;

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
    /// What it takes by measurement, as it was typed with the decision.
    pub measured: Option<Amounts>,
    /// How long it is expected to execute, in whole seconds.
    pub expected: Option<Duration>,
    /// When it arrived.
    pub queued_at: Time,
    /// Tries so far.
    pub attempts: Vec<Attempt>,
    /// Those that wait for it.
    pub operations: Vec<OperationRecord>,
}

/// An operation that waits for a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationRecord {
    /// Its name.
    pub name: Text,
    /// What its client asked for.
    pub priority: i32,
    /// What it counts for, coarsest first.
    pub invocation_keys: Vec<Text>,
}

/// An ended operation, as it is written down. Its result is the driver's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinishedRecord {
    /// Its name.
    pub name: Text,
    /// When it ended.
    pub ended: Time,
}

/// A drain or pause, as it is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRecord {
    /// Which of the two.
    pub hold: Hold,
    /// Of which workers.
    pub pattern: Pattern,
    /// Since when.
    pub since: Time,
}

/// All that was written down.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// Tasks in flight, in any order.
    pub tasks: Vec<TaskRecord>,
    /// Ended operations that were still remembered, in any order.
    pub finished: Vec<FinishedRecord>,
    /// Drains and pauses, in any order. All of them are restored, whatever the bound on them.
    pub holds: Vec<HoldRecord>,
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
        let demand = &self.index.demands[self.index.classes[task.class].key.demand];
        Some(TaskRecord {
            measured: (demand.packed != demand.asked).then(|| demand.packed.clone()),
            expected: task.expected(),
            sequence: task.sequence,
            instance: task.instance.clone(),
            digest: task.digest.clone(),
            route: task.route.clone(),
            queued_at: task.queued_at,
            attempts: task.attempts.clone(),
            operations: operations.map(|o| self.operation_record(o)).collect(),
        })
    }

    fn operation_record(&self, operation: &Operation) -> OperationRecord {
        OperationRecord {
            name: operation.name.clone(),
            priority: operation.priority,
            invocation_keys: self.index.invocations.path(operation.invocation),
        }
    }

    /// The record of an ended operation that is still remembered.
    pub fn finished_record(&self, id: OperationId) -> Option<FinishedRecord> {
        let operation = self.operations.get(id)?;
        Some(FinishedRecord { name: operation.name.clone(), ended: operation.ended? })
    }

    /// The state that these records describe, in whatever order they come. What ran is queued again, in its old place.
    /// Returned third: tasks that today's schema or bounds refuse, and why.
    pub fn restore(
        config: Config,
        schema: Arc<Schema>,
        now: Time,
        records: Records,
    ) -> (Self, Vec<Restored>, Vec<(TaskRecord, String)>) {
        let Records { mut tasks, mut finished, holds } = records;
        let mut scheduler = Self::new(config, schema);
        scheduler.now = now;
        scheduler.holds = holds.into_iter().map(|r| ((r.hold, r.pattern), r.since.min(now))).collect();
        let (mut restored, mut refused) = (Vec::new(), Vec::new());
        tasks.sort_by_key(|r| r.sequence);
        for record in tasks {
            match scheduler.restore_task(&record) {
                Ok(done) => restored.push(done),
                Err(why) => refused.push((record, why)),
            }
        }
        finished.sort_by(|a, b| (a.ended, &a.name).cmp(&(b.ended, &b.name)));
        for record in finished {
            // A clock that was set back must not make anything stay for longer.
            scheduler.remember(record.name, record.ended.min(now));
        }
        (scheduler, restored, refused)
    }

    fn restore_task(&mut self, record: &TaskRecord) -> Result<Restored, String> {
        if record.operations.is_empty() {
            return Err("no operation waits for it".to_owned());
        }
        if crate::attempts::used_up(&self.config, &record.attempts) {
            return Err(crate::attempts::gave_up(&record.attempts).to_string());
        }
        let mut asked = self.schema.action(&record.route.platform).map_err(|e| e.to_string())?;
        // Other keys in today's schema: it was measured by others.
        asked.measured = record.measured.clone().filter(|m| m.len() == asked.demand.len());
        let class = self.class(&record.instance, &record.route, &asked).map_err(|e| e.to_string())?;
        let expected_s = whole_seconds(record.expected);
        let task = Task {
            sequence: record.sequence,
            instance: record.instance.clone(),
            digest: record.digest.clone(),
            route: record.route.clone(),
            class,
            key: self.queue_key(record.queued_at, record.route.priority, expected_s, record.sequence),
            queued_at: record.queued_at,
            state: TaskState::Queued,
            operations: Default::default(),
            invocations: Default::default(),
            attempts: record.attempts.clone(),
            undelivered: 0,
            exhausted: 0,
            rests: false,
            aside_until: None,
            has_claim: false,
            expected_s,
            unserved_since: Some(self.now.max(record.queued_at)),
            armed: None,
        };
        let task = self.add_task(task);
        if !record.attempts.is_empty() {
            self.avoid_where_it_failed(task);
        }
        for OperationRecord { name, priority, invocation_keys } in &record.operations {
            let submitted = match *invocation_keys == record.route.invocation_keys {
                true => record.route.clone(),
                false => {
                    let invocation_keys = invocation_keys.clone();
                    Arc::new(Route { invocation_keys, ..(*record.route).clone() })
                }
            };
            let operation = self.add_operation(task, name.clone(), *priority, submitted);
            // Nobody listens to it yet.
            self.unwatch(operation);
        }
        self.enqueue(task);
        Ok(Restored { task, sequence: record.sequence, operations: self.tasks[task].operations.to_vec() })
    }
}
