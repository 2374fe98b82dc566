//! Reservations: a host is kept free for one task that otherwise might never begin.
//!
//! Two kinds of task *claim* a host. One is exclusive: when its turn comes, and no host is free of others, it takes the host that
//! is expected to be free first. The other asks for much: what asks for less fits first, again and again. When it has its turn,
//! and nothing of its kind has begun for so long, it does the same.
//!
//! A host that is claimed takes nothing else; what runs there runs on. The task waits in the side queue of that host
//! (`affinity.rs`), and goes elsewhere should another host have room and nothing better to do. At most a share of the hosts that
//! could run it is claimed, and at least one may be: with all hosts claimed, what is small would starve in turn. A claim that
//! isn't met in time moves to another host.

use std::time::Duration;

use crate::effect::Output;
use crate::ids::{HostId, LaneId, ShapeId, TaskId, Text, WorkerId};
use crate::lanes::LaneKey;
use crate::metrics::Claim;
use crate::properties::Amounts;
use crate::route::Exclusivity;
use crate::scheduler::Scheduler;
use crate::time::Time;
use crate::timers::Subject;
use crate::workers::{Host, Run};

/// So many hosts are looked at for the one to claim.
const LOOKED_AT: usize = 256;

impl Run {
    /// How much longer it will execute: as expected, or else as long again as it has.
    fn remaining(&self, now: Time) -> Duration {
        let ran = now.since(self.since);
        self.expected.filter(|expected| *expected > ran).map_or(ran, |expected| expected - ran)
    }
}

impl Scheduler {
    // === Whose turn it is to claim ===

    /// A task of this lane can't begin on that host only for want of room, and may claim a host for it.
    pub(crate) fn wants_room(&self, lane: &LaneKey, host: &Host) -> bool {
        let could = lane.only.is_none() && !self.avoids(lane, host);
        could
            && match &lane.exclusivity {
                Exclusivity::Host => {
                    self.index.demands[lane.demand].fits(&host.totals, &host.totals)
                        && host.admission.admits(self.now)
                }
                Exclusivity::Shared | Exclusivity::Group { .. } => {
                    let demand = &self.index.demands[lane.demand];
                    // In a group it would run into others of its own.
                    host.tolerates(&lane.exclusivity, self.now)
                        && !demand.fits(&host.free(), &host.totals)
                        && demand.fits(&host.totals, &host.totals)
                }
            }
    }

    /// The host to claim for the first task of a lane, if it is due and may claim one.
    pub(crate) fn claim_for(&self, id: LaneId) -> Option<HostId> {
        let lane = &self.index.lanes[id];
        // One that rests goes back first to where all of its kind wait.
        if lane.key.avoid.always {
            return None;
        }
        let is_due = lane.key.exclusivity == Exclusivity::Host
            || lane.stalled.is_some_and(|since| since + self.config.reservation_after <= self.now);
        (is_due && self.may_claim(&lane.key)).then(|| self.host_to_claim(&lane.key, None)).flatten()
    }

    /// Fewer of the hosts that could run tasks of a lane are claimed than may be.
    pub(crate) fn may_claim(&self, lane: &LaneKey) -> bool {
        let kinds = || lane.eligible.iter().flat_map(|s| &self.index.shapes[*s].kinds);
        let hosts = kinds().map(|k| self.index.kinds[*k].hosts.len()).sum::<usize>();
        let is_claimed = |(task, _): &&(TaskId, Time)| {
            let host = self.claimed_by(*task).map(|id| &self.fleet.hosts[id]);
            host.is_some_and(|h| h.kinds().any(|k| lane.eligible.contains(&self.index.kinds[k].shape)))
        };
        let claimed = self.claims.values().filter(is_claimed).count();
        claimed < (hosts * self.config.reserved_share as usize / 100).max(1)
    }

