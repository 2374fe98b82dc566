//! The core: `step(now, event)` changes the state and says what is to be done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use slotmap::SlotMap;

use crate::affinity::LastHosts;
use crate::attempts::Budgets;
use crate::classes::{Bounds, Index};
use crate::effect::{Effect, End, Output, Reply};
use crate::event::Event;
use crate::holds::{Hold, Pattern};
use crate::ids::{OperationId, PollId, TaskId, Text};
use crate::metrics::Tally;
use crate::placement::Placement;
use crate::properties::Schema;
use crate::sharing::Sharable;
use crate::task::{Operation, Task};
use crate::task_metrics::TaskTally;
use crate::time::Time;
use crate::timers::{Subject, Timers};
use crate::together::Later;
use crate::unschedulable::Look;
use crate::workers::Fleet;

/// Bounds and times. Every one has a key in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// A worker that doesn't call for so long is lost: more by as much as the heartbeat has grown. Buildbarn: 60 s.
    pub worker_expiry: Duration,
    /// How soon a worker that executes is to call again while few do. Buildbarn: 10 s.
    pub heartbeat: Duration,
    /// The same, however many execute.
    pub heartbeat_max: Duration,
    /// So many calls of executing workers in a second are welcome: the heartbeat grows rather than bring more. At least 1.
    pub heartbeats_per_s: usize,
    /// An operation that nobody listens to for so long is dropped, and its task with it if it was the last. Buildbarn: 60 s.
    pub abandoned: Duration,
    /// How long an ended operation is remembered. Buildbarn: 60 s.
    pub completed_retention: Duration,
    /// How often a task is tried; at least 1.
    pub max_attempts: usize,
    /// How often for each thing that may go wrong.
    pub budgets: Budgets,
    /// How long a task that has failed waits before it goes to the same host again, should there be no other; twice as
    /// long after each further try. 0: not at all.
    pub retry_backoff: Duration,
    /// The longest such wait.
    pub retry_backoff_max: Duration,
    /// How long a host is given nothing after it said that it is out of resources, unless it completes something before;
    /// twice as long each time until it does. 0: not at all.
    pub exhausted_pause: Duration,
    /// The longest such pause.
    pub exhausted_pause_max: Duration,
    /// So often a task may meet a worker that is out of resources; after that each time is an attempt.
    pub exhausted_max: u32,
    /// A host where so many different tasks fail one after the other is in quarantine. 0: none ever is.
    pub quarantine_after: usize,
    /// How long a host in quarantine is given nothing before it is tried with one task; twice as long each time that
    /// fails.
    pub quarantine: Duration,
    /// The longest such time: what fails everywhere fills the quarantine with hosts, and this is how long the last of
    /// them take to come back.
    pub quarantine_max: Duration,
    /// A task that no worker could ever run for so long ends, with the reason; counted from when it arrived, from when
    /// this scheduler started, or from when the last that could have was missed, whichever is the latest. So pools have
    /// that long to grow from nothing. 0: it waits for ever.
    pub unschedulable_timeout: Duration,
    /// When it is its turn, a task has a host kept free for it that has no room, if nothing of its kind has begun for so long: others
    /// ask for less, and would take what becomes free again and again.
    pub reservation_after: Duration,
    /// In percent: so many of the hosts that could run a task are kept free for such as it at most, and at least one may be.
    pub reserved_share: u32,
    /// A host that isn't free for the task it is kept for after so long is exchanged for another.
    pub reservation_timeout: Duration,
    /// Which of the hosts that wait an arriving task goes to.
    pub placement: Placement,
    /// What one unit of REv2 priority is worth, in time waited.
    pub priority_step: Duration,
    /// Queued tasks at most.
    pub queued_tasks_max: usize,
    /// Different sets of requirements at most.
    pub classes_max: usize,
    /// Different vectors of `minimum` values at most. To find work for a worker costs time in proportion to those that wait.
    pub demands_max: usize,
    /// Workers at most.
    pub workers_max: usize,
    /// Drains and pauses at most. What it costs to register a worker grows with them.
    pub holds_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            worker_expiry: Duration::from_secs(60),
            heartbeat: Duration::from_secs(10),
            heartbeat_max: Duration::from_secs(60),
            heartbeats_per_s: 1_000,
            abandoned: Duration::from_secs(60),
            completed_retention: Duration::from_secs(60),
            max_attempts: 3,
            budgets: Budgets { lost: 3, given_back: 3, reported: 3 },
            retry_backoff: Duration::from_secs(1),
            retry_backoff_max: Duration::from_secs(60),
            exhausted_pause: Duration::from_secs(1),
            exhausted_pause_max: Duration::from_secs(60),
            exhausted_max: 10,
            quarantine_after: 5,
            quarantine: Duration::from_secs(60),
            quarantine_max: Duration::from_secs(300),
            unschedulable_timeout: Duration::from_secs(15 * 60),
            reservation_after: Duration::from_secs(60),
            reserved_share: 10,
            reservation_timeout: Duration::from_secs(10 * 60),
            placement: Placement::Spread,
            priority_step: Duration::from_secs(60),
            queued_tasks_max: 200_000,
            classes_max: 200_000,
            demands_max: 64,
            workers_max: 100_000,
            holds_max: 1_000,
        }
    }
}

