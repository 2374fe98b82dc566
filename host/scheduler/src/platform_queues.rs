//! Queues as Buildbarn has them: workers that say the same of themselves, by instance name prefix, whole property list and size
//! class. Matching knows none of this; it is for front ends that have to show queues and name them.
//!
//! A queued task could often go to workers of several queues. It is shown in one, so that sums are right: of those whose workers
//! could run it, the one of the smallest size class, then of the longest prefix, then the smallest property list. If there
//! is none, in that of a declared pool that could run it, by the same order; else in one that is called as the task asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use slotmap::{SecondaryMap, SlotMap};

use crate::classes::Index;
use crate::event::WorkerSpec;
use crate::ids::{ClassId, KindId, QueueId, TaskId, Text, WorkerId};
use crate::properties::Amounts;
use crate::route::Property;
use crate::scheduler::Scheduler;
use crate::workers::fits;

/// What a queue is called.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName {
    /// Size class of its workers.
    pub size_class: u32,
    /// Their instance name prefix.
    pub prefix: Text,
    /// Their properties, sorted.
    pub platform: Vec<Property>,
}

impl QueueName {
    /// A name with its properties in order.
    pub fn new(size_class: u32, prefix: Text, mut platform: Vec<Property>) -> Self {
        platform.sort_unstable();
        platform.dedup();
        Self { size_class, prefix, platform }
    }

    /// That of the queue that a worker belongs to.
    pub fn of(spec: &WorkerSpec) -> Self {
        Self::new(spec.size_class, spec.instance_name_prefix.clone(), spec.properties.clone())
    }

    /// A worker belongs to it.
    pub fn has(&self, spec: &WorkerSpec) -> bool {
        self.size_class == spec.size_class
            && self.prefix == spec.instance_name_prefix
            && match spec.properties.is_sorted() {
                true => self.platform == spec.properties,
                false => *self == Self::of(spec),
            }
    }

    /// Of queues that could run a task, the one with the smallest of these shows it.
    fn order(&self) -> (u32, std::cmp::Reverse<usize>, &[Property]) {
        (self.size_class, std::cmp::Reverse(self.prefix.len()), &self.platform)
    }
}

/// Workers of one queue.
#[derive(Clone, Debug)]
struct Members {
    name: Arc<QueueName>,
    /// What each of its workers has of each `minimum` key: it follows from the name.
    totals: Amounts,
    workers: BTreeSet<WorkerId>,
    /// Kinds of its workers, and how many are of each.
    kinds: BTreeMap<KindId, usize>,
}

/// Queues that have workers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues {
    all: SlotMap<QueueId, Members>,
    by_name: BTreeMap<Arc<QueueName>, QueueId>,
    /// Queues with workers of a kind, by name.
    of_kind: SecondaryMap<KindId, BTreeMap<Arc<QueueName>, QueueId>>,
}

impl Queues {
    /// A worker of that kind comes; returned is its queue.
    pub(crate) fn enter(&mut self, worker: WorkerId, spec: &WorkerSpec, kind: KindId) -> QueueId {
        let name = QueueName::of(spec);
        let id = self.by_name.get(&name).copied().unwrap_or_else(|| {
            let name = Arc::new(name);
            let id = self.all.insert(Members {
                name: name.clone(),
                totals: spec.offered.totals.clone(),
                workers: BTreeSet::new(),
                kinds: BTreeMap::new(),
            });
            self.by_name.insert(name, id);
            id
        });
        let queue = &mut self.all[id];
        queue.workers.insert(worker);
        *queue.kinds.entry(kind).or_default() += 1;
        if let Some(queues) = self.of_kind.entry(kind) {
            queues.or_default().insert(queue.name.clone(), id);
        }
        id
    }

    /// A worker goes.
    pub(crate) fn leave(&mut self, worker: WorkerId, id: QueueId, kind: KindId) {
        let Some(queue) = self.all.get_mut(id) else { return };
        queue.workers.remove(&worker);
        let Some(n) = queue.kinds.get_mut(&kind) else { return };
        *n -= 1;
        if *n == 0 {
            queue.kinds.remove(&kind);
            if let Some(queues) = self.of_kind.get_mut(kind) {
                queues.remove(&queue.name);
                if queues.is_empty() {
                    self.of_kind.remove(kind);
                }
            }
        }
        if queue.workers.is_empty() {
            self.by_name.remove(&queue.name);
            self.all.remove(id);
        }
    }

