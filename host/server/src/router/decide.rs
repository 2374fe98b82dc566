//! From a call to its answer, within a deadline.
//!
//! When policies can't decide (one fails, takes too long, or its Command can't be had), what follows is, in this order: what
//! `on_error` says, the last route of such an action, the platform that the client gave in Action or Command, and UNAVAILABLE.
//! **Invariant: a failure never makes an action go to the queue without properties.** That one may well have no workers, or
//! those of somebody else.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pointsman_policy::{ActionFacts, CommandFacts, Decision, OnError, Runtime, Throttle};
use pointsman_proto::action_router::{RouteActionRequest, RouteActionResponse};
use pointsman_proto::rev2::RequestMetadata;
use pointsman_scheduler::route::{Property, Route};
use pointsman_storage::{Digest, DigestFunction};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use super::action::{ActionBytes, Edits};
use super::commands::{Commands, NoCommand};
use super::counts::{Counts, Outcome};
use super::keys;
use super::known::{self, Known, KnownRoutes};
use super::unserved::{self, Told};
use crate::aside::Aside;
use crate::config::Unsupported;
use crate::rev2::{instance_name, status};
use crate::routing::{self, Arrival};

/// Bytes of an Action: REv2 gives no bound, real ones have some hundred.
const ACTION_MAX_BYTES: usize = 1 << 20;

/// What is read of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// `router.deadline`.
    pub(super) deadline: Duration,
    /// `router.unsupported`.
    pub(super) unsupported: Unsupported,
    /// `timers.maximum_action_timeout`.
    pub(super) maximum_timeout: Duration,
    /// `limits.properties_per_action`.
    pub(super) properties_max: usize,
}

/// Answers calls.
#[derive(Debug)]
pub(super) struct Decider {
    pub(super) policies: Arc<Runtime>,
    pub(super) aside: Aside,
    pub(super) commands: Arc<Commands>,
    pub(super) known: KnownRoutes,
    pub(super) rules: Rules,
    pub(super) counts: Arc<Counts>,
    pub(super) told: Told,
    pub(super) warnings: Throttle,
}

/// An answer, and how it was found.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) response: RouteActionResponse,
    /// `Routed`, `Known` or `Native`.
    pub(super) outcome: Outcome,
}

/// A call, read.
struct Call {
    action: ActionBytes,
    /// What the client asks for.
    wishes: Route,
    metadata: Option<RequestMetadata>,
    function: Option<DigestFunction>,
    /// Without the Command.
    facts: ActionFacts,
    /// When policies have to be done.
    policies_by: Instant,
    /// When the answer has to be there.
    by: Instant,
}

/// Why there is no decision.
enum Failure {
    Policies(String),
    Command(NoCommand),
}

impl Decider {
    /// Answers a call within `deadline`, and no later than the configured one.
    ///
    /// # Errors
    /// The call is malformed, a policy rejects it, or nothing is known of where it goes.
    pub(super) async fn answer(
        self: &Arc<Self>,
        request: RouteActionRequest,
        deadline: Option<Duration>,
    ) -> Result<Answer, (Outcome, Status)> {
        let refused = |status| (Outcome::Refused, status);
        let call = self.read(request, deadline).map_err(refused)?;
        let mut command = None;
        if self.policies.wants_command(&call.facts.instance_name, call.facts.platform.is_some()) {
            match self.command(&call, call.policies_by).await {
                Ok(found) => command = Some(found),
                Err(none) => return self.fallen(&call, None, Failure::Command(none)).await,
            }
        }
        let facts = Arc::new(ActionFacts { command: command.clone(), ..call.facts.clone() });
        let decision = match self.decision(&facts, call.wishes.clone(), call.policies_by).await {
            Ok(decision) => decision,
            Err(text) => return self.fallen(&call, command, Failure::Policies(text)).await,
        };
        if let Some(status) = routing::rejected(&decision) {
            return Err((Outcome::Rejected, status));
        }
        if let Some(text) = self.undecided(&decision) {
            return self.fallen(&call, command, Failure::Policies(text)).await;
        }
        let known = self.take(&call, &decision).map_err(refused)?;
        let response = respond(&call, &known).map_err(refused)?;
        self.known.remember(kind(&call), known);
        Ok(Answer { response, outcome: Outcome::Routed })
    }

