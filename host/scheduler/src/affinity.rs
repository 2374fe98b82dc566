//! Affinity: a task may wait a while for the host that last ran its key.
//!
//! What waits so is in a side queue of that host: a lane of its own, at which only that host's workers look. There it
//! competes with all else that they may run, by the same shares and the same key. When its time is up, or the host takes
//! nothing any more, it goes back to where it would have been from the start.

use std::collections::BTreeMap;

use crate::effect::Output;
use crate::ids::{HostId, Map, TaskId, Text};
use crate::lanes::LaneKey;
use crate::metrics::Claim;
use crate::placement::Caller;
use crate::scheduler::Scheduler;
use crate::time::Time;
use crate::timers::Subject;
use crate::workers::Host;

/// So many keys are remembered, those that were used last.
const KEYS_MAX: usize = 16_384;

/// Which host last ran a key. It doesn't survive a restart of the scheduler.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastHosts {
    by_key: Map<Text, (Text, u64)>,
    /// Longest unused first.
    by_use: BTreeMap<u64, Text>,
    uses: u64,
}

impl LastHosts {
    pub(crate) fn get(&self, key: &Text) -> Option<&Text> {
        self.by_key.get(key).map(|(host, _)| host)
    }

    fn note(&mut self, key: &Text, host: &Text) {
        self.uses += 1;
        if let Some((_, used)) = self.by_key.insert(key.clone(), (host.clone(), self.uses)) {
            self.by_use.remove(&used);
        }
        self.by_use.insert(self.uses, key.clone());
        if self.by_use.len() > KEYS_MAX
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.by_key.remove(&oldest);
        }
    }
}

impl Scheduler {
    /// The host that last ran a task's key, if it would take the task now or when it is free.
    fn last_host(&self, id: TaskId) -> Option<HostId> {
        let task = &self.tasks[id];
        let host = self.last_hosts.get(&task.route.affinity.as_ref()?.key)?;
        let id = *self.fleet.host_by_key.get(host)?;
        let lane = &self.index.lanes[self.index.classes[task.class].lane].key;
        let host = &self.fleet.hosts[id];
        (self.would_serve(host, lane) && !self.avoids(lane, host)).then_some(id)
    }

    fn would_serve(&self, host: &Host, lane: &LaneKey) -> bool {
        let demand = &self.index.demands[lane.demand];
        let mut kinds = host.kinds().filter(|k| lane.eligible.contains(&self.index.kinds[*k].shape));
        kinds.any(|k| host.serves(k, demand))
    }

    /// A worker that waits on the host that last ran a task's key, and may run it now. It waits no longer.
    pub(crate) fn worker_on_last_host(&mut self, id: TaskId) -> Option<Caller> {
        self.worker_on(id, self.last_host(id)?)
    }

    /// Lets a task that is in no queue wait for the host that last ran its key, if it is to and its time is not up.
    pub(crate) fn set_aside(&mut self, id: TaskId) -> bool {
        let task = &self.tasks[id];
        let Some(affinity) = &task.route.affinity else { return false };
        let until = task.queued_at + affinity.wait;
        if until <= self.now || task.rests {
            return false;
        }
        let Some(host) = self.last_host(id) else { return false };
        let host = self.fleet.hosts[host].key.clone();
        let class = self.index.class_only(task.class, Some(host));
        self.set_class(id, class);
        let task = &mut self.tasks[id];
        task.aside_until = Some(until);
        self.timers.arm(Subject::Task(id), &mut task.armed, until);
        true
    }

    /// A task that is in no queue any more waits for no host, and none is kept free for it.
    pub(crate) fn end_aside(&mut self, id: TaskId) {
        self.end_claim(id, Claim::Dropped);
        let task = &mut self.tasks[id];
        if task.aside_until.take().is_some() {
            self.timers.disarm(Subject::Task(id), &mut task.armed);
            let class = self.index.class_only(task.class, None);
            self.set_class(id, class);
        }
    }

