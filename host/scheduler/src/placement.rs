//! Who runs what: a worker that is free takes what is next for it (`choice.rs`); a task that arrives goes to a host that
//! waits, by one of three rules.

use smallvec::SmallVec;

use crate::effect::{Change, Output, Reply};
use crate::ids::{ActionDigest, HostId, KindId, PollId, ShapeId, TaskId, WorkerId};
use crate::lanes::LaneKey;
use crate::metrics::Claim;
use crate::properties::{Amounts, Atom};
use crate::scheduler::{Scheduler, reply};
use crate::task::TaskState;
use crate::workers::{Host, Open, Run, fits};

/// Which host an arriving task goes to, of those that wait and have room. Of equals the one used least recently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// The one used least recently: all are used alike.
    #[default]
    Spread,
    /// The one with least free, by the schema's `minimum` keys in their order, and then with fewest waiting workers: as
    /// few as possible are used, so that others can be switched off.
    Pack,
    /// The one with least left of what the task asks for, in proportion to what it asks for: what is large stays whole
    /// for what needs it. Of fitting groups of hosts with the same free, at most [`FITTING_MAX`] are compared.
    BestFit,
}

/// So many groups of hosts with the same free are compared to find the best fit.
pub const FITTING_MAX: usize = 64;

/// Smaller is better.
pub(crate) type Merit<'a> = (u128, Option<&'a Amounts>);

impl Placement {
    /// How good it is to take so much from a host with so much free. Groups come with the least free first.
    pub(crate) fn merit<'a>(self, demand: &Amounts, free: &'a Amounts) -> Merit<'a> {
        match self {
            Self::Spread => (0, None),
            Self::Pack => (0, Some(free)),
            Self::BestFit => {
                let asked = demand.iter().zip(free).filter(|(asked, _)| **asked > 0);
                let left = asked.map(|(asked, free)| {
                    (u128::from(free.saturating_sub(*asked)) << 16) / u128::from(*asked)
                });
                (left.sum(), None)
            }
        }
    }

    /// With so many groups of fitting hosts compared, what is found is good enough.
    fn is_settled(self, compared: usize) -> bool {
        match self {
            Self::Spread => false,
            // Of one shape, all that come later are worse.
            Self::Pack => true,
            Self::BestFit => compared >= FITTING_MAX,
        }
    }
}

/// So many hosts are looked at before all are.
const HOSTS_AT_A_GLANCE: usize = 64;

/// What is next on a host.
enum Work {
    /// A worker of it gets a task.
    Run(WorkerId, TaskId),
    /// A host, which need not be the same, is kept free for a task.
    Claim(TaskId, HostId),
}

/// A worker whose call is being answered, and the call.
pub(crate) type Caller = (WorkerId, PollId);

impl Scheduler {
    /// Gives a task that is in no queue to a worker that waits, or else lets it wait.
    pub(crate) fn place_or_enqueue(&mut self, id: TaskId, out: &mut Output) {
        if let Some(caller) = self.worker_on_last_host(id) {
            return self.assign(id, caller, out);
        }
        if self.set_aside(id) {
            return self.enqueue(id);
        }
        match self.worker_for(id) {
            Some(caller) => self.assign(id, caller, out),
            None => {
                self.enqueue(id);
                self.note_exclusive(id);
            }
        }
    }

    /// Gives a queued task to a worker that waits, if there is one for it. No other queued task has one.
    pub(crate) fn place(&mut self, id: TaskId, out: &mut Output) {
        if self.is_aside_in_vain(id) {
            return self.return_from_aside(id, out);
        }
        if self.index.waiting.contains_key(id)
            && self.tasks[id].aside_until.is_none()
            && let Some(caller) = self.worker_for(id)
        {
            self.assign(id, caller, out);
        }
    }

