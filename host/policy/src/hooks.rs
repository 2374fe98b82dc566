//! What goes into the hooks other than `on-action`, and what comes out of them, as plain data.

use std::sync::Arc;
use std::time::Duration;

pub use pointsman_scheduler::event::HostExclusive;
use pointsman_scheduler::route::{Property, Route};

use crate::decision::{PolicyId, Rejection};

/// A worker that asks to join, as it describes itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WorkerFacts {
    /// Entries of its id, sorted by key.
    pub id: Vec<(Arc<str>, Arc<str>)>,
    /// It serves instance names that start with this path.
    pub instance_name_prefix: Arc<str>,
    /// Its properties, sorted by name, then value.
    pub platform: Vec<Property>,
    /// Its size class (the `uint32` of Buildbarn's Synchronize).
    pub size_class: u32,
    /// Who it authenticated as; empty when the server does not authenticate.
    pub principal: Arc<str>,
    /// What the policy is told the time is: seconds since the Unix epoch.
    pub now_unix_seconds: f64,
}

/// The terms on which a worker joins. They begin as what it offers and are edited by the policies of the chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// Properties that actions are matched with, sorted by name, then value.
    pub platform: Vec<Property>,
    /// Its pool; `None`: the one it would be in without a policy.
    pub pool: Option<Arc<str>>,
    /// Its size class.
    pub size_class: u32,
    /// Execution strategies that it offers; `None`: nothing was said.
    pub strategies: Option<Vec<Arc<str>>>,
    /// Actions that its host runs at once at most; `None`: nothing was said.
    pub max_inflight: Option<u32>,
    /// May an exclusive action have its host?
    pub exclusive: HostExclusive,
    /// No exclusive action while its host has run more than so many actions in the last minute.
    pub exclusive_below: Option<u32>,
    /// Remarks for whoever looks at the worker.
    pub notes: Vec<Arc<str>>,
}

/// What was decided about a worker that asks to join.
#[derive(Clone, Debug)]
pub struct Admission {
    /// The edited terms. When it is turned away: as they were at that moment.
    pub terms: Terms,
    /// Set when it is turned away.
    pub rejection: Option<Rejection>,
    /// Who turned it away, or the last policy that was asked.
    pub by: Option<Arc<PolicyId>>,
    /// Number of the generation that was in force.
    pub generation: u64,
    /// What went wrong on the way, and what was done about it.
    pub failures: Vec<String>,
}

/// What happens after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its result is the result.
    Accept,
    /// The action runs again by this route.
    Again(Route),
    /// The action ends with this, whatever the result was.
    Fail(Rejection),
}

/// What was decided about a result.
#[derive(Clone, Debug)]
pub struct Completion {
    /// What happens now.
    pub next: Next,
    /// Who decided so; `None` when everybody accepted.
    pub by: Option<Arc<PolicyId>>,
    /// Who accepted and had edited the route in that call: it has seen to it that the result is one, so nobody else is to
    /// have the action run again. Of several the last; `None` when nobody did.
    pub accepted_by: Option<Arc<PolicyId>>,
    /// Number of the generation that was in force.
    pub generation: u64,
    /// What went wrong on the way, and what was done about it.
    pub failures: Vec<String>,
}

/// A worker that could run an action at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Name of the worker, as in operations' metadata.
    pub worker: Arc<str>,
    /// Its pool.
    pub pool: Arc<str>,
    /// Actions that its host executes.
    pub executing: u32,
    /// It was the last to run the route's affinity key.
    pub affine: bool,
    /// How long it has been idle.
    pub idle: Duration,
}

/// In which order candidates are tried.
#[derive(Clone, Debug, Default)]
pub struct Ranking {
    /// Indices of candidates, best first, each once, with the policy's reason. Empty: no policy has a wish.
    pub order: Vec<(usize, String)>,
    /// Who decided so.
    pub by: Option<Arc<PolicyId>>,
    /// Number of the generation that was in force.
    pub generation: u64,
    /// What went wrong on the way.
    pub failures: Vec<String>,
}
