//! What waits and runs in one queue, by invocation.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_proto::buildqueuestate::InvocationState;
use pointsman_proto::buildqueuestate::invocation_state::QueuedOperationsCount;
use pointsman_scheduler::ids::InvocationId;
use pointsman_scheduler::queue_views::{Member, WaitingTask};

use crate::admin::count;
use crate::driver::Paths;

/// An invocation, as far as it has something in the queue.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// `None` for the root, and for those that are forgotten meanwhile.
    pub(super) id: Option<InvocationId>,
    children: BTreeMap<Arc<str>, Node>,
    /// Operations that wait for it, and for those below it.
    direct: usize,
    indirect: usize,
    /// Workers that execute something for it or below it.
    executing: usize,
    /// Those that do nothing, and those of them whose call waits: only at the root, as they belong to nobody.
    idle: usize,
    waiting: usize,
    /// The smallest priority that waits there or below.
    pub(super) priority: Option<i32>,
}

impl Node {
    /// All of a queue.
    pub(super) fn of_queue<'a>(
        members: impl IntoIterator<Item = &'a Member>,
        tasks: impl IntoIterator<Item = &'a WaitingTask>,
        paths: &Paths,
    ) -> Self {
        let mut root = Self::default();
        for task in tasks {
            for (_, invocation) in &task.operations {
                root.add_waiting(path(paths, *invocation), task.priority);
            }
        }
        for member in members {
            if !member.is_busy {
                root.idle += 1;
                root.waiting += usize::from(member.waits);
                continue;
            }
            root.executing += 1;
            // One worker counts once for each invocation, whoever shares what it executes.
            let mut above = BTreeSet::new();
            for path in member.invocations.iter().map(|id| path(paths, *id)) {
                above.extend((1..=path.len()).map(|depth| &path[..depth]));
            }
            for path in above {
                root.down(path).executing += 1;
            }
        }
        root
    }

    fn add_waiting(&mut self, path: &[(InvocationId, Arc<str>)], priority: i32) {
        self.priority = Some(self.priority.map_or(priority, |p| p.min(priority)));
        match path {
            [] => self.direct += 1,
            [first, rest @ ..] => {
                self.indirect += 1;
                self.child(first).add_waiting(rest, priority);
            }
        }
    }

    fn down(&mut self, path: &[(InvocationId, Arc<str>)]) -> &mut Self {
        path.iter().fold(self, |node, step| node.child(step))
    }

    fn child(&mut self, (id, key): &(InvocationId, Arc<str>)) -> &mut Self {
        let child = self.children.entry(key.clone()).or_default();
        child.id = Some(*id);
        child
    }

    /// The invocation at the end of a path of keys, if it has something in the queue.
    pub(super) fn find(&self, keys: &[String]) -> Option<&Self> {
        keys.iter().try_fold(self, |node, key| node.children.get(&**key))
    }

    /// Those right below it, by key.
    pub(super) fn children(&self) -> impl Iterator<Item = (&Arc<str>, &Self)> {
        self.children.iter()
    }

    /// Something waits there or below.
    pub(super) fn is_queued(&self) -> bool {
        self.direct + self.indirect > 0
    }

    pub(super) fn message(&self) -> InvocationState {
        let children = count(self.children.len());
        InvocationState {
            queued_operations_count: Some(QueuedOperationsCount {
                direct: count(self.direct),
                indirect: count(self.indirect),
            }),
            executing_workers_count: count(self.executing),
            idle_workers_count: count(self.idle),
            idle_synchronizing_workers_count: count(self.waiting),
            // Those that have nothing are not known here.
            children_count: children,
            active_children_count: children,
            queued_children_count: count(self.children.values().filter(|child| child.is_queued()).count()),
        }
    }
}

fn path(paths: &Paths, id: InvocationId) -> &[(InvocationId, Arc<str>)] {
    paths.get(&id).map_or(&[], |path| path)
}
