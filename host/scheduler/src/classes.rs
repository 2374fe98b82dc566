//! Classes, and the index that says who can serve whom.
//!
//! A *class* is what matching compares of a task. A *shape* is what classes can see of a worker: the asked
//! properties that it meets. A *lane* is all classes with the same eligible shapes, the same demand, and the same hosts
//! to avoid; to a worker they are one queue.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slotmap::{Key as _, SecondaryMap, SlotMap};
use smallvec::SmallVec;

use crate::attempts::Avoid;
use crate::declared::DeclaredPool;
use crate::effect::Refusal;
use crate::fairness::Invocations;
use crate::ids::{AtomId, ClassId, DemandId, KindId, LaneId, Map, ShapeId, TaskId, Text};
use crate::lanes::{Lane, LaneKey, Waiting};
use crate::properties::{Amounts, Asked, Atom};
use crate::route::{Exclusivity, Route, SizeClass};
use crate::shapes::{Kind, KindKey, Shape, ShapeKey, is_path_prefix};
use crate::together::{Group, GroupKey};
use crate::workers::fits;

/// What matching compares, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ClassKey {
    pub(crate) instance: Text,
    /// Sorted.
    pub(crate) atoms: SmallVec<[AtomId; 4]>,
    pub(crate) demand: DemandId,
    pub(crate) size: SizeClass,
    pub(crate) pool: Option<Text>,
    pub(crate) exclusivity: Exclusivity,
    /// Execution strategies that may be used, most wanted first; `None`: any.
    pub(crate) strategies: Option<Vec<Text>>,
    /// Hosts where its tasks have failed.
    pub(crate) avoid: Avoid,
    /// Its tasks wait for this host, for a while.
    pub(crate) only: Option<Text>,
}

impl ClassKey {
    /// Which workers are meant depends on which there are.
    pub(crate) fn is_relative(&self) -> bool {
        self.size.is_relative() || self.strategies.is_some()
    }
}

/// Tasks with one set of requirements.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    pub(crate) key: Arc<ClassKey>,
    /// Workers of no other prefix serve it. It follows from the key and from who is there.
    pub(crate) prefix: Option<Text>,
    pub(crate) lane: LaneId,
    /// The atom under which new shapes find the class; `None` if it asks nothing.
    found_by: Option<AtomId>,
    /// Its tasks that wait.
    pub(crate) queued: BTreeSet<TaskId>,
    /// Its tasks, queued and running.
    pub(crate) tasks: usize,
    /// Its place in `Index::unused` while it has no tasks.
    unused_since: Option<u64>,
}

/// Vectors of `minimum` amounts.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// What a host must have in all.
    pub(crate) asked: Amounts,
    /// What is set aside there, as far as the host has as much in all.
    pub(crate) packed: Amounts,
    /// The smaller of the two for each key: less than that is never enough.
    pub(crate) least: Amounts,
    classes: usize,
}

impl Demand {
    pub(crate) fn new(asked: &Asked) -> Self {
        let (asked, packed) = amounts(asked);
        let least = asked.iter().zip(&packed).map(|(a, b)| *a.min(b)).collect();
        Self { asked, packed, least, classes: 0 }
    }

    /// What it takes from a host with so much in all.
    pub(crate) fn taken(&self, totals: &Amounts) -> Amounts {
        self.packed.iter().zip(totals).map(|(packed, total)| *packed.min(total)).collect()
    }