    fn read(&self, request: RouteActionRequest, deadline: Option<Duration>) -> Result<Call, Status> {
        let within = deadline.map_or(self.rules.deadline, |wanted| wanted.min(self.rules.deadline));
        let now = Instant::now();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let action = read_action(request.action)?;
        if let Some(platform) = &action.action.platform {
            routing::check_count("Action", platform, self.rules.properties_max)?;
        }
        let facts = routing::facts(&Arrival {
            instance_name: &request.instance_name,
            digest: &digest(function, &action),
            action: &action.action,
            priority: 0,
            skip_cache_lookup: false,
            metadata: request.request_metadata.as_ref(),
            command: None,
        });
        Ok(Call {
            wishes: facts.wishes(),
            action,
            metadata: request.request_metadata,
            function,
            facts,
            // What is left is for the Command that a policy did not want, and which is needed when it fails.
            policies_by: now + within * 3 / 4,
            by: now + within,
        })
    }

    async fn command(&self, call: &Call, by: Instant) -> Result<Arc<CommandFacts>, NoCommand> {
        let digest = call.action.action.command_digest.as_ref();
        let digest = status::digest_field(call.function, "Action.command_digest", digest)
            .map_err(|status| NoCommand::Bad(status.message().to_owned()))?;
        // Without a timer, as it is most of the time.
        if let Some(found) = self.commands.kept(&call.facts.instance_name, &digest) {
            return Ok(found);
        }
        let fetched = self.commands.get(&call.facts.instance_name, &digest);
        timeout_at(by, fetched).await.unwrap_or_else(|_| {
            let text = format!(
                "the CAS has not handed over the Command {digest} in time (router.deadline); it is read on, and may be there \
                 when the client tries again"
            );
            Err(NoCommand::Storage(text))
        })
    }

    async fn decision(
        &self,
        facts: &Arc<ActionFacts>,
        wishes: Route,
        by: Instant,
    ) -> Result<Decision, String> {
        let slow = self.policies.is_slow(&facts.instance_name);
        let (policies, asked) = (self.policies.clone(), facts.clone());
        let asking = self.aside.run(slow, move || policies.route(&asked, wishes));
        match timeout_at(by, asking).await {
            Ok(Some(decision)) => Ok(decision),
            Ok(None) => Err("the thread that asked the policies ended; see the log".to_owned()),
            Err(_) => Err("the policies took too long (router.deadline)".to_owned()),
        }
    }

    /// A policy failed, and nobody decided in its place whom `on_error` names: the built-in policy at best, which knows
    /// nothing of this installation.
    fn undecided(&self, decision: &Decision) -> Option<String> {
        let failures = decision.fallback.as_ref()?;
        let (built_in, in_force) = (self.policies.built_in(), self.policies.in_force());
        let may_be_skipped =
            |link: &str| in_force.links().get(link).is_some_and(|link| link.on_error == OnError::Skip);
        let answered = |link: &str| {
            let mut steps = decision.steps.iter().filter(|step| &*step.link == link);
            steps.any(|step| step.answer.is_ok() && *step.policy != *built_in)
        };
        let mut failed = decision.steps.iter().filter(|step| step.answer.is_err());
        let is_decided = failed.all(|step| may_be_skipped(&step.link) || answered(&step.link));
        let is_without_properties = decision.route.platform.is_empty();
        (!is_decided || is_without_properties).then(|| failures.clone())
    }

    /// What of a decision is handed on.
    fn take(&self, call: &Call, decision: &Decision) -> Result<Known, Status> {
        let (before, route) = (&call.wishes, &*decision.route);
        let mut dropped = unserved::edits(before, route).peekable();
        if dropped.peek().is_some() && self.rules.unsupported == Unsupported::Reject {
            let policy = &decision.policy;
            let text = unserved::text(dropped).unwrap_or_default();
            return Err(Status::failed_precondition(format!(
                "policy {policy} {text} (router.unsupported is \"reject\")"
            )));
        }
        for edit in dropped {
            self.counts.dropped(edit);
            let policy = unserved::set_by(edit, before, &decision.steps);
            self.told.tell(edit, policy.unwrap_or(&decision.policy));
        }
        let timeout = route.timeout.filter(|_| route.timeout != before.timeout);
        if let Some(timeout) = timeout.filter(|timeout| *timeout > self.rules.maximum_timeout) {
            return Err(Status::failed_precondition(format!(
                "policy {} gives the action {}, {} is the most that is allowed (timers.maximum_action_timeout)",
                decision.policy,
                humantime::format_duration(timeout),
                humantime::format_duration(self.rules.maximum_timeout)
            )));
        }
        let edits = edits(route, timeout, before);
        Ok(Known { edits, keys: keys::from_route(&route.invocation_keys, call.metadata.as_ref()) })
    }

