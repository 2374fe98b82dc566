//! Hosts and workers: who is there, what is free, and which hosts an arriving task may go to.

use std::collections::BTreeSet;
use std::sync::Arc;

use slotmap::SlotMap;

use crate::classes::Index;
use crate::event::{Stage, WorkerSpec};
use crate::ids::{ActionDigest, DemandId, HostId, KindId, Map, PollId, ShapeId, TaskId, Text, WorkerId};
use crate::properties::Amounts;
use crate::shapes::KindKey;
use crate::time::Time;

/// What its workers share.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) key: Text,
    /// What it has of each `minimum` key.
    pub(crate) totals: Amounts,
    /// What is left of it.
    pub(crate) free: Amounts,
    pub(crate) max_inflight: u32,
    /// Digests that it runs, or hasn't stopped running.
    pub(crate) running: Map<ActionDigest, WorkerId>,
    pub(crate) workers: BTreeSet<WorkerId>,
    /// Its workers that wait for work, by kind, longest waiting first.
    idle: Vec<(KindId, BTreeSet<(u64, WorkerId)>)>,
    /// Larger is later.
    last_used: u64,
    /// Where it stands in `Fleet::open`.
    entries: Vec<(ShapeId, DemandId, Open)>,
}

/// One that executes a single action at a time.
#[derive(Clone, Debug)]
pub(crate) struct Worker {
    pub(crate) key: Text,
    pub(crate) spec: Arc<WorkerSpec>,
    pub(crate) host: HostId,
    pub(crate) kind: KindId,
    pub(crate) run: Option<Run>,
    /// The call that waits for work, and the place in `Host::idle`.
    pub(crate) waiting: Option<(PollId, u64)>,
    /// When it must have called, or its waiting call be answered.
    pub(crate) deadline: Time,
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}

/// What a worker has been given, or was found doing.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    /// `None`: nobody wants it any more, and the worker has not been told yet.
    pub(crate) task: Option<TaskId>,
    pub(crate) digest: ActionDigest,
    pub(crate) demand: Amounts,
    pub(crate) stage: Option<Stage>,
    /// How often the worker said it was idle nevertheless.
    pub(crate) sent_again: u32,
}

/// A host, among those that an arriving task may go to: least recently used first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Open {
    pub(crate) last_used: u64,
    pub(crate) host: HostId,
    pub(crate) kind: KindId,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Fleet {
    pub(crate) hosts: SlotMap<HostId, Host>,
    host_by_key: Map<Text, HostId>,
    pub(crate) workers: SlotMap<WorkerId, Worker>,
    pub(crate) worker_by_key: Map<Text, WorkerId>,
    pub(crate) worker_by_poll: Map<PollId, WorkerId>,
    /// Per shape and demand: hosts with a waiting worker of that shape and that much free.
    open: Map<(ShapeId, DemandId), BTreeSet<Open>>,
    /// Hosts with waiting workers.
    with_idle: BTreeSet<HostId>,
    /// Counts uses.
    clock: u64,
}

impl Host {
    fn accepts(&self) -> bool {
        self.max_inflight == 0 || self.running.len() < self.max_inflight as usize
    }

    /// That much is free, and it may take one more.
    pub(crate) fn has_room_for(&self, demand: &Amounts) -> bool {
        self.accepts() && demand.iter().zip(&self.free).all(|(asked, free)| asked <= free)
    }

    /// Its workers that wait, longest waiting first within a kind.
    pub(crate) fn idle_workers(&self) -> impl Iterator<Item = WorkerId> + '_ {
        self.idle.iter().flat_map(|(_, workers)| workers.iter().map(|(_, w)| *w))
    }

    pub(crate) fn idle_of(&self, kind: KindId) -> Option<WorkerId> {
        self.idle.iter().find(|(k, _)| *k == kind)?.1.first().map(|(_, w)| *w)
    }
}

impl Fleet {
    // === Coming and going ===

