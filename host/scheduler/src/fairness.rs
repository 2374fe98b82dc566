//! Who is next among those that want the same workers: the tree of invocations, and how much each has.
//!
//! Each task waits under the paths that its clients' routes give (`invocation_keys`, coarsest first; an empty path is
//! the root). Between siblings the smallest *score* goes first: log2(executing + 1) + priority / 100, where `executing`
//! counts workers of the asking worker's pool that run something below it, and `priority` is the smallest that waits
//! there. So of two with equal priority each gets as many workers as the other, and one that asks with +100 half as
//! many (Buildbarn's rule). Of equal scores the one that was least recently started goes first.
//!
//! ```text
//!            root                      executing workers, per pool: here, once for all lanes
//!           /    \
//!    alice: 3    bob: 1                who waits below whom, by rank: in the lanes (`queue.rs`), per pool
//!     /   \         \
//!  test: 1 build: 2  build: 1
//! ```
//!
//! A worker that starts or ends changes the score of one path, in those lanes of its pool where that path waits: it costs
//! nothing more however many other invocations there are, and nothing is ever sorted.

use std::collections::BTreeMap;
use std::sync::Arc;

use slotmap::SlotMap;
use smallvec::SmallVec;

use crate::ids::{InvocationId, LaneId, Map, PoolId, Text};
use crate::task_metrics::InvocationCounts;

/// Of a longer path only so many keys count.
pub(crate) const DEPTH_MAX: usize = 8;

/// So many invocations at most. While there are as many, what is new waits under the deepest one that is known.
pub(crate) const INVOCATIONS_MAX: usize = 100_000;

/// So many without tasks are remembered, so that who comes back is known to have been served.
const IDLE_MAX: usize = 1024;

/// One that is new is taken for one last served so many starts ago. So it goes before who was served since; but a
/// stream of new ones can't shut out one that waits.
const HEAD_START: u64 = 64;

/// Bits behind the point of a logarithm.
const FRACTION: u32 = 16;

/// Place among the siblings that wait: smaller goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    score: i64,
    last_started: u64,
    born: u64,
    pub(crate) invocation: InvocationId,
}

/// A node of the tree.
#[derive(Clone, Debug)]
struct Invocation {
    /// `None`: the root.
    parent: Option<InvocationId>,
    key: Text,
    depth: usize,
    /// Order of creation.
    born: u64,
    /// Tasks that name it, and invocations right below.
    uses: usize,
    /// Its place in `Invocations::idle` while it has no uses.
    idle_since: Option<u64>,
    shares: SmallVec<[Share; 1]>,
}

/// What an invocation has of a pool.
#[derive(Clone, Debug)]
struct Share {
    pool: PoolId,
    /// Workers that run something below it.
    executing: u32,
    /// By the pool's count of starts.
    last_started: u64,
    /// Lanes where it waits and that the pool serves, sorted.
    lanes: SmallVec<[LaneId; 2]>,
}

/// Workers among which invocations are treated fairly.
#[derive(Clone, Debug)]
struct Pool {
    name: Text,
    shapes: usize,
    /// Tasks begun so far.
    starts: u64,
    /// Tasks that wait and that its workers could run.
    queued: usize,
}

/// The tree.
#[derive(Clone, Debug)]
pub(crate) struct Invocations {
    nodes: SlotMap<InvocationId, Invocation>,
    by_key: Map<(InvocationId, Text), InvocationId>,
    root: InvocationId,
    /// Those without uses, longest idle first.
    idle: BTreeMap<u64, InvocationId>,
    /// Counts births and idlenesses.
    clock: u64,
    pools: SlotMap<PoolId, Pool>,
    pool_by_name: Map<Text, PoolId>,
    /// How many came and went.
    pub(crate) counts: InvocationCounts,
}

impl Default for Invocations {
    fn default() -> Self {
        let mut nodes = SlotMap::with_key();
        let root = nodes.insert(Invocation {
            parent: None,
            key: "".into(),
            depth: 0,
            born: 0,
            // It stays.
            uses: 1,
            idle_since: None,
            shares: SmallVec::new(),
        });
        Self {
            nodes,
            by_key: Map::default(),
            root,
            idle: BTreeMap::new(),
            clock: 0,
            pools: SlotMap::with_key(),
            pool_by_name: Map::default(),
            counts: InvocationCounts::default(),
        }
    }
}

impl Invocations {
    // === The tree ===

    pub(crate) fn root(&self) -> InvocationId {
        self.root
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len() - 1
    }

