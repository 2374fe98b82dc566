//! Tasks that no worker could ever run end after a while, with the reason.
//!
//! Nothing happens when the last worker of a kind goes: it may be about to come back. So the queue is looked through
//! now and then, a few tasks at a time, and each task notes since when nobody could run it. All tasks of a lane have the
//! same answer, so what a look costs doesn't depend on the fleet. What a declared pool could run is not given up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::effect::{End, Output};
use crate::explain::Explanation;
use crate::ids::{ClassId, LaneId, TaskId};
use crate::scheduler::Scheduler;
use crate::time::Time;
use crate::timers::Subject;

/// So many tasks are looked at in one step.
const LOOKED_AT: usize = 1000;

/// So many end in one step.
const ENDED: usize = 256;

/// Of so many classes: to say why costs as much as there are workers.
const EXPLAINED: usize = 8;

/// Between two steps of one look through the queue.
const REST: Duration = Duration::from_millis(100);

/// In one timeout the queue is looked through so often: a task may end that much of a timeout late.
const LOOKS: u32 = 8;

/// How far a look through the queue is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Look {
    /// The last task that was looked at.
    after: Option<u64>,
    /// When the first task ends of those that were.
    first_end: Option<Time>,
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}

impl Scheduler {
    /// Something waits: it will be looked at.
    pub(crate) fn arm_look(&mut self) {
        if self.look.armed.is_none() && !self.config.unschedulable_timeout.is_zero() {
            let at = self.now + self.config.unschedulable_timeout / LOOKS;
            self.timers.arm(Subject::Look, &mut self.look.armed, at);
        }
    }

    pub(crate) fn look_due(&mut self, out: &mut Output) {
        self.look.armed = None;
        let timeout = self.config.unschedulable_timeout;
        let from = self.look.after.map_or(0, |s| s.saturating_add(1));
        let batch: Vec<(u64, TaskId)> =
            self.queued_by_arrival.range(from..).take(LOOKED_AT).map(|(s, id)| (*s, *id)).collect();
        let mut is_whole = batch.len() < LOOKED_AT;
        let mut served: BTreeMap<LaneId, bool> = BTreeMap::new();
        let mut over = Vec::new();
        let mut classes: BTreeSet<ClassId> = BTreeSet::new();
        for (sequence, id) in batch {
            if over.len() == ENDED || classes.len() == EXPLAINED {
                is_whole = false;
                break;
            }
            self.look.after = Some(sequence);
            let class = &self.index.classes[self.tasks[id].class];
            let lane = class.lane;
            let is_served =
                *served.entry(lane).or_insert_with(|| self.is_served(lane)) || self.is_declared(class);
            let task = &mut self.tasks[id];
            if is_served {
                task.unserved_since = None;
                continue;
            }
            let end = *task.unserved_since.get_or_insert(self.now) + timeout;
            if end <= self.now {
                over.push(id);
                classes.insert(task.class);
            } else {
                self.look.first_end = Some(self.look.first_end.map_or(end, |first| first.min(end)));
            }
        }
        self.end_unserved(&over, out);
        if !is_whole {
            return self.look_again(REST);
        }
        let Look { first_end, .. } = std::mem::take(&mut self.look);
        if !self.queued_by_arrival.is_empty() {
            let wait = first_end.map_or(timeout, |end| end.since(self.now));
            self.look_again(wait.min(timeout / LOOKS).max(Duration::from_millis(1)));
        }
    }

    /// Tells the clients of each why. All of a class are told the same, but for what is the task's own.
    fn end_unserved(&mut self, over: &[TaskId], out: &mut Output) {
        let workers = if over.is_empty() { BTreeMap::new() } else { self.workers_by_kind() };
        let mut explained: BTreeMap<ClassId, Option<Explanation>> = BTreeMap::new();
        for id in over {
            let class = self.tasks[*id].class;
            explained.entry(class).or_insert_with(|| self.explain_among(*id, &workers));
        }
        drop(workers);
        for id in over {
            let task = &self.tasks[*id];
            let Some(Some(why)) = explained.get_mut(&task.class) else { continue };
            why.age = self.now.since(task.queued_at);
            why.attempts.clone_from(&task.attempts);
            why.position = 0;
            let seconds = self.config.unschedulable_timeout.as_secs();
            let text = format!("no worker that could run it was there for {seconds} s: {why}");
            self.end_task(*id, &End::Unschedulable(text.into()), out);
        }
    }

    fn look_again(&mut self, after: Duration) {
        let at = self.now + after;
        self.timers.arm(Subject::Look, &mut self.look.armed, at);
    }

    /// Some host has workers for the lane and as much in all as its tasks take.
    fn is_served(&self, id: LaneId) -> bool {
        let lane = &self.index.lanes[id].key;
        let demand = &self.index.demands[lane.demand].asked;
        let kinds = lane.eligible.iter().flat_map(|s| &self.index.shapes[*s].kinds);
        let mut hosts = kinds.flat_map(|k| &self.index.kinds[*k].hosts);
        hosts.any(|h| crate::workers::fits(demand, &self.fleet.hosts[*h].totals))
    }
}