    pub(crate) fn register(
        &mut self,
        index: &mut Index,
        key: &Text,
        spec: &Arc<WorkerSpec>,
        now: Time,
    ) -> WorkerId {
        let kind = index.kind(KindKey {
            prefix: spec.instance_name_prefix.clone(),
            atoms: spec.offered.atoms.clone(),
            size_class: spec.size_class,
            pool: spec.pool.clone(),
        });
        let host = *self.host_by_key.entry_ref(&spec.host).or_insert_with(|| {
            self.hosts.insert(Host {
                key: spec.host.clone(),
                totals: Amounts::from_elem(0, spec.offered.totals.len()),
                free: Amounts::from_elem(0, spec.offered.totals.len()),
                max_inflight: spec.max_inflight_tasks,
                running: Map::default(),
                workers: BTreeSet::new(),
                idle: Vec::new(),
                last_used: 0,
                entries: Vec::new(),
            })
        });
        let id = self.workers.insert(Worker {
            key: key.clone(),
            spec: spec.clone(),
            host,
            kind,
            run: None,
            waiting: None,
            deadline: now,
            armed: None,
        });
        self.worker_by_key.insert(key.clone(), id);
        index.kinds[kind].workers += 1;
        index.kinds[kind].hosts.insert(host);
        let host_id = host;
        let host = &mut self.hosts[host_id];
        host.workers.insert(id);
        host.max_inflight = spec.max_inflight_tasks;
        // Threads of one host advertise what the host has, not their share of it: it counts once.
        for ((total, free), offered) in host.totals.iter_mut().zip(&mut host.free).zip(&spec.offered.totals) {
            *free += offered.saturating_sub(*total);
            *total = (*total).max(*offered);
        }
        self.refresh(index, host_id);
        id
    }

    /// Forgets a worker that runs nothing and doesn't wait. Was it the host's last?
    pub(crate) fn remove(&mut self, index: &mut Index, id: WorkerId) -> bool {
        let Some(worker) = self.workers.remove(id) else { return false };
        self.worker_by_key.remove(&worker.key);
        let kind = &mut index.kinds[worker.kind];
        kind.workers -= 1;
        let kind_gone = kind.workers == 0;
        let host = &mut self.hosts[worker.host];
        host.workers.remove(&id);
        let host_gone = host.workers.is_empty();
        if !host.workers.iter().any(|w| self.workers[*w].kind == worker.kind) {
            kind.hosts.remove(&worker.host);
        }
        if host_gone && let Some(host) = self.hosts.remove(worker.host) {
            self.host_by_key.remove(&host.key);
        }
        if kind_gone {
            index.drop_kind(worker.kind);
        }
        host_gone
    }

    // === Waiting ===

    pub(crate) fn wait(&mut self, index: &Index, id: WorkerId, poll: PollId, until: Time) {
        self.clock += 1;
        let worker = &mut self.workers[id];
        worker.waiting = Some((poll, self.clock));
        worker.deadline = until;
        self.worker_by_poll.insert(poll, id);
        let (host_id, kind) = (worker.host, worker.kind);
        let host = &mut self.hosts[host_id];
        match host.idle.iter_mut().find(|(k, _)| *k == kind) {
            Some((_, workers)) => _ = workers.insert((self.clock, id)),
            None => host.idle.push((kind, BTreeSet::from([(self.clock, id)]))),
        }
        self.with_idle.insert(host_id);
        self.refresh(index, host_id);
    }

    /// Its call waits no longer; returns it.
    pub(crate) fn stop_waiting(&mut self, index: &Index, id: WorkerId) -> Option<PollId> {
        let worker = &mut self.workers[id];
        let (poll, since) = worker.waiting.take()?;
        self.worker_by_poll.remove(&poll);
        let (host_id, kind) = (worker.host, worker.kind);
        let host = &mut self.hosts[host_id];
        if let Some((_, workers)) = host.idle.iter_mut().find(|(k, _)| *k == kind) {
            workers.remove(&(since, id));
        }
        host.idle.retain(|(_, workers)| !workers.is_empty());
        if host.idle.is_empty() {
            self.with_idle.remove(&host_id);
        }
        self.refresh(index, host_id);
        Some(poll)
    }

    // === Running ===

    pub(crate) fn start(&mut self, index: &Index, id: WorkerId, run: Run) {
        self.clock += 1;
        let host_id = self.workers[id].host;
        let host = &mut self.hosts[host_id];
        for (free, asked) in host.free.iter_mut().zip(&run.demand) {
            // Fit was tested under the same step.
            *free = free.saturating_sub(*asked);
        }
        host.running.insert(run.digest.clone(), id);
        host.last_used = self.clock;
        self.workers[id].run = Some(run);
        self.refresh(index, host_id);
    }