    pub(crate) fn parent(&self, id: InvocationId) -> Option<InvocationId> {
        self.nodes[id].parent
    }

    /// The node of a path, made if there is none, with one use more.
    pub(crate) fn enter(&mut self, path: &[Text]) -> InvocationId {
        let mut at = self.root;
        for key in path.iter().take(DEPTH_MAX) {
            match self.by_key.get(&(at, key.clone())) {
                Some(id) => at = *id,
                None => {
                    // What keeps the way down from being dropped while room is made.
                    self.hold(at);
                    let has_room = self.has_room();
                    let child = has_room.then(|| self.insert(at, key));
                    self.leave(at);
                    let Some(child) = child else { break };
                    at = child;
                }
            }
        }
        self.hold(at);
        at
    }

    fn has_room(&mut self) -> bool {
        if self.len() >= INVOCATIONS_MAX {
            self.drop_idle(0);
        }
        self.len() < INVOCATIONS_MAX
    }

    fn insert(&mut self, parent: InvocationId, key: &Text) -> InvocationId {
        self.hold(parent);
        self.clock += 1;
        let id = self.nodes.insert(Invocation {
            parent: Some(parent),
            key: key.clone(),
            depth: self.nodes[parent].depth + 1,
            born: self.clock,
            uses: 0,
            idle_since: None,
            shares: SmallVec::new(),
        });
        self.by_key.insert((parent, key.clone()), id);
        self.counts.created[self.nodes[id].depth] += 1;
        self.note_idle(id);
        id
    }

    fn hold(&mut self, id: InvocationId) {
        let node = &mut self.nodes[id];
        node.uses += 1;
        if let Some(since) = node.idle_since.take() {
            self.idle.remove(&since);
            self.counts.activated[node.depth] += 1;
        }
    }

    /// One use less.
    pub(crate) fn leave(&mut self, id: InvocationId) {
        let node = &mut self.nodes[id];
        node.uses -= 1;
        if node.uses == 0 {
            self.counts.deactivated[node.depth] += 1;
            self.note_idle(id);
            self.drop_idle(IDLE_MAX);
        }
    }

    fn note_idle(&mut self, id: InvocationId) {
        self.clock += 1;
        self.nodes[id].idle_since = Some(self.clock);
        self.idle.insert(self.clock, id);
    }

    fn drop_idle(&mut self, keep: usize) {
        while self.idle.len() > keep {
            let Some((_, id)) = self.idle.pop_first() else { return };
            let Some(node) = self.nodes.remove(id) else { continue };
            self.counts.removed[node.depth] += 1;
            let Some(parent) = node.parent else { continue };
            self.by_key.remove(&(parent, node.key));
            let above = &mut self.nodes[parent];
            above.uses -= 1;
            if above.uses == 0 {
                self.counts.deactivated[above.depth] += 1;
                self.note_idle(parent);
            }
        }
    }

    /// These and all above them but the root, each once, deepest first.
    pub(crate) fn with_ancestors(
        &self,
        ids: impl IntoIterator<Item = InvocationId>,
    ) -> SmallVec<[InvocationId; 8]> {
        let mut all = SmallVec::new();
        let mut paths = 0;
        for id in ids {
            paths += 1;
            let mut at = id;
            while let Some(parent) = self.nodes[at].parent {
                all.push(at);
                at = parent;
            }
        }
        if paths > 1 {
            all.sort_unstable_by_key(|id| (std::cmp::Reverse(self.nodes[*id].depth), *id));
            all.dedup();
        }
        all
    }

    /// The keys that lead to it.
    pub(crate) fn path(&self, id: InvocationId) -> Vec<Text> {
        let mut keys = Vec::new();
        let mut at = id;
        while let Some(parent) = self.nodes[at].parent {
            keys.push(self.nodes[at].key.clone());
            at = parent;
        }
        keys.reverse();
        keys
    }

    /// Itself and all above it but the root, coarsest first, with their keys. Nothing if it is forgotten.
    pub(crate) fn way(&self, id: InvocationId) -> Vec<(InvocationId, Text)> {
        let mut way = Vec::new();
        let mut at = id;
        while let Some(node) = self.nodes.get(at) {
            let Some(parent) = node.parent else { break };
            way.push((at, node.key.clone()));
            at = parent;
        }
        way.reverse();
        way
    }

    /// Its place among its siblings for workers of a pool, for whoever looks from outside.
    pub(crate) fn turn(&self, pool: Option<PoolId>, id: InvocationId, urgency: i32) -> (i64, u64, u64) {
        match (pool, self.nodes.get(id)) {
            (Some(pool), Some(_)) => {
                let Rank { score, last_started, born, .. } = self.rank(pool, id, urgency);
                (score, last_started, born)
            }
            (None, Some(node)) => (score(0, urgency), 0, node.born),
            (_, None) => (i64::MAX, 0, 0),
        }
    }

