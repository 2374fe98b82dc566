//! What can happen to the core. The driver turns RPCs and timers into these.

use std::sync::Arc;
use std::time::Duration;

use crate::holds::{Hold, Pattern};
use crate::ids::{ActionDigest, HostId, OperationId, PollId, TaskId, Text};
use crate::properties::{Asked, Offered};
use crate::route::{Property, Route};
use crate::time::Time;

/// Everything that the core reacts to.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client asks for an action.
    Submit(Submit),
    /// A client began to listen to an operation again.
    Watch(OperationId),
    /// A client that listened to an operation has gone.
    Unwatch(OperationId),
    /// A client wants an operation to end.
    Cancel(OperationId),
    /// A worker says who it is and what it does, and asks what to do.
    Poll(Poll),
    /// The connection of a waiting poll has gone.
    PollDropped(PollId),
    /// The result of a task was found in the action cache. A worker that was given it learns so when it next calls.
    FoundInCache(TaskId),
    /// A policy has decided anew about a queued task.
    Reroute {
        /// The task; nothing happens unless it is still queued.
        task: TaskId,
        /// The new decision.
        route: Arc<Route>,
        /// Its properties, typed.
        asked: Asked,
    },
    /// A policy refuses a queued task when asked anew.
    Refuse {
        /// The task; nothing happens unless it is still queued.
        task: TaskId,
        /// What the client is told.
        reason: Text,
    },
    /// An operator drains or pauses workers, known or yet to come. Answered by [`Effect::Hold`](crate::effect::Effect).
    AddHold(Hold, Pattern),
    /// An operator takes that back, by the same pattern.
    RemoveHold(Hold, Pattern),
    /// An operator says that the hosts of these workers are well: they are paused no more for what they said, and in
    /// quarantine no more.
    Release(Pattern),
    /// `next_deadline` has come.
    Deadline,
}

/// An action to run, as the policies left it.
#[derive(Clone, Debug)]
pub struct Submit {
    /// Name of the new operation: unique, and hard to guess.
    pub name: Text,
    /// Instance name as the client sent it.
    pub instance: Text,
    /// Digest of the Action as the client sent it.
    pub digest: ActionDigest,
    /// The decision.
    pub route: Arc<Route>,
    /// The decision's properties, typed by the schema.
    pub asked: Asked,
    /// Hosts in the order in which a policy would have them ([`Scheduler::candidates`](crate::scheduler::Scheduler)); the
    /// first that has a worker waiting for it gets it. Where none has, or none is named, placement goes by its rule.
    pub preferred: Vec<HostId>,
}

/// One Synchronize call, or what a front end makes of a message on a stream.
#[derive(Clone, Debug)]
pub struct Poll {
    /// Names this call in the effects that answer it.
    pub poll: PollId,
    /// Identity of the worker. Front ends make what may not change part of it (Buildbarn: prefix, platform, size class).
    pub worker: Text,
    /// What it is. Read when the worker is new; and when it is another than before, as soon as the worker executes
    /// nothing. Id and host stay what they were.
    pub spec: Arc<WorkerSpec>,
    /// What it does.
    pub report: Report,
    /// It wants no more work (Buildbarn's `prefer_being_idle`).
    pub prefer_idle: bool,
    /// Until when the answer may be put off while there is no work.
    pub wait_until: Time,
}

/// What a worker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerSpec {
    /// Its id as it sent it (Buildbarn's `worker_id`), sorted by key: what drains and pauses are matched with.
    pub id: Vec<(Text, Text)>,
    /// Which host it belongs to; workers with the same text share capacity.
    pub host: Text,
    /// It serves instance names that start with this path.
    pub instance_name_prefix: Text,
    /// Its properties as it sent them, for people.
    pub properties: Vec<Property>,
    /// Its properties, typed by the schema.
    pub offered: Offered,
    /// Its size class.
    pub size_class: u32,
    /// The pool it belongs to.
    pub pool: Text,
    /// How many actions its host runs at once at most; 0: as many as it has workers.
    pub max_inflight_tasks: u32,
    /// What else it was admitted with.
    pub terms: Terms,
}

impl WorkerSpec {
    /// Execution strategies that it offers. Who has said nothing offers none.
    pub fn strategies(&self) -> &[Text] {
        self.terms.strategies.as_deref().unwrap_or_default()
    }
}

/// Terms on which a worker was admitted: its own, its pool's or a policy's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Execution strategies that it offers; `None`: nothing was said.
    pub strategies: Option<Vec<Text>>,
    /// May an exclusive action have its host?
    pub exclusive: HostExclusive,
    /// No exclusive action while its host has run more than so many actions in the last minute.
    pub exclusive_below: Option<u32>,
    /// Remarks for whoever looks at the worker.
    pub notes: Vec<Text>,
    /// The policy that was asked last, if any was: name, version and digest.
    pub by: Option<Text>,
}

/// Whether an exclusive action may take a host for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum HostExclusive {
    /// At any time.
    #[default]
    Allowed,
    /// Never.
    Never,
    /// Not more often than once in this time.
    NotMoreOftenThan(Duration),
}

/// Where a running action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The worker prepares the build environment.
    Started,
    /// It fetches inputs.
    FetchingInputs,
    /// The command runs.
    Running,
    /// It uploads outputs.
    UploadingOutputs,
}

/// What a worker does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// Nothing.
    Idle,
    /// It executes an action.
    Executing(ActionDigest, Stage),
    /// It has the result of an action.
    Completed(ActionDigest, Verdict),
}

/// Whether a result is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client is to have it.
    Answer,
    /// The worker could not do it: somebody else should try.
    Failed(Text),
    /// The worker has no room for it just now: its host should be spared for a while.
    Exhausted(Text),
    /// It is a result, and a policy wants another attempt. When the task was tried as often as it may be, or when a bound
    /// keeps it from the new route, the client has this one.
    Again(Box<Again>),
}

/// How a task is to run once more, though it has a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// The new decision.
    pub route: Arc<Route>,
    /// Its properties, typed.
    pub asked: Asked,
    /// Who wants it, and why.
    pub cause: Text,
}
