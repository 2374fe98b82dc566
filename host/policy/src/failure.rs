//! How a call of a policy can fail, other than by refusing the action.

use std::fmt;

use wasmtime::Trap;

use crate::limiter::Limiter;

/// What a guest did wrong, noticed by a host function. Becomes a trap.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Fault {
    /// A function that speaks of something that is not there now.
    #[error("{function} was called {place}, {rule}")]
    Misplaced { function: &'static str, place: &'static str, rule: &'static str },
    /// An edit that can't be.
    #[error("{0}")]
    BadAnswer(String),
}

/// Kinds of failures, as they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// It ran longer than its fuel lasts.
    OutOfFuel,
    /// It took longer than the wall-time net allows.
    Deadline,
    /// It was refused memory and gave up.
    OutOfMemory,
    /// It called itself too deeply.
    StackOverflow,
    /// It called a function of the interface at a time when that has nothing to speak of.
    Misplaced,
    /// It returned or set something that can't be.
    BadAnswer,
    /// Any other trap; a panic is one.
    Trap,
    /// No instance of it could be made.
    Start,
    /// It was not called, as it has failed too often in a row.
    CircuitOpen,
}

impl FailureKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [Self; 9] = [
        Self::OutOfFuel,
        Self::Deadline,
        Self::OutOfMemory,
        Self::StackOverflow,
        Self::Misplaced,
        Self::BadAnswer,
        Self::Trap,
        Self::Start,
        Self::CircuitOpen,
    ];

    /// It used more than it may, rather than doing something wrong.
    pub fn is_over_budget(self) -> bool {
        matches!(self, Self::OutOfFuel | Self::Deadline)
    }

    /// Name for logs and metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfFuel => "out_of_fuel",
            Self::Deadline => "deadline",
            Self::OutOfMemory => "out_of_memory",
            Self::StackOverflow => "stack_overflow",
            Self::Misplaced => "misplaced_call",
            Self::BadAnswer => "bad_answer",
            Self::Trap => "trap",
            Self::Start => "start",
            Self::CircuitOpen => "circuit_open",
        }
    }
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct Failure {
    /// For counters.
    pub kind: FailureKind,
    /// For people: what happened and what the limit was.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Failure {
    pub(crate) fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// Tells what an error of a call means.
    pub(crate) fn of(error: &wasmtime::Error, limiter: &Limiter, fuel_limit: u64) -> Self {
        if let Some(fault) = error.downcast_ref::<Fault>() {
            let kind = match fault {
                Fault::Misplaced { .. } => FailureKind::Misplaced,
                Fault::BadAnswer(_) => FailureKind::BadAnswer,
            };
            return Self::new(kind, fault.to_string());
        }
        match (error.downcast_ref::<Trap>(), limiter.refused()) {
            (Some(Trap::OutOfFuel), _) => {
                Self::new(FailureKind::OutOfFuel, format!("it used up its fuel of {fuel_limit} per call"))
            }
            (Some(Trap::Interrupt), _) => {
                Self::new(FailureKind::Deadline, "it took longer than the wall-time net")
            }
            (Some(Trap::StackOverflow), _) => {
                Self::new(FailureKind::StackOverflow, "its call stack overflowed")
            }
            (Some(_), Some(refused)) => {
                Self::new(FailureKind::OutOfMemory, format!("out of memory: {refused}"))
            }
            (Some(Trap::UnreachableCodeReached), None) => {
                Self::new(FailureKind::Trap, "it panicked or aborted (wasm `unreachable` executed)")
            }
            (Some(trap), None) => Self::new(FailureKind::Trap, format!("it trapped: {trap}")),
            // Not a trap: what the guest handed over could not be read, e.g. text that is not UTF-8.
            (None, Some(refused)) => Self::new(FailureKind::OutOfMemory, format!("out of memory: {refused}")),
            (None, None) => Self::new(FailureKind::BadAnswer, format!("unreadable answer: {error:#}")),
        }
    }
}