    /// Lets hosts that wait and may run a queued task choose, until one has chosen it or none is left: others may have come
    /// back into the queue in the same step, and go first.
    pub(crate) fn let_choose(&mut self, id: TaskId, out: &mut Output) {
        while self.index.waiting.contains_key(id)
            && let Some(open) = self.open_for(id).or_else(|| self.open_to_claimant(id))
        {
            let before = self.index.waiting.len();
            self.offer(open.host, out);
            if self.index.waiting.len() == before {
                return;
            }
        }
    }

    /// A worker that waits and may run a task. It waits no longer.
    pub(crate) fn worker_for(&mut self, id: TaskId) -> Option<Caller> {
        let open = self.open_for(id)?;
        let worker = self.fleet.hosts[open.host].idle_of(open.kind)?;
        Some((worker, self.fleet.stop_waiting(&self.index, worker)?))
    }

    /// The host that a task goes to, of those that wait and have room.
    pub(crate) fn open_for(&self, id: TaskId) -> Option<Open> {
        let task = &self.tasks[id];
        let lane = &self.index.lanes[self.index.classes[task.class].lane];
        // Others of the same digest wait: where they can't go, this can't.
        if !lane.queue.is_before_its_like(&task.digest, task.key) {
            return None;
        }
        self.open_in(&lane.key, Some(&task.digest))
    }

    /// A host other than the one that is kept free for a task: it may run it too, should it have nothing better to do.
    fn open_to_claimant(&self, id: TaskId) -> Option<Open> {
        let task = &self.tasks[id];
        let lane = &self.index.lanes[self.index.classes[task.class].lane].key;
        let anywhere = task.has_claim.then(|| LaneKey { only: None, ..lane.clone() })?;
        self.open_in(&anywhere, Some(&task.digest))
    }

