//! What is next for a worker, said once more: slowly, from tasks, routes and workers alone, without lanes, ranks and
//! counts that are kept. Invariants compare the two for every host.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::classes::Demand;
use crate::fairness::Rank;
use crate::ids::{HostId, InvocationId, KindId, LaneId, PoolId, ShapeId, TaskId, Text, WorkerId};
use crate::route::Exclusivity;
use crate::scheduler::Scheduler;
use crate::task::{Task, TaskState};
use crate::workers::{Host, Worker};

impl Scheduler {
    /// The tree counts what there is, and whoever would choose now would choose by the rules.
    pub(crate) fn check_fairness(&self) -> Result<(), String> {
        let mut uses: BTreeMap<InvocationId, usize> = BTreeMap::new();
        for (id, task) in &self.tasks {
            self.check_invocations_of(id, task)?;
            task.invocations.iter().for_each(|(i, _)| *uses.entry(*i).or_default() += 1);
        }
        self.index.invocations.check(&uses)?;
        let executing = self.executing();
        for ((pool, id), n) in &executing {
            if self.index.invocations.executing(*pool, *id) != *n {
                return Err(format!("{n} workers execute for {:?}", self.index.invocations.path(*id)));
            }
        }
        self.index.invocations.check_sum(executing.values().map(|n| u64::from(*n)).sum())?;
        let queued: Vec<Queued<'_>> = self.queued_by_arrival.values().map(|id| self.queued(*id)).collect();
        for (id, host) in &self.fleet.hosts {
            // What would be next now, and what if nothing ran there.
            self.check_choice(id, host, &queued, &executing)?;
            let mut empty = host.clone();
            empty.running.clear();
            empty.used.iter_mut().for_each(|u| *u = 0);
            empty.busy.clear();
            empty.alone = 0;
            empty.groups.clear();
            self.check_choice(id, &empty, &queued, &executing)?;
        }
        Ok(())
    }

    fn queued(&self, id: TaskId) -> Queued<'_> {
        let task = &self.tasks[id];
        let mut of_kinds: BTreeMap<KindId, &Worker> = BTreeMap::new();
        self.fleet.workers.values().for_each(|w| _ = of_kinds.insert(w.kind, w));
        of_kinds.retain(|_, worker| self.is_eligible(worker, task));
        let avoid = task.avoid();
        let avoids = if avoid.always || self.may_go_elsewhere(task) { avoid.hosts } else { SmallVec::new() };
        let class = &self.index.classes[task.class];
        let demand = &self.index.demands[class.key.demand];
        let (kinds, paths) = (of_kinds.into_keys().collect(), self.paths(task));
        Queued { id, task, kinds, avoids, only: class.key.only.clone(), demand, lane: class.lane, paths }
    }

    fn check_invocations_of(&self, id: TaskId, task: &Task) -> Result<(), String> {
        let mut counted: BTreeMap<InvocationId, u32> = BTreeMap::new();
        for operation in task.operations.iter().filter_map(|o| self.operations.get(*o)) {
            *counted.entry(operation.invocation).or_default() += 1;
        }
        let known: BTreeMap<InvocationId, u32> = task.invocations.iter().copied().collect();
        let queued: Option<BTreeSet<InvocationId>> =
            self.index.waiting.get(id).map(|w| w.invocations.iter().copied().collect());
        if counted != known || queued.is_some_and(|q| !q.iter().eq(counted.keys())) {
            return Err(format!("task {} counts for other invocations", task.sequence));
        }
        Ok(())
    }

    /// Workers of a pool that run something below an invocation.
    fn executing(&self) -> BTreeMap<(PoolId, InvocationId), u32> {
        let mut workers: BTreeMap<(PoolId, InvocationId), BTreeSet<WorkerId>> = BTreeMap::new();
        for task in self.tasks.values() {
            let TaskState::Running(worker) = task.state else { continue };
            for at in self.paths(task).into_iter().flatten() {
                workers.entry((self.pool_of(worker), at)).or_default().insert(worker);
            }
        }
        workers.into_iter().map(|(at, workers)| (at, workers.len() as u32)).collect()
    }

    /// For each invocation that wants a task: it and all above it but the root, the deepest first.
    fn paths(&self, task: &Task) -> Vec<Vec<InvocationId>> {
        let tree = &self.index.invocations;
        let up = |(id, _): &(InvocationId, u32)| {
            let all = std::iter::successors(Some(*id), |i| tree.parent(*i));
            all.filter(|i| *i != tree.root()).collect()
        };
        task.invocations.iter().map(up).collect()
    }

    fn check_choice(
        &self,
        id: HostId,
        host: &Host,
        queued: &[Queued<'_>],
        executing: &BTreeMap<(PoolId, InvocationId), u32>,
    ) -> Result<(), String> {
        let mut pools: BTreeMap<PoolId, BTreeSet<KindId>> = BTreeMap::new();
        let mut shapes: BTreeSet<ShapeId> = BTreeSet::new();
        for (kind, _) in self.index.kinds.iter().filter(|(_, kind)| kind.hosts.contains(&id)) {
            let shape = self.index.kinds[kind].shape;
            shapes.insert(shape);
            pools.entry(self.index.shapes[shape].pool).or_default().insert(kind);
        }
        let shapes: Vec<ShapeId> = shapes.into_iter().collect();
        let fast = self.next_for(host, &shapes).map(|next| (next.task, next.claims));
        let of_pools = pools.into_iter().filter_map(|(pool, kinds)| {
            let slow = Slow { core: self, pool, kinds, host, executing };
            slow.next(queued)
        });
        let slow = of_pools.min_by_key(|(q, _)| q.task.key).map(|(q, claims)| (q.id, claims));
        if fast != slow {
            let name = |next: Option<(TaskId, Option<HostId>)>| {
                next.map(|(t, claims)| (self.tasks[t].sequence, self.paths(&self.tasks[t]), claims))
            };
            let (fast, slow) = (name(fast), name(slow));
            return Err(format!("next on {} would be {fast:?}, and should be {slow:?}", host.key));
        }
        Ok(())
    }
}

