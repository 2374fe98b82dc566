//! Hosts and workers: who is there, what is free, and which hosts an arriving task may go to.

use std::collections::{BTreeMap, BTreeSet};

use std::sync::Arc;

use slotmap::SlotMap;
use smallvec::{SmallVec, smallvec};

use crate::classes::Index;
use crate::event::{Stage, WorkerSpec};
use crate::health::Health;
use crate::ids::{ActionDigest, HostId, KindId, Map, PollId, Set, ShapeId, TaskId, Text, WorkerId};
use crate::metrics::{Census, Slot, WorkerState};
use crate::placement::Placement;
use crate::properties::Amounts;
use crate::shapes::KindKey;
use crate::time::Time;

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
    /// Larger is later.
    last_used: u64,
    /// Where it stands in `Fleet::open`.
    listed: SmallVec<[Listed; 1]>,
    pub(crate) health: Health,
    /// It is counted as paused, and as in quarantine.
    counted: (bool, bool),
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}

/// So many hosts that did badly are remembered when they are gone.
const REMEMBERED_MAX: usize = 1024;

/// Workers of one kind on one host.
#[derive(Clone, Debug, Default)]
struct OfKind {
    workers: usize,
    /// Those of them that are drained or paused.
    held: usize,
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

/// What went with a worker.
pub(crate) struct Gone {
    /// Its host, gone too if the worker was the last there.
    pub(crate) host: HostId,
    pub(crate) last_of_host: bool,
    /// When the timer of a host that is gone comes up.
    pub(crate) armed: Option<Time>,
    pub(crate) kind: KindId,
    pub(crate) spec: Arc<WorkerSpec>,
    /// What its host had in all.
    pub(crate) totals: Amounts,
    /// No other worker is like it.
    pub(crate) last_of_kind: bool,
    /// Its host no longer serves what it served.
    pub(crate) serves_less: bool,
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
        self.health.accepts() && (self.max_inflight == 0 || self.running.len() < self.max_inflight as usize)
    }

    /// What is left. Nothing, should the host advertise less than what runs there took.
    pub(crate) fn free(&self) -> Amounts {
        self.totals.iter().zip(&self.used).map(|(total, used)| total.saturating_sub(*used)).collect()
    }

