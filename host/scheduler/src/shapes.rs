//! Worker kinds and shapes, and which classes they may serve.
//!
//! A *kind* is all workers that advertise the same; a *shape* is all kinds that classes can't tell apart. When a class
//! asks for a property nobody asked for before, the kinds that have it move to another shape.

use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use crate::classes::{ClassKey, Index};
use crate::ids::{AtomId, ClassId, HostId, KindId, LaneId, PoolId, ShapeId, TaskId, Text};
use crate::lanes::Eligible;
use crate::properties::{Amounts, Atom};
use crate::route::{Exclusivity, SizeClass};
use crate::workers::fits;

/// What workers of a kind advertise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct KindKey {
    pub(crate) prefix: Text,
    /// Sorted.
    pub(crate) atoms: Vec<Atom>,
    pub(crate) size_class: u32,
    pub(crate) pool: Text,
    /// Exclusive actions may take the host for themselves.
    pub(crate) admits_exclusive: bool,
    /// Execution strategies that they offer, sorted.
    pub(crate) strategies: Strategies,
}

/// Names of execution strategies.
pub(crate) type Strategies = SmallVec<[Text; 2]>;

#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) key: KindKey,
    pub(crate) shape: ShapeId,
    /// Hosts with workers of this kind.
    pub(crate) hosts: BTreeSet<HostId>,
    /// What such hosts have in all, and how many have as much.
    totals: BTreeMap<Amounts, usize>,
    /// The same, of those hosts where not all such workers are drained.
    takers: BTreeMap<Amounts, usize>,
}

impl Kind {
    /// So many hosts have such a worker that is not drained.
    pub(crate) fn takers(&self) -> usize {
        self.takers.values().sum()
    }

    /// Some host of these has as much in all, and such a worker that is not drained.
    pub(crate) fn takes(&self, asked: &Amounts) -> bool {
        self.takers.keys().any(|totals| fits(asked, totals))
    }

    /// Some host of these has as much in all.
    pub(crate) fn has_in_all(&self, asked: &Amounts) -> bool {
        self.totals.keys().any(|totals| fits(asked, totals))
    }
}

/// What classes can see of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ShapeKey {
    pub(crate) prefix: Text,
    /// Sorted.
    pub(crate) atoms: SmallVec<[AtomId; 4]>,
    pub(crate) size_class: u32,
    pub(crate) pool: Text,
    /// Exclusive actions may take the host for themselves.
    pub(crate) admits_exclusive: bool,
    /// Execution strategies that they offer, sorted.
    pub(crate) strategies: Strategies,
}

#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) key: ShapeKey,
    /// That of the key.
    pub(crate) pool: PoolId,
    pub(crate) kinds: BTreeSet<KindId>,
    /// Lanes that it may serve.
    pub(crate) lanes: BTreeSet<LaneId>,
    /// Those of them where something waits.
    pub(crate) waiting: BTreeSet<LaneId>,
}

impl Index {
    /// The kind of a worker, made if there is none.
    pub(crate) fn kind(&mut self, key: KindKey) -> KindId {
        if let Some(id) = self.kind_by_key.get(&key) {
            return *id;
        }
        let shape_key = ShapeKey {
            prefix: key.prefix.clone(),
            atoms: self.asked_of(&key),
            size_class: key.size_class,
            pool: key.pool.clone(),
            admits_exclusive: key.admits_exclusive,
            strategies: key.strategies.clone(),
        };
        let shape = match self.shape_by_key.get(&shape_key) {
            Some(id) => *id,
            None => self.new_shape(shape_key),
        };
        let kind = Kind {
            key: key.clone(),
            shape,
            hosts: BTreeSet::new(),
            totals: BTreeMap::new(),
            takers: BTreeMap::new(),
        };
        let id = self.kinds.insert(kind);
        for atom in &key.atoms {
            self.kinds_with.entry_ref(atom).or_default().insert(id);
        }
        self.shapes[shape].kinds.insert(id);
        self.refresh_prefixes(&key.atoms);
        self.kind_by_key.insert(key, id);
        id
    }

    /// Queued tasks that ask for the whole property list among these atoms, in order.
    pub(crate) fn waiting_for_whole(&self, atoms: &[Atom]) -> Vec<TaskId> {
        let whole = atoms.iter().find(|a| matches!(a, Atom::Whole(_)));
        let atom = whole.and_then(|a| self.atom_ids.get(a));
        let classes = atom.and_then(|a| self.classes_asking.get(*a)).into_iter().flatten();
        self.waiting_of(&classes.copied().collect::<Vec<_>>())
    }

