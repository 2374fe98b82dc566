//! Classes, lanes and shapes: who can serve whom, and in which order tasks wait.
//!
//! A *class* is what matching compares of a task. A *shape* is what classes can see of a worker: the asked
//! properties that it meets. A *lane* is all classes with the same eligible shapes and the same demand; to a worker
//! they are one queue. So a hundred thousand classes that nobody serves are one lane that no worker ever looks at.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use slotmap::{Key as _, SecondaryMap, SlotMap};
use smallvec::SmallVec;

use crate::effect::Refusal;
use crate::ids::{ActionDigest, AtomId, ClassId, DemandId, KindId, LaneId, Map, ShapeId, TaskId, Text};
use crate::properties::{Amounts, Asked, Atom};
use crate::route::{Route, SizeClass};
use crate::shapes::{Kind, KindKey, Shape, ShapeKey};
use crate::task::QueueKey;

/// What matching compares, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub(crate) instance: Text,
    /// Sorted.
    pub(crate) atoms: SmallVec<[AtomId; 8]>,
    pub(crate) demand: DemandId,
    /// `None`: any.
    pub(crate) size_class: Option<u32>,
    pub(crate) pool: Option<Text>,
}

/// Tasks with one set of requirements.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) key: ClassKey,
    pub(crate) lane: LaneId,
    /// The atom under which new shapes find the class; `None` if it asks nothing.
    found_by: Option<AtomId>,
    queue: BTreeMap<QueueKey, TaskId>,
    /// Queued tasks that may not share an execution, by digest. Of each digest only the first is in `queue` too, since
    /// a host runs one of a digest at a time: so a worker never has to look past more tasks than its host runs.
    alone: BTreeMap<(ActionDigest, QueueKey), TaskId>,
    /// Queued and running.
    pub(crate) tasks: usize,
}

/// What is equal for all classes of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LaneKey {
    /// Sorted.
    pub(crate) eligible: SmallVec<[ShapeId; 4]>,
    pub(crate) demand: DemandId,
}

/// Classes that are one queue to every worker.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    pub(crate) key: LaneKey,
    /// Classes with something queued, by their first task.
    heads: BTreeSet<(QueueKey, ClassId)>,
    pub(crate) classes: BTreeSet<ClassId>,
}

/// A vector of `minimum` amounts.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    pub(crate) amounts: Amounts,
    classes: usize,
}

#[derive(Clone, Debug)]
pub(crate) struct AtomInfo {
    pub(crate) atom: Atom,
    classes: usize,
}

/// Bounds of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) classes: usize,
    pub(crate) demands: usize,
}

/// All of it.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) bounds: Bounds,
    pub(crate) classes: SlotMap<ClassId, Class>,
    class_by_key: Map<ClassKey, ClassId>,
    pub(crate) lanes: SlotMap<LaneId, Lane>,
    lane_by_key: Map<LaneKey, LaneId>,
    pub(crate) shapes: SlotMap<ShapeId, Shape>,
    pub(crate) shape_by_key: Map<ShapeKey, ShapeId>,
    pub(crate) kinds: SlotMap<KindId, Kind>,
    pub(crate) kind_by_key: Map<KindKey, KindId>,
    /// Which kinds have an atom, asked or not.
    pub(crate) kinds_with: Map<Atom, BTreeSet<KindId>>,
    pub(crate) atoms: SlotMap<AtomId, AtomInfo>,
    pub(crate) atom_ids: Map<Atom, AtomId>,
    /// Classes by `found_by`.
    pub(crate) classes_asking: SecondaryMap<AtomId, BTreeSet<ClassId>>,
    pub(crate) asking_nothing: BTreeSet<ClassId>,
    pub(crate) demands: SlotMap<DemandId, Demand>,
    demand_ids: Map<Amounts, DemandId>,
    /// Classes without tasks, longest unused first; kept for the next task of their kind.
    unused: VecDeque<ClassId>,
    /// Queued tasks.
    pub(crate) queued: usize,
    /// Look-ups of classes, lanes, hosts and tasks so far: what a step costs, whatever the machine.
    pub(crate) probes: Cell<u64>,
}

