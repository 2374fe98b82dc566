//! Counts of how tasks and workers come and go, by declared pool, as Buildbarn's scheduler has them: only counters, made so that
//! differences of them are what there is. What entered the queue less what left it waits; what entered it less what
//! left execution is the load.
//!
//! So each task is counted in one pool at a time, though workers of several could run it: of the declared pools that could, in
//! the one of the smallest size class, then of the longest prefix, then the first that is declared. If workers of another
//! take it, it moves there. Everything that no declared pool has is counted together.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::declared::DeclaredPool;
use crate::effect::End;
use crate::fairness::DEPTH_MAX;
use crate::ids::{ClassId, Map, TaskId, Text, WorkerId};
use crate::metrics::Histogram;
use crate::scheduler::Scheduler;
use crate::task::TaskState;

/// A declared pool's place in the tables below, from 1; 0 is for all else.
pub(crate) type PoolSlot = u16;

/// In no pool now: a task that isn't queued. Not an `Option`, which would make each queued task larger.
pub(crate) const UNCOUNTED: PoolSlot = PoolSlot::MAX;

/// How an execution went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunResult {
    /// Exit code 0.
    Success,
    /// Another exit code.
    NonZeroExitCode,
    /// An error of the worker's, or the worker went.
    #[default]
    Failure,
    /// No error, and no result either.
    ActionResultMissing,
    /// It ended, or went elsewhere, without being executed here.
    NotExecuted,
}

impl RunResult {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Success => "Success",
            Self::NonZeroExitCode => "NonZeroExitCode",
            Self::Failure => "Failure",
            Self::ActionResultMissing => "ActionResultMissing",
            Self::NotExecuted => "NotExecuted",
        }
    }
}

/// How an execution went, and with which status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// How.
    pub result: RunResult,
    /// The gRPC code: 0 to 16, or 2 for those that nobody knows.
    pub code: u8,
}

impl Default for Outcome {
    /// Nothing is known.
    fn default() -> Self {
        Self::new(RunResult::Failure, 2)
    }
}

impl Outcome {
    /// The worker did something else.
    pub(crate) const GIVEN_BACK: Self = Self { result: RunResult::Failure, code: 13 };
    /// The worker went.
    pub(crate) const LOST: Self = Self { result: RunResult::Failure, code: 14 };
    /// Nothing of it was executed here.
    const ELSEWHERE: Self = Self { result: RunResult::NotExecuted, code: 0 };

    /// Codes that nobody knows are all the same one, as there are endless many.
    pub fn new(result: RunResult, code: i32) -> Self {
        Self { result, code: u8::try_from(code).ok().filter(|c| *c <= 16).unwrap_or(2) }
    }

    fn of(end: &End) -> Self {
        let code = match end {
            // It was found in the action cache.
            End::Reported => return Self::ELSEWHERE,
            End::Cancelled => 1,
            End::Killed(code) => *code,
            End::GaveUp(_) | End::Unschedulable(_) | End::Refused(_) => 9,
        };
        Self::new(RunResult::Failure, code)
    }
}

/// So often a task may be sent again to be told apart; see [`Runs::retries`].
pub const RETRIES_BOUNDS: [u64; 4] = [0, 1, 2, 5];

/// Executions that went alike.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runs {
    /// How long they took.
    pub length: Histogram,
    /// How often the task was sent again: how many of each of [`RETRIES_BOUNDS`] and more than the one before it, and of more
    /// than all.
    pub retries: [u64; RETRIES_BOUNDS.len() + 1],
    /// All of that together.
    pub retries_sum: u64,
}

/// What became of submissions that may share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Same,
    Other,
    New,
}

/// One declared pool, or all else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolTasks {
    /// Tasks that entered the queue: given to a worker at once or not, and then whether they may be shared or not.
    pub scheduled: [[u64; 2]; 2],
    /// How long tasks were in the queue, counted when they leave it.
    pub queued: Histogram,
    /// Executions, counted when they end.
    pub executed: BTreeMap<Outcome, Runs>,
    /// How long tasks were kept after their end.
    pub completed: Histogram,
    /// Submissions that may share: joined one of the same invocation, of another one, or none.
    pub sharing: [u64; 3],
    /// Workers that came.
    pub workers_created: u64,
    /// Workers that were told to go, or were lost.
    pub workers_terminating: u64,
    /// Workers that went: idle, executing.
    pub workers_removed: [u64; 2],
}

/// Invocations that came and went, by depth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InvocationCounts {
    /// Became known.
    pub created: [u64; DEPTH_MAX + 1],
    /// Began to have tasks.
    pub activated: [u64; DEPTH_MAX + 1],
    /// Ceased to have any.
    pub deactivated: [u64; DEPTH_MAX + 1],
    /// Were forgotten.
    pub removed: [u64; DEPTH_MAX + 1],
}

/// All of it.
#[derive(Clone, Debug)]
pub struct TaskMetrics {
    /// All that no declared pool has; then declared pools, in their order.
    pub pools: Vec<PoolTasks>,
    /// Invocations, whatever their pools.
    pub invocations: InvocationCounts,
}

