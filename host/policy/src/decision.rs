//! What comes out of routing an action.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::Route;

/// A routed action: what was decided, and by whom.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The edited route, its platform sorted. When the action is rejected: as it was at that moment.
    pub route: Route,
    /// Set when the policy refuses the action; an ordinary answer, not a failure.
    pub rejection: Option<Rejection>,
    /// The policy that decided.
    pub policy: PolicyId,
    /// Number of the generation that was in force; grows with each installed policy.
    pub generation: u64,
    /// Why the embedded default policy decided in place of the one in force.
    pub fallback: Option<String>,
    /// Wasm instructions spent, roughly; the same for the same decision by a fresh instance.
    pub fuel: u64,
    /// Time spent on it, a failed attempt included.
    pub elapsed: Duration,
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
    /// A worker asks to join. Not called yet.
    OnWorker,
    /// An attempt ended. Not called yet.
    OnResult,
    /// Candidates for an action are to be ranked. Not called yet.
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