/// So many classes without tasks are kept.
const UNUSED_CLASSES: usize = 1024;

/// What changed about kinds when a class asked something new: hosts of these must be looked at again.
#[derive(Debug, Default)]
pub(crate) struct Reshaped {
    pub(crate) kinds: Vec<KindId>,
    pub(crate) demand: Option<DemandId>,
}

impl Index {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            classes: SlotMap::with_key(),
            class_by_key: Map::default(),
            lanes: SlotMap::with_key(),
            lane_by_key: Map::default(),
            shapes: SlotMap::with_key(),
            shape_by_key: Map::default(),
            kinds: SlotMap::with_key(),
            kind_by_key: Map::default(),
            kinds_with: Map::default(),
            atoms: SlotMap::with_key(),
            atom_ids: Map::default(),
            classes_asking: SecondaryMap::new(),
            asking_nothing: BTreeSet::new(),
            demands: SlotMap::with_key(),
            demand_ids: Map::default(),
            unused: VecDeque::new(),
            queued: 0,
            probes: Cell::new(0),
        }
    }

    /// Counts one look-up.
    pub(crate) fn probe(&self) {
        self.probes.set(self.probes.get() + 1);
    }

    // === Classes ===

    /// The class of a task, made if there is none.
    pub(crate) fn class(
        &mut self,
        instance: &Text,
        route: &Route,
        asked: &Asked,
        reshaped: &mut Reshaped,
    ) -> Result<ClassId, Refusal> {
        self.probe();
        if let Some(key) = self.known_key(instance, route, asked)
            && let Some(id) = self.class_by_key.get(&key)
        {
            return Ok(*id);
        }
        self.drop_unused(UNUSED_CLASSES);
        if self.classes.len() >= self.bounds.classes || self.no_room_for(&asked.demand) {
            self.drop_unused(0);
        }
        if self.classes.len() >= self.bounds.classes {
            return Err(Refusal::TooManyClasses(self.classes.len()));
        }
        if self.no_room_for(&asked.demand) {
            return Err(Refusal::TooManyDemands(self.demands.len()));
        }
        Ok(self.new_class(instance, route, asked, reshaped))
    }

    fn no_room_for(&self, demand: &Amounts) -> bool {
        self.demands.len() >= self.bounds.demands && !self.demand_ids.contains_key(demand)
    }

    /// The key, unless it has parts that no class has.
    fn known_key(&self, instance: &Text, route: &Route, asked: &Asked) -> Option<ClassKey> {
        let mut atoms = SmallVec::with_capacity(asked.atoms.len());
        for atom in &asked.atoms {
            atoms.push(*self.atom_ids.get(atom)?);
        }
        let demand = *self.demand_ids.get(&asked.demand)?;
        Some(class_key(instance, route, atoms, demand))
    }

    fn new_class(
        &mut self,
        instance: &Text,
        route: &Route,
        asked: &Asked,
        reshaped: &mut Reshaped,
    ) -> ClassId {
        let atoms =
            asked.atoms.iter().map(|a| self.ask(a, &mut reshaped.kinds)).collect::<SmallVec<[_; 8]>>();
        let demand = self.demand(&asked.demand, reshaped);
        let key = class_key(instance, route, atoms, demand);
        let found_by = key.atoms.iter().copied().min_by_key(|a| self.kinds_having(*a));
        let lane_key = LaneKey { eligible: self.eligible(&key), demand };
        let lane = self.lane(lane_key);
        let class = Class {
            key: key.clone(),
            lane,
            found_by,
            queue: BTreeMap::new(),
            alone: BTreeMap::new(),
            tasks: 0,
        };
        let id = self.classes.insert(class);
        self.class_by_key.insert(key, id);
        self.lanes[lane].classes.insert(id);
        match found_by {
            Some(atom) => _ = self.classes_asking.entry(atom).map(|e| e.or_default().insert(id)),
            None => _ = self.asking_nothing.insert(id),
        }
        self.unused.push_back(id);
        id
    }

    fn kinds_having(&self, atom: AtomId) -> usize {
        self.kinds_with.get(&self.atoms[atom].atom).map_or(0, BTreeSet::len)
    }

    fn demand(&mut self, amounts: &Amounts, reshaped: &mut Reshaped) -> DemandId {
        let id = *self.demand_ids.entry(amounts.clone()).or_insert_with(|| {
            let id = self.demands.insert(Demand { amounts: amounts.clone(), classes: 0 });
            reshaped.demand = Some(id);
            id
        });
        self.demands[id].classes += 1;
        id
    }

    /// Interns an atom for a class. The first to ask for it splits the shapes of those who have it.
    fn ask(&mut self, atom: &Atom, reshaped: &mut Vec<KindId>) -> AtomId {
        if let Some(id) = self.atom_ids.get(atom) {
            self.atoms[*id].classes += 1;
            return *id;
        }
        let id = self.atoms.insert(AtomInfo { atom: atom.clone(), classes: 1 });
        self.atom_ids.insert(atom.clone(), id);
        let kinds: Vec<KindId> = self.kinds_with.get(atom).into_iter().flatten().copied().collect();
        self.split(id, &kinds);
        reshaped.extend(kinds);
        id
    }

    /// Drops classes without tasks until at most `keep` are left.
    fn drop_unused(&mut self, keep: usize) {
        while self.unused.len() > keep {
            let Some(id) = self.unused.pop_front() else { return };
            // A class is noted each time it falls out of use, and may be in use again.
            if self.classes.get(id).is_some_and(|c| c.tasks == 0) {
                self.drop_class(id);
            }
        }
    }

    fn drop_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.remove(id) else { return };
        self.class_by_key.remove(&class.key);
        self.leave_lane(id, class.lane);
        match class.found_by {
            Some(atom) => _ = self.classes_asking.get_mut(atom).map(|c| c.remove(&id)),
            None => _ = self.asking_nothing.remove(&id),
        }
        let demand = &mut self.demands[class.key.demand];
        demand.classes -= 1;
        if demand.classes == 0
            && let Some(gone) = self.demands.remove(class.key.demand)
        {
            self.demand_ids.remove(&gone.amounts);
        }
        for atom in class.key.atoms {
            let info = &mut self.atoms[atom];
            info.classes -= 1;
            // One that workers have stays: shapes are told apart by it. Their number is bounded by what workers have.
            if info.classes == 0 && !self.kinds_with.contains_key(&info.atom) {
                self.atom_ids.remove(&info.atom);
                self.atoms.remove(atom);
                self.classes_asking.remove(atom);
            }
        }
    }

    // === Lanes ===

    fn lane(&mut self, key: LaneKey) -> LaneId {
        if let Some(id) = self.lane_by_key.get(&key) {
            return *id;
        }
        let id =
            self.lanes.insert(Lane { key: key.clone(), heads: BTreeSet::new(), classes: BTreeSet::new() });
        for shape in &key.eligible {
            self.shapes[*shape].lanes.insert(id);
        }
        self.lane_by_key.insert(key, id);
        id
    }

    fn leave_lane(&mut self, class: ClassId, lane: LaneId) {
        self.lanes[lane].classes.remove(&class);
        if self.lanes[lane].classes.is_empty() {
            self.drop_lane(lane);
        }
    }

    fn drop_lane(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.remove(id) else { return };
        self.lane_by_key.remove(&lane.key);
        for shape in &lane.key.eligible {
            if let Some(shape) = self.shapes.get_mut(*shape) {
                shape.lanes.remove(&id);
                shape.waiting.remove(&id);
            }
        }
    }

    /// Puts a class where its eligible shapes say.
    pub(crate) fn move_class(&mut self, id: ClassId, eligible: SmallVec<[ShapeId; 4]>) {
        let class = &self.classes[id];
        let (old, head) = (class.lane, class.queue.keys().next().copied());
        let new = self.lane(LaneKey { eligible, demand: class.key.demand });
        if new == old {
            return;
        }
        if let Some(head) = head {
            self.set_head(old, id, Some(head), None);
            self.set_head(new, id, None, Some(head));
        }
        self.leave_lane(id, old);
        self.lanes[new].classes.insert(id);
        self.classes[id].lane = new;
    }

    /// Gives a whole lane other eligible shapes: a new key, or its classes go to the lane that has that key.
    pub(crate) fn rekey_lane(&mut self, id: LaneId, eligible: SmallVec<[ShapeId; 4]>) {
        let key = LaneKey { eligible, demand: self.lanes[id].key.demand };
        if self.lane_by_key.contains_key(&key) {
            let classes: Vec<ClassId> = self.lanes[id].classes.iter().copied().collect();
            for class in classes {
                self.move_class(class, key.eligible.clone());
            }
            return;
        }
        let lane = &mut self.lanes[id];
        let (old, waiting) = (std::mem::replace(&mut lane.key, key.clone()), !lane.heads.is_empty());
        self.lane_by_key.remove(&old);
        for shape in old.eligible {
            if let Some(shape) = self.shapes.get_mut(shape) {
                shape.lanes.remove(&id);
                shape.waiting.remove(&id);
            }
        }
        for shape in &key.eligible {
            let shape = &mut self.shapes[*shape];
            shape.lanes.insert(id);
            if waiting {
                shape.waiting.insert(id);
            }
        }
        self.lane_by_key.insert(key, id);
    }

    fn set_head(&mut self, lane: LaneId, class: ClassId, old: Option<QueueKey>, new: Option<QueueKey>) {
        if old == new {
            return;
        }
        let lane_id = lane;
        let lane = &mut self.lanes[lane];
        let was_waiting = !lane.heads.is_empty();
        if let Some(old) = old {
            lane.heads.remove(&(old, class));
        }
        if let Some(new) = new {
            lane.heads.insert((new, class));
        }
        let is_waiting = !lane.heads.is_empty();
        if was_waiting != is_waiting {
            for shape in &lane.key.eligible {
                let waiting = &mut self.shapes[*shape].waiting;
                if is_waiting {
                    waiting.insert(lane_id)
                } else {
                    waiting.remove(&lane_id)
                };
            }
        }
    }

    // === Queues ===

    /// The class has one task more.
    pub(crate) fn use_class(&mut self, id: ClassId) {
        self.classes[id].tasks += 1;
    }

    /// The class has one task less.
    pub(crate) fn release_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.tasks -= 1;
        if class.tasks == 0 {
            self.unused.push_back(id);
            self.drop_unused(UNUSED_CLASSES);
        }
    }

    /// Queues a task. `alone` is the digest of one that may not share its execution.
    pub(crate) fn push(&mut self, class: ClassId, key: QueueKey, task: TaskId, alone: Option<&ActionDigest>) {
        self.queued += 1;
        if let Some(digest) = alone {
            let first = self.first_alone(class, digest);
            self.classes[class].alone.insert((digest.clone(), key), task);
            match first {
                Some((first, _)) if first < key => return,
                Some((first, _)) => self.unqueue(class, first),
                None => {}
            }
        }
        self.queue(class, key, task);
    }

    /// Takes a task out of the queue.
    pub(crate) fn remove(&mut self, class: ClassId, key: QueueKey, alone: Option<&ActionDigest>) {
        self.queued -= 1;
        let Some(digest) = alone else { return self.unqueue(class, key) };
        self.classes[class].alone.remove(&(digest.clone(), key));
        if self.classes[class].queue.contains_key(&key) {
            self.unqueue(class, key);
            if let Some((next, task)) = self.first_alone(class, digest) {
                self.queue(class, next, task);
            }
        }
    }

    fn first_alone(&self, class: ClassId, digest: &ActionDigest) -> Option<(QueueKey, TaskId)> {
        let from = (digest.clone(), QueueKey { score: i64::MIN, sequence: 0 });
        let (key, task) = self.classes[class].alone.range(from..).next()?;
        (key.0 == *digest).then_some((key.1, *task))
    }

    fn queue(&mut self, id: ClassId, key: QueueKey, task: TaskId) {
        let class = &mut self.classes[id];
        let old = class.queue.keys().next().copied();
        class.queue.insert(key, task);
        let new = class.queue.keys().next().copied();
        let lane = class.lane;
        self.set_head(lane, id, old, new);
    }

    fn unqueue(&mut self, id: ClassId, key: QueueKey) {
        let class = &mut self.classes[id];
        let old = class.queue.keys().next().copied();
        class.queue.remove(&key);
        let new = class.queue.keys().next().copied();
        let lane = class.lane;
        self.set_head(lane, id, old, new);
    }

    /// The first queued task of a lane that `takes` accepts, looking at no more than `at_most`.
    pub(crate) fn first(
        &self,
        lane: LaneId,
        at_most: usize,
        mut takes: impl FnMut(TaskId) -> bool,
    ) -> Option<(QueueKey, TaskId)> {
        let mut best: Option<(QueueKey, TaskId)> = None;
        let mut left = at_most;
        for (head, class) in &self.lanes[lane].heads {
            if left == 0 || best.is_some_and(|(key, _)| key < *head) {
                break;
            }
            for (key, task) in &self.classes[*class].queue {
                self.probe();
                if left == 0 || best.is_some_and(|(best, _)| best < *key) {
                    break;
                }
                left -= 1;
                if takes(*task) {
                    best = Some((*key, *task));
                    break;
                }
            }
        }
        best
    }

    /// Looks at everything: the invariants of the index. Slow.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut queued = 0;
        for (id, class) in &self.classes {
            let mut last = None;
            let hidden =
                class.alone.keys().filter(|(digest, _)| last.replace(digest) == Some(digest)).count();
            queued += class.queue.len() + hidden;
            let lane = self.lanes.get(class.lane).ok_or("a class's lane is gone")?;
            if lane.key.demand != class.key.demand || lane.key.eligible != self.eligible(&class.key) {
                return Err(format!("class {:?} is in the wrong lane", id.data()));
            }
            if !lane.classes.contains(&id) {
                return Err(format!("lane lacks its class {:?}", id.data()));
            }
            let head = class.queue.keys().next().map(|k| (*k, id));
            if lane.heads.iter().find(|(_, c)| *c == id) != head.as_ref() {
                return Err(format!("class {:?} stands wrong in its lane", id.data()));
            }
        }
        if queued != self.queued {
            return Err(format!("{queued} tasks in queues, {} counted", self.queued));
        }
        for (id, lane) in &self.lanes {
            for shape in &lane.key.eligible {
                let shape = self.shapes.get(*shape).ok_or("a lane's shape is gone")?;
                if !shape.lanes.contains(&id) || shape.waiting.contains(&id) == lane.heads.is_empty() {
                    return Err(format!("shape knows lane {:?} wrongly", id.data()));
                }
            }
        }
        self.check_shapes()
    }
}

impl Lane {
    /// Something waits here.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.heads.is_empty()
    }
}

fn class_key(instance: &Text, route: &Route, mut atoms: SmallVec<[AtomId; 8]>, demand: DemandId) -> ClassKey {
    atoms.sort_unstable();
    let size_class = match route.size {
        SizeClass::Exactly(n) => Some(n),
        SizeClass::Learned | SizeClass::Smallest | SizeClass::Largest => None,
    };
    ClassKey { instance: instance.clone(), atoms, demand, size_class, pool: route.pool.clone() }
}
