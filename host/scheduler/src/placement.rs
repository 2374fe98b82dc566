//! Who runs what: a worker that is free takes the first task that it may run; a task that arrives goes to the host
//! that was used least recently.

use crate::effect::{Change, Output, Reply};
use crate::ids::{HostId, KindId, PollId, TaskId, WorkerId};
use crate::lanes::LaneKey;
use crate::properties::Amounts;
use crate::scheduler::{Scheduler, reply};
use crate::task::{QueueKey, TaskState};
use crate::workers::{Host, Open, Run, fits};

/// So many hosts are looked at before all are.
const HOSTS_AT_A_GLANCE: usize = 64;

/// A worker whose call is being answered, and the call.
pub(crate) type Caller = (WorkerId, PollId);

impl Scheduler {
    /// The first task, by queue order over all lanes, that this worker may run now.
    pub(crate) fn task_for(&self, worker: WorkerId) -> Option<(QueueKey, TaskId)> {
        let worker = &self.fleet.workers[worker];
        let host = &self.fleet.hosts[worker.host];
        if !host.accepts() {
            return None;
        }
        let free = host.free();
        let shape = self.index.kinds[worker.kind].shape;
        let mut best = None;
        for lane in &self.index.shapes[shape].waiting {
            self.index.probe();
            let lane = &self.index.lanes[*lane];
            let demand = &self.index.demands[lane.key.demand].amounts;
            if !fits(demand, &free) || self.avoids(&lane.key, host) {
                continue;
            }
            for first in lane.queue.in_sight() {
                if best.is_some_and(|b| b < first) {
                    break;
                }
                self.index.probe();
                // Buildbarn workers name their build directory after the digest: a host runs one of a digest at a time.
                if !host.running.contains(&self.tasks[first.1].digest) {
                    best = Some(first);
                    break;
                }
            }
        }
        best
    }

    /// Gives a queued task to a worker that waits, if there is one for it. No other queued task has one.
    pub(crate) fn place(&mut self, id: TaskId, out: &mut Output) {
        let Some(waiting) = self.index.waiting.get(id) else { return };
        let lane = &self.index.lanes[self.index.classes[waiting.class].lane];
        // One of the same digest waits before it: where that can't go, this can't.
        if !lane.queue.is_in_sight(waiting.key) {
            return;
        }
        let Some(open) = self.host_for(id, &lane.key) else { return };
        let Some(worker) = self.fleet.hosts[open.host].idle_of(open.kind) else { return };
        let Some(poll) = self.fleet.stop_waiting(&self.index, worker) else { return };
        self.assign(id, (worker, poll), out);
    }

    fn host_for(&self, id: TaskId, lane: &LaneKey) -> Option<Open> {
        let digest = &self.tasks[id].digest;
        let demand = &self.index.demands[lane.demand].amounts;
        let mut best: Option<Open> = None;
        for shape in &lane.eligible {
            self.index.probe();
            let Some(groups) = self.fleet.open.get(shape) else { continue };
            for (free, group) in groups.range(demand.clone()..) {
                self.index.probe();
                if !fits(demand, free) {
                    continue;
                }
                for open in group {
                    if best.is_some_and(|b| b < *open) {
                        break;
                    }
                    self.index.probe();
                    let host = &self.fleet.hosts[open.host];
                    if !host.running.contains(digest) && !self.avoids(lane, host) {
                        best = Some(*open);
                        break;
                    }
                }
            }
        }
        best
    }

    /// Lets a host's waiting workers take what they now may.
    pub(crate) fn offer(&mut self, host: HostId, out: &mut Output) {
        self.share_out(host, None, out);
    }