    /// Workers with these atoms have come or gone: classes that ask for a whole property list may be for others now.
    fn refresh_prefixes(&mut self, atoms: &[Atom]) {
        let whole = atoms.iter().find(|a| matches!(a, Atom::Whole(_)));
        let Some(atom) = whole.and_then(|a| self.atom_ids.get(a)) else { return };
        let Some(classes) = self.classes_asking.get(*atom) else { return };
        for id in classes.clone() {
            self.probe();
            let class = &self.classes[id];
            let prefix = self.prefix_for(&class.key);
            if prefix == class.prefix {
                continue;
            }
            let eligible = self.eligible(&class.key, prefix.as_ref());
            let from = class.lane;
            self.classes[id].prefix = prefix;
            if eligible != self.lanes[from].key.eligible {
                self.split_lane(from, &[id], eligible);
            }
        }
    }

    /// Workers have come or gone: others may be meant now. `true`: they are.
    fn refresh_meant(&mut self, id: ClassId) -> bool {
        self.probe();
        let class = &self.classes[id];
        let (lane, eligible) = (class.lane, self.eligible(&class.key, class.prefix.as_ref()));
        let differs = eligible != self.lanes[lane].key.eligible;
        if differs {
            self.split_lane(lane, &[id], eligible);
        }
        differs
    }

    /// Hosts of a kind have so much in all now, one more or one less. Returned: classes for which other workers are meant
    /// since.
    pub(crate) fn count_totals(&mut self, kind: KindId, totals: &Amounts, comes: bool) -> Vec<ClassId> {
        let Some(kind) = self.kinds.get_mut(kind) else { return Vec::new() };
        let is_news = count(&mut kind.totals, totals, comes);
        if is_news { self.refresh_relative() } else { Vec::new() }
    }

    /// The same, of hosts where not all workers of that kind are drained.
    pub(crate) fn count_takers(&mut self, kind: KindId, totals: &Amounts, comes: bool) -> Vec<ClassId> {
        let Some(kind) = self.kinds.get_mut(kind) else { return Vec::new() };
        let (is_news, shape) = (count(&mut kind.takers, totals, comes), kind.shape);
        let shape = &self.shapes[shape].key;
        if !is_news || shape.strategies.is_empty() {
            return Vec::new();
        }
        let concerned = |id: &ClassId| {
            let class = &self.classes[*id];
            class.key.strategies.is_some() && may_serve(shape, &class.key, class.prefix.as_ref())
        };
        let concerned: Vec<ClassId> = self.relative.iter().copied().filter(concerned).collect();
        concerned.into_iter().filter(|class| self.refresh_meant(*class)).collect()
    }

    /// Returned: classes for which other workers are meant now.
    pub(crate) fn refresh_relative(&mut self) -> Vec<ClassId> {
        let relative: Vec<ClassId> = self.relative.iter().copied().collect();
        relative.into_iter().filter(|class| self.refresh_meant(*class)).collect()
    }

    /// Queued tasks of these classes, in order.
    pub(crate) fn waiting_of(&self, classes: &[ClassId]) -> Vec<TaskId> {
        let classes = classes.iter().filter_map(|c| self.classes.get(*c));
        let tasks = classes.flat_map(|c| &c.queued);
        let mut tasks: Vec<_> = tasks.map(|t| (self.waiting[*t].key, *t)).collect();
        tasks.sort_unstable();
        tasks.into_iter().map(|(_, t)| t).collect()
    }

    /// The atoms of a kind that classes ask for, sorted.
    fn asked_of(&self, kind: &KindKey) -> SmallVec<[AtomId; 4]> {
        let mut atoms: SmallVec<[AtomId; 4]> =
            kind.atoms.iter().filter_map(|a| self.atom_ids.get(a).copied()).collect();
        atoms.sort_unstable();
        atoms
    }

    /// Forgets a kind that has no workers. Returned: classes for which other workers are meant now.
    pub(crate) fn drop_kind(&mut self, id: KindId) -> Vec<ClassId> {
        let Some(kind) = self.kinds.remove(id) else { return Vec::new() };
        self.kind_by_key.remove(&kind.key);
        let resized = self.leave_shape(id, kind.shape);
        for atom in &kind.key.atoms {
            let Some(kinds) = self.kinds_with.get_mut(atom) else { continue };
            kinds.remove(&id);
            if kinds.is_empty() {
                self.kinds_with.remove(atom);
                self.release_atom(atom);
            }
        }
        self.refresh_prefixes(&kind.key.atoms);
        for class in &resized {
            self.refresh_meant(*class);
        }
        resized
    }

