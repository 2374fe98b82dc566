//! Hosts and workers: who is there, what is free, and which hosts an arriving task may go to.

mod joining;

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;
use std::time::Duration;

use slotmap::SlotMap;
use smallvec::SmallVec;

use crate::classes::{Demand, Index};
use crate::event::{Stage, WorkerSpec};
use crate::health::Health;
use crate::ids::{ActionDigest, ClassId, HostId, KindId, Map, PollId, Set, ShapeId, TaskId, Text, WorkerId};
use crate::metrics::{Census, Slot, WorkerState};
use crate::placement::Placement;
use crate::properties::Amounts;
use crate::route::Exclusivity;
use crate::time::Time;
use crate::together::Admission;

pub(crate) use joining::Gone;

/// What its workers share.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) key: Text,
    /// What it has of each `minimum` key: the most that one of its workers advertises.
    pub(crate) totals: Amounts,
    /// What runs there takes.
    pub(crate) used: Amounts,
    max_inflight: u32,
    /// Digests that it runs, or hasn't stopped running.
    pub(crate) running: Set<ActionDigest>,
    kinds: BTreeMap<KindId, OfKind>,
    /// Different totals that its workers advertise, and how many do.
    advertised: BTreeMap<Amounts, usize>,
    /// Workers whose command runs there, or of which nobody knows better.
    pub(crate) busy: BTreeSet<WorkerId>,
    /// Those of them that execute alone.
    pub(crate) alone: usize,
    /// How many of them belong to each group that is counted within hosts.
    pub(crate) groups: BTreeMap<Text, u32>,
    /// It is kept free for this task.
    pub(crate) reserved: Option<TaskId>,
    /// When an exclusive action may take it.
    pub(crate) admission: Admission,
    /// Larger is later.
    pub(crate) last_used: u64,
    /// Where it stands in `Fleet::open`.
    listed: SmallVec<[Listed; 1]>,
    pub(crate) health: Health,
    /// It is counted as paused, and as in quarantine.
    counted: (bool, bool),
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}

/// Workers of one kind on one host.
#[derive(Clone, Debug, Default)]
struct OfKind {
    workers: usize,
    /// Those of them that are drained or paused.
    held: usize,
    /// Those of them that are drained.
    drained: usize,
    /// What the host has in all, where it is counted among those that take tasks of this kind: not all workers are drained.
    taking: Option<Amounts>,
    /// Those that wait for work and may get some, longest waiting first.
    idle: BTreeSet<(u64, WorkerId)>,
}

/// One that executes a single action at a time.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) key: Text,
    pub(crate) spec: Arc<WorkerSpec>,
    pub(crate) host: HostId,
    pub(crate) kind: KindId,
    /// Where its pool is counted.
    pub(crate) slot: Slot,
    /// An operator's pattern matches it: it gets nothing new.
    pub(crate) drained: bool,
    /// The same, of a pause.
    pub(crate) paused: bool,
    pub(crate) run: Option<Run>,
    /// Since when it has had nothing to do, while it has nothing.
    pub(crate) idle_since: Time,
    /// The call that waits for work, and the place in `OfKind::idle`, where it is unless it is held.
    pub(crate) waiting: Option<(PollId, u64)>,
    /// When it must have called, or its waiting call be answered.
    pub(crate) deadline: Time,
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}

/// What a worker has been given, or was found doing.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// `None`: nobody wants it, and the worker has not said yet that it stopped.
    pub(crate) task: Option<TaskId>,
    pub(crate) digest: ActionDigest,
    /// What it takes; nothing once its command is over.
    pub(crate) demand: Amounts,
    /// What it tolerates beside it.
    pub(crate) exclusivity: Exclusivity,
    /// Its command is over: others needn't mind it any more.
    pub(crate) is_over: bool,
    /// How long it is expected to execute.
    pub(crate) expected: Option<Duration>,
    /// When it was given, or found.
    pub(crate) since: Time,
    /// `None`: the worker has not said yet that it has the task.
    pub(crate) stage: Option<Stage>,
    /// How often the task was sent again.
    pub(crate) sent_again: u32,
}