/// The tables.
#[derive(Clone, Debug)]
pub(crate) struct TaskTally {
    slots: Map<Text, PoolSlot>,
    pools: Vec<PoolTasks>,
}

impl Default for TaskTally {
    fn default() -> Self {
        Self { slots: Map::default(), pools: vec![PoolTasks::default()] }
    }
}

impl TaskTally {
    pub(crate) fn declare(&mut self, pool: &Text) {
        let slot = PoolSlot::try_from(self.pools.len()).unwrap_or(UNCOUNTED);
        if slot == UNCOUNTED {
            return;
        }
        self.pools.push(PoolTasks::default());
        self.slots.insert(pool.clone(), slot);
    }

    pub(crate) fn slot(&self, pool: &Text) -> PoolSlot {
        self.slots.get(pool).copied().unwrap_or(0)
    }

    /// What a declared pool has to do: what waits for it and what its workers have.
    pub(crate) fn load(&self, pool: &Text) -> Option<u64> {
        let pool = &self.pools[usize::from(*self.slots.get(pool)?)];
        let entered: u64 = pool.scheduled.iter().flatten().sum();
        let ended: u64 = pool.executed.values().map(|runs| runs.length.count()).sum();
        Some(entered.saturating_sub(ended))
    }

    pub(crate) fn pool(&mut self, slot: PoolSlot) -> &mut PoolTasks {
        let slot = usize::from(slot);
        &mut self.pools[if slot == usize::from(UNCOUNTED) { 0 } else { slot }]
    }
}

impl PoolTasks {
    /// Counts another with this one.
    pub fn add(&mut self, other: &Self) {
        let sums = [
            (&mut self.workers_created, other.workers_created),
            (&mut self.workers_terminating, other.workers_terminating),
        ];
        let scheduled = self.scheduled.iter_mut().flatten().zip(other.scheduled.into_iter().flatten());
        let sharing = self.sharing.iter_mut().zip(other.sharing);
        let removed = self.workers_removed.iter_mut().zip(other.workers_removed);
        sums.into_iter().chain(scheduled).chain(sharing).chain(removed).for_each(|(sum, n)| *sum += n);
        self.queued.merge(&other.queued);
        self.completed.merge(&other.completed);
        for (outcome, more) in &other.executed {
            let runs = self.executed.entry(*outcome).or_default();
            runs.length.merge(&more.length);
            runs.retries.iter_mut().zip(more.retries).for_each(|(sum, n)| *sum += n);
            runs.retries_sum += more.retries_sum;
        }
    }

    fn enter(&mut self, at_once: bool, shared: bool) {
        self.scheduled[usize::from(!at_once)][usize::from(!shared)] += 1;
    }

    fn run(&mut self, outcome: Outcome, length: Duration, sent_again: u32) {
        let runs = self.executed.entry(outcome).or_default();
        runs.length.add(length);
        let retries = u64::from(sent_again);
        runs.retries[RETRIES_BOUNDS.partition_point(|bound| *bound < retries)] += 1;
        runs.retries_sum += retries;
    }
}

impl Scheduler {
    /// Counts by declared pool. Takes time by their number.
    pub fn task_metrics(&self) -> TaskMetrics {
        TaskMetrics { pools: self.task_tally.pools.clone(), invocations: self.index.invocations.counts }
    }

    // === Workers ===

    /// A worker comes.
    pub(crate) fn count_worker_came(&mut self, id: WorkerId) {
        let worker = &mut self.fleet.workers[id];
        worker.task_slot = self.task_tally.slot(&worker.spec.pool);
        let pool = self.task_tally.pool(worker.task_slot);
        pool.workers_created += 1;
        if worker.held.terminating {
            pool.workers_terminating += 1;
        }
    }

    /// A worker is told to go.
    pub(crate) fn count_worker_terminating(&mut self, id: WorkerId) {
        let worker = &self.fleet.workers[id];
        if !worker.held.terminating {
            self.task_tally.pool(worker.task_slot).workers_terminating += 1;
        }
    }

    /// A worker goes; it still has what it runs.
    pub(crate) fn count_worker_gone(&mut self, id: WorkerId) {
        self.count_worker_terminating(id);
        let worker = &self.fleet.workers[id];
        let executes = worker.run.as_ref().is_some_and(|run| run.task.is_some());
        self.task_tally.pool(worker.task_slot).workers_removed[usize::from(executes)] += 1;
    }

    // === Tasks ===

    /// A task is in the queue, by whatever name of a lane.
    pub(crate) fn count_queued(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        let (before, class, shared) = (task.counted_in, task.class, task.route.shared);
        let slot = self.slot_for(class);
        if before == slot {
            return;
        }
        self.count_left_queue(id, None);
        self.tasks[id].counted_in = slot;
        self.task_tally.pool(slot).enter(false, shared);
    }

