//! Lanes: to a worker, all classes of a lane are one queue.
//!
//! A hundred thousand classes that nobody serves are one lane that no worker looks at. Shapes that come and go change
//! what lanes are called; tasks move only when a lane falls apart or two become one, and then those of the smaller part.

use std::collections::{BTreeMap, BTreeSet};

use slotmap::Key as _;
use smallvec::SmallVec;

use crate::attempts::Avoid;
use crate::classes::Index;
use crate::ids::{ActionDigest, ClassId, DemandId, InvocationId, LaneId, Map, PoolId, ShapeId, TaskId, Text};
use crate::queue::{Entry, Pools, Queue};
use crate::route::Exclusivity;
use crate::task::QueueKey;
use crate::time::Time;

/// Shapes that may serve a lane, sorted.
pub(crate) type Eligible = SmallVec<[ShapeId; 4]>;

/// What is equal for all classes of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    pub(crate) eligible: Eligible,
    pub(crate) demand: DemandId,
    pub(crate) exclusivity: Exclusivity,
    /// Hosts that take its tasks only if there are no others.
    pub(crate) avoid: Avoid,
    /// The host that its tasks wait for: only its workers look here.
    pub(crate) only: Option<Text>,
}

/// Classes that are one queue to every worker.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    pub(crate) queue: Queue,
    pub(crate) classes: BTreeSet<ClassId>,
    /// Since when something waits and nothing has begun, but for what a host had to be kept free for.
    pub(crate) stalled: Option<Time>,
    /// Tasks that wait.
    waiting: usize,
}

/// What the index knows of a queued task.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) class: ClassId,
    pub(crate) key: QueueKey,
    pub(crate) priority: i32,
    pub(crate) digest: ActionDigest,
    /// It waits under each of these.
    pub(crate) invocations: SmallVec<[InvocationId; 1]>,
}

impl Index {
    // === Queues ===

    pub(crate) fn push(&mut self, task: TaskId, waiting: Waiting) {
        let class = &mut self.classes[waiting.class];
        class.queued.insert(task);
        let lane = class.lane;
        self.waiting.insert(task, waiting);
        self.fill(lane, task);
    }

    pub(crate) fn remove(&mut self, task: TaskId) {
        let Some(class) = self.waiting.get(task).map(|w| w.class) else { return };
        let class = &mut self.classes[class];
        class.queued.remove(&task);
        let lane = class.lane;
        self.empty(lane, task);
        self.waiting.remove(task);
    }

    /// Puts a task that waits into a lane.
    fn fill(&mut self, id: LaneId, task: TaskId) {
        let (queue, waiting) = (&mut self.lanes[id].queue, &self.waiting[task]);
        let was_empty = queue.is_empty();
        self.invocations.count_queued(queue.pools(), 1, &mut self.unserved);
        let entry = Entry { key: waiting.key, task, priority: waiting.priority };
        for at in &waiting.invocations {
            queue.push(id, *at, &waiting.digest, entry, &mut self.invocations);
        }
        self.lanes[id].waiting += 1;
        if was_empty {
            self.mark(id);
        }
    }

    /// Takes it out again.
    fn empty(&mut self, id: LaneId, task: TaskId) {
        let (queue, waiting) = (&mut self.lanes[id].queue, &self.waiting[task]);
        for at in &waiting.invocations {
            queue.remove(id, *at, &waiting.digest, waiting.key, &mut self.invocations);
        }
        self.invocations.count_queued(queue.pools(), -1, &mut self.unserved);
        let is_empty = queue.is_empty();
        self.lanes[id].waiting -= 1;
        if is_empty {
            self.mark(id);
        }
    }

    /// A task that waits is wanted by one invocation more.
    pub(crate) fn push_under(&mut self, task: TaskId, at: InvocationId) {
        let Some(waiting) = self.waiting.get_mut(task) else { return };
        waiting.invocations.push(at);
        let lane = self.classes[waiting.class].lane;
        let entry = Entry { key: waiting.key, task, priority: waiting.priority };
        self.lanes[lane].queue.push(lane, at, &waiting.digest, entry, &mut self.invocations);
    }