    /// Of the hosts that could run tasks of a lane the one that has room first.
    fn host_to_claim(&self, lane: &LaneKey, but: Option<HostId>) -> Option<HostId> {
        let kinds = lane.eligible.iter().flat_map(|s| &self.index.shapes[*s].kinds);
        let hosts = kinds.flat_map(|k| self.index.kinds[*k].hosts.iter().map(|h| (*k, *h)));
        let demand = &self.index.demands[lane.demand];
        let could = hosts.take(LOOKED_AT).filter(|(kind, id)| {
            self.index.probe();
            let host = &self.fleet.hosts[*id];
            Some(*id) != but
                && host.reserved.is_none()
                && host.health.pause.is_none()
                && host.serves(*kind, demand)
                && self.wants_room(lane, host)
        });
        let (_, _, id) =
            could.map(|(_, id)| (self.has_room_in(lane, id), self.fleet.hosts[id].last_used, id)).min()?;
        Some(id)
    }

    /// How long it is until a host has room, given what it runs.
    fn has_room_in(&self, lane: &LaneKey, id: HostId) -> Duration {
        let host = &self.fleet.hosts[id];
        let runs = host.busy.iter().filter_map(|w| self.fleet.workers[*w].run.as_ref());
        let mut runs: Vec<(Duration, &Amounts)> = runs.map(|r| (r.remaining(self.now), &r.demand)).collect();
        runs.sort_unstable();
        if lane.exclusivity == Exclusivity::Host {
            return runs.last().map_or(Duration::ZERO, |(remaining, _)| *remaining);
        }
        let demand = &self.index.demands[lane.demand];
        let mut free = host.free();
        for (remaining, taken) in runs {
            free.iter_mut().zip(taken).for_each(|(free, taken)| *free += taken);
            if demand.fits(&free, &host.totals) {
                return remaining;
            }
        }
        Duration::ZERO
    }

    // === Claims ===

    /// Keeps a host free for a task that waits.
    pub(crate) fn claim(&mut self, id: TaskId, host_id: HostId) {
        self.dequeue(id);
        self.end_aside(id);
        self.take_claim(id, host_id);
        self.enqueue(id);
    }

    fn take_claim(&mut self, id: TaskId, host_id: HostId) {
        let host = &mut self.fleet.hosts[host_id];
        host.reserved = Some(id);
        let host = host.key.clone();
        let class = self.tasks[id].class;
        if self.index.classes[class].key.avoid.contains(&host) {
            self.claims_of_last_resort.insert(id);
        }
        let class = self.index.class_only(class, Some(host));
        self.set_class(id, class);
        self.fleet.relist(&self.index, host_id);
        let until = self.now + self.config.reservation_timeout;
        let task = &mut self.tasks[id];
        (task.has_claim, task.aside_until) = (true, Some(until));
        self.timers.disarm(Subject::Task(id), &mut task.armed);
        self.timers.arm(Subject::Task(id), &mut task.armed, until);
        self.claims.insert(task.sequence, (id, self.now));
        self.tally.claim(Claim::Made);
        // It may have room already, and nobody who chooses.
        self.later.hosts.insert(host_id);
    }

    /// The host that is kept free for a queued task, if one is.
    pub fn kept_for(&self, id: TaskId) -> Option<&Text> {
        Some(&self.fleet.hosts[self.claimed_by(id)?].key)
    }

    /// The host that is kept free for a task.
    pub(crate) fn claimed_by(&self, id: TaskId) -> Option<HostId> {
        let task = self.tasks.get(id).filter(|task| task.has_claim)?;
        let host = self.index.classes[task.class].key.only.as_ref()?;
        self.fleet.host_by_key.get(host).copied()
    }

    /// A task needs its claim no more, whatever the reason.
    pub(crate) fn end_claim(&mut self, id: TaskId, how: Claim) {
        let host = self.claimed_by(id);
        let task = &mut self.tasks[id];
        task.has_claim = false;
        self.claims_of_last_resort.remove(&id);
        let Some((_, since)) = self.claims.remove(&task.sequence) else { return };
        self.tally.claim(how);
        if how == Claim::Met {
            self.tally.claim_waited(self.now.since(since));
        }
        // Others may claim a host now, and this one is open to all.
        self.later.exclusive = true;
        if let Some(id) = host {
            self.fleet.hosts[id].reserved = None;
            self.fleet.relist(&self.index, id);
            self.later.hosts.insert(id);
        }
    }

