//! What the core wants done. The driver does it after the step, without the lock.

use std::fmt::{self, Display};
use std::time::Duration;

use crate::holds::{Hold, HoldOutcome, Pattern};
use crate::ids::{OperationId, PollId, TaskId, Text};

/// What came of one step, in order.
#[derive(Debug, Default)]
pub struct Output {
    /// What to do.
    pub effects: Vec<Effect>,
    /// What to write down if the state is to survive.
    pub changes: Vec<Change>,
}

impl Output {
    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.effects.clear();
        self.changes.clear();
    }
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The submitted action is accepted.
    Submitted {
        /// The client's handle.
        operation: OperationId,
        /// The task behind it.
        task: TaskId,
        /// The task was in flight already.
        joined: bool,
    },
    /// The submitted action is not accepted: a bound is reached.
    Refused(Refusal),
    /// An operation has a new state. `sequence` grows with every state of one operation.
    Stage {
        /// The operation.
        operation: OperationId,
        /// The task behind it.
        task: TaskId,
        /// Larger is newer.
        sequence: u64,
        /// Where the task is.
        stage: OperationStage,
    },
    /// An operation is over.
    Finished {
        /// The operation.
        operation: OperationId,
        /// The task behind it.
        task: TaskId,
        /// Larger is newer.
        sequence: u64,
        /// How it ended.
        end: End,
    },
    /// An operation's name is forgotten.
    Forgotten(OperationId),
    /// A task is over, and with it what the driver keeps for it.
    Dropped(TaskId),
    /// An operator's drain or pause was added or removed, or not.
    Hold {
        /// Which of the two.
        hold: Hold,
        /// Of which workers.
        pattern: Pattern,
        /// What came of it.
        outcome: HoldOutcome,
    },
    /// Workers were told of that are about to go.
    Terminated {
        /// How many are known that match.
        workers: usize,
        /// Those of them that execute something, by their identity.
        busy: Vec<Text>,
    },
    /// A host is given less than before, or more again. For the log.
    Host {
        /// Which host.
        host: Text,
        /// What is new.
        news: HostNews,
    },
    /// An attempt at a task has failed, and it will run again: policies may decide anew. A worker may have it already.
    Retried(TaskId),
    /// A worker's call is to be answered.
    Reply {
        /// The call.
        poll: PollId,
        /// The answer.
        reply: Reply,
    },
}

/// What is new about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostNews {
    /// It is out of resources and gets nothing until it completes something or time has passed.
    Paused {
        /// How long at most.
        length: Duration,
        /// What its worker said.
        cause: Text,
    },
    /// It gets work again.
    Resumed,
    /// It has failed too many tasks and gets nothing.
    Quarantined {
        /// For how long.
        length: Duration,
        /// How often it was in quarantine since it last completed something.
        times: u32,
        /// What went wrong at last.
        cause: Text,
    },
    /// It gets one task, to find out.
    OnTrial,
    /// It has completed a task and is in quarantine no more.
    Released,
}

impl Display for HostNews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused { length, cause } => {
                write!(f, "paused for {length:?}, as it is out of resources: {cause}")
            }
            Self::Resumed => f.write_str("resumed"),
            Self::Quarantined { length, times: 1, cause } => {
                write!(
                    f,
                    "in quarantine for {length:?}, as tasks failed one after the other, at last: {cause}"
                )
            }
            Self::Quarantined { length, cause, .. } => {
                write!(f, "in quarantine for another {length:?}, as its trial failed: {cause}")
            }
            Self::OnTrial => f.write_str("on trial with one task"),
            Self::Released => f.write_str("released from quarantine"),
        }
    }
}

/// Where a task is, as a client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationStage {
    /// It waits for a worker.
    Queued,
    /// A worker has it.
    Executing {
        /// The worker's host, for people.
        host: Text,
    },
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The result is the one that this step was about: a worker's, or one from the action cache.
    Reported,
    /// Its client, or all its clients, wanted no more.
    Cancelled,
    /// It was tried as often as it may be. The text names each attempt.
    GaveUp(Text),
    /// No worker could ever have run it for too long. The text says why.
    Unschedulable(Text),
    /// A policy refused it when asked anew.
    Refused(Text),
    /// An operator ended it with a status of this gRPC code; the result is the one that this step was about.
    Killed(i32),
}

/// What a worker is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Run this. If time ends the task in the same step, `Dropped` comes later in the same output.
    Execute(TaskId),
    /// Go on with what you are doing.
    Continue,
    /// Do nothing.
    Idle,
    /// A newer call of the same worker has taken this one's place.
    Superseded,
    /// The scheduler has as many workers as it may have.
    TooManyWorkers,
}

/// Why an action isn't accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// `limits.queued_actions`.
    #[error(
        "the queue is full: {0} actions wait; try again later, add workers, or raise limits.queued_actions"
    )]
    QueueFull(usize),
    /// `limits.classes`.
    #[error(
        "{0} different sets of requirements are in the queue; send fewer different platform properties or instance names, \
         or raise limits.classes"
    )]
    TooManyClasses(usize),
    /// `limits.demands`.
    #[error(
        "{0} different combinations of minimum values are in the queue; round the values that actions ask for, \
         or raise limits.demands"
    )]
    TooManyDemands(usize),
}

/// A change of what must survive. The driver takes the content with `task_record` before the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The task's record is new or differs.
    PutTask(TaskId),
    /// The task's record goes.
    DeleteTask(u64),
    /// The operation has ended and is remembered.
    PutFinished(OperationId),
    /// The ended operation is forgotten.
    DeleteFinished(Text),
    /// The drain or pause is in force.
    PutHold(Hold, Pattern),
    /// The drain or pause is in force no longer.
    DeleteHold(Hold, Pattern),
}