    /// One invocation wants it no more; others do.
    pub(crate) fn remove_under(&mut self, task: TaskId, at: InvocationId) {
        let Some(waiting) = self.waiting.get_mut(task) else { return };
        waiting.invocations.retain(|i| *i != at);
        let lane = self.classes[waiting.class].lane;
        self.lanes[lane].queue.remove(lane, at, &waiting.digest, waiting.key, &mut self.invocations);
    }

    // === Shares ===

    /// A worker of the pool begins or ends with something that these invocations want.
    pub(crate) fn count_running(&mut self, pool: PoolId, ids: &[InvocationId], begins: bool) {
        if begins {
            self.invocations.note_start(pool);
        }
        for id in self.invocations.with_ancestors(ids.iter().copied()) {
            self.count_share(pool, id, begins);
        }
    }

    /// The same for one invocation alone: its place changes wherever it waits for the pool's workers.
    pub(crate) fn count_share(&mut self, pool: PoolId, id: InvocationId, begins: bool) {
        let lanes = self.invocations.lanes(pool, id);
        for lane in &lanes {
            self.probe();
            self.lanes[*lane].queue.unrank(pool, id, &self.invocations);
        }
        if begins {
            self.invocations.started(pool, id);
        } else {
            self.invocations.stopped(pool, id);
        }
        for lane in &lanes {
            self.lanes[*lane].queue.rank(pool, id, &self.invocations);
        }
    }

    /// Tells the shapes of a lane whether something waits there that may begin, tokens of groups included.
    pub(crate) fn mark(&mut self, id: LaneId) {
        let lane = &mut self.lanes[id];
        let waits = !lane.queue.is_empty();
        if !waits {
            lane.stalled = None;
        }
        let lane = &self.lanes[id];
        if let Some(host) = &lane.key.only {
            return list(&mut self.aside, host, id, waits);
        }
        for shape in &lane.key.eligible {
            // A shape that goes is gone before its lanes are called otherwise.
            let Some(pool) = self.shapes.get(*shape).map(|s| s.pool) else { continue };
            let may_begin = waits && self.has_token(&lane.key.exclusivity, pool);
            let Some(shape) = self.shapes.get_mut(*shape) else { continue };
            if may_begin {
                shape.waiting.insert(id);
            } else {
                shape.waiting.remove(&id);
            }
        }
        put(&mut self.avoiding, id, waits && !lane.key.avoid.is_empty());
        put(&mut self.exclusive, id, waits && lane.key.exclusivity == Exclusivity::Host);
    }

    // === Lanes ===

    /// Something of a lane has begun without anybody's doing.
    pub(crate) fn begun(&mut self, id: LaneId, now: Time) {
        let lane = &mut self.lanes[id];
        lane.stalled = (lane.waiting > 0).then_some(now);
    }

    pub(crate) fn lane(&mut self, key: LaneKey) -> LaneId {
        if let Some(id) = self.lane_by_key.get(&key) {
            return *id;
        }
        let queue = Queue::new(self.pools_of(&key.eligible));
        let lane = Lane { key: key.clone(), queue, classes: BTreeSet::new(), stalled: None, waiting: 0 };
        let id = self.lanes.insert(lane);
        for shape in &key.eligible {
            self.shapes[*shape].lanes.insert(id);
        }
        self.lane_by_key.insert(key, id);
        self.enter_group(id);
        id
    }

    /// Takes an idle class out of its lane.
    pub(crate) fn leave_lane(&mut self, class: ClassId, id: LaneId) {
        let lane = &mut self.lanes[id];
        lane.classes.remove(&class);
        if lane.classes.is_empty() {
            self.detach(id);
            self.leave_group(id);
            self.lanes.remove(id);
        }
    }