/// A host, among those with as much free that an arriving task may go to: least recently used first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Open {
    /// Workers that wait, if few are better than many.
    spare: usize,
    pub(crate) last_used: u64,
    pub(crate) host: HostId,
    pub(crate) kind: KindId,
}

/// A place in `Fleet::open`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    shape: ShapeId,
    free: Amounts,
    open: Open,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) hosts: SlotMap<HostId, Host>,
    pub(crate) host_by_key: Map<Text, HostId>,
    pub(crate) workers: SlotMap<WorkerId, Worker>,
    pub(crate) worker_by_key: Map<Text, WorkerId>,
    pub(crate) worker_by_poll: Map<PollId, WorkerId>,
    /// Hosts that accept tasks and have a waiting worker, by that worker's shape, then by what is free: hosts with the
    /// same free are one group, so that a fleet of equal hosts is looked through by groups.
    pub(crate) open: Map<ShapeId, BTreeMap<Amounts, BTreeSet<Open>>>,
    placement: Placement,
    pub(crate) census: Census,
    /// How hosts did that are gone, if badly.
    remembered: BTreeMap<Text, Health>,
    /// Counts uses and waits.
    clock: u64,
}

impl Worker {
    /// It gets nothing new.
    pub(crate) fn is_held(&self) -> bool {
        self.drained || self.paused
    }
}

impl Host {
    /// It may run one more.
    pub(crate) fn accepts(&self) -> bool {
        self.reserved.is_none() && self.accepts_claimant()
    }

    /// It may run one more, should it be the one that it is kept free for.
    pub(crate) fn accepts_claimant(&self) -> bool {
        self.health.accepts() && self.alone == 0 && self.has_slot()
    }

    /// It runs fewer than it may.
    pub(crate) fn has_slot(&self) -> bool {
        self.max_inflight == 0 || self.running.len() < self.max_inflight as usize
    }

    /// What is left. Nothing, should the host advertise less than what runs there took.
    pub(crate) fn free(&self) -> Amounts {
        self.totals.iter().zip(&self.used).map(|(total, used)| total.saturating_sub(*used)).collect()
    }

    /// That much is free, it may take one more, and what executes there tolerates it.
    pub(crate) fn has_room_for(&self, demand: &Demand, exclusivity: &Exclusivity, now: Time) -> bool {
        self.accepts() && demand.fits(&self.free(), &self.totals) && self.tolerates(exclusivity, now)
    }

    /// Of each kind the worker that waits longest.
    pub(crate) fn idle_of_each_kind(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.kinds.values().filter_map(|of| of.idle.first().map(|(_, w)| *w))
    }

    /// The worker of a kind that waits longest.
    pub(crate) fn idle_of(&self, kind: KindId) -> Option<WorkerId> {
        self.kinds.get(&kind)?.idle.first().map(|(_, w)| *w)
    }

    /// Workers that it has.
    pub(crate) fn workers(&self) -> usize {
        self.kinds.values().map(|of| of.workers).sum()
    }

    /// So many tasks it runs at once at most.
    pub(crate) fn max_inflight(&self) -> usize {
        match self.max_inflight {
            0 => self.workers(),
            n => n as usize,
        }
    }

    /// It takes tasks that take so much and that workers of that kind may run, now or when it is free.
    pub(crate) fn serves(&self, kind: KindId, demand: &Demand) -> bool {
        self.serves_all(kind) && fits(&demand.asked, &self.totals)
    }

    /// It takes tasks of that kind that ask for as much as it has in all, or less.
    pub(crate) fn serves_all(&self, kind: KindId) -> bool {
        self.health.quarantine.is_none() && self.kinds.get(&kind).is_some_and(|of| of.workers > of.held)
    }

