//! What takes long, on threads of its own: reading, compiling and checking versions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::restore::{Restored, Sought, find};
use super::version::{Bytes, Origin};
use super::{Message, Reply};
use crate::error::LoadError;
use crate::gate::{self, Candidate};
use crate::plan::{LinkPlan, Plan, Rollout};
use crate::policy::Policy;
use crate::runtime::Runtime;
use std::sync::mpsc::Sender;

/// A version that was to be let in, and what the gate said.
pub(super) struct Loaded {
    /// Tells it from others for the same link: larger came later.
    pub(super) ticket: u64,
    /// The plan by which the gate looked, counted.
    pub(super) plan: u64,
    pub(super) request: Request,
    pub(super) result: Result<Policy, LoadError>,
}

/// A version that is to be let in.
pub(super) struct Request {
    pub(super) link: Arc<str>,
    pub(super) digest_hex: String,
    pub(super) bytes: Bytes,
    pub(super) origin: Origin,
    pub(super) rollout: Rollout,
    pub(super) started: Instant,
    pub(super) reply: Option<Reply>,
}

/// A plan that is to be put in force, with a version for each link that needs another.
pub(super) struct Configured {
    pub(super) plan: Plan,
    pub(super) versions: BTreeMap<Arc<str>, Restored>,
    /// The default policy with another configuration, for when all else fails; `None`: it stays as it is.
    pub(super) default: Option<Policy>,
    /// What can't be, by link; the plan is not put in force if there is any.
    pub(super) problems: Vec<(Arc<str>, String)>,
    pub(super) reply: Reply,
}

/// Has the gate look at a version; the answer comes as [`Message::Loaded`].
pub(super) fn load(
    runtime: &Arc<Runtime>,
    plan: &LinkPlan,
    (ticket, number): (u64, u64),
    request: Request,
    messages: &Sender<Message>,
) -> std::io::Result<()> {
    let (runtime, plan, messages) = (runtime.clone(), plan.clone(), messages.clone());
    spawn(move || {
        let candidate = Candidate {
            bytes: &request.bytes.content,
            signature: request.bytes.signature.as_deref(),
            on_trial: matches!(request.rollout, Rollout::Trial(_)),
        };
        let result = gate::pass(&runtime.loader, &plan, &candidate);
        // Fails only when the manager has gone.
        let _ = messages.send(Message::Loaded(Box::new(Loaded { ticket, plan: number, request, result })));
    })
}

/// Finds versions for links of a new plan; the answer comes as [`Message::Configured`].
pub(super) fn configure(
    runtime: &Arc<Runtime>,
    plan: Plan,
    sought: Vec<Sought>,
    reply: Reply,
    default_changes: bool,
    messages: &Sender<Message>,
) -> std::io::Result<()> {
    let (runtime, messages) = (runtime.clone(), messages.clone());
    spawn(move || {
        let default = default_changes.then(|| runtime.load_default(plan.default_config())).and_then(|loaded| {
            // Its link may have a version that takes another configuration.
            let told = |error: &LoadError| {
                tracing::warn!("the built-in default policy stays as it is where it has to decide for others: {error}");
            };
            loaded.inspect_err(told).ok()
        });
        let (mut versions, mut problems) = (BTreeMap::new(), Vec::new());
        for sought in sought {
            let name = sought.name.clone();
            match find(&runtime, sought) {
                Ok(found) => _ = versions.insert(name, found),
                Err(reasons) => problems.push((name, reasons.join("; "))),
            }
        }
        let configured = Configured { plan, versions, default, problems, reply };
        // Fails only when the manager has gone.
        let _ = messages.send(Message::Configured(Box::new(configured)));
    })
}

fn spawn(work: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    std::thread::Builder::new().name("policy-load".into()).spawn(work).map(drop)
}