impl Config {
    /// How soon executing workers are to call again when there are so many of them.
    fn heartbeat_of(&self, executing: usize) -> Duration {
        let ms = executing.saturating_mul(1000) / self.heartbeats_per_s.max(1);
        let grown = Duration::from_millis(ms as u64);
        grown.min(self.heartbeat_max).max(self.heartbeat)
    }
}

/// The whole state.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) config: Config,
    pub(crate) schema: Arc<Schema>,
    pub(crate) now: Time,
    /// By how many executed before this step.
    pub(crate) heartbeat: Duration,
    pub(crate) tasks: SlotMap<TaskId, Task>,
    pub(crate) operations: SlotMap<OperationId, Operation>,
    pub(crate) operation_by_name: BTreeMap<Text, OperationId>,
    pub(crate) sharable: Sharable,
    /// Queued tasks by arrival, for whoever walks the queue.
    pub(crate) queued_by_arrival: BTreeMap<u64, TaskId>,
    pub(crate) index: Index,
    pub(crate) fleet: Fleet,
    pub(crate) last_hosts: LastHosts,
    /// Tasks that a host is kept free for, by arrival, and since when.
    pub(crate) claims: BTreeMap<u64, (TaskId, Time)>,
    /// Those of them that have failed on that host, as there was no other.
    pub(crate) claims_of_last_resort: BTreeSet<TaskId>,
    pub(crate) later: Later,
    /// Drains and pauses, and since when they are in force.
    pub(crate) holds: BTreeMap<(Hold, Pattern), Time>,
    pub(crate) timers: Timers,
    pub(crate) look: Look,
    /// Ended operations, oldest first.
    pub(crate) finished: VecDeque<(Time, OperationId)>,
    pub(crate) next_sequence: u64,
    pub(crate) tally: Tally,
    pub(crate) task_tally: TaskTally,
}

impl Scheduler {
    /// An empty one.
    pub fn new(config: Config, schema: Arc<Schema>) -> Self {
        let bounds = Bounds { classes: config.classes_max, demands: config.demands_max };
        Self {
            config,
            schema,
            now: Time::default(),
            heartbeat: config.heartbeat,
            tasks: SlotMap::with_key(),
            operations: SlotMap::with_key(),
            operation_by_name: BTreeMap::new(),
            sharable: Sharable::new(),
            queued_by_arrival: BTreeMap::new(),
            index: Index::new(bounds),
            fleet: Fleet::new(config.placement),
            last_hosts: LastHosts::default(),
            claims: BTreeMap::new(),
            claims_of_last_resort: BTreeSet::new(),
            later: Later::default(),
            holds: BTreeMap::new(),
            timers: Timers::default(),
            look: Look::default(),
            finished: VecDeque::new(),
            next_sequence: 0,
            tally: Tally::default(),
            task_tally: TaskTally::default(),
        }
    }

    /// Lets one thing happen. `now` never goes back; `out` is added to.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Output) {
        self.now = self.now.max(now);
        self.heartbeat = self.config.heartbeat_of(self.counts().running);
        match event {
            Event::Submit(submit) => self.submit(submit, out),
            Event::Watch(id) => self.watch(id),
            Event::Unwatch(id) => self.unwatch(id),
            Event::Cancel(id) => self.cancel(id, out),
            Event::Poll(poll) => self.poll(poll, out),
            Event::PollDropped(poll) => self.poll_dropped(poll),
            Event::FoundInCache(task) => {
                if self.tasks.contains_key(task) {
                    self.end_task(task, &End::Reported, out);
                    self.tally.found_in_cache();
                }
            }
            Event::Reroute { task, route, asked } => self.reroute(task, route, &asked, out),
            Event::Refuse { task, reason } => {
                if self.tasks.get(task).is_some_and(Task::is_queued) {
                    self.end_task(task, &End::Refused(reason), out);
                }
            }
            Event::AddHold(hold, pattern) => self.add_hold(hold, pattern, out),
            Event::RemoveHold(hold, pattern) => self.remove_hold(hold, pattern, out),
            Event::Terminate(pattern) => self.terminate(&pattern, out),
            Event::Kill { task, only_queued, code } => {
                if self.tasks.get(task).is_some_and(|t| !only_queued || t.is_queued()) {
                    self.end_task(task, &End::Killed(code), out);
                }
            }
            Event::Release(pattern) => self.release(&pattern, out),
            Event::Deadline => {}
        }
        self.settle(out);
        self.deadlines(out);
    }

    /// How soon a worker that was told to execute, or to go on, in the last step is to call again.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat
    }

    /// When `Event::Deadline` is due at the latest.
    pub fn next_deadline(&self) -> Option<Time> {
        let finished = self.finished.front().map(|(ended, _)| *ended + self.config.completed_retention);
        self.timers.next().into_iter().chain(finished).min()
    }

    fn deadlines(&mut self, out: &mut Output) {
        while let Some(subject) = self.timers.pop_due(self.now) {
            match subject {
                Subject::Worker(id) => self.worker_due(id, out),
                Subject::Operation(id) => self.operation_due(id, out),
                Subject::Host(id) => self.host_due(id, out),
                Subject::Task(id) => self.task_due(id, out),
                Subject::Look => self.look_due(out),
            }
            self.settle(out);
        }
        while let Some((ended, id)) = self.finished.front().copied() {
            if ended + self.config.completed_retention > self.now {
                break;
            }
            self.finished.pop_front();
            self.forget(id, out);
        }
    }
}

pub(crate) fn reply(poll: PollId, reply: Reply) -> Effect {
    Effect::Reply { poll, reply }
}