    /// The lane is no longer known by its key.
    fn detach(&mut self, id: LaneId) {
        let lane = &self.lanes[id];
        self.lane_by_key.remove(&lane.key);
        for shape in &lane.key.eligible {
            if let Some(shape) = self.shapes.get_mut(*shape) {
                shape.lanes.remove(&id);
                shape.waiting.remove(&id);
            }
        }
        self.avoiding.remove(&id);
        self.exclusive.remove(&id);
        if let Some(host) = &lane.key.only {
            list(&mut self.aside, host, id, false);
        }
    }

    fn move_class(&mut self, id: ClassId, to: LaneId) {
        let class = &mut self.classes[id];
        let from = std::mem::replace(&mut class.lane, to);
        let stalled = self.lanes[from].stalled;
        let queued = std::mem::take(&mut class.queued);
        for task in &queued {
            self.empty(from, *task);
            self.fill(to, *task);
        }
        self.probes.set(self.probes.get() + 1 + queued.len() as u64);
        self.classes[id].queued = queued;
        let lane = &mut self.lanes[to];
        lane.classes.insert(id);
        // What has waited for so long has done so whatever its lane is called.
        lane.stalled = lane.stalled.into_iter().chain(stalled).min().filter(|_| lane.waiting > 0);
        self.leave_lane(id, from);
    }

    /// Some classes of a lane get other eligible shapes than the rest. The smaller part moves.
    pub(crate) fn split_lane(&mut self, id: LaneId, leaving: &[ClassId], eligible: Eligible) {
        let key = LaneKey { eligible, ..self.lanes[id].key.clone() };
        let weight = leaving.iter().map(|c| self.weight(*c)).sum::<usize>();
        if weight * 2 <= self.lanes[id].weight() {
            let to = self.lane(key);
            leaving.iter().for_each(|c| self.move_class(*c, to));
            return;
        }
        let leaving: BTreeSet<ClassId> = leaving.iter().copied().collect();
        let staying: Vec<ClassId> = self.lanes[id].classes.difference(&leaving).copied().collect();
        let old = self.lanes[id].key.clone();
        self.rename_lane(id, key.eligible);
        if !staying.is_empty() {
            let to = self.lane(old);
            staying.iter().for_each(|c| self.move_class(*c, to));
        }
    }

    /// Gives a whole lane other eligible shapes. It becomes one with the lane that has the same, if there is one.
    pub(crate) fn rename_lane(&mut self, id: LaneId, eligible: Eligible) {
        let key = LaneKey { eligible, ..self.lanes[id].key.clone() };
        if let Some(other) = self.lane_by_key.get(&key).copied() {
            let other_is_larger = self.lanes[other].weight() >= self.lanes[id].weight();
            let (from, to) = if other_is_larger { (id, other) } else { (other, id) };
            for class in self.lanes[from].classes.clone() {
                self.move_class(class, to);
            }
            if other_is_larger {
                return;
            }
        }
        self.detach(id);
        for shape in &key.eligible {
            self.shapes[*shape].lanes.insert(id);
        }
        let pools = self.pools_of(&key.eligible);
        let lane = &mut self.lanes[id];
        lane.key = key.clone();
        let waiting = lane.waiting.cast_signed();
        self.invocations.count_queued(lane.queue.pools(), -waiting, &mut self.unserved);
        self.invocations.count_queued(&pools, waiting, &mut self.unserved);
        let moved = lane.queue.set_pools(id, pools, &mut self.invocations);
        self.probes.set(self.probes.get() + moved as u64);
        self.lane_by_key.insert(key, id);
        self.mark(id);
    }

    /// Pools of these shapes, sorted.
    pub(crate) fn pools_of(&self, eligible: &Eligible) -> Pools {
        let mut pools: Pools = eligible.iter().map(|s| self.shapes[*s].pool).collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }

    /// Names of the pools whose workers could serve a class; one may come twice.
    pub(crate) fn pool_names(&self, class: ClassId) -> impl Iterator<Item = &Text> {
        self.lanes[self.classes[class].lane].key.eligible.iter().map(|s| &self.shapes[*s].key.pool)
    }

