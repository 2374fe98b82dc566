//! What comes out of routing an action.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::Route;

use crate::asked::Asked;
use crate::failure::Failure;
use crate::hooks::{Next, Terms};

/// A routed action: what was decided, and by whom.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The edited route. When the action is rejected: as it was before the policy that rejects it.
    pub route: Arc<Route>,
    /// Set when a policy refuses the action; an ordinary answer, not a failure.
    pub rejection: Option<Rejection>,
    /// Who rejected, or the last policy that was asked.
    pub policy: Arc<PolicyId>,
    /// Number of the generation that was in force; grows with each swap.
    pub generation: u64,
    /// Each call of a policy, in order.
    pub steps: Arc<[Step]>,
    /// What failed on the way, and who decided in its place.
    pub fallback: Option<String>,
    /// Wasm instructions spent, roughly; the same for the same decision by fresh instances.
    pub fuel: u64,
    /// Time spent on it, failed attempts included.
    pub elapsed: Duration,
}

/// One call of one policy.
#[derive(Clone, Debug)]
pub struct Step {
    /// Name of its link in the configuration.
    pub link: Arc<str>,
    /// Who was asked.
    pub policy: Arc<PolicyId>,
    /// It is a version on trial (a canary).
    pub trial: bool,
    /// What it said, or how it failed.
    pub answer: Result<Answer, Failure>,
    /// Wasm instructions spent, roughly; 0 if it failed.
    pub fuel: u64,
    /// Time spent.
    pub elapsed: Duration,
    /// What it asked for, in order; empty unless decisions are recorded.
    pub asked: Vec<Asked>,
}

/// What a policy said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The route, as it left it.
    Route(Arc<Route>),
    /// The terms, as it left them.
    Terms(Arc<Terms>),
    /// What happens after an attempt.
    Next(Next),
    /// Candidates, best first, with reasons.
    Order(Vec<(usize, String)>),
    /// A refusal.
    Rejected(Rejection),
}

/// Which policy it was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PolicyId {
    /// Name from its manifest.
    pub name: Arc<str>,
    /// Version from its manifest.
    pub version: Arc<str>,
    /// SHA-256 of the file it was loaded from, in lower-case hex.
    pub digest_hex: Arc<str>,
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} (sha256 {})", self.name, self.version, self.digest_hex)
    }
}

/// A policy's refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// As what the client is to see it.
    pub code: Code,
    /// What is wrong, for the person whose build it is.
    pub reason: String,
    /// What they can do about it.
    pub help: Option<String>,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)?;
        match &self.help {
            Some(help) => write!(f, "; {help}"),
            None => Ok(()),
        }
    }
}

/// gRPC codes that a policy may reject with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// `INVALID_ARGUMENT`, 3.
    InvalidArgument,
    /// `FAILED_PRECONDITION`, 9.
    FailedPrecondition,
    /// `PERMISSION_DENIED`, 7.
    PermissionDenied,
    /// `RESOURCE_EXHAUSTED`, 8.
    ResourceExhausted,
    /// `UNAVAILABLE`, 14: clients try again.
    Unavailable,
}

impl Code {
    /// The number of the code in `google.rpc.Code`.
    pub fn grpc(self) -> i32 {
        match self {
            Self::InvalidArgument => 3,
            Self::FailedPrecondition => 9,
            Self::PermissionDenied => 7,
            Self::ResourceExhausted => 8,
            Self::Unavailable => 14,
        }
    }
}

/// A function of a policy that the server calls at some event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hook {
    /// An action arrived, is retried, or policies changed.
    OnAction,
    /// A worker asks to join.
    OnWorker,
    /// An attempt ended.
    OnResult,
    /// Candidates for an action are to be ranked.
    OnAssignment,
}

impl Hook {
    /// All hooks there are.
    pub const ALL: [Self; 4] = [Self::OnAction, Self::OnWorker, Self::OnResult, Self::OnAssignment];

    /// Name of the interface in `wit/policy.wit`.
    pub fn name(self) -> &'static str {
        match self {
            Self::OnAction => "on-action",
            Self::OnWorker => "on-worker",
            Self::OnResult => "on-result",
            Self::OnAssignment => "on-assignment",
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
