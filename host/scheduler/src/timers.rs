//! Deadlines, lazily: a subject has at most one live entry, which is put off when it comes up too early. A deadline
//! that moves with every heartbeat so costs nothing until it is due.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::ids::{OperationId, WorkerId};
use crate::time::Time;

/// Whose deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    Worker(WorkerId),
    Operation(OperationId),
}

/// Entries by time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Timers {
    heap: BinaryHeap<Reverse<(Time, Subject)>>,
}

impl Timers {
    /// Sees to it that `subject` comes up at `at` or before. `armed` is the time of its live entry.
    pub(crate) fn arm(&mut self, subject: Subject, armed: &mut Option<Time>, at: Time) {
        if armed.is_none_or(|a| at < a) {
            self.heap.push(Reverse((at, subject)));
            *armed = Some(at);
        }
    }

    pub(crate) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    pub(crate) fn pop_due(&mut self, now: Time) -> Option<(Time, Subject)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }
}