    fn weight(&self, class: ClassId) -> usize {
        1 + self.classes[class].queued.len()
    }

    /// What waits is counted right, in all and for each pool.
    pub(crate) fn check_queued(&self) -> Result<(), String> {
        let mut counted: BTreeMap<Text, usize> = BTreeMap::new();
        let mut unserved = 0;
        for waiting in self.waiting.values() {
            let lane = &self.lanes[self.classes[waiting.class].lane];
            let mut pools: Vec<&Text> = lane.key.eligible.iter().map(|s| &self.shapes[*s].key.pool).collect();
            pools.sort_unstable();
            pools.dedup();
            unserved += usize::from(pools.is_empty());
            pools.into_iter().for_each(|p| *counted.entry(p.clone()).or_default() += 1);
        }
        let kept = self.invocations.queued_by_pool().filter(|(_, queued)| *queued > 0);
        let kept: BTreeMap<Text, usize> = kept.map(|(name, queued)| (name.clone(), queued)).collect();
        match (unserved, &counted) == (self.unserved, &kept) {
            true => Ok(()),
            false => Err(format!("{counted:?} wait, and {unserved} for nobody: {kept:?}, {}", self.unserved)),
        }
    }

    pub(crate) fn check_lanes(&self) -> Result<(), String> {
        for (task, waiting) in &self.waiting {
            if !self.classes[waiting.class].queued.contains(&task) {
                return Err(format!("task {task:?} is not in its class"));
            }
        }
        for (id, lane) in &self.lanes {
            let tasks = lane.classes.iter().flat_map(|c| &self.classes[*c].queued);
            let queued = tasks.map(|t| self.waiting[*t].invocations.len()).sum::<usize>();
            lane.queue.check(id, &self.pools_of(&lane.key.eligible), &self.invocations)?;
            if lane.classes.is_empty() || queued != lane.queue.len() {
                return Err(format!("lane {:?} has {} tasks, {queued} counted", id.data(), lane.queue.len()));
            }
            if self.lane_by_key.get(&lane.key) != Some(&id) {
                return Err(format!("lane {:?} is not found by its key", id.data()));
            }
            let waits = !lane.queue.is_empty();
            let is_aside = lane.key.only.is_some();
            if self.avoiding.contains(&id) != (waits && !is_aside && !lane.key.avoid.is_empty()) {
                return Err(format!("lane {:?} avoids hosts and isn't listed", id.data()));
            }
            let is_exclusive = waits && !is_aside && lane.key.exclusivity == Exclusivity::Host;
            if self.exclusive.contains(&id) != is_exclusive {
                return Err(format!("lane {:?} is exclusive and isn't listed", id.data()));
            }
            for shape in &lane.key.eligible {
                let shape = self.shapes.get(*shape).ok_or("a lane's shape is gone")?;
                let may_begin = waits && !is_aside && self.has_token(&lane.key.exclusivity, shape.pool);
                if !shape.lanes.contains(&id) || shape.waiting.contains(&id) != may_begin {
                    return Err(format!("shape knows lane {:?} wrongly", id.data()));
                }
            }
        }
        Ok(())
    }
}

/// Puts a lane into a list, or takes it out.
fn put(lanes: &mut BTreeSet<LaneId>, lane: LaneId, is_in: bool) {
    if is_in {
        lanes.insert(lane);
    } else {
        lanes.remove(&lane);
    }
}

/// Puts a lane into a host's list, or takes it out.
fn list(lists: &mut Map<Text, BTreeSet<LaneId>>, host: &Text, lane: LaneId, waits: bool) {
    if waits {
        lists.entry_ref(host).or_default().insert(lane);
    } else if let Some(lanes) = lists.get_mut(host) {
        lanes.remove(&lane);
        if lanes.is_empty() {
            lists.remove(host);
        }
    }
}

impl Lane {
    /// What moving it costs.
    fn weight(&self) -> usize {
        self.classes.len() + self.queue.len()
    }
}