    /// A claim isn't met in time, or its host takes nothing any more. The task, which is in no queue, claims another host if there
    /// is one.
    pub(crate) fn claim_another(&mut self, id: TaskId, but: Option<HostId>) {
        let lane = &self.index.lanes[self.index.classes[self.tasks[id].class].lane].key;
        // Better the same than none.
        let host = self.host_to_claim(lane, but).or_else(|| self.host_to_claim(lane, None));
        if let Some(host) = host {
            self.take_claim(id, host);
        }
    }

    /// Where a task has failed, a host is kept free for it only as long as there is no other.
    pub(crate) fn give_up_last_resorts(&mut self, out: &mut Output) {
        for id in self.claims_of_last_resort.clone() {
            let lane = &self.index.lanes[self.index.classes[self.tasks[id].class].lane].key;
            let host = self.claimed_by(id).map(|id| &self.fleet.hosts[id]);
            if host.is_some_and(|host| self.avoids(lane, host)) {
                self.return_from_aside(id, out);
            }
        }
    }

    // === What a claim is for ===

    /// The task for which a host is kept, if it can begin there now on a worker of one of these shapes.
    pub(crate) fn claimant_of(
        &self,
        host: &Host,
        idle: &[(ShapeId, WorkerId)],
    ) -> Option<(WorkerId, TaskId)> {
        let task = host.reserved?;
        (host.accepts_claimant() && self.may_begin(task, host)).then(|| self.worker_of(task, idle)).flatten()
    }

    /// A task that waits for another host to have room, and that this one could run at once.
    pub(crate) fn claimant_elsewhere(
        &self,
        host: &Host,
        idle: &[(ShapeId, WorkerId)],
    ) -> Option<(WorkerId, TaskId)> {
        let mut claims = self.claims.values().filter(|(task, _)| {
            self.index.probe();
            self.may_begin(*task, host)
        });
        claims.find_map(|(task, _)| self.worker_of(*task, idle))
    }

    fn worker_of(&self, id: TaskId, idle: &[(ShapeId, WorkerId)]) -> Option<(WorkerId, TaskId)> {
        let lane = &self.index.lanes[self.index.classes[self.tasks[id].class].lane].key;
        let (_, worker) = idle.iter().find(|(shape, _)| self.index.is_served_by(lane, *shape))?;
        Some((*worker, id))
    }

    fn may_begin(&self, id: TaskId, host: &Host) -> bool {
        let task = &self.tasks[id];
        let lane = &self.index.lanes[self.index.classes[task.class].lane].key;
        let is_its_own = host.reserved == Some(id);
        self.index.demands[lane.demand].fits(&host.free(), &host.totals)
            && (host.tolerates(&lane.exclusivity, self.now)
                // It was admitted when it claimed the host.
                || is_its_own && lane.exclusivity == Exclusivity::Host && host.busy.is_empty())
            && !host.running.contains(&task.digest)
            && (is_its_own || !self.avoids(lane, host))
    }

    pub(crate) fn check_claims(&self) -> Result<(), String> {
        for (sequence, (id, _)) in &self.claims {
            let host = self.claimed_by(*id);
            if host.is_none_or(|h| self.fleet.hosts[h].reserved != Some(*id)) {
                return Err(format!("task {sequence} claims a host that isn't kept for it"));
            }
        }
        let reserved = self.fleet.hosts.values().filter_map(|h| h.reserved);
        let claiming = self.tasks.values().filter(|t| t.has_claim).count();
        match (reserved.count(), claiming) == (self.claims.len(), self.claims.len()) {
            true => Ok(()),
            false => Err(format!("{} claims, {claiming} tasks that have one", self.claims.len())),
        }
    }
}