    /// A host with so much in all has enough of it left.
    pub(crate) fn fits(&self, free: &Amounts, totals: &Amounts) -> bool {
        fits(&self.asked, totals)
            && self
                .packed
                .iter()
                .zip(free)
                .zip(totals)
                .all(|((packed, free), total)| packed.min(total) <= free)
    }
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
    bounds: Bounds,
    /// Pools of the operator's, whose workers may all be gone now.
    pub(crate) declared: Arc<[DeclaredPool]>,
    pub(crate) classes: SlotMap<ClassId, Class>,
    class_by_key: Map<Arc<ClassKey>, ClassId>,
    pub(crate) lanes: SlotMap<LaneId, Lane>,
    pub(crate) lane_by_key: Map<LaneKey, LaneId>,
    /// Lanes whose tasks wait for one host, by its name, with something queued: the side queue of that host.
    pub(crate) aside: Map<Text, BTreeSet<LaneId>>,
    /// Lanes that avoid hosts, with something queued.
    pub(crate) avoiding: BTreeSet<LaneId>,
    /// Lanes of exclusive tasks, with something queued.
    pub(crate) exclusive: BTreeSet<LaneId>,
    /// Classes that mean a size or a strategy relative to what there is.
    pub(crate) relative: BTreeSet<ClassId>,
    /// Groups within pools or the cluster.
    pub(crate) groups: BTreeMap<GroupKey, Group>,
    /// Queued tasks.
    pub(crate) waiting: SecondaryMap<TaskId, Waiting>,
    /// How many of them no worker could run that is known.
    pub(crate) unserved: usize,
    /// Who the tasks are for, and what each has.
    pub(crate) invocations: Invocations,
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
    demand_ids: Map<(Amounts, Amounts), DemandId>,
    /// Classes without tasks, longest unused first; kept for the next task of their kind.
    unused: BTreeMap<u64, ClassId>,
    /// Counts how often a class fell out of use.
    disuses: u64,
    /// Look-ups of classes, lanes, hosts and tasks so far: what a step costs, whatever the machine.
    pub(crate) probes: Cell<u64>,
}

/// So many classes without tasks are kept.
const UNUSED_CLASSES: usize = 1024;

