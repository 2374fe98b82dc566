//! Sharing in flight: which task an equal submission joins.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::FixedState;

use crate::ids::{ActionDigest, TaskId, Text};
use crate::route::{Exclusivity, Property, Route, SizeClass};
use crate::scheduler::Scheduler;
use crate::task::Task;

/// So many operations share a task at most; what a change of the task costs is in proportion.
pub(crate) const OPERATIONS_PER_TASK_MAX: usize = 1024;

/// Tasks that an equal submission joins: by hash of what has to be equal, the oldest first. A map by that itself would
/// hold all of it a second time, which was a quarter of what a queued task takes.
pub(crate) type Sharable = BTreeMap<(u64, u64), TaskId>;

/// What has to be equal for one execution to serve several clients: they ask the same of the same kind of worker.
/// Priority, fairness, affinity, learning and remarks say nothing about the execution. Variables that a policy offers do,
/// but results are cached without them, so that they must not matter: keeping them apart here would only run more.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ShareKey<'a> {
    instance: &'a Text,
    digest: &'a ActionDigest,
    platform: &'a [Property],
    pool: &'a Option<Text>,
    size: SizeClass,
    exclusivity: &'a Exclusivity,
    strategies: &'a Option<Vec<Text>>,
    timeout: Option<std::time::Duration>,
}

impl<'a> ShareKey<'a> {
    pub(crate) fn new(instance: &'a Text, digest: &'a ActionDigest, route: &'a Route) -> Self {
        let Route { platform, pool, size, exclusivity, strategies, timeout, .. } = route;
        // What is learned meanwhile changes where it would run best, not what is asked for.
        let size = if matches!(size, SizeClass::AtLeast(_)) { SizeClass::Learned } else { *size };
        Self { instance, digest, platform, pool, size, exclusivity, strategies, timeout: *timeout }
    }

    fn hash(&self) -> u64 {
        FixedState::default().hash_one(self)
    }
}

impl Task {
    fn share_key(&self) -> ShareKey<'_> {
        ShareKey::new(&self.instance, &self.digest, &self.route)
    }
}

impl Scheduler {
    /// The oldest task that a submission of this joins.
    pub(crate) fn task_to_join(&self, key: &ShareKey<'_>) -> Option<TaskId> {
        self.index.probe();
        let hash = key.hash();
        let mut alike = self.sharable.range((hash, 0)..=(hash, u64::MAX));
        alike.find(|(_, id)| self.tasks[**id].share_key() == *key).map(|(_, id)| *id)
    }

    /// Lets equal submissions join a task, if they may and it has room for them.
    pub(crate) fn share(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        if task.route.shared && task.operations.len() < OPERATIONS_PER_TASK_MAX {
            self.sharable.insert((task.share_key().hash(), task.sequence), id);
        }
    }

    pub(crate) fn stop_sharing(&mut self, id: TaskId) {
        let task = &self.tasks[id];
        self.sharable.remove(&(task.share_key().hash(), task.sequence));
    }

    pub(crate) fn check_sharing(&self) -> Result<(), String> {
        for ((hash, sequence), id) in &self.sharable {
            let task = self.tasks.get(*id).filter(|t| t.sequence == *sequence && t.route.shared);
            if task.is_none_or(|t| t.share_key().hash() != *hash) {
                return Err(format!("task {sequence} may be joined and should not"));
            }
        }
        Ok(())
    }
}
