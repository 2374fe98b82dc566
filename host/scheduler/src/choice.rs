//! Which task is next for a host that has something free: down the tree of invocations, over all lanes at once that its
//! waiting workers serve and that fit.

use std::iter;

use smallvec::SmallVec;

use crate::classes::Index;
use crate::fairness::Rank;
use crate::ids::{ActionDigest, HostId, InvocationId, LaneId, PoolId, Set, ShapeId, TaskId};
use crate::queue::{Entry, Queue};
use crate::scheduler::Scheduler;
use crate::workers::Host;

/// What a choice is made from.
struct Choice<'a> {
    index: &'a Index,
    pool: PoolId,
    /// Digests that the host runs. Buildbarn workers name their build directory after the digest: a host runs one of a
    /// digest at a time.
    running: &'a Set<ActionDigest>,
}

/// Lanes to choose from, with something below the invocation that is looked at.
type Lanes<'a> = SmallVec<[(LaneId, &'a Queue); 8]>;

/// What is next on a host.
pub(crate) struct Next {
    pub(crate) task: TaskId,
    /// The shapes whose workers it is for.
    pub(crate) shapes: SmallVec<[ShapeId; 4]>,
    /// The host is to be kept free for it; `None`: it can begin here.
    pub(crate) claims: Option<HostId>,
}

impl Scheduler {
    /// The task that is next for a worker of one of these shapes on that host: one that can begin there, or one that has its
    /// turn and for which a host is to be kept free.
    ///
    /// Invocations share out the workers of one pool; between pools, should a host have workers of several, the first
    /// by key goes, to the pool that chose it.
    pub(crate) fn next_for(&self, host: &Host, shapes: &[ShapeId]) -> Option<Next> {
        let pool_of = |s: &ShapeId| self.index.shapes[*s].pool;
        let mut pools: SmallVec<[PoolId; 2]> = shapes.iter().map(pool_of).collect();
        pools.sort_unstable();
        pools.dedup();
        let best = pools.into_iter().filter_map(|pool| {
            let shapes = shapes.iter().copied().filter(|s| pool_of(s) == pool);
            Some((pool, self.next_of(pool, host, shapes)?))
        });
        let (pool, (entry, lane, claims)) = best.min_by_key(|(_, (entry, ..))| entry.key)?;
        let eligible = &self.index.lanes[lane].key.eligible;
        let takes = |s: &ShapeId| pool_of(s) == pool && eligible.contains(s);
        let shapes = shapes.iter().copied().filter(takes).collect();
        Some(Next { task: entry.task, shapes, claims })
    }

    fn next_of(
        &self,
        pool: PoolId,
        host: &Host,
        shapes: impl Iterator<Item = ShapeId>,
    ) -> Option<(Entry, LaneId, Option<HostId>)> {
        let (fitting, mut short) = self.lanes_for(host, shapes);
        let choice = Choice { index: &self.index, pool, running: &host.running };
        let root = self.index.invocations.root();
        while !short.is_empty() {
            let all = fitting.iter().chain(&short).copied().collect();
            let (entry, lane) = choice.below(root, &all)?;
            if !short.iter().any(|(id, _)| *id == lane) {
                return Some((entry, lane, None));
            }
            if let Some(claimed) = self.claim_for(lane) {
                return Some((entry, lane, Some(claimed)));
            }
            short.retain(|(id, _)| *id != lane);
        }
        choice.below(root, &fitting).map(|(entry, lane)| (entry, lane, None))
    }

    /// Lanes with something that can begin, and those where only room is wanting.
    fn lanes_for(&self, host: &Host, shapes: impl Iterator<Item = ShapeId>) -> (Lanes<'_>, Lanes<'_>) {
        let (mut fitting, mut short): (Lanes<'_>, Lanes<'_>) = (SmallVec::new(), SmallVec::new());
        let free = host.free();
        let aside = self.index.aside.get(&host.key);
        for (i, shape) in shapes.enumerate() {
            let aside = aside.into_iter().flatten();
            let aside = aside.filter(|id| self.index.is_served_by(&self.index.lanes[**id].key, shape));
            for id in self.index.shapes[shape].waiting.iter().chain(aside) {
                self.index.probe();
                let lane = &self.index.lanes[*id];
                // What two shapes serve is looked at once.
                if i > 0 && fitting.iter().chain(&short).any(|(known, _)| known == id) {
                    continue;
                }
                let demand = &self.index.demands[lane.key.demand];
                if demand.fits(&free, &host.totals) && host.tolerates(&lane.key.exclusivity, self.now) {
                    if !self.avoids(&lane.key, host) {
                        fitting.push((*id, &lane.queue));
                    }
                } else if self.wants_room(&lane.key, host) {
                    short.push((*id, &lane.queue));
                }
            }
        }
        (fitting, short)
    }
}

impl<'a> Choice<'a> {
    /// What is next at or below an invocation: its own tasks before those of its children, children by rank.
    fn below(&self, at: InvocationId, lanes: &Lanes<'a>) -> Option<(Entry, LaneId)> {
        let own = self.own(at, lanes);
        own.or_else(|| self.children(at, lanes).find_map(|child| self.below(child, &waiting(lanes, child))))
    }

    /// The first of all tasks that name the invocation and that the host doesn't run already.
    fn own(&self, at: InvocationId, lanes: &Lanes<'a>) -> Option<(Entry, LaneId)> {
        let mut best: Option<(Entry, LaneId)> = None;
        for (id, queue) in lanes {
            let mut before = queue.own(at).take_while(|e| best.is_none_or(|(b, _)| e.key < b.key));
            if let Some(first) = before.find(|e| self.may_run(e)) {
                best = Some((*first, *id));
            }
        }
        best
    }

    fn may_run(&self, entry: &Entry) -> bool {
        self.index.probe();
        self.index.waiting.get(entry.task).is_some_and(|w| !self.running.contains(&w.digest))
    }

    /// Children that wait in some lane, the smallest rank of all lanes first. One that has another rank in another lane
    /// may come again; it is passed over as it was the first time.
    fn children<'s>(
        &'s self,
        at: InvocationId,
        lanes: &'s Lanes<'a>,
    ) -> impl Iterator<Item = InvocationId> + 's {
        let mut last: Option<Rank> = None;
        iter::from_fn(move || {
            self.index.probe();
            last = lanes.iter().filter_map(|(_, queue)| queue.child_after(self.pool, at, last)).min();
            last.map(|rank| rank.invocation)
        })
    }
}

fn waiting<'a>(lanes: &Lanes<'a>, at: InvocationId) -> Lanes<'a> {
    lanes.iter().filter(|(_, queue)| queue.is_waiting(at)).copied().collect()
}