    /// Kinds of its workers.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = KindId> + '_ {
        self.kinds.keys().copied()
    }

    /// Something has changed about its totals or about which of its workers are drained. Returned: classes for which other
    /// workers are meant since.
    fn count_takers(&mut self, index: &mut Index) -> Vec<ClassId> {
        let mut moved = Vec::new();
        for (kind, of) in &mut self.kinds {
            let now = (of.workers > of.drained).then(|| self.totals.clone());
            if of.taking == now {
                continue;
            }
            // It comes before it goes, so that nothing is moved to and fro.
            moved.extend(now.iter().flat_map(|totals| index.count_takers(*kind, totals, true)));
            let before = std::mem::replace(&mut of.taking, now);
            moved.extend(before.iter().flat_map(|totals| index.count_takers(*kind, totals, false)));
        }
        moved
    }

    fn listing(&self, index: &Index, id: HostId, placement: Placement) -> SmallVec<[Listed; 1]> {
        if !self.accepts() {
            return SmallVec::new();
        }
        let spare = match placement {
            Placement::Pack => self.kinds.values().map(|of| of.idle.len()).sum(),
            Placement::Spread | Placement::BestFit => 0,
        };
        let idle = self.kinds.iter().filter(|(_, of)| !of.idle.is_empty());
        idle.map(|(kind, _)| Listed {
            shape: index.kinds[*kind].shape,
            free: self.free(),
            open: Open { spare, last_used: self.last_used, host: id, kind: *kind },
        })
        .collect()
    }

    fn count_totals(&mut self) {
        for (i, total) in self.totals.iter_mut().enumerate() {
            *total = self.advertised.keys().map(|a| a[i]).max().unwrap_or(0);
        }
    }
}

/// Each amount asked is there.
pub(crate) fn fits(demand: &Amounts, free: &Amounts) -> bool {
    demand.iter().zip(free).all(|(asked, free)| asked <= free)
}

impl Fleet {
    pub(crate) fn new(placement: Placement) -> Self {
        Self { placement, ..Self::default() }
    }

    // === Counts ===

    /// Something has changed about how a host does.
    pub(crate) fn count_health(&mut self, id: HostId) {
        let host = &mut self.hosts[id];
        let now = (host.health.pause.is_some(), host.health.quarantine.is_some());
        let before = std::mem::replace(&mut host.counted, now);
        self.census.paused = self.census.paused + usize::from(now.0) - usize::from(before.0);
        self.census.quarantined = self.census.quarantined + usize::from(now.1) - usize::from(before.1);
    }

    /// Changes a worker, and with it how it is counted.
    fn alter<T>(&mut self, id: WorkerId, change: impl FnOnce(&mut Worker) -> T) -> T {
        let worker = &mut self.workers[id];
        let before = WorkerState::of(worker);
        let result = change(worker);
        self.census.left(worker.slot, before);
        self.census.came(worker.slot, WorkerState::of(worker));
        result
    }

    // === Waiting ===

    pub(crate) fn wait(&mut self, index: &Index, id: WorkerId, poll: PollId, until: Time) {
        self.clock += 1;
        let since = self.clock;
        self.alter(id, |worker| {
            worker.waiting = Some((poll, since));
            worker.deadline = until;
        });
        self.worker_by_poll.insert(poll, id);
        let worker = &self.workers[id];
        if worker.is_held() {
            return;
        }
        let (host, kind) = (worker.host, worker.kind);
        self.hosts[host].kinds.entry(kind).or_default().idle.insert((self.clock, id));
        self.relist(index, host);
    }