    /// That much is free, and it may take one more.
    pub(crate) fn has_room_for(&self, demand: &Amounts) -> bool {
        self.accepts() && fits(demand, &self.free())
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
    pub(crate) fn serves(&self, kind: KindId, demand: &Amounts) -> bool {
        self.health.quarantine.is_none()
            && self.kinds.get(&kind).is_some_and(|of| of.workers > of.held)
            && fits(demand, &self.totals)
    }

    /// Kinds of its workers.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = KindId> + '_ {
        self.kinds.keys().copied()
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

fn kind_key(spec: &WorkerSpec) -> KindKey {
    KindKey {
        prefix: spec.instance_name_prefix.clone(),
        atoms: spec.offered.atoms.clone(),
        size_class: spec.size_class,
        pool: spec.pool.clone(),
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

    // === Coming and going ===

    pub(crate) fn register(
        &mut self,
        index: &mut Index,
        key: &Text,
        spec: &Arc<WorkerSpec>,
        now: Time,
    ) -> WorkerId {
        let kind = index.kind(kind_key(spec));
        let host_id = self.host(spec);
        let slot = self.census.slot(&spec.pool);
        let id = self.workers.insert(Worker {
            key: key.clone(),
            spec: spec.clone(),
            host: host_id,
            kind,
            slot,
            drained: false,
            paused: false,
            run: None,
            idle_since: now,
            waiting: None,
            deadline: now,
            armed: None,
        });
        self.census.came(slot, WorkerState::of(&self.workers[id]));
        self.worker_by_key.insert(key.clone(), id);
        self.join_host(index, host_id, kind, spec);
        self.count_health(host_id);
        self.relist(index, host_id);
        id
    }

    /// A host has one worker more of that kind.
    fn join_host(&mut self, index: &mut Index, id: HostId, kind: KindId, spec: &WorkerSpec) {
        index.kinds[kind].hosts.insert(id);
        let host = &mut self.hosts[id];
        host.kinds.entry(kind).or_default().workers += 1;
        host.max_inflight = spec.max_inflight_tasks;
        // Threads of one host advertise what the host has, not their share of it: it counts once.
        *host.advertised.entry(spec.offered.totals.clone()).or_default() += 1;
        host.count_totals();
    }

    fn host(&mut self, spec: &WorkerSpec) -> HostId {
        let nothing: Amounts = smallvec![0; spec.offered.totals.len()];
        *self.host_by_key.entry_ref(&spec.host).or_insert_with(|| {
            // One that is new goes after those that were used: a host that keeps restarting doesn't get all the work.
            self.clock += 1;
            self.hosts.insert(Host {
                key: spec.host.clone(),
                totals: nothing.clone(),
                used: nothing,
                max_inflight: spec.max_inflight_tasks,
                running: Set::default(),
                kinds: BTreeMap::new(),
                advertised: BTreeMap::new(),
                last_used: self.clock,
                listed: SmallVec::new(),
                health: self.remembered.remove(&spec.host).unwrap_or_default(),
                counted: (false, false),
                armed: None,
            })
        })
    }

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

    /// Forgets a worker that runs nothing and doesn't wait.
    pub(crate) fn remove(&mut self, index: &mut Index, id: WorkerId) -> Option<Gone> {
        let worker = self.workers.remove(id)?;
        self.census.left(worker.slot, WorkerState::of(&worker));
        self.worker_by_key.remove(&worker.key);
        let totals = self.hosts[worker.host].totals.clone();
        let held = worker.is_held();
        let mut gone = self.leave_host(index, worker.host, worker.kind, worker.spec, held, totals);
        self.relist(index, worker.host);
        if gone.last_of_host
            && let Some(host) = self.hosts.remove(worker.host)
        {
            gone.armed = host.armed;
            self.host_by_key.remove(&host.key);
            self.census.paused -= usize::from(host.counted.0);
            self.census.quarantined -= usize::from(host.counted.1);
            self.remember(host);
        }
        Some(gone)
    }

    /// Lets a worker that runs nothing and doesn't wait be another on the same host, and says what went with what it was.
    /// `None`: it would be on another host or have another id, which is nothing that a worker can become.
    pub(crate) fn change(&mut self, index: &mut Index, id: WorkerId, spec: &Arc<WorkerSpec>) -> Option<Gone> {
        let worker = &mut self.workers[id];
        if (&worker.spec.host, &worker.spec.id) != (&spec.host, &spec.id) {
            return None;
        }
        let new_kind = index.kind(kind_key(spec));
        let kind = std::mem::replace(&mut worker.kind, new_kind);
        let (state, slot) = (WorkerState::of(worker), self.census.slot(&spec.pool));
        self.census.left(std::mem::replace(&mut worker.slot, slot), state);
        self.census.came(slot, state);
        let old = std::mem::replace(&mut worker.spec, spec.clone());
        let (host, held) = (worker.host, worker.is_held());
        let totals = self.hosts[host].totals.clone();
        // It comes before it goes, so that the host stays, with all that is known of it.
        self.join_host(index, host, new_kind, spec);
        if held && let Some(of) = self.hosts[host].kinds.get_mut(&new_kind) {
            of.held += 1;
        }
        let gone = self.leave_host(index, host, kind, old, held, totals);
        self.relist(index, host);
        Some(gone)
    }

    /// A host, which had these totals, has one worker less of that kind.
    fn leave_host(
        &mut self,
        index: &mut Index,
        id: HostId,
        kind: KindId,
        spec: Arc<WorkerSpec>,
        held: bool,
        totals: Amounts,
    ) -> Gone {
        let host = &mut self.hosts[id];
        let served = host.serves(kind, &totals);
        decrement(&mut host.advertised, &spec.offered.totals, |n| n);
        host.count_totals();
        if held && let Some(of) = host.kinds.get_mut(&kind) {
            of.held -= 1;
        }
        let last_there = decrement(&mut host.kinds, &kind, |of| &mut of.workers);
        let last_of_host = host.kinds.is_empty();
        let serves_less = served && !host.serves(kind, &totals);
        let mut last_of_kind = false;
        if last_there {
            let hosts = &mut index.kinds[kind].hosts;
            hosts.remove(&id);
            last_of_kind = hosts.is_empty();
            if last_of_kind {
                index.drop_kind(kind);
            }
        }
        Gone { host: id, last_of_host, armed: None, kind, spec, totals, last_of_kind, serves_less }
    }

    /// One that fails and restarts each time is not new when it comes back.
    fn remember(&mut self, host: Host) {
        if !host.health.is_noteworthy() {
            return;
        }
        if self.remembered.len() >= REMEMBERED_MAX {
            let oldest = self.remembered.iter().min_by_key(|(_, health)| health.last);
            if let Some(key) = oldest.map(|(key, _)| key.clone()) {
                self.remembered.remove(&key);
            }
        }
        self.remembered.insert(host.key, host.health);
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

    /// Drains or pauses a worker, or lets it go. Its call waits on.
    pub(crate) fn hold(&mut self, index: &Index, id: WorkerId, drained: bool, paused: bool) {
        let was_held = self.workers[id].is_held();
        self.alter(id, |worker| (worker.drained, worker.paused) = (drained, paused));
        let worker = &self.workers[id];
        if was_held == worker.is_held() {
            return;
        }
        let place = worker.waiting.map(|(_, since)| (since, id));
        let host = worker.host;
        let of = self.hosts[host].kinds.entry(worker.kind).or_default();
        if was_held {
            of.held -= 1;
            of.idle.extend(place);
        } else {
            of.held += 1;
            place.map(|p| of.idle.remove(&p));
        }
        self.relist(index, host);
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
        host.health.stopped(id);
        let host = worker.host;
        self.relist(index, host);
        Some(run)
    }

    /// Gives back what a worker's action takes before it is over. `false`: it takes nothing, or did so already.
    pub(crate) fn give_back(&mut self, index: &Index, id: WorkerId) -> bool {
        let worker = &mut self.workers[id];
        let Some(run) = &mut worker.run else { return false };
        let host = &mut self.hosts[worker.host];
        let mut some = false;
        for (used, asked) in host.used.iter_mut().zip(&mut run.demand) {
            some |= *asked > 0;
            *used -= std::mem::take(asked);
        }
        let host = worker.host;
        self.relist(index, host);
        some
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
            let counted =
                [count(|_| true), count(Worker::is_held), count(|w| w.waiting.is_some() && !w.is_held())];
            if counted != [of.workers, of.held, of.idle.len()] || of.workers == 0 {
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

/// Takes one from a count; the last takes the entry with it.
fn decrement<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K, count: impl Fn(&mut V) -> &mut usize) -> bool {
    let Some(entry) = map.get_mut(key) else { return false };
    *count(entry) -= 1;
    let last = *count(entry) == 0;
    if last {
        map.remove(key);
    }
    last
}
