//! Tasks, and the operations that wait for them.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::ids::{ActionDigest, ClassId, InvocationId, OperationId, TaskId, Text, WorkerId};
use crate::route::Route;
use crate::time::Time;

/// Place in a queue: smaller goes first. It never changes while a task waits, ageing included: a task's age is
/// what it is older *than others*, and that is fixed when it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// Arrival in quanta plus priority in quanta.
    pub score: i64,
    /// Arrival order.
    pub sequence: u64,
}

impl QueueKey {
    /// Before all others.
    pub(crate) const FIRST: Self = Self { score: i64::MIN, sequence: 0 };
    /// After all others.
    pub(crate) const LAST: Self = Self { score: i64::MAX, sequence: u64::MAX };
}

/// Whose doing it was that a try was not the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Failure {
    /// The worker disappeared.
    Lost,
    /// The worker was given the task and did something else.
    GivenBack,
    /// The worker reported an error that is not the action's.
    Reported,
    /// It had a result, and a policy wanted another: no fault of the host's.
    RunAgain,
}

/// One try that did not end the task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Where.
    pub host: Text,
    /// Whose doing it was.
    pub failure: Failure,
    /// What went wrong.
    pub cause: Text,
    /// Size class of the worker.
    pub size_class: u32,
    /// The execution strategy that it was to use, where the route named any.
    pub strategy: Option<Text>,
    /// When it began.
    pub began: Time,
    /// When it ended.
    pub ended: Time,
}

impl Attempt {
    /// It went wrong: the task would rather go to another host.
    pub fn has_failed(&self) -> bool {
        self.failure != Failure::RunAgain
    }
}

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskState {
    /// It waits for a worker.
    Queued,
    /// On a worker.
    Running(WorkerId),
}

/// One piece of work.
#[derive(Clone, Debug)]
pub struct Task {
    /// Names the task in records, and orders arrivals.
    pub sequence: u64,
    /// Instance name as the client sent it.
    pub instance: Text,
    /// Digest of the Action.
    pub digest: ActionDigest,
    /// The decision in force.
    pub route: Arc<Route>,
    /// What matching compares.
    pub class: ClassId,
    /// Place in the queue. Kept over retries.
    pub key: QueueKey,
    /// When it arrived.
    pub queued_at: Time,
    /// Where it is.
    pub state: TaskState,
    /// Who waits for it. Never empty.
    pub operations: SmallVec<[OperationId; 1]>,
    /// The invocations of those who wait for it, and how many there are of each. It waits under all of them.
    pub(crate) invocations: SmallVec<[(InvocationId, u32); 1]>,
    /// Tries so far, without the one that runs.
    pub attempts: Vec<Attempt>,
    /// How often a worker that was given it asked for nothing instead, and it was not held against the task.
    pub undelivered: u32,
    /// How often a worker that was given it was out of resources, and it was not held against the task.
    pub exhausted: u32,
    /// It has failed a short while ago, and doesn't go to the same host yet.
    pub rests: bool,
    /// Since when no worker that was known could ever run it; `None`: one could when it was last looked at.
    pub(crate) unserved_since: Option<Time>,
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
    /// Until when it waits for one host alone, while it does: the one that last ran its affinity key, or the one that is kept
    /// free for it.
    pub(crate) aside_until: Option<Time>,
    /// A host is kept free for it.
    pub(crate) has_claim: bool,
    /// Seconds that it is expected to execute; 0: nothing is known.
    pub(crate) expected_s: u32,
}

impl Task {
    /// How long it is expected to execute, where something is known.
    pub fn expected(&self) -> Option<Duration> {
        (self.expected_s > 0).then(|| Duration::from_secs(self.expected_s.into()))
    }

    /// It waits for a worker.
    pub fn is_queued(&self) -> bool {
        self.state == TaskState::Queued
    }
}

/// A client's handle on a task.
#[derive(Clone, Debug)]
pub struct Operation {
    /// Its name.
    pub name: Text,
    /// The task, until it is over for this operation.
    pub task: Option<TaskId>,
    /// What this client asked for: the task runs by the smallest of them.
    pub priority: i32,
    /// What this client's submission was routed to: says for which invocation it is. `None` when it has ended.
    pub submitted: Option<Arc<Route>>,
    /// What it counts for, while it has a task.
    pub(crate) invocation: InvocationId,
    /// Streams that listen now.
    pub watchers: u32,
    /// Since when nobody listens.
    pub unwatched_since: Time,
    /// Of its latest state.
    pub sequence: u64,
    /// When it ended, if it has.
    pub ended: Option<Time>,
    /// When its timer comes up.
    pub(crate) armed: Option<Time>,
}