    /// Its action is over, or given up: what it took is free again.
    pub(crate) fn stop(&mut self, index: &Index, id: WorkerId) -> Option<Run> {
        let worker = &mut self.workers[id];
        let run = worker.run.take()?;
        let host_id = worker.host;
        let host = &mut self.hosts[host_id];
        for (free, asked) in host.free.iter_mut().zip(&run.demand) {
            *free += asked;
        }
        host.running.remove(&run.digest);
        self.refresh(index, host_id);
        Some(run)
    }

    // === Where an arriving task may go ===

    /// Hosts that may take a task of this demand with a worker of this shape, least recently used first.
    pub(crate) fn open(&self, shape: ShapeId, demand: DemandId) -> impl Iterator<Item = Open> + '_ {
        self.open.get(&(shape, demand)).into_iter().flatten().copied()
    }

    /// A class with a new demand, or with a property nobody asked for before, has come.
    pub(crate) fn reshaped(&mut self, index: &Index, kinds: &[KindId], new_demand: bool) {
        let hosts: BTreeSet<HostId> = match new_demand {
            true => self.with_idle.clone(),
            false => kinds.iter().flat_map(|k| index.kinds[*k].hosts.iter().copied()).collect(),
        };
        for host in hosts {
            self.refresh(index, host);
        }
        if new_demand {
            self.reshaped(index, kinds, false);
        }
    }

    /// Puts a host where it belongs in `open`. Its cost is that of the demands in use.
    fn refresh(&mut self, index: &Index, id: HostId) {
        let host = &mut self.hosts[id];
        let mut entries = Vec::new();
        if host.accepts() {
            for (kind, _) in &host.idle {
                let entry = Open { last_used: host.last_used, host: id, kind: *kind };
                let shape = index.kinds[*kind].shape;
                let fitting = index.demands.iter().filter(|(_, d)| host.has_room_for(&d.amounts));
                entries.extend(fitting.map(|(demand, _)| (shape, demand, entry)));
            }
        }
        let old = std::mem::replace(&mut host.entries, entries);
        let new = &host.entries;
        for (shape, demand, entry) in old.iter().filter(|e| !new.contains(e)) {
            if let Some(set) = self.open.get_mut(&(*shape, *demand)) {
                set.remove(entry);
                if set.is_empty() {
                    self.open.remove(&(*shape, *demand));
                }
            }
        }
        for (shape, demand, entry) in new.iter().filter(|e| !old.contains(e)) {
            self.open.entry((*shape, *demand)).or_default().insert(*entry);
        }
    }

    // === Invariants ===

    pub(crate) fn check(&self, index: &Index) -> Result<(), String> {
        for (id, host) in &self.hosts {
            let mut free = host.totals.clone();
            let mut running = 0;
            for run in host.workers.iter().filter_map(|w| self.workers[*w].run.as_ref()) {
                running += 1;
                for (left, asked) in free.iter_mut().zip(&run.demand) {
                    *left = left
                        .checked_sub(*asked)
                        .ok_or_else(|| format!("host {} is overcommitted", host.key))?;
                }
            }
            if free != host.free {
                return Err(format!("host {} has {:?} free, {:?} counted", host.key, free, host.free));
            }
            if running != host.running.len() {
                return Err(format!("host {} runs a digest twice", host.key));
            }
            if host.max_inflight > 0 && running > host.max_inflight as usize {
                return Err(format!("host {} runs more than max_inflight_tasks", host.key));
            }
            let idle: BTreeSet<WorkerId> = host.idle_workers().collect();
            let waiting =
                host.workers.iter().copied().filter(|w| self.workers[*w].waiting.is_some()).collect();
            if idle != waiting {
                return Err(format!("host {} knows its waiting workers wrongly", host.key));
            }
            for (kind, workers) in &host.idle {
                let shape = index.kinds[*kind].shape;
                for (demand, d) in &index.demands {
                    let is = self.open(shape, demand).any(|o| o.host == id && o.kind == *kind);
                    if is != (host.has_room_for(&d.amounts) && !workers.is_empty()) {
                        return Err(format!("host {} is listed wrongly for a demand", host.key));
                    }
                }
            }
        }
        let open: usize = self.hosts.values().map(|h| h.entries.len()).sum();
        let listed: usize = self.open.values().map(BTreeSet::len).sum();
        if open != listed {
            return Err(format!("{open} entries of hosts, {listed} listed"));
        }
        Ok(())
    }
}