    /// Answers without the policies.
    async fn fallen(
        &self,
        call: &Call,
        command: Option<Arc<CommandFacts>>,
        failure: Failure,
    ) -> Result<Answer, (Outcome, Status)> {
        let refused = |status| (Outcome::Refused, status);
        if let Some(known) = self.known.get(&kind(call)) {
            self.warn(call, &failure, "it goes where such an action went before");
            let response = respond(call, &known).map_err(refused)?;
            return Ok(Answer { response, outcome: Outcome::Known });
        }
        let platform = match (&failure, command) {
            (..) if !call.action.is_without_properties() => Ok(call.wishes.platform.clone()),
            (Failure::Command(none), _) => Err(none.clone()),
            (_, Some(command)) => Ok(command.platform.clone()),
            (_, None) => self.command(call, call.by).await.map(|command| command.platform.clone()),
        };
        match platform {
            Ok(platform) if !platform.is_empty() => {
                self.warn(call, &failure, "it goes by the platform that its client gave");
                let route = sorted(Route { platform, ..call.wishes.clone() });
                let edits = edits(&route, None, &call.wishes);
                let response = respond(call, &Known { edits, keys: keys::plain() }).map_err(refused)?;
                Ok(Answer { response, outcome: Outcome::Native })
            }
            nothing => {
                self.warn(call, &failure, "nothing is known of where it goes, and its client is refused");
                Err(hopeless(&failure, nothing.err()))
            }
        }
    }

    fn warn(&self, call: &Call, failure: &Failure, remedy: &str) {
        let Some(held_back) = self.warnings.pass() else { return };
        let why = match failure {
            Failure::Policies(text) => text.clone(),
            Failure::Command(none) => none.to_string(),
        };
        let (action, instance_name) = (&*call.facts.digest, &*call.facts.instance_name);
        tracing::warn!(
            action,
            instance_name,
            like_this_not_logged = held_back,
            "an action is routed without its policies, {remedy}: {why}"
        );
    }
}

/// What is told when there is nothing to go by.
fn hopeless(failure: &Failure, none: Option<NoCommand>) -> (Outcome, Status) {
    let beside = "no earlier route of such an action is known, and the Action has no platform of its own";
    match (failure, none) {
        (Failure::Command(none), _) => {
            let status = none.status(format!("the action can't be routed: {none}; {beside}"));
            let is_bad = !matches!(none, NoCommand::Storage(_));
            (if is_bad { Outcome::Refused } else { Outcome::Unavailable }, status)
        }
        (Failure::Policies(text), none) => {
            let none = none.map_or_else(|| "its Command has none either".to_owned(), |none| none.to_string());
            let text = format!("the action can't be routed: {text}; {beside}; {none}");
            (Outcome::Unavailable, Status::unavailable(text))
        }
    }
}

fn read_action(bytes: Option<Bytes>) -> Result<ActionBytes, Status> {
    let bytes = bytes.ok_or_else(|| Status::invalid_argument("RouteActionRequest.action is not set"))?;
    if bytes.len() > ACTION_MAX_BYTES {
        return Err(Status::invalid_argument(format!(
            "the Action has {} bytes, {ACTION_MAX_BYTES} are allowed",
            bytes.len()
        )));
    }
    ActionBytes::read(bytes).map_err(|error| {
        Status::invalid_argument(format!("RouteActionRequest.action is not a valid Action: {error}"))
    })
}

/// The call has no digest of the Action, so it is made from the bytes that came. It is the client's as long as the scheduler
/// encodes Actions as clients do, which it does for all whose definition it knows.
fn digest(function: Option<DigestFunction>, action: &ActionBytes) -> String {
    let told = action.action.command_digest.as_ref();
    let function = function.or_else(|| told.and_then(|digest| DigestFunction::of_length(digest.hash.len())));
    Digest::of(function.unwrap_or(DigestFunction::Sha256), action.bytes()).to_string()
}

fn kind(call: &Call) -> known::Kind {
    known::kind(&call.facts, call.action.action.command_digest.as_ref())
}

fn edits(route: &Route, timeout: Option<Duration>, before: &Route) -> Edits {
    Edits { platform: route.platform.clone(), timeout, do_not_cache: before.shared && !route.shared }
}

fn sorted(mut route: Route) -> Route {
    route.sort_platform();
    route
}

fn respond(call: &Call, known: &Known) -> Result<RouteActionResponse, Status> {
    let action = call.action.edited(&known.edits);
    let action = action.map_err(|error| Status::internal(format!("the Action can't be edited: {error}")))?;
    let invocation_keys = keys::encode(&known.keys, call.metadata.as_ref());
    debug_assert!(is_sorted(&known.edits.platform) && !invocation_keys.is_empty());
    Ok(RouteActionResponse { action: Some(action), invocation_keys })
}

fn is_sorted(platform: &[Property]) -> bool {
    platform.is_sorted_by(|a, b| a < b)
}
