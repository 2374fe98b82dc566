//! What policies decide anew about queued actions.

use std::sync::Arc;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::ids::TaskId;
use pointsman_scheduler::properties::Asked;
use pointsman_scheduler::route::Route;
use pointsman_scheduler::task::{Attempt, Task};
use tokio::sync::mpsc;

use super::{Driver, Payload};

impl Driver {
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
}