impl Index {
    pub(crate) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            declared: Arc::default(),
            classes: SlotMap::with_key(),
            class_by_key: Map::default(),
            lanes: SlotMap::with_key(),
            lane_by_key: Map::default(),
            aside: Map::default(),
            avoiding: BTreeSet::new(),
            exclusive: BTreeSet::new(),
            relative: BTreeSet::new(),
            groups: BTreeMap::new(),
            waiting: SecondaryMap::new(),
            unserved: 0,
            invocations: Invocations::default(),
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
            unused: BTreeMap::new(),
            disuses: 0,
            probes: Cell::new(0),
        }
    }

    /// Counts one look-up.
    pub(crate) fn probe(&self) {
        self.probes.set(self.probes.get() + 1);
    }

    // === Classes ===

    /// The class of a task, made if there is none. Kinds whose shape that changes are added to `reshaped`.
    pub(crate) fn class(
        &mut self,
        instance: &Text,
        route: &Route,
        asked: &Asked,
        reshaped: &mut Vec<KindId>,
    ) -> Result<ClassId, Refusal> {
        self.probe();
        if let Some(key) = self.known_key(instance, route, asked)
            && let Some(id) = self.class_by_key.get(&key)
        {
            return Ok(*id);
        }
        self.make_room(asked)?;
        let mut atoms: SmallVec<[AtomId; 4]> = asked.atoms.iter().map(|a| self.ask(a, reshaped)).collect();
        atoms.sort_unstable();
        let demand = self.demand(asked);
        Ok(self.new_class(class_key(instance, route, atoms, demand)))
    }

    /// The class with the same requirements for tasks that have failed on these hosts, made if there is none. It is
    /// made even where bounds are reached: a task that was accepted isn't lost.
    pub(crate) fn class_avoiding(&mut self, id: ClassId, avoid: Avoid) -> ClassId {
        self.class_of(ClassKey { avoid, only: None, ..(*self.classes[id].key).clone() })
    }

    /// The class with the same requirements for tasks that wait for a host, or for any.
    pub(crate) fn class_only(&mut self, id: ClassId, only: Option<Text>) -> ClassId {
        self.class_of(ClassKey { only, ..(*self.classes[id].key).clone() })
    }

    fn class_of(&mut self, key: ClassKey) -> ClassId {
        self.class_by_key.get(&key).copied().unwrap_or_else(|| self.new_class(key))
    }

    /// The class of a task, if there is one.
    pub(crate) fn known_class(&self, instance: &Text, route: &Route, asked: &Asked) -> Option<ClassId> {
        self.class_by_key.get(&self.known_key(instance, route, asked)?).copied()
    }

    fn make_room(&mut self, asked: &Asked) -> Result<(), Refusal> {
        // Whoever asks for no amount is not refused because others ask for too many.
        let asks_some = asked.demand.iter().any(|amount| *amount > 0);
        let no_room = |index: &Self| {
            let is_full = index.demands.len() >= index.bounds.demands;
            asks_some && is_full && !index.demand_ids.contains_key(&amounts(asked))
        };
        self.drop_unused(UNUSED_CLASSES);
        if self.classes.len() >= self.bounds.classes || no_room(self) {
            self.drop_unused(0);
        }
        if self.classes.len() >= self.bounds.classes {
            Err(Refusal::TooManyClasses(self.classes.len()))
        } else if no_room(self) {
            Err(Refusal::TooManyDemands(self.demands.len()))
        } else {
            Ok(())
        }
    }

    /// The key, unless it has parts that no class has.
    fn known_key(&self, instance: &Text, route: &Route, asked: &Asked) -> Option<ClassKey> {
        let ids = asked.atoms.iter().map(|a| self.atom_ids.get(a).copied());
        let mut atoms = ids.collect::<Option<SmallVec<[AtomId; 4]>>>()?;
        atoms.sort_unstable();
        let demand = *self.demand_ids.get(&amounts(asked))?;
        Some(class_key(instance, route, atoms, demand))
    }

    fn new_class(&mut self, key: ClassKey) -> ClassId {
        let found_by =
            key.atoms.iter().copied().min_by_key(|a| self.kinds_having(*a).map_or(0, BTreeSet::len));
        let prefix = self.prefix_for(&key);
        let lane = self.lane(self.lane_key(&key, prefix.as_ref()));
        for atom in &key.atoms {
            self.atoms[*atom].classes += 1;
        }
        self.demands[key.demand].classes += 1;
        let key = Arc::new(key);
        let id = self.classes.insert(Class {
            key: key.clone(),
            prefix,
            lane,
            found_by,
            queued: BTreeSet::new(),
            tasks: 0,
            unused_since: None,
        });
        self.class_by_key.insert(key, id);
        self.lanes[lane].classes.insert(id);
        if self.classes[id].key.is_relative() {
            self.relative.insert(id);
        }
        match found_by {
            Some(atom) => _ = self.classes_asking.entry(atom).map(|e| e.or_default().insert(id)),
            None => _ = self.asking_nothing.insert(id),
        }
        self.note_unused(id);
        id
    }

    fn lane_key(&self, key: &ClassKey, prefix: Option<&Text>) -> LaneKey {
        LaneKey {
            eligible: self.eligible(key, prefix),
            demand: key.demand,
            exclusivity: key.exclusivity.clone(),
            avoid: key.avoid.clone(),
            only: key.only.clone(),
        }
    }

    /// The prefix that workers must have to serve a class, if it asks for a whole property list.
    pub(crate) fn prefix_for(&self, class: &ClassKey) -> Option<Text> {
        let atom = class.atoms.iter().map(|a| &self.atoms[*a].atom);
        self.longest_prefix(atom, &class.instance)
    }

    /// Of the workers that have a whole property list, those with the longest prefix are meant.
    pub(crate) fn longest_prefix<'a>(
        &self,
        atoms: impl IntoIterator<Item = &'a Atom>,
        instance: &str,
    ) -> Option<Text> {
        let whole = atoms.into_iter().find(|a| matches!(a, Atom::Whole(_)))?;
        let prefixes = self.kinds_with.get(whole)?.iter().map(|k| &self.kinds[*k].key.prefix);
        prefixes.filter(|p| is_path_prefix(p, instance)).max_by_key(|p| p.len()).cloned()
    }

    /// Kinds that have an atom.
    pub(crate) fn kinds_having(&self, atom: AtomId) -> Option<&BTreeSet<KindId>> {
        self.kinds_with.get(&self.atoms[atom].atom)
    }

    fn demand(&mut self, asked: &Asked) -> DemandId {
        let demands = &mut self.demands;
        *self.demand_ids.entry(amounts(asked)).or_insert_with(|| demands.insert(Demand::new(asked)))
    }

    /// Interns an atom for a class. The first to ask for it splits the shapes of those who have it.
    fn ask(&mut self, atom: &Atom, reshaped: &mut Vec<KindId>) -> AtomId {
        if let Some(id) = self.atom_ids.get(atom) {
            return *id;
        }
        let id = self.atoms.insert(AtomInfo { atom: atom.clone(), classes: 0 });
        self.atom_ids.insert(atom.clone(), id);
        let kinds: Vec<KindId> = self.kinds_with.get(atom).into_iter().flatten().copied().collect();
        self.split(id, &kinds);
        reshaped.extend(kinds);
        id
    }

    /// Forgets an atom that no class asks for and no worker has. One that workers have stays: shapes are told apart by
    /// it, and their number is bounded by what workers have.
    pub(crate) fn release_atom(&mut self, atom: &Atom) {
        let Some(id) = self.atom_ids.get(atom).copied() else { return };
        if self.atoms[id].classes == 0 && !self.kinds_with.contains_key(atom) {
            self.atom_ids.remove(atom);
            self.atoms.remove(id);
            self.classes_asking.remove(id);
        }
    }

    // === Use ===

    /// The class has one task more.
    pub(crate) fn use_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.tasks += 1;
        if let Some(since) = class.unused_since.take() {
            self.unused.remove(&since);
        }
    }

    /// The class has one task less.
    pub(crate) fn release_class(&mut self, id: ClassId) {
        let class = &mut self.classes[id];
        class.tasks -= 1;
        if class.tasks == 0 {
            self.note_unused(id);
            self.drop_unused(UNUSED_CLASSES);
        }
    }

    fn note_unused(&mut self, id: ClassId) {
        self.disuses += 1;
        self.classes[id].unused_since = Some(self.disuses);
        self.unused.insert(self.disuses, id);
    }

    /// Drops classes without tasks until at most `keep` are left.
    fn drop_unused(&mut self, keep: usize) {
        while self.unused.len() > keep {
            let Some((_, id)) = self.unused.pop_first() else { return };
            self.drop_class(id);
        }
    }

    fn drop_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.remove(id) else { return };
        self.class_by_key.remove(&class.key);
        self.relative.remove(&id);
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
            self.demand_ids.remove(&(gone.asked, gone.packed));
        }
        for id in class.key.atoms.iter().copied() {
            self.atoms[id].classes -= 1;
            let atom = self.atoms[id].atom.clone();
            self.release_atom(&atom);
        }
    }

    /// Looks at everything: the invariants of the index. Slow.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (id, class) in &self.classes {
            let lane = self.lanes.get(class.lane).ok_or("a class's lane is gone")?;
            if class.prefix != self.prefix_for(&class.key) {
                return Err(format!("class {:?} is for the wrong prefix", id.data()));
            }
            let key = self.lane_key(&class.key, class.prefix.as_ref());
            if lane.key != key || !lane.classes.contains(&id) {
                return Err(format!("class {:?} is in the wrong lane", id.data()));
            }
            if class.unused_since.is_some() != (class.tasks == 0) {
                return Err(format!("class {:?} has {} tasks and is listed wrongly", id.data(), class.tasks));
            }
        }
        let mut asking: BTreeMap<AtomId, usize> = BTreeMap::new();
        let mut demanding: BTreeMap<DemandId, usize> = BTreeMap::new();
        for class in self.classes.values() {
            class.key.atoms.iter().for_each(|a| *asking.entry(*a).or_default() += 1);
            *demanding.entry(class.key.demand).or_default() += 1;
        }
        for (id, info) in &self.atoms {
            let asking = asking.get(&id).copied().unwrap_or(0);
            if info.classes != asking || (asking == 0 && !self.kinds_with.contains_key(&info.atom)) {
                return Err(format!("{asking} classes ask for {:?}, {} counted", info.atom, info.classes));
            }
        }
        for (id, demand) in &self.demands {
            if demanding.get(&id) != Some(&demand.classes) {
                return Err(format!("{} classes should ask for {:?}", demand.classes, demand.asked));
            }
        }
        self.check_lanes()?;
        self.check_shapes()
    }
}

fn class_key(instance: &Text, route: &Route, atoms: SmallVec<[AtomId; 4]>, demand: DemandId) -> ClassKey {
    ClassKey {
        instance: instance.clone(),
        atoms,
        demand,
        size: route.size,
        pool: route.pool.clone(),
        exclusivity: route.exclusivity.clone(),
        strategies: route.strategies.clone(),
        avoid: Avoid::default(),
        only: None,
    }
}

/// What is asked of a host, and what is set aside there.
fn amounts(asked: &Asked) -> (Amounts, Amounts) {
    (asked.demand.clone(), asked.measured.clone().unwrap_or_else(|| asked.demand.clone()))
}