    /// Returned: classes that nobody serves any more and for which others may be meant then.
    fn leave_shape(&mut self, kind: KindId, id: ShapeId) -> Vec<ClassId> {
        let shape = &mut self.shapes[id];
        shape.kinds.remove(&kind);
        if !shape.kinds.is_empty() {
            return Vec::new();
        }
        let lanes = shape.lanes.clone();
        let left = lanes.iter().map(|lane| &self.lanes[*lane]).filter(|lane| lane.key.eligible.len() == 1);
        let resized = left.flat_map(|lane| &lane.classes);
        let resized = resized.filter(|c| self.classes[**c].key.is_relative()).copied().collect();
        for lane in lanes {
            // One that became part of another has gone.
            if let Some(lane_now) = self.lanes.get(lane) {
                let without = lane_now.key.eligible.iter().copied().filter(|s| *s != id).collect();
                self.rename_lane(lane, without);
            }
        }
        if let Some(shape) = self.shapes.remove(id) {
            self.invocations.release_pool(shape.pool);
            self.shape_by_key.remove(&shape.key);
        }
        resized
    }

    fn insert_shape(&mut self, key: ShapeKey) -> ShapeId {
        let id = self.shapes.insert(Shape {
            key: key.clone(),
            pool: self.invocations.use_pool(&key.pool),
            kinds: BTreeSet::new(),
            lanes: BTreeSet::new(),
            waiting: BTreeSet::new(),
        });
        self.shape_by_key.insert(key, id);
        id
    }

    /// A shape that no kind had: classes that it may serve go to lanes where it is eligible.
    fn new_shape(&mut self, key: ShapeKey) -> ShapeId {
        // Every class asks either nothing or the atom that it is found by.
        let found = key.atoms.iter().filter_map(|a| self.classes_asking.get(*a)).flatten();
        let mut served: BTreeMap<LaneId, Vec<ClassId>> = BTreeMap::new();
        let mut relative = Vec::new();
        for id in found.chain(&self.asking_nothing) {
            self.probe();
            let class = &self.classes[*id];
            if !may_serve(&key, &class.key, class.prefix.as_ref()) {
                continue;
            }
            match class.key.is_relative() {
                true => relative.push(*id),
                false => served.entry(class.lane).or_default().push(*id),
            }
        }
        let id = self.insert_shape(key);
        for (lane, classes) in served {
            let eligible = with(&self.lanes[lane].key.eligible, id);
            self.split_lane(lane, &classes, eligible);
        }
        for class in relative {
            self.refresh_meant(class);
        }
        id
    }

    /// `atom` is asked for the first time: the kinds that have it go to shapes that show it. No class that exists
    /// asks for it, so whole lanes follow, not single classes.
    pub(crate) fn split(&mut self, atom: AtomId, kinds: &[KindId]) {
        for kind in kinds {
            let old = self.kinds[*kind].shape;
            let mut key = self.shapes[old].key.clone();
            key.atoms.push(atom);
            key.atoms.sort_unstable();
            let new = match self.shape_by_key.get(&key) {
                Some(id) => *id,
                None => self.twin_shape(old, key),
            };
            self.kinds[*kind].shape = new;
            self.shapes[new].kinds.insert(*kind);
            self.leave_shape(*kind, old);
        }
    }

    /// A shape that serves the same lanes as `like`.
    fn twin_shape(&mut self, like: ShapeId, key: ShapeKey) -> ShapeId {
        let id = self.insert_shape(key);
        for lane in self.shapes[like].lanes.clone() {
            let eligible = with(&self.lanes[lane].key.eligible, id);
            self.rename_lane(lane, eligible);
        }
        id
    }

    /// Shapes that may serve a class, sorted; if they must have a prefix, then those that do.
    pub(crate) fn eligible(&self, class: &ClassKey, prefix: Option<&Text>) -> Eligible {
        // Whoever serves the class has its rarest atom; kinds are looked up by it.
        let rarest =
            class.atoms.iter().map(|a| self.kinds_having(*a)).min_by_key(|k| k.map_or(0, BTreeSet::len));
        let mut shapes: Eligible = match rarest {
            Some(kinds) => kinds.into_iter().flatten().map(|k| self.kinds[*k].shape).collect(),
            None => self.shapes.keys().collect(),
        };
        shapes.sort_unstable();
        shapes.dedup();
        shapes.retain(|s| may_serve(&self.shapes[*s].key, class, prefix));
        if class.size.is_relative() {
            let asked = &self.demands[class.demand].asked;
            let able = |s: &&ShapeId| self.shapes[**s].kinds.iter().any(|k| self.kinds[*k].has_in_all(asked));
            let size = |s: &ShapeId| self.shapes[*s].key.size_class;
            // A declared pool may have no workers now: they come when something waits for them.
            let able = shapes.iter().filter(able).map(size).chain(self.declared_sizes(class));
            let meant = class.size.among(able);
            // Where it fits nowhere, it does not matter where it waits.
            if let Some(meant) = meant.or_else(|| class.size.among(shapes.iter().map(size))) {
                shapes.retain(|s| size(s) == meant);
            }
        }
        if let Some(strategy) = self.meant_strategy(class, &shapes) {
            shapes.retain(|s| self.shapes[*s].key.strategies.contains(strategy));
        }
        shapes
    }

