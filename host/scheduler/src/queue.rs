//! What waits in one lane: tasks below the invocations that want them, those in the order in which they are next.
//!
//! ```text
//!  root   own: tasks without a path, by key
//!   │     children, per pool that serves the lane: by rank (score, least recently started, age)
//!   ├─ alice   own: …   children: build, test
//!   └─ bob     own: …
//! ```
//!
//! A host runs one of a digest at a time, so a worker passes over what its host runs already. Were all tasks of a
//! digest in sight, a client could make it pass over a hundred thousand; so in sight are, of each digest, the first of
//! each invocation, and those of [`SIGHT_MAX`] invocations at most. A worker passes over that many times what its host
//! runs, at most.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Included, Unbounded};

use smallvec::SmallVec;

use crate::fairness::{Invocations, Rank};
use crate::ids::{ActionDigest, InvocationId, LaneId, Map, PoolId, TaskId};
use crate::task::QueueKey;

/// Of a digest, tasks of so many invocations are in sight; those of others are when one of these has gone.
pub(crate) const SIGHT_MAX: usize = 64;

/// Pools of the shapes that may serve a lane, sorted.
pub(crate) type Pools = SmallVec<[PoolId; 1]>;

/// A task in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: QueueKey,
    pub(crate) task: TaskId,
    pub(crate) priority: i32,
}

/// The queue of a lane.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    pools: Pools,
    nodes: Map<InvocationId, Here>,
    /// Under which invocations a digest is in sight, and by which key.
    in_sight: Map<ActionDigest, SmallVec<[(InvocationId, QueueKey); 1]>>,
    /// All others.
    behind: BTreeMap<(ActionDigest, InvocationId, QueueKey), Entry>,
    len: usize,
}

/// An invocation, as far as something waits in this lane.
#[derive(Clone, Debug)]
struct Here {
    /// Tasks that name it.
    own: BTreeMap<QueueKey, Entry>,
    /// Children that wait, for each of the queue's pools.
    children: SmallVec<[BTreeSet<Rank>; 1]>,
    /// Priorities of `own`, and the smallest of each child; how many there are of each.
    urgencies: BTreeMap<i32, usize>,
}

impl Here {
    fn new(pools: usize) -> Self {
        let children = (0..pools).map(|_| BTreeSet::new()).collect();
        Self { own: BTreeMap::new(), children, urgencies: BTreeMap::new() }
    }

    /// The smallest priority value that waits here; `None`: nothing does.
    fn urgency(&self) -> Option<i32> {
        self.urgencies.keys().next().copied()
    }
}

impl Queue {
    pub(crate) fn new(pools: Pools) -> Self {
        Self { pools, ..Self::default() }
    }

    /// Pools that serve it.
    pub(crate) fn pools(&self) -> &Pools {
        &self.pools
    }

    // === What is in sight ===

    pub(crate) fn push(
        &mut self,
        lane: LaneId,
        at: InvocationId,
        digest: &ActionDigest,
        entry: Entry,
        tree: &mut Invocations,
    ) {
        self.len += 1;
        let Some(sighted) = self.in_sight.get_mut(digest) else {
            self.in_sight.insert(digest.clone(), SmallVec::from_elem((at, entry.key), 1));
            return self.show(lane, at, entry, tree);
        };
        let has_room = sighted.len() < SIGHT_MAX;
        match sighted.iter_mut().find(|(i, _)| *i == at) {
            Some((_, first)) if entry.key < *first => {
                let old = std::mem::replace(first, entry.key);
                if let Some(later) = self.hide(lane, at, old, tree) {
                    self.behind.insert((digest.clone(), at, old), later);
                }
                self.show(lane, at, entry, tree);
            }
            None if has_room => {
                sighted.push((at, entry.key));
                self.show(lane, at, entry, tree);
            }
            _ => _ = self.behind.insert((digest.clone(), at, entry.key), entry),
        }
    }