/// A task that waits.
struct Queued<'a> {
    id: TaskId,
    task: &'a Task,
    /// Kinds of worker that may run it.
    kinds: BTreeSet<KindId>,
    /// Hosts where it has failed, if there are others for it.
    avoids: SmallVec<[Text; 2]>,
    /// The host it waits for.
    only: Option<Text>,
    demand: &'a Demand,
    lane: LaneId,
    paths: Vec<Vec<InvocationId>>,
}

/// A task, and the invocation for which it is looked at: that one and all above it.
type Candidate<'a> = (&'a [InvocationId], &'a Queued<'a>);

/// Who chooses.
struct Slow<'a> {
    core: &'a Scheduler,
    pool: PoolId,
    kinds: BTreeSet<KindId>,
    host: &'a Host,
    executing: &'a BTreeMap<(PoolId, InvocationId), u32>,
}

impl Slow<'_> {
    /// What is next, and the host that it claims if it can't begin here.
    fn next<'q>(&self, queued: &'q [Queued<'q>]) -> Option<(&'q Queued<'q>, Option<HostId>)> {
        let mut passed_over: BTreeSet<LaneId> = BTreeSet::new();
        loop {
            let could = |q: &&Queued<'_>| self.could_begin(q) || self.wants_room(q);
            let next = self.first(queued.iter().filter(could).filter(|q| !passed_over.contains(&q.lane)))?;
            if self.could_begin(next) {
                return Some((next, None));
            }
            if let Some(host) = self.core.claim_for(next.lane) {
                return Some((next, Some(host)));
            }
            passed_over.insert(next.lane);
        }
    }

    fn first<'q>(&self, queued: impl Iterator<Item = &'q Queued<'q>>) -> Option<&'q Queued<'q>> {
        let mut candidates: Vec<Candidate<'q>> = Vec::new();
        for q in queued {
            candidates.extend(q.paths.iter().map(|path| (&path[..], q)));
        }
        // Of one digest, what waits in the same lane for the same invocation is one after the other.
        let place = |(path, q): &Candidate<'q>| (path.first().copied(), q.lane, &q.task.digest);
        let mut first = BTreeMap::new();
        for candidate in &candidates {
            let key = candidate.1.task.key;
            let known = first.entry(place(candidate)).or_insert(key);
            *known = key.min(*known);
        }
        candidates.retain(|candidate| first.get(&place(candidate)) == Some(&candidate.1.task.key));
        self.below(0, &candidates)
    }

    /// But for what the host runs.
    fn could_begin(&self, queued: &Queued<'_>) -> bool {
        let exclusivity = &queued.task.route.exclusivity;
        queued.demand.fits(&self.host.free(), &self.host.totals)
            && self.host.tolerates(exclusivity, self.core.now)
            && self.could_ever(queued)
    }

    /// It could begin if others were not there, or took less.
    fn wants_room(&self, queued: &Queued<'_>) -> bool {
        let exclusivity = &queued.task.route.exclusivity;
        let is_admitted = match exclusivity {
            Exclusivity::Host => self.host.admission.admits(self.core.now),
            _ => self.host.tolerates(exclusivity, self.core.now),
        };
        is_admitted
            && queued.only.is_none()
            && queued.demand.fits(&self.host.totals, &self.host.totals)
            && self.could_ever(queued)
    }

    fn could_ever(&self, queued: &Queued<'_>) -> bool {
        self.core.index.has_token(&queued.task.route.exclusivity, self.pool)
            && !queued.avoids.contains(&self.host.key)
            && queued.only.as_ref().is_none_or(|h| *h == self.host.key)
            && queued.kinds.iter().any(|k| self.kinds.contains(k))
    }

    /// `candidates` have the same `depth` invocations at the end of their paths.
    fn below<'q>(&self, depth: usize, candidates: &[Candidate<'q>]) -> Option<&'q Queued<'q>> {
        let own = candidates.iter().filter(|(path, _)| path.len() == depth).map(|(_, q)| *q);
        let own = own.filter(|q| !self.host.running.contains(&q.task.digest)).min_by_key(|q| q.task.key);
        if own.is_some() {
            return own;
        }
        let mut children: BTreeMap<InvocationId, Vec<Candidate<'q>>> = BTreeMap::new();
        for (path, q) in candidates.iter().filter(|(path, _)| path.len() > depth) {
            children.entry(path[path.len() - depth - 1]).or_default().push((path, q));
        }
        let ranked = children.into_iter().filter_map(|(id, tasks)| {
            let urgency = tasks.iter().map(|(_, q)| q.task.route.priority).min()?;
            let executing = *self.executing.get(&(self.pool, id)).unwrap_or(&0);
            Some((self.core.index.invocations.rank_if(self.pool, id, urgency, executing), tasks))
        });
        let ranked: BTreeMap<Rank, Vec<Candidate<'q>>> = ranked.collect();
        ranked.values().find_map(|tasks| self.below(depth + 1, tasks))
    }
}