    /// A task that waits in a side queue goes back among all others, with the key it came with. If a host is kept free for it,
    /// that is another now, should there be one.
    pub(crate) fn return_from_aside(&mut self, id: TaskId, out: &mut Output) {
        self.dequeue(id);
        let (has_claim, host) = (self.tasks[id].has_claim, self.claimed_by(id));
        self.end_claim(id, Claim::Moved);
        self.end_aside(id);
        self.enqueue(id);
        self.let_choose(id, out);
        // Another host may have come to have room in this very step.
        if has_claim && self.index.waiting.contains_key(id) {
            self.dequeue(id);
            self.claim_another(id, host);
            self.enqueue(id);
        }
        self.note_exclusive(id);
    }

    /// A task waits in the side queue of a host that wouldn't take it any more.
    pub(crate) fn is_aside_in_vain(&self, id: TaskId) -> bool {
        let Some(task) = self.tasks.get(id).filter(|t| t.aside_until.is_some()) else { return false };
        let lane = &self.index.lanes[self.index.classes[task.class].lane].key;
        let host = lane.only.as_ref().and_then(|h| self.fleet.host_by_key.get(h));
        host.is_none_or(|h| !self.would_serve(&self.fleet.hosts[*h], lane))
    }

    /// A host takes less than before, or has gone: what waited for it in vain waits no longer.
    pub(crate) fn return_what_waits_for(&mut self, host: &Text, out: &mut Output) {
        let Some(lanes) = self.index.aside.get(host) else { return };
        let host = self.fleet.host_by_key.get(host).map(|id| &self.fleet.hosts[*id]);
        let in_vain = lanes.iter().map(|id| &self.index.lanes[*id]);
        let in_vain = in_vain.filter(|lane| host.is_none_or(|h| !self.would_serve(h, &lane.key)));
        let classes = in_vain.flat_map(|lane| &lane.classes);
        let mut tasks: Vec<TaskId> = classes.flat_map(|c| &self.index.classes[*c].queued).copied().collect();
        tasks.sort_unstable_by_key(|t| self.tasks[*t].key);
        for task in tasks {
            self.return_from_aside(task, out);
        }
    }

    /// A worker of a host has been given a task.
    pub(crate) fn note_last_host(&mut self, id: TaskId, host: HostId) {
        if let Some(affinity) = &self.tasks[id].route.affinity {
            self.last_hosts.note(&affinity.key, &self.fleet.hosts[host].key);
        }
    }

    /// The host that a queued task waits for, because it last ran the task's affinity key or is kept free for the task, and until
    /// when at most.
    pub fn waits_for(&self, id: TaskId) -> Option<(&Text, Time)> {
        let task = self.tasks.get(id)?;
        Some((self.index.classes[task.class].key.only.as_ref()?, task.aside_until?))
    }

    pub(crate) fn check_aside(&self) -> Result<(), String> {
        for task in self.tasks.values() {
            let class = &self.index.classes[task.class];
            if task.aside_until.is_some() != class.key.only.is_some() {
                return Err(format!("task {} waits for a host, or its class does, not both", task.sequence));
            }
            let Some(host) = &class.key.only else { continue };
            let host = self.fleet.host_by_key.get(host).map(|id| &self.fleet.hosts[*id]);
            let demand = &self.index.demands[class.key.demand];
            // Workers with a longer prefix may have come: then it waits in vain until its time is up.
            if !task.is_queued() || host.is_none_or(|h| !h.kinds().any(|k| h.serves(k, demand))) {
                return Err(format!("task {} waits for a host in vain", task.sequence));
            }
        }
        let listed = self.index.aside.values().flatten().count();
        let waiting = self.index.lanes.values().filter(|l| l.key.only.is_some() && !l.queue.is_empty());
        match listed == waiting.count() {
            true => Ok(()),
            false => Err(format!("{listed} lanes of hosts are listed")),
        }
    }
}