    pub(crate) fn remove(
        &mut self,
        lane: LaneId,
        at: InvocationId,
        digest: &ActionDigest,
        key: QueueKey,
        tree: &mut Invocations,
    ) {
        self.len -= 1;
        if self.hide(lane, at, key, tree).is_none() {
            self.behind.remove(&(digest.clone(), at, key));
            return;
        }
        let Some(sighted) = self.in_sight.get_mut(digest) else { return };
        sighted.retain(|(i, _)| *i != at);
        if let Some((next, key)) = next_behind(&self.behind, sighted, digest, at, tree.root())
            && let Some(entry) = self.behind.remove(&(digest.clone(), next, key))
        {
            sighted.push((next, key));
            self.show(lane, next, entry, tree);
        } else if sighted.is_empty() {
            self.in_sight.remove(digest);
        }
    }

    /// Of the tasks of this digest that wait here, for whichever invocations, none is before it: what none of them can get, the
    /// others can't.
    pub(crate) fn is_before_its_like(&self, digest: &ActionDigest, key: QueueKey) -> bool {
        self.in_sight.get(digest).is_none_or(|all| all.iter().all(|(_, first)| key <= *first))
    }

    // === The tree ===

    fn show(&mut self, lane: LaneId, at: InvocationId, entry: Entry, tree: &mut Invocations) {
        let here = here(&mut self.nodes, at, self.pools.len());
        here.own.insert(entry.key, entry);
        self.adjust(lane, at, None, Some(entry.priority), tree);
    }

    fn hide(
        &mut self,
        lane: LaneId,
        at: InvocationId,
        key: QueueKey,
        tree: &mut Invocations,
    ) -> Option<Entry> {
        let entry = self.nodes.get_mut(&at)?.own.remove(&key)?;
        self.adjust(lane, at, Some(entry.priority), None, tree);
        Some(entry)
    }

    /// Something that waits at an invocation has another priority, has come (`from` nothing), or has gone (`to` nothing).
    fn adjust(
        &mut self,
        lane: LaneId,
        mut at: InvocationId,
        mut from: Option<i32>,
        mut to: Option<i32>,
        tree: &mut Invocations,
    ) {
        loop {
            let here = here(&mut self.nodes, at, self.pools.len());
            let before = here.urgency();
            if let Some(priority) = to {
                *here.urgencies.entry(priority).or_default() += 1;
            }
            if let Some(priority) = from
                && let Some(count) = here.urgencies.get_mut(&priority)
            {
                *count -= 1;
                if *count == 0 {
                    here.urgencies.remove(&priority);
                }
            }
            let after = here.urgency();
            if after.is_none() {
                self.nodes.remove(&at);
            }
            let Some(parent) = tree.parent(at).filter(|_| before != after) else { return };
            self.rerank(lane, parent, at, before, after, tree);
            (at, from, to) = (parent, before, after);
        }
    }

    fn rerank(
        &mut self,
        lane: LaneId,
        parent: InvocationId,
        child: InvocationId,
        before: Option<i32>,
        after: Option<i32>,
        tree: &mut Invocations,
    ) {
        let above = here(&mut self.nodes, parent, self.pools.len());
        for (pool, children) in self.pools.iter().zip(&mut above.children) {
            match before {
                Some(urgency) => _ = children.remove(&tree.rank(*pool, child, urgency)),
                None => tree.waits(*pool, child, lane),
            }
            match after {
                Some(urgency) => _ = children.insert(tree.rank(*pool, child, urgency)),
                None => tree.waits_no_more(*pool, child, lane),
            }
        }
    }

    /// Takes an invocation out of its siblings' order while what the pool runs for it changes.
    pub(crate) fn unrank(&mut self, pool: PoolId, id: InvocationId, tree: &Invocations) {
        if let Some((rank, siblings)) = self.rank_among(pool, id, tree) {
            siblings.remove(&rank);
        }
    }

    /// Puts it back, where it belongs now.
    pub(crate) fn rank(&mut self, pool: PoolId, id: InvocationId, tree: &Invocations) {
        if let Some((rank, siblings)) = self.rank_among(pool, id, tree) {
            siblings.insert(rank);
        }
    }

    fn rank_among(
        &mut self,
        pool: PoolId,
        id: InvocationId,
        tree: &Invocations,
    ) -> Option<(Rank, &mut BTreeSet<Rank>)> {
        let urgency = self.nodes.get(&id)?.urgency()?;
        let at = self.pools.binary_search(&pool).ok()?;
        let parent = self.nodes.get_mut(&tree.parent(id)?)?;
        Some((tree.rank(pool, id, urgency), parent.children.get_mut(at)?))
    }

