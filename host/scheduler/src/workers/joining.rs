//! Workers come, go, and become others; hosts come with their first worker and go with their last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::{SmallVec, smallvec};

use super::{Fleet, Host, Worker, fits};
use crate::classes::Index;
use crate::event::{HostExclusive, WorkerSpec};
use crate::ids::{ClassId, HostId, KindId, Set, Text, WorkerId};
use crate::metrics::WorkerState;
use crate::properties::Amounts;
use crate::shapes::{KindKey, Strategies};
use crate::time::Time;
use crate::together::Admission;

/// So many hosts that did badly are remembered when they are gone.
const REMEMBERED_MAX: usize = 1024;

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
    /// Other workers are meant by these without it.
    pub(crate) resized: Vec<ClassId>,
}

impl Fleet {
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
        // Whoever waits elsewhere needs nothing new: the worker is offered what is meant for it.
        self.join_host(index, host_id, kind, spec);
        self.count_health(host_id);
        self.relist(index, host_id);
        id
    }

    /// A host has one worker more of that kind. Returned: classes for which other workers are meant now.
    fn join_host(&mut self, index: &mut Index, id: HostId, kind: KindId, spec: &WorkerSpec) -> Vec<ClassId> {
        let is_first = index.kinds[kind].hosts.insert(id);
        let host = &mut self.hosts[id];
        let had = host.totals.clone();
        host.kinds.entry(kind).or_default().workers += 1;
        host.max_inflight = spec.max_inflight_tasks;
        host.admission.set(&spec.terms);
        // Threads of one host advertise what the host has, not their share of it: it counts once.
        *host.advertised.entry(spec.offered.totals.clone()).or_default() += 1;
        host.count_totals();
        let has = host.totals.clone();
        let mut resized = if is_first { index.count_totals(kind, &has, true) } else { Vec::new() };
        let others: Vec<KindId> = host.kinds().filter(|k| *k != kind || !is_first).collect();
        resized.extend(recount(index, &others, &had, &has));
        resized.extend(host.count_takers(index));
        resized
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
                busy: BTreeSet::new(),
                alone: 0,
                groups: BTreeMap::new(),
                reserved: None,
                admission: Admission::default(),
                last_used: self.clock,
                listed: SmallVec::new(),
                health: self.remembered.remove(&spec.host).unwrap_or_default(),
                counted: (false, false),
                armed: None,
            })
        })
    }

    /// Forgets a worker that runs nothing and doesn't wait.
    pub(crate) fn remove(&mut self, index: &mut Index, id: WorkerId) -> Option<Gone> {
        let worker = self.workers.remove(id)?;
        self.census.left(worker.slot, WorkerState::of(&worker));
        self.worker_by_key.remove(&worker.key);
        let totals = self.hosts[worker.host].totals.clone();
        let holds = (worker.is_held(), worker.drained);
        let mut gone = self.leave_host(index, worker.host, worker.kind, worker.spec, holds, totals);
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
        let (host, holds) = (worker.host, (worker.is_held(), worker.drained));
        let totals = self.hosts[host].totals.clone();
        // It comes before it goes, so that the host stays, with all that is known of it.
        let resized = self.join_host(index, host, new_kind, spec);
        if let Some(of) = self.hosts[host].kinds.get_mut(&new_kind) {
            of.held += usize::from(holds.0);
            of.drained += usize::from(holds.1);
        }
        let mut gone = self.leave_host(index, host, kind, old, holds, totals);
        gone.resized.extend(resized);
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
        (held, drained): (bool, bool),
        totals: Amounts,
    ) -> Gone {
        let host = &mut self.hosts[id];
        let served = host.serves_all(kind);
        let had = host.totals.clone();
        decrement(&mut host.advertised, &spec.offered.totals, |n| n);
        host.count_totals();
        let mut took = None;
        if let Some(of) = host.kinds.get_mut(&kind) {
            of.held -= usize::from(held);
            of.drained -= usize::from(drained);
            took = of.taking.clone();
        }
        let last_there = decrement(&mut host.kinds, &kind, |of| &mut of.workers);
        let last_of_host = host.kinds.is_empty();
        let serves_less = served && !(host.serves_all(kind) && fits(&totals, &host.totals));
        let has = host.totals.clone();
        let left: Vec<KindId> = host.kinds().collect();
        let mut resized = recount(index, &left, &had, &has);
        let mut last_of_kind = false;
        resized.extend(host.count_takers(index));
        if last_there {
            resized.extend(took.into_iter().flat_map(|totals| index.count_takers(kind, &totals, false)));
            resized.extend(index.count_totals(kind, &had, false));
            let hosts = &mut index.kinds[kind].hosts;
            hosts.remove(&id);
            last_of_kind = hosts.is_empty();
            if last_of_kind {
                resized.extend(index.drop_kind(kind));
            }
        }
        Gone { host: id, last_of_host, armed: None, kind, spec, totals, last_of_kind, serves_less, resized }
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
}

/// A host of these kinds has another amount in all.
fn recount(index: &mut Index, kinds: &[KindId], had: &Amounts, has: &Amounts) -> Vec<ClassId> {
    let mut resized = Vec::new();
    if had != has {
        for kind in kinds {
            resized.extend(index.count_totals(*kind, has, true));
            resized.extend(index.count_totals(*kind, had, false));
        }
    }
    resized
}

fn kind_key(spec: &WorkerSpec) -> KindKey {
    KindKey {
        prefix: spec.instance_name_prefix.clone(),
        atoms: spec.offered.atoms.clone(),
        size_class: spec.size_class,
        pool: spec.pool.clone(),
        admits_exclusive: spec.terms.exclusive != HostExclusive::Never,
        strategies: sorted(spec.strategies()),
    }
}

fn sorted(names: &[Text]) -> Strategies {
    let mut names: Strategies = names.iter().cloned().collect();
    names.sort_unstable();
    names.dedup();
    names
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