    /// Drains or pauses a worker, or lets it go. Its call waits on. Returned: classes for which other workers are meant since.
    pub(crate) fn hold(
        &mut self,
        index: &mut Index,
        id: WorkerId,
        drained: bool,
        paused: bool,
    ) -> Vec<ClassId> {
        let (was_held, was_drained) = (self.workers[id].is_held(), self.workers[id].drained);
        self.alter(id, |worker| (worker.drained, worker.paused) = (drained, paused));
        let worker = &self.workers[id];
        let place = worker.waiting.map(|(_, since)| (since, id));
        let (host, is_held) = (worker.host, worker.is_held());
        let of = self.hosts[host].kinds.entry(worker.kind).or_default();
        match (was_held, is_held) {
            (true, false) => {
                of.held -= 1;
                of.idle.extend(place);
            }
            (false, true) => {
                of.held += 1;
                place.map(|p| of.idle.remove(&p));
            }
            (true, true) | (false, false) => {}
        }
        of.drained = of.drained + usize::from(drained) - usize::from(was_drained);
        if was_held != is_held {
            self.relist(index, host);
        }
        if drained == was_drained { Vec::new() } else { self.hosts[host].count_takers(index) }
    }

    /// Its call waits no longer; returns it.
    pub(crate) fn stop_waiting(&mut self, index: &Index, id: WorkerId) -> Option<PollId> {
        let (poll, since) = self.alter(id, |worker| worker.waiting.take())?;
        self.worker_by_poll.remove(&poll);
        let worker = &self.workers[id];
        let (host, kind) = (worker.host, worker.kind);
        self.hosts[host].kinds.entry(kind).or_default().idle.remove(&(since, id));
        self.relist(index, host);
        Some(poll)
    }

    // === Running ===

    /// The host doesn't run that digest.
    pub(crate) fn start(&mut self, index: &Index, id: WorkerId, run: Run) {
        self.clock += 1;
        let host_id = self.workers[id].host;
        let host = &mut self.hosts[host_id];
        for (used, asked) in host.used.iter_mut().zip(&run.demand) {
            *used += asked;
        }
        host.running.insert(run.digest.clone());
        host.begins(id, &run, run.since);
        host.last_used = self.clock;
        if run.task.is_some() {
            host.health.started(id);
        }
        self.alter(id, |worker| worker.run = Some(run));
        self.relist(index, host_id);
    }

    /// Its action is over, or given up: what it took is free again.
    pub(crate) fn stop(&mut self, index: &Index, id: WorkerId, now: Time) -> Option<Run> {
        let run = self.alter(id, |worker| worker.run.take())?;
        let worker = &mut self.workers[id];
        worker.idle_since = now;
        let host = &mut self.hosts[worker.host];
        for (used, asked) in host.used.iter_mut().zip(&run.demand) {
            *used -= asked;
        }
        host.running.remove(&run.digest);
        if !run.is_over {
            host.ends(id, &run);
        }
        host.health.stopped(id);
        let host = worker.host;
        self.relist(index, host);
        Some(run)
    }

    /// Its command is over, its outputs are not yet there: gives back what it takes. Returned is what others had to tolerate
    /// so far, and whether any of that can make a difference to somebody; `None`: that was known.
    pub(crate) fn command_over(&mut self, index: &Index, id: WorkerId) -> Option<(Exclusivity, bool)> {
        let worker = &mut self.workers[id];
        let run = worker.run.as_mut().filter(|run| !run.is_over)?;
        let host = &mut self.hosts[worker.host];
        run.is_over = true;
        host.ends(id, run);
        let mut matters =
            run.exclusivity != Exclusivity::Shared || host.busy.is_empty() || host.reserved.is_some();
        for (used, asked) in host.used.iter_mut().zip(&mut run.demand) {
            matters |= *asked > 0;
            *used -= std::mem::take(asked);
        }
        let (exclusivity, host) = (run.exclusivity.clone(), worker.host);
        self.relist(index, host);
        Some((exclusivity, matters))
    }

    // === Where an arriving task may go ===

    /// The shapes of these kinds are others now.
    pub(crate) fn reshaped(&mut self, index: &Index, kinds: &[KindId]) {
        let hosts: BTreeSet<HostId> = kinds.iter().flat_map(|k| &index.kinds[*k].hosts).copied().collect();
        for host in hosts {
            self.relist(index, host);
        }
    }