    /// Other pools may serve the lane now. Returns how many invocations that concerned.
    pub(crate) fn set_pools(&mut self, lane: LaneId, pools: Pools, tree: &mut Invocations) -> usize {
        if pools == self.pools {
            return 0;
        }
        // In an order that doesn't depend on the map's.
        let mut ids: Vec<InvocationId> = self.nodes.keys().copied().collect();
        ids.retain(|id| *id != tree.root());
        ids.sort_unstable();
        for id in ids.iter().copied() {
            self.pools.iter().for_each(|p| tree.waits_no_more(*p, id, lane));
            pools.iter().for_each(|p| tree.waits(*p, id, lane));
        }
        self.pools = pools;
        for here in self.nodes.values_mut() {
            here.children = self.pools.iter().map(|_| BTreeSet::new()).collect();
        }
        for id in &ids {
            for pool in self.pools.clone() {
                self.rank(pool, *id, tree);
            }
        }
        ids.len()
    }

    // === Looking ===

    /// Tasks in sight that name an invocation, in order.
    pub(crate) fn own(&self, at: InvocationId) -> impl Iterator<Item = &Entry> {
        self.nodes.get(&at).into_iter().flat_map(|here| here.own.values())
    }

    /// The child that is next for a pool's worker, after the one of that rank.
    pub(crate) fn child_after(&self, pool: PoolId, at: InvocationId, last: Option<Rank>) -> Option<Rank> {
        let children = self.nodes.get(&at)?.children.get(self.pools.binary_search(&pool).ok()?)?;
        match last {
            None => children.first().copied(),
            Some(last) => children.range((Excluded(last), Unbounded)).next().copied(),
        }
    }

    /// Something waits at or below that invocation.
    pub(crate) fn is_waiting(&self, at: InvocationId) -> bool {
        self.nodes.contains_key(&at)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Tasks, each as often as invocations want it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    // === Invariants ===

    pub(crate) fn check(&self, lane: LaneId, pools: &Pools, tree: &Invocations) -> Result<(), String> {
        let in_sight: usize = self.nodes.values().map(|h| h.own.len()).sum();
        let listed: usize = self.in_sight.values().map(SmallVec::len).sum();
        if in_sight != listed || in_sight + self.behind.len() != self.len || self.pools != *pools {
            return Err(format!("a lane counts what it has in sight wrongly: {self:?}"));
        }
        let mut below: BTreeMap<InvocationId, Vec<i32>> = BTreeMap::new();
        for (id, here) in &self.nodes {
            let urgency = here.urgency().ok_or("an invocation is listed and doesn't wait")?;
            let Some(parent) = tree.parent(*id) else { continue };
            below.entry(parent).or_default().push(urgency);
            for (i, pool) in self.pools.iter().enumerate() {
                let is_ranked = self.nodes[&parent].children[i].contains(&tree.rank(*pool, *id, urgency));
                if !is_ranked || !tree.lanes(*pool, *id).contains(&lane) {
                    return Err(format!("invocation {:?} is not where its score says", tree.path(*id)));
                }
            }
        }
        for (id, here) in &self.nodes {
            let mut counted: BTreeMap<i32, usize> = BTreeMap::new();
            let own = here.own.values().map(|e| e.priority);
            for urgency in own.chain(below.get(id).into_iter().flatten().copied()) {
                *counted.entry(urgency).or_default() += 1;
            }
            let children = below.get(id).map_or(0, Vec::len);
            if counted != here.urgencies || here.children.iter().any(|c| c.len() != children) {
                return Err(format!("invocation {:?} knows wrongly what waits", tree.path(*id)));
            }
        }
        Ok(())
    }
}

fn here(nodes: &mut Map<InvocationId, Here>, at: InvocationId, pools: usize) -> &mut Here {
    nodes.entry(at).or_insert_with(|| Here::new(pools))
}

/// Which of a digest's hidden tasks is seen when one of `gone` has gone: one of an invocation that has none in sight,
/// in turn.
fn next_behind(
    behind: &BTreeMap<(ActionDigest, InvocationId, QueueKey), Entry>,
    sighted: &[(InvocationId, QueueKey)],
    digest: &ActionDigest,
    gone: InvocationId,
    root: InvocationId,
) -> Option<(InvocationId, QueueKey)> {
    if behind.is_empty() {
        return None;
    }
    let after = |from: Option<InvocationId>| {
        let from = match from {
            Some(id) => Excluded((digest.clone(), id, QueueKey::LAST)),
            // No invocation is before the root.
            None => Included((digest.clone(), root, QueueKey::FIRST)),
        };
        let ((other, id, key), _) = behind.range((from, Unbounded)).next()?;
        (other == digest).then_some((*id, *key))
    };
    let unseen = |mut from: Option<InvocationId>| loop {
        let (id, key) = after(from)?;
        if !sighted.iter().any(|(i, _)| *i == id) {
            return Some((id, key));
        }
        from = Some(id);
    };
    unseen(Some(gone)).or_else(|| unseen(None))
}

#[cfg(test)]
mod tests {
    use slotmap::SlotMap;