    // === Pools ===

    /// The pool of that name has one more shape of worker.
    pub(crate) fn use_pool(&mut self, name: &Text) -> PoolId {
        let id = *self.pool_by_name.entry_ref(name).or_insert_with(|| {
            self.pools.insert(Pool { name: Arc::clone(name), shapes: 0, starts: 0, queued: 0 })
        });
        self.pools[id].shapes += 1;
        id
    }

    /// One shape less.
    pub(crate) fn release_pool(&mut self, id: PoolId) {
        let pool = &mut self.pools[id];
        pool.shapes -= 1;
        if pool.shapes == 0
            && let Some(pool) = self.pools.remove(id)
        {
            self.pool_by_name.remove(&pool.name);
        }
    }

    /// So many tasks more, or less, wait for these pools' workers, or for nobody's.
    pub(crate) fn count_queued(&mut self, pools: &[PoolId], change: isize, nobodys: &mut usize) {
        // Whoever takes away has added as many before.
        let add = |count: &mut usize| *count = count.wrapping_add_signed(change);
        if pools.is_empty() {
            return add(nobodys);
        }
        pools.iter().for_each(|p| add(&mut self.pools[*p].queued));
    }

    /// Tasks that wait for each pool's workers, in no particular but repeatable order.
    pub(crate) fn queued_by_pool(&self) -> impl Iterator<Item = (&Text, usize)> {
        self.pools.values().map(|pool| (&pool.name, pool.queued))
    }

    // === Shares ===

    fn share(&self, pool: PoolId, id: InvocationId) -> Option<&Share> {
        self.nodes[id].shares.iter().find(|s| s.pool == pool)
    }

    fn share_mut(&mut self, pool: PoolId, id: InvocationId) -> &mut Share {
        let shares = &mut self.nodes[id].shares;
        let at = shares.iter().position(|s| s.pool == pool).unwrap_or_else(|| {
            // Those of pools that are gone are of no use any more.
            shares.retain(|s| self.pools.contains_key(s.pool));
            let starts = self.pools.get(pool).map_or(0, |p| p.starts);
            let last_started = starts.saturating_sub(HEAD_START);
            shares.push(Share { pool, executing: 0, last_started, lanes: SmallVec::new() });
            shares.len() - 1
        });
        &mut shares[at]
    }

    /// It waits in a lane that the pool serves.
    pub(crate) fn waits(&mut self, pool: PoolId, id: InvocationId, lane: LaneId) {
        let lanes = &mut self.share_mut(pool, id).lanes;
        if let Err(at) = lanes.binary_search(&lane) {
            lanes.insert(at, lane);
        }
    }

    /// It doesn't wait there any more.
    pub(crate) fn waits_no_more(&mut self, pool: PoolId, id: InvocationId, lane: LaneId) {
        let lanes = &mut self.share_mut(pool, id).lanes;
        if let Ok(at) = lanes.binary_search(&lane) {
            lanes.remove(at);
        }
    }

    /// Lanes where it waits and that the pool serves.
    pub(crate) fn lanes(&self, pool: PoolId, id: InvocationId) -> SmallVec<[LaneId; 2]> {
        self.share(pool, id).map(|s| s.lanes.clone()).unwrap_or_default()
    }

    /// One task more of the pool's begins.
    pub(crate) fn note_start(&mut self, pool: PoolId) {
        self.pools[pool].starts += 1;
    }

    /// A worker of the pool begins something below it.
    pub(crate) fn started(&mut self, pool: PoolId, id: InvocationId) {
        let starts = self.pools[pool].starts;
        let share = self.share_mut(pool, id);
        share.executing += 1;
        share.last_started = starts;
    }

    /// A worker of the pool runs nothing below it any more.
    pub(crate) fn stopped(&mut self, pool: PoolId, id: InvocationId) {
        self.share_mut(pool, id).executing -= 1;
    }

    /// Workers of the pool that run something below it.
    pub(crate) fn executing(&self, pool: PoolId, id: InvocationId) -> u32 {
        self.share(pool, id).map_or(0, |s| s.executing)
    }

    /// Its place among its siblings, if that is the smallest priority value that waits there.
    pub(crate) fn rank(&self, pool: PoolId, id: InvocationId, urgency: i32) -> Rank {
        self.rank_if(pool, id, urgency, self.executing(pool, id))
    }

