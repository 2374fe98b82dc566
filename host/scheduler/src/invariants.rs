//! What must hold after every step. Slow: for tests and simulation.

use std::collections::BTreeSet;

use crate::ids::{TaskId, WorkerId};
use crate::scheduler::Scheduler;
use crate::task::TaskState;

impl Scheduler {
    /// Looks at everything.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), String> {
        self.index.check()?;
        self.fleet.check(&self.index)?;
        self.check_tasks()?;
        self.check_operations()?;
        self.check_nobody_waits_in_vain()
    }

    fn check_tasks(&self) -> Result<(), String> {
        let mut on_worker: BTreeSet<WorkerId> = BTreeSet::new();
        let mut queued = 0;
        for (id, task) in &self.tasks {
            if task.operations.is_empty() {
                return Err(format!("nobody waits for task {}", task.sequence));
            }
            match task.state {
                TaskState::Running(worker) => {
                    let run = self.fleet.workers.get(worker).and_then(|w| w.run.as_ref());
                    if run.and_then(|r| r.task) != Some(id) || !on_worker.insert(worker) {
                        return Err(format!("task {} is not on its worker", task.sequence));
                    }
                }
                TaskState::Queued => {
                    queued += 1;
                    if self.queued_by_arrival.get(&task.sequence) != Some(&id) {
                        return Err(format!("task {} is not in the queue", task.sequence));
                    }
                }
            }
            if task.attempts.len() >= self.config.max_attempts {
                return Err(format!("task {} was tried too often", task.sequence));
            }
        }
        if queued != self.index.queued || queued != self.queued_by_arrival.len() {
            return Err(format!("{queued} tasks queued, {} in queues", self.index.queued));
        }
        let bound = self.fleet.workers.values().filter_map(|w| w.run.as_ref()?.task);
        match bound.collect::<Vec<TaskId>>() {
            tasks if tasks.len() == on_worker.len() => Ok(()),
            tasks => Err(format!("workers hold {} tasks, {} say so", tasks.len(), on_worker.len())),
        }
    }

    fn check_operations(&self) -> Result<(), String> {
        for (id, operation) in &self.operations {
            if self.operation_by_name.get(&operation.name) != Some(&id) {
                return Err(format!("operation {} is not found by name", operation.name));
            }
            if let Some(task) = operation.task
                && !self.tasks.get(task).is_some_and(|t| t.operations.contains(&id))
            {
                return Err(format!("operation {} waits for a task that doesn't know it", operation.name));
            }
        }
        Ok(())
    }

    /// No worker waits while a task is queued that it may run.
    fn check_nobody_waits_in_vain(&self) -> Result<(), String> {
        for (id, worker) in &self.fleet.workers {
            if worker.waiting.is_some()
                && let Some(task) = self.task_for(id)
            {
                return Err(format!(
                    "worker {} waits while task {} could run",
                    worker.key, self.tasks[task].sequence
                ));
            }
        }
        Ok(())
    }
}