    use super::*;

    struct World {
        queue: Queue,
        tree: Invocations,
        tasks: SlotMap<TaskId, ()>,
    }

    impl World {
        fn new() -> Self {
            let mut tree = Invocations::default();
            let pools = SmallVec::from_elem(tree.use_pool(&"p".into()), 1);
            Self { queue: Queue::new(pools), tree, tasks: SlotMap::with_key() }
        }

        fn push(&mut self, at: InvocationId, sequence: u64, d: u8) {
            let entry = Entry { key: key(sequence), task: self.tasks.insert(()), priority: 0 };
            self.queue.push(LaneId::default(), at, &digest(d), entry, &mut self.tree);
        }

        fn remove(&mut self, at: InvocationId, sequence: u64, d: u8) {
            self.queue.remove(LaneId::default(), at, &digest(d), key(sequence), &mut self.tree);
        }

        fn order(&self, at: InvocationId) -> Vec<u64> {
            self.queue.check(LaneId::default(), &self.queue.pools, &self.tree).unwrap();
            self.queue.own(at).map(|e| e.key.sequence).collect()
        }
    }

    fn key(sequence: u64) -> QueueKey {
        QueueKey { score: 0, sequence }
    }

    fn digest(n: u8) -> ActionDigest {
        ActionDigest::new(1, &[n; 32], 1)
    }

    #[test]
    fn of_each_digest_the_first_is_in_sight() {
        let mut w = World::new();
        let root = w.tree.root();
        for (sequence, d) in [(5, 1), (3, 1), (4, 2), (9, 1), (1, 3)] {
            w.push(root, sequence, d);
        }
        assert_eq!((w.order(root), w.queue.len()), (vec![1, 3, 4], 5));
        w.remove(root, 3, 1);
        assert_eq!(w.order(root), [1, 4, 5]);
        w.remove(root, 9, 1);
        w.remove(root, 5, 1);
        assert_eq!((w.order(root), w.queue.len()), (vec![1, 4], 2));
    }

    #[test]
    fn of_one_digest_so_many_invocations_are_in_sight() {
        let mut w = World::new();
        let all: Vec<_> = (0..SIGHT_MAX + 2).map(|i| w.tree.enter(&[i.to_string().into()])).collect();
        for (i, at) in all.iter().enumerate() {
            w.push(*at, i as u64, 1);
            w.push(*at, (1000 + i) as u64, 1);
        }
        let seen = |w: &World| all.iter().flat_map(|at| w.order(*at)).collect::<Vec<_>>();
        assert_eq!(seen(&w), (0..SIGHT_MAX as u64).collect::<Vec<_>>());
        // Those that see none come before another of those that do.
        w.remove(all[0], 0, 1);
        w.remove(all[1], 1, 1);
        assert_eq!(seen(&w), (2..SIGHT_MAX as u64 + 2).collect::<Vec<_>>());
        w.remove(all[2], 2, 1);
        assert!(seen(&w).contains(&1000), "{:?}", seen(&w));
        for (i, at) in all.iter().enumerate() {
            [i, 1000 + i].iter().for_each(|k| {
                let there = w.queue.behind.keys().any(|b| b.2 == key(*k as u64));
                if there || w.order(*at).contains(&(*k as u64)) {
                    w.remove(*at, *k as u64, 1);
                }
            });
        }
        assert!(w.queue.is_empty() && w.queue.in_sight.is_empty());
        assert_eq!(w.queue.len(), 0);
    }
}