    pub(crate) fn name(&self, id: QueueId) -> &Arc<QueueName> {
        &self.all[id].name
    }

    /// A kind of the queue's workers.
    pub(crate) fn kind_of(&self, name: &QueueName) -> Option<KindId> {
        self.all[*self.by_name.get(name)?].kinds.keys().next().copied()
    }

    /// Queues whose names come after `name`, in the order of their names.
    pub(crate) fn after(&self, name: Option<&QueueName>) -> impl Iterator<Item = &Arc<QueueName>> {
        use std::ops::Bound::{Excluded, Unbounded};
        self.by_name
            .range::<QueueName, _>((name.map_or(Unbounded, Excluded), Unbounded))
            .map(|(name, _)| name)
    }

    /// Workers of a queue that come after that one; `None`: it has none.
    pub(crate) fn workers(
        &self,
        name: &QueueName,
        after: Option<WorkerId>,
    ) -> Option<impl Iterator<Item = WorkerId>> {
        use std::ops::Bound::{Excluded, Unbounded};
        let queue = &self.all[*self.by_name.get(name)?];
        Some(queue.workers.range((after.map_or(Unbounded, Excluded), Unbounded)).copied())
    }

    /// The queue that shows tasks of a class, if workers of some queue could run them.
    fn showing(&self, index: &Index, class: ClassId) -> Option<&Arc<QueueName>> {
        let class = &index.classes[class];
        let asked = &index.demands[class.key.demand].asked;
        let shapes = index.lanes[class.lane].key.eligible.iter();
        let kinds = shapes.flat_map(|s| &index.shapes[*s].kinds);
        // Of one kind all have the same size class and prefix, so that the first in order is the first by name.
        let fitting = |kind: &KindId| {
            let queues = self.of_kind.get(*kind)?.iter();
            queues
                .map(|(name, id)| (name, &self.all[*id]))
                .find(|(_, q)| fits(asked, &q.totals))
                .map(|(name, _)| name)
        };
        kinds.filter_map(fitting).min_by(|a, b| a.order().cmp(&b.order()))
    }
}

impl Scheduler {
    /// The queue in which a queued task is shown.
    pub(crate) fn queue_showing(&self, id: TaskId) -> Option<Arc<QueueName>> {
        let task = self.tasks.get(id)?;
        if let Some(name) = self.fleet.queues.showing(&self.index, task.class) {
            return Some(name.clone());
        }
        let class = &self.index.classes[task.class];
        let pools = self.index.declared_for_class(class).map(|(_, pool)| pool.queue_name());
        let declared = pools.min_by(|a, b| a.order().cmp(&b.order()));
        Some(Arc::new(declared.unwrap_or_else(|| {
            let size_class = class.key.size.exact().unwrap_or(0);
            QueueName::new(size_class, task.instance.clone(), task.route.platform.clone())
        })))
    }

    pub(crate) fn check_queues(&self) -> Result<(), String> {
        let queues = &self.fleet.queues;
        for (id, worker) in &self.fleet.workers {
            let queue = queues.all.get(worker.queue).ok_or("a worker's queue is gone")?;
            let is_there = queue.workers.contains(&id) && queue.kinds.contains_key(&worker.kind);
            if !is_there || *queue.name != QueueName::of(&worker.spec) || !queue.name.has(&worker.spec) {
                return Err(format!("worker {} is in the wrong queue: {queue:?}", worker.key));
            }
            if queue.totals != worker.spec.offered.totals {
                return Err(format!("worker {} has more or less than others of its queue", worker.key));
            }
        }
        let members: usize = queues.all.values().map(|q| q.workers.len()).sum();
        let (kinds, listed): (usize, usize) = (
            queues.all.values().map(|q| q.kinds.len()).sum(),
            queues.of_kind.values().map(BTreeMap::len).sum(),
        );
        if members != self.fleet.workers.len() || queues.by_name.len() != queues.all.len() || kinds != listed
        {
            return Err(format!("queues have {members} workers of {kinds} kinds, {listed} listed"));
        }
        Ok(())
    }
}
