//! Deadlines, lazily: a subject has one entry at most, which is put off when it comes up too early. A deadline that
//! moves with every heartbeat so costs nothing until it is due.

use std::collections::BTreeSet;

use crate::ids::{HostId, OperationId, TaskId, WorkerId};
use crate::time::Time;

/// Whose deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Worker(WorkerId),
    Operation(OperationId),
    Host(HostId),
    Task(TaskId),
    /// The look through the queue.
    Look,
}

/// Entries by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    entries: BTreeSet<(Time, Subject)>,
}

impl Timers {
    /// Sees to it that `subject` comes up at `at` or before. `armed` is the time of its entry.
    pub(crate) fn arm(&mut self, subject: Subject, armed: &mut Option<Time>, at: Time) {
        if armed.is_none_or(|a| at < a) {
            self.disarm(subject, armed);
            self.entries.insert((at, subject));
            *armed = Some(at);
        }
    }

    /// The subject has no deadline any more.
    pub(crate) fn disarm(&mut self, subject: Subject, armed: &mut Option<Time>) {
        if let Some(at) = armed.take() {
            self.entries.remove(&(at, subject));
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.entries.first().map(|(at, _)| *at)
    }

    /// Whoever is due. Its entry is gone.
    pub(crate) fn pop_due(&mut self, now: Time) -> Option<Subject> {
        if self.next()? > now {
            return None;
        }
        self.entries.pop_first().map(|(_, subject)| subject)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}
