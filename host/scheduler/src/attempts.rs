//! How often a task is tried, what tries are called that were not the last, and how long it rests between them.
//!
//! Most fail. One whose result a policy did not take has not failed: it counts, so that no policy makes a task run for
//! ever, but its host is as good as any, and the task need not rest.

use std::fmt::Write as _;
use std::time::Duration;

use smallvec::SmallVec;

use crate::clients::whole_seconds;
use crate::effect::Output;
use crate::event::Again;
use crate::health::doubled;
use crate::ids::{TaskId, Text, WorkerId};
use crate::metrics::Retry;
use crate::scheduler::{Config, Scheduler};
use crate::task::{Attempt, Failure, Task};
use crate::time::Time;
use crate::timers::Subject;

/// How often a task is tried for each thing that may go wrong; each at least 1. `Config::max_attempts` bounds their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// The worker disappeared.
    pub lost: usize,
    /// The worker was given the task and did something else.
    pub given_back: usize,
    /// The worker reported an error that is not the action's.
    pub reported: usize,
}

impl Budgets {
    fn of(&self, failure: Failure) -> usize {
        match failure {
            Failure::Lost => self.lost,
            Failure::GivenBack => self.given_back,
            Failure::Reported => self.reported,
            Failure::RunAgain => usize::MAX,
        }
    }
}

/// Who tried a task, and since when. It has it no longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tried {
    pub(crate) worker: WorkerId,
    pub(crate) since: Time,
}

/// Hosts that take a task only if there are no others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Avoid {
    /// Sorted.
    pub(crate) hosts: SmallVec<[Text; 2]>,
    /// Not even then: the task rests before it goes there again.
    pub(crate) always: bool,
}

impl Avoid {
    pub(crate) fn contains(&self, host: &Text) -> bool {
        self.hosts.contains(host)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.is_empty()
    }
}

/// It is not tried again.
pub(crate) fn used_up(config: &Config, attempts: &[Attempt]) -> bool {
    let of = |failure| attempts.iter().filter(|a| a.failure == failure).count();
    let over = |failure| of(failure) >= config.budgets.of(failure).max(1);
    attempts.len() >= config.max_attempts
        || [Failure::Lost, Failure::GivenBack, Failure::Reported].into_iter().any(over)
}

/// One text that names each attempt.
pub(crate) fn gave_up(attempts: &[Attempt]) -> Text {
    let never = if attempts.iter().all(Attempt::has_failed) { "never completed" } else { "failed at last" };
    let mut text = format!("the action was tried {} times and {never}", attempts.len());
    for (i, attempt) in attempts.iter().enumerate() {
        // Writing to a String does not fail.
        _ = write!(text, "; attempt {} on {}: {}", i + 1, attempt.host, attempt.cause);
    }
    text.into()
}

/// Until when a task rests before it goes where it failed.
fn rests_until(config: &Config, attempts: &[Attempt], now: Time) -> Option<Time> {
    let mut failed = attempts.iter().filter(|a| a.has_failed());
    let times = u32::try_from(failed.clone().count()).unwrap_or(u32::MAX);
    let last = failed.next_back()?;
    let rest: Duration = doubled(config.retry_backoff, times, config.retry_backoff_max);
    // A clock that was set back must not make it rest for longer.
    Some(last.ended.min(now) + rest).filter(|until| *until > now)
}

impl Task {
    /// Hosts where it has failed, and whether it rests.
    pub(crate) fn avoid(&self) -> Avoid {
        let failed = self.attempts.iter().filter(|a| a.has_failed());
        let mut hosts: SmallVec<[Text; 2]> = failed.map(|a| a.host.clone()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        Avoid { always: self.rests, hosts }
    }
}

impl Scheduler {
    /// A task that is not in a queue has failed once more, or comes from a record: it avoids where it failed, and rests.
    pub(crate) fn avoid_where_it_failed(&mut self, id: TaskId) {
        let task = &mut self.tasks[id];
        self.timers.disarm(Subject::Task(id), &mut task.armed);
        let until = rests_until(&self.config, &task.attempts, self.now);
        task.rests = until.is_some();
        if let Some(until) = until {
            self.timers.arm(Subject::Task(id), &mut task.armed, until);
        }
        self.reclass(id);
    }

    /// Gives a task that is not in a queue the class that avoids what it avoids.
    fn reclass(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        let class = self.index.class_avoiding(task.class, task.avoid());
        self.set_class(id, class);
    }

    /// The task has rested, or waited long enough for the host that last ran its key.
    pub(crate) fn task_due(&mut self, id: TaskId, out: &mut Output) {
        let Some(task) = self.tasks.get_mut(id) else { return };
        task.armed = None;
        if task.aside_until.is_some() {
            return self.return_from_aside(id, out);
        }
        task.rests = false;
        if !task.is_queued() {
            return self.reclass(id);
        }
        self.dequeue(id);
        self.reclass(id);
        self.enqueue(id);
        self.place(id, out);
    }

    /// A policy wants a task, which its worker has completed and no longer has, to run once more by a new route. `None`: it
    /// doesn't, and its result is the answer; else it is back in its place, as [`Self::requeue`] has it.
    pub(crate) fn run_again(
        &mut self,
        id: TaskId,
        tried: Tried,
        again: &Again,
        out: &mut Output,
    ) -> Option<TaskId> {
        let Again { route, asked, cause } = again;
        let task = &self.tasks[id];
        if task.attempts.len() + 1 >= self.config.max_attempts {
            return None;
        }
        let instance = task.instance.clone();
        let class = self.class(&instance, route, asked).ok()?;
        self.note_attempt(id, tried, Failure::RunAgain, cause.clone());
        self.tally.retried(Retry::Failed(Failure::RunAgain));
        self.tasks[id].expected_s = whole_seconds(asked.expected);
        self.adopt(id, class, route.clone());
        self.requeue(id, None, out)
    }

    /// Adds to what is known of a task's tries.
    pub(crate) fn note_attempt(&mut self, id: TaskId, tried: Tried, failure: Failure, cause: Text) {
        let worker = &self.fleet.workers[tried.worker];
        let host = self.fleet.hosts[worker.host].key.clone();
        let attempt = Attempt {
            host,
            failure,
            cause,
            size_class: worker.spec.size_class,
            strategy: self.tasks[id].route.strategy_on(worker.spec.strategies()).cloned(),
            began: tried.since,
            ended: self.now,
        };
        self.tasks[id].attempts.push(attempt);
    }

    /// A worker was out of resources when it was given a task. `true`: that is not held against the task, which is so
    /// only so many times.
    pub(crate) fn forgives_exhaustion(&mut self, id: TaskId) -> bool {
        let task = &mut self.tasks[id];
        let forgives = task.exhausted < self.config.exhausted_max;
        task.exhausted += u32::from(forgives);
        forgives
    }
}