    /// Of the strategies that tasks of a class may be run by, the first that one of these shapes offers.
    fn meant_strategy<'a>(&self, class: &'a ClassKey, shapes: &Eligible) -> Option<&'a Text> {
        let wanted = class.strategies.as_ref()?;
        let asked = &self.demands[class.demand].asked;
        let of = |shape: &ShapeId| self.shapes[*shape].kinds.iter().map(|k| &self.kinds[*k]);
        first_offered(wanted, asked, || shapes.iter().flat_map(of))
    }

    pub(crate) fn check_shapes(&self) -> Result<(), String> {
        for (id, kind) in &self.kinds {
            let shape = self.shapes.get(kind.shape).ok_or("a kind's shape is gone")?;
            if shape.key.atoms != self.asked_of(&kind.key) || !shape.kinds.contains(&id) {
                return Err(format!("kind {id:?} has the wrong shape"));
            }
        }
        for (id, kind) in &self.kinds {
            if kind.totals.values().sum::<usize>() != kind.hosts.len() {
                return Err(format!("kind {id:?} has hosts with other totals: {kind:?}"));
            }
        }
        for (id, shape) in &self.shapes {
            if shape.kinds.is_empty() {
                return Err(format!("shape {id:?} has no kinds"));
            }
        }
        Ok(())
    }
}

fn with(eligible: &Eligible, shape: ShapeId) -> Eligible {
    let mut all = eligible.clone();
    if let Err(at) = all.binary_search(&shape) {
        all.insert(at, shape);
    }
    all
}

/// Of the strategies in a list, the first that somebody offers who has as much in all as is asked and takes work; else one
/// who will take work again; else anybody.
pub(crate) fn first_offered<'s, 'k, Kinds: Iterator<Item = &'k Kind>>(
    wanted: &'s [Text],
    asked: &Amounts,
    kinds: impl Fn() -> Kinds,
) -> Option<&'s Text> {
    let first = |who: fn(&Kind, &Amounts) -> bool| {
        let offers = |s: &Text| kinds().any(|k| k.key.strategies.contains(s) && who(k, asked));
        wanted.iter().find(|s| offers(s))
    };
    let takes = first(Kind::takes);
    takes.or_else(|| first(Kind::has_in_all)).or_else(|| first(|_, _| true))
}

/// One more or one less with so much. `true`: the first of them, or the last.
fn count(counts: &mut BTreeMap<Amounts, usize>, totals: &Amounts, comes: bool) -> bool {
    let n = counts.entry(totals.clone()).or_default();
    *n = if comes { *n + 1 } else { *n - 1 };
    let (is_first, is_last) = (comes && *n == 1, *n == 0);
    if is_last {
        counts.remove(totals);
    }
    is_first || is_last
}

fn matches_exactly(size: SizeClass, class: u32) -> bool {
    !matches!(size, SizeClass::Exactly(n) if n != class)
}

/// May workers of this shape run tasks of this class, capacity aside? Where the class means a size or a strategy that is
/// relative to what there is, others may come before it.
fn may_serve(shape: &ShapeKey, class: &ClassKey, prefix: Option<&Text>) -> bool {
    matches_exactly(class.size, shape.size_class)
        && (shape.admits_exclusive || class.exclusivity != Exclusivity::Host)
        && class.strategies.as_ref().is_none_or(|wanted| wanted.iter().any(|s| shape.strategies.contains(s)))
        && class.pool.as_ref().is_none_or(|p| *p == shape.pool)
        && prefix.is_none_or(|p| *p == shape.prefix)
        && is_path_prefix(&shape.prefix, &class.instance)
        && class.atoms.iter().all(|a| shape.atoms.binary_search(a).is_ok())
}

/// Instance names are paths; a worker serves those that its prefix begins, whole components at a time.
pub fn is_path_prefix(prefix: &str, name: &str) -> bool {
    prefix.is_empty()
        || name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::is_path_prefix;

    #[test]
    fn prefixes_are_whole_components() {
        assert!(is_path_prefix("", "a/b"));
        assert!(is_path_prefix("a", "a"));
        assert!(is_path_prefix("a", "a/b"));
        assert!(!is_path_prefix("a", "ab"));
        assert!(!is_path_prefix("a/b", "a"));
    }
}