    /// Puts a host where it belongs in `open`.
    pub(crate) fn relist(&mut self, index: &Index, id: HostId) {
        let host = &mut self.hosts[id];
        let new = host.listing(index, id, self.placement);
        if new == host.listed {
            return;
        }
        for Listed { shape, free, open } in std::mem::replace(&mut host.listed, new.clone()) {
            let Some(groups) = self.open.get_mut(&shape) else { continue };
            let Some(group) = groups.get_mut(&free) else { continue };
            group.remove(&open);
            if group.is_empty() {
                groups.remove(&free);
            }
            if groups.is_empty() {
                self.open.remove(&shape);
            }
        }
        for Listed { shape, free, open } in new {
            self.open.entry(shape).or_default().entry(free).or_default().insert(open);
        }
    }

    // === Invariants ===

    pub(crate) fn check(&self, index: &Index) -> Result<(), String> {
        for (id, host) in &self.hosts {
            self.check_host(index, id, host)?;
        }
        let listed = self.hosts.values().map(|h| h.listed.len()).sum::<usize>();
        let open = self.open.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum::<usize>();
        if open != listed {
            return Err(format!("{listed} hosts say they are open, {open} are listed"));
        }
        for (id, kind) in &index.kinds {
            if kind.hosts.iter().any(|h| !self.hosts.get(*h).is_some_and(|h| h.kinds.contains_key(&id))) {
                return Err(format!("a kind knows its hosts wrongly: {kind:?}"));
            }
            let takes = |h: &HostId| self.hosts[*h].kinds[&id].taking.is_some();
            if kind.takers() != kind.hosts.iter().filter(|h| takes(h)).count() {
                return Err(format!("a kind knows wrongly which of its hosts take work: {kind:?}"));
            }
        }
        Ok(())
    }

    fn check_host(&self, index: &Index, id: HostId, host: &Host) -> Result<(), String> {
        let workers = || self.workers.iter().filter(|(_, w)| w.host == id);
        let runs = || workers().filter_map(|(_, w)| w.run.as_ref());
        for (i, used) in host.used.iter().enumerate() {
            let sum = runs().map(|r| r.demand[i]).sum::<u64>();
            let total = workers().map(|(_, w)| w.spec.offered.totals[i]).max().unwrap_or(0);
            if (sum, total) != (*used, host.totals[i]) {
                return Err(format!("host {} uses {sum} of {total}: {host:?}", host.key));
            }
        }
        if runs().count() != host.running.len() || !runs().all(|r| host.running.contains(&r.digest)) {
            return Err(format!("host {} runs a digest twice, or one it doesn't know: {host:?}", host.key));
        }
        for (kind, of) in &host.kinds {
            let count =
                |what: fn(&Worker) -> bool| workers().filter(|(_, w)| w.kind == *kind && what(w)).count();
            let counted = [
                count(|_| true),
                count(Worker::is_held),
                count(|w| w.drained),
                count(|w| w.waiting.is_some() && !w.is_held()),
            ];
            let takes = (counted[0] > counted[2]).then_some(&host.totals);
            if counted != [of.workers, of.held, of.drained, of.idle.len()]
                || of.workers == 0
                || of.taking.as_ref() != takes
            {
                return Err(format!("host {} counts its workers wrongly: {host:?}", host.key));
            }
        }
        let is_listed = |l: &Listed| {
            self.open.get(&l.shape).and_then(|g| g.get(&l.free)).is_some_and(|g| g.contains(&l.open))
        };
        if host.listed != host.listing(index, id, self.placement) || !host.listed.iter().all(is_listed) {
            return Err(format!("host {} is listed wrongly: {host:?}", host.key));
        }
        if let Some((_, w)) = workers().find(|(_, w)| w.run.is_some() && w.waiting.is_some()) {
            return Err(format!("worker {} waits for work and runs some", w.key));
        }
        Ok(())
    }
}