    /// The same for any task of a lane; without a digest for one that no host runs already.
    pub(crate) fn open_in(&self, lane: &LaneKey, digest: Option<&ActionDigest>) -> Option<Open> {
        let demand = &self.index.demands[lane.demand];
        let mut best: Option<(Merit<'_>, Open)> = None;
        let mut compared = 0;
        for shape in &lane.eligible {
            self.index.probe();
            let Some(groups) = self.fleet.open.get(shape) else { continue };
            if !self.index.has_token(&lane.exclusivity, self.index.shapes[*shape].pool) {
                continue;
            }
            for (free, group) in groups.range(demand.least.clone()..) {
                self.index.probe();
                if !fits(&demand.least, free) {
                    continue;
                }
                let merit = self.config.placement.merit(&demand.packed, free);
                let mut better = group.iter().take_while(|o| best.is_none_or(|b| (merit, **o) < b));
                let found = better.find(|open| {
                    self.index.probe();
                    let host = &self.fleet.hosts[open.host];
                    demand.fits(free, &host.totals)
                        && lane.only.as_ref().is_none_or(|only| *only == host.key)
                        && host.tolerates(&lane.exclusivity, self.now)
                        && digest.is_none_or(|digest| !host.running.contains(digest))
                        && !self.avoids(lane, host)
                });
                best = found.map(|open| (merit, *open)).or(best);
                compared += 1;
                if best.is_some() && self.config.placement.is_settled(compared) {
                    break;
                }
            }
        }
        best.map(|(_, open)| open)
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
        while let Some(work) = self.work_for(host, caller) {
            let (worker, task) = match work {
                Work::Run(worker, task) => (worker, task),
                Work::Claim(task, host) => {
                    self.claim(task, host);
                    continue;
                }
            };
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

    /// What is next on a host for its workers that wait. What one of a kind may run, the others may too.
    fn work_for(&self, id: HostId, caller: Option<Caller>) -> Option<Work> {
        let host = &self.fleet.hosts[id];
        if !host.accepts_claimant() {
            return None;
        }
        let caller = caller.map(|(w, _)| w);
        let kind = caller.map(|w| self.fleet.workers[w].kind);
        let others = host.idle_of_each_kind().filter(|w| kind != Some(self.fleet.workers[*w].kind));
        let idle: SmallVec<[(ShapeId, WorkerId); 4]> =
            caller.into_iter().chain(others).map(|w| (self.shape_of(w), w)).collect();
        if idle.is_empty() {
            return None;
        }
        if host.reserved.is_some() {
            return self.claimant_of(host, &idle).map(|(worker, task)| Work::Run(worker, task));
        }
        let shapes: SmallVec<[ShapeId; 4]> = idle.iter().map(|(s, _)| *s).collect();
        let Some(next) = self.next_for(host, &shapes) else {
            return self.claimant_elsewhere(host, &idle).map(|(worker, task)| Work::Run(worker, task));
        };
        if let Some(host) = next.claims {
            return Some(Work::Claim(next.task, host));
        }
        let (_, worker) = idle.iter().find(|(s, _)| next.shapes.contains(s))?;
        Some(Work::Run(*worker, next.task))
    }

    /// Nobody waits who would choose to run something, be it what another host is kept free for.
    pub(crate) fn check_choices_are_made(&self) -> Result<(), String> {
        for (id, host) in &self.fleet.hosts {
            if let Some(Work::Run(worker, task)) = self.work_for(id, None) {
                let (worker, task) = (&self.fleet.workers[worker].key, self.tasks[task].sequence);
                return Err(format!("{worker} of {} waits, and would run task {task}", host.key));
            }
        }
        Ok(())
    }

    fn shape_of(&self, worker: WorkerId) -> ShapeId {
        self.index.kinds[self.fleet.workers[worker].kind].shape
    }

    pub(crate) fn assign(&mut self, id: TaskId, (worker, poll): Caller, out: &mut Output) {
        self.dequeue(id);
        let has_claim = self.tasks[id].has_claim;
        self.end_claim(id, Claim::Met);
        self.end_aside(id);
        let host = self.fleet.workers[worker].host;
        self.note_last_host(id, host);
        // Who had to claim a host leaves others like it no better off.
        if !has_claim {
            let lane = self.index.classes[self.tasks[id].class].lane;
            self.index.begun(lane, self.now);
        }
        let task = &mut self.tasks[id];
        let is_first = task.attempts.is_empty() && task.undelivered == 0 && task.exhausted == 0;
        let waited = is_first.then(|| self.now.since(task.queued_at));
        self.tally.assigned(self.fleet.workers[worker].slot, waited);
        task.state = TaskState::Running(worker);
        let counted_in = self.fleet.workers[worker].task_slot;
        self.count_taken(id, counted_in);
        self.count_running(id, true);
        let task = &self.tasks[id];
        let class = &self.index.classes[task.class].key;
        let run = Run {
            task: Some(id),
            digest: task.digest.clone(),
            demand: self.index.demands[class.demand].taken(&self.fleet.hosts[host].totals),
            exclusivity: class.exclusivity.clone(),
            is_over: false,
            expected: task.expected(),
            since: self.now,
            stage: None,
            sent_again: 0,
            counted_in,
        };
        let operations = task.operations.clone();
        let (exclusivity, pool) = (run.exclusivity.clone(), self.pool_of(worker));
        self.fleet.start(&self.index, worker, run);
        self.index.take_token(&exclusivity, pool);
        self.arm_host(host);
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
        let demand = &self.index.demands[lane.demand];
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
        let hosts = hosts.map(|h| &self.fleet.hosts[*h]);
        let serving = hosts.filter(|h| h.serves_all(kind) && fits(totals, &h.totals));
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

    /// The last workers with a prefix and a whole property list have gone: those with a shorter prefix are meant now.
    pub(crate) fn place_what_may_go_elsewhere(&mut self, atoms: &[Atom], out: &mut Output) {
        for task in self.index.waiting_for_whole(atoms) {
            self.place(task, out);
        }
    }
}