    /// A task is in the queue no more: a worker of that pool has it, or (`None`) it is not to be executed here.
    fn count_left_queue(&mut self, id: TaskId, taken_in: Option<PoolSlot>) {
        let task = &mut self.tasks[id];
        let slot = std::mem::replace(&mut task.counted_in, UNCOUNTED);
        if slot == UNCOUNTED {
            return;
        }
        let since = task.attempts.last().map_or(task.queued_at, |attempt| attempt.ended);
        let pool = self.task_tally.pool(slot);
        pool.queued.add(self.now.since(since));
        if taken_in != Some(slot) {
            pool.run(Outcome::ELSEWHERE, Duration::ZERO, 0);
        }
    }

    /// A worker of the pool is given a task.
    pub(crate) fn count_taken(&mut self, id: TaskId, slot: PoolSlot) {
        let was_in = self.tasks[id].counted_in;
        self.count_left_queue(id, Some(slot));
        if was_in != slot {
            let shared = self.tasks[id].route.shared;
            let pool = self.task_tally.pool(slot);
            pool.enter(true, shared);
            pool.queued.add(Duration::ZERO);
        }
    }

    /// A worker no longer has what it was given.
    pub(crate) fn count_left_worker(&mut self, id: WorkerId, outcome: Outcome) {
        let Some(run) = self.fleet.workers[id].run.as_ref().filter(|run| run.task.is_some()) else { return };
        let (slot, length, sent_again) = (run.counted_in, self.now.since(run.since), run.sent_again);
        self.task_tally.pool(slot).run(outcome, length, sent_again);
    }

    /// A task ends where it is; a worker that reports its end has been counted already. Returned is where the task counts from
    /// then on.
    pub(crate) fn count_ended(&mut self, id: TaskId, end: &End) -> PoolSlot {
        match self.tasks[id].state {
            TaskState::Queued => {
                let slot = self.tasks[id].counted_in;
                self.count_left_queue(id, None);
                slot
            }
            TaskState::Running(worker) => {
                let Some(found) = self.fleet.workers.get(worker) else { return 0 };
                let slot = found.task_slot;
                if found.run.as_ref().is_some_and(|run| run.task == Some(id)) {
                    self.count_left_worker(worker, Outcome::of(end));
                }
                slot
            }
        }
    }

    /// A submission that may share has joined a task, or made one.
    pub(crate) fn count_sharing(&mut self, id: TaskId, how: Sharing) {
        let task = &self.tasks[id];
        let slot = match task.state {
            TaskState::Queued => task.counted_in,
            TaskState::Running(worker) => self.fleet.workers.get(worker).map_or(0, |w| w.task_slot),
        };
        self.task_tally.pool(slot).sharing[how as usize] += 1;
    }

    /// In which pool tasks of a class are counted while they wait.
    fn slot_for(&self, class: ClassId) -> PoolSlot {
        let class = &self.index.classes[class];
        let order = |pool: &DeclaredPool| {
            let prefix = pool.instance_name_prefix.as_ref().map_or(0, |p| p.len());
            (pool.size_class.unwrap_or(0), std::cmp::Reverse(prefix))
        };
        let could = self.index.declared_for_class(class);
        // Policies may have put workers of other kinds into a declared pool.
        let served = self.index.lanes[class.lane].key.eligible.iter();
        let served = served.map(|s| &self.index.shapes[*s].key.pool);
        let served =
            served.filter_map(|name| self.index.declared.iter().enumerate().find(|(_, p)| p.name == *name));
        let first = could.chain(served).min_by_key(|(at, pool)| (order(pool), *at));
        first.map_or(0, |(_, pool)| self.task_tally.slot(&pool.name))
    }

    /// Differences of the counts are what there is.
    pub(crate) fn check_task_metrics(&self) -> Result<(), String> {
        let mut queued = vec![0; self.task_tally.pools.len()];
        let mut running = queued.clone();
        for task in self.tasks.values() {
            match (task.is_queued(), task.counted_in) {
                (true, UNCOUNTED) => return Err(format!("task {} is not counted", task.sequence)),
                (true, slot) => queued[usize::from(slot)] += 1,
                (false, UNCOUNTED) => {}
                (false, _) => return Err(format!("task {} is counted as queued", task.sequence)),
            }
        }
        for run in self.fleet.workers.values().filter_map(|w| w.run.as_ref()).filter(|r| r.task.is_some()) {
            running[usize::from(run.counted_in)] += 1;
        }
        for (slot, pool) in self.task_tally.pools.iter().enumerate() {
            let entered: u64 = pool.scheduled.iter().flatten().sum();
            let (left, ended) =
                (pool.queued.count(), pool.executed.values().map(|r| r.length.count()).sum::<u64>());
            if entered.checked_sub(left) != Some(queued[slot])
                || left.checked_sub(ended) != Some(running[slot])
            {
                return Err(format!(
                    "in pool {slot} {entered} entered, {left} left the queue and {ended} were executed, and {} wait, {} run",
                    queued[slot], running[slot]
                ));
            }
        }
        Ok(())
    }
}