    /// The same, with one more worker, whose call is being answered. Returned if nothing is for it.
    pub(crate) fn share_out(
        &mut self,
        host: HostId,
        mut caller: Option<Caller>,
        out: &mut Output,
    ) -> Option<Caller> {
        while let Some((worker, task)) = self.work_for(host, caller) {
            match caller.take_if(|c| c.0 == worker) {
                Some(caller) => self.assign(task, caller, out),
                None => {
                    let Some(poll) = self.fleet.stop_waiting(&self.index, worker) else { break };
                    self.assign(task, (worker, poll), out);
                }
            }
        }
        caller
    }

    /// The first task that some worker of the host may run. What one of a kind may, the others may too.
    fn work_for(&self, host: HostId, caller: Option<Caller>) -> Option<(WorkerId, TaskId)> {
        let caller = caller.map(|(w, _)| w);
        let kind = caller.map(|w| self.fleet.workers[w].kind);
        let others = self.fleet.hosts[host].idle_of_each_kind();
        let others = others.filter(|w| kind != Some(self.fleet.workers[*w].kind));
        let best = caller.into_iter().chain(others).filter_map(|w| Some((self.task_for(w)?, w))).min()?;
        Some((best.1, best.0.1))
    }

    pub(crate) fn assign(&mut self, id: TaskId, (worker, poll): Caller, out: &mut Output) {
        self.dequeue(id);
        let task = &mut self.tasks[id];
        task.state = TaskState::Running(worker);
        let demand = self.index.demands[self.index.classes[task.class].key.demand].amounts.clone();
        let run = Run {
            task: Some(id),
            digest: task.digest.clone(),
            demand,
            since: self.now,
            stage: None,
            sent_again: 0,
        };
        let operations = task.operations.clone();
        self.fleet.start(&self.index, worker, run);
        self.call_again(worker);
        out.effects.push(reply(poll, Reply::Execute(id)));
        for operation in operations {
            self.tell(operation, out);
        }
        out.changes.push(Change::PutTask(id));
    }

    /// Tasks of this lane have failed on that host, and there are others for them, or they rest.
    pub(crate) fn avoids(&self, lane: &LaneKey, host: &Host) -> bool {
        lane.avoid.contains(&host.key) && (lane.avoid.always || self.is_elsewhere(lane))
    }

    /// Some host other than those to avoid takes tasks of the lane, now or when it is free.
    pub(crate) fn is_elsewhere(&self, lane: &LaneKey) -> bool {
        let demand = &self.index.demands[lane.demand].amounts;
        let kinds = lane.eligible.iter().flat_map(|s| &self.index.shapes[*s].kinds);
        let mut hosts = kinds.flat_map(|k| self.index.kinds[*k].hosts.iter().map(|h| (*k, *h)));
        hosts.any(|(kind, host)| {
            self.index.probe();
            let host = &self.fleet.hosts[host];
            !lane.avoid.contains(&host.key) && host.serves(kind, demand)
        })
    }

    /// There are more hosts with so much of this kind than a task could have failed on: none that they serve is left
    /// with those. `false` may also mean that it isn't seen at a glance.
    pub(crate) fn has_many_hosts(&self, kind: KindId, totals: &Amounts) -> bool {
        let Some(k) = self.index.kinds.get(kind) else { return false };
        let hosts = k.hosts.iter().take(HOSTS_AT_A_GLANCE);
        let serving = hosts.filter(|h| self.fleet.hosts[**h].serves(kind, totals));
        serving.take(self.config.max_attempts).count() >= self.config.max_attempts
    }

    /// Hosts have gone: tasks that have failed on all others may go back to where they failed.
    pub(crate) fn offer_what_was_avoided(&mut self, out: &mut Output) {
        for id in self.index.avoiding.clone() {
            let Some(lane) = self.index.lanes.get(id) else { continue };
            if lane.key.avoid.always || self.is_elsewhere(&lane.key) {
                continue;
            }
            for host in lane.key.avoid.hosts.clone() {
                if let Some(host) = self.fleet.host_by_key.get(&host) {
                    self.offer(*host, out);
                }
            }
        }
    }
}