    /// The same, if so many workers executed for it.
    pub(crate) fn rank_if(&self, pool: PoolId, id: InvocationId, urgency: i32, executing: u32) -> Rank {
        Rank {
            score: score(executing, urgency),
            last_started: self.share(pool, id).map_or(0, |s| s.last_started),
            born: self.nodes[id].born,
            invocation: id,
        }
    }

    // === Invariants ===

    pub(crate) fn check(&self, uses: &BTreeMap<InvocationId, usize>) -> Result<(), String> {
        let mut children: BTreeMap<InvocationId, usize> = BTreeMap::new();
        for (id, node) in &self.nodes {
            let Some(parent) = node.parent else { continue };
            *children.entry(parent).or_default() += 1;
            if self.by_key.get(&(parent, node.key.clone())) != Some(&id) {
                return Err(format!("invocation {} is not found by its path", node.key));
            }
        }
        for (id, node) in &self.nodes {
            let counted = uses.get(&id).unwrap_or(&0) + children.get(&id).unwrap_or(&0);
            let counted = counted + usize::from(id == self.root);
            let is_listed = node.idle_since.is_some_and(|s| self.idle.get(&s) == Some(&id));
            if node.uses != counted || is_listed != (counted == 0) {
                return Err(format!("invocation {:?} has {counted} uses: {node:?}", self.path(id)));
            }
        }
        Ok(())
    }

    /// So many workers execute, each counted for every invocation above what it runs.
    pub(crate) fn check_sum(&self, executing: u64) -> Result<(), String> {
        let shares = self.nodes.values().flat_map(|n| &n.shares);
        let sum: u64 = shares.map(|s| u64::from(s.executing)).sum();
        match sum == executing {
            true => Ok(()),
            false => Err(format!("{executing} shares of workers are in use, {sum} counted")),
        }
    }
}

/// log2(executing + 1) + priority / 100, in units of 2^-16 / 100.
fn score(executing: u32, priority: i32) -> i64 {
    100 * log2(u64::from(executing) + 1) + (i64::from(priority) << FRACTION)
}

/// log2 in units of 2^-16, rounded down: the same on every machine. `n` is from 1 to 2^32.
fn log2(n: u64) -> i64 {
    let whole = n.ilog2();
    // n / 2^whole, from 1 to 2, with 31 bits behind the point; squaring it doubles its logarithm.
    let mut x = if whole <= 31 { n << (31 - whole) } else { n >> (whole - 31) };
    let mut log = i64::from(whole);
    for _ in 0..FRACTION {
        x = (x * x) >> 31;
        log <<= 1;
        if x >> 32 != 0 {
            x >>= 1;
            log |= 1;
        }
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_are_those_of_floating_point() {
        for n in (1..5_000).chain([u64::from(u32::MAX), 1 << 32, 123_456_789]) {
            let exact = (n as f64).log2() * f64::from(1 << FRACTION);
            assert!((exact - log2(n) as f64).abs() <= 2.0, "{n}: {exact} {}", log2(n));
        }
    }

    #[test]
    fn a_hundred_of_priority_is_worth_half_of_the_workers() {
        for executing in [0, 1, 2, 6, 99, 1_000_000] {
            assert_eq!(score(executing, 100), score(executing * 2 + 1, 0));
            assert_eq!(score(executing, i32::MIN + 100), score(executing * 2 + 1, i32::MIN));
        }
    }

    #[test]
    fn idle_invocations_are_remembered_up_to_a_bound() {
        let mut tree = Invocations::default();
        for i in 0..10 * IDLE_MAX {
            let id = tree.enter(&["tool".into(), i.to_string().into()]);
            tree.leave(id);
        }
        assert_eq!((tree.len(), tree.idle.len()), (IDLE_MAX + 1, IDLE_MAX));
        tree.drop_idle(0);
        assert_eq!(tree.len(), 0);
    }

    #[test]
    fn paths_are_cut_where_bounds_are_reached() {
        let mut tree = Invocations::default();
        let long: Vec<Text> = (0..20).map(|i| i.to_string().into()).collect();
        let deep = tree.enter(&long);
        assert_eq!(tree.path(deep), long[..DEPTH_MAX]);
        while tree.len() < INVOCATIONS_MAX {
            tree.enter(&[tree.len().to_string().into()]);
        }
        let last = tree.enter(&["0".into(), "new".into()]);
        assert_eq!((tree.path(last), tree.len()), (vec!["0".into()], INVOCATIONS_MAX));
    }
}
