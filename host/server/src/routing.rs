//! From a client's action to a route: facts, policy, property schema.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_policy::{ActionFacts, CommandFacts, Decision, Hook, PolicyId, Runtime, Step, Trigger};
use pointsman_proto::rev2::command::EnvironmentVariable;
use pointsman_proto::rev2::{Action, Command, Platform, RequestMetadata, platform};
use pointsman_proto::{pack, v1};
use pointsman_scheduler::properties::{Asked, PropertyError, Schema};
use pointsman_scheduler::route::{Exclusivity, Property, Route, SizeClass};
use prost_types::Any;
use tonic::Status;

use crate::aside::Aside;
use crate::config::Config;
use crate::learning::Learning;

/// Decides where actions go.
#[derive(Debug)]
pub struct Router {
    policies: Arc<Runtime>,
    aside: Aside,
    schema: Arc<Schema>,
    learning: Arc<Learning>,
    properties_max: usize,
    default_timeout: Duration,
    maximum_timeout: Duration,
    /// Unknown keys that the log has named.
    warned: Mutex<BTreeSet<Arc<str>>>,
}

/// An action as routed.
#[derive(Clone, Debug)]
pub struct Routed {
    /// The decision.
    pub route: Arc<Route>,
    /// Its properties, typed.
    pub asked: Asked,
    /// How long the action may execute.
    pub timeout: Duration,
    /// `pointsman.v1.RoutingDecision`.
    pub decision: Any,
}

/// The log names so many different unknown keys.
const WARNED_KEYS_MAX: usize = 1000;

/// What is known of an action when it arrives.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// As the client sent it.
    pub instance_name: &'a str,
    /// `HASH/SIZE`.
    pub digest: &'a str,
    /// The Action.
    pub action: &'a Action,
    /// `ExecutionPolicy.priority`.
    pub priority: i32,
    /// `ExecuteRequest.skip_cache_lookup`.
    pub skip_cache_lookup: bool,
    /// What the client said of itself.
    pub metadata: Option<&'a RequestMetadata>,
    /// The Command, if a policy wants it.
    pub command: Option<&'a Arc<CommandFacts>>,
}

impl Router {
    /// A router for that configuration.
    pub fn new(
        config: &Config,
        schema: Arc<Schema>,
        policies: Arc<Runtime>,
        learning: Arc<Learning>,
        aside: Aside,
    ) -> Self {
        Self {
            policies,
            aside,
            schema,
            learning,
            properties_max: config.limits.properties_per_action_max as usize,
            default_timeout: config.timers.default_action_timeout,
            maximum_timeout: config.timers.maximum_action_timeout,
            warned: Mutex::default(),
        }
    }

    /// Whether anybody routes actions of that instance name.
    pub fn asks(&self, instance_name: &str) -> bool {
        self.policies.has_hook(instance_name, Hook::OnAction)
    }

    /// Whether somebody does who may think otherwise of an action after an attempt has failed: not the built-in policy.
    pub fn asks_again(&self, instance_name: &str) -> bool {
        self.asks(instance_name) && !self.policies.is_plain(instance_name)
    }

    /// Whether facts need the Command.
    pub fn wants_command(&self, instance_name: &str, action: &Action) -> bool {
        self.policies.wants_command(instance_name, action.platform.is_some())
    }

    /// Checks what can be checked before anybody is asked.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, saying what is wrong.
    pub fn check(&self, action: &Action) -> Result<(), Status> {
        if let Some(platform) = &action.platform {
            check_sorted(platform)
                .map_err(|text| Status::invalid_argument(format!("Action.platform: {text}")))?;
            self.check_count("Action", platform)?;
        }
        if let Some(timeout) = action.timeout {
            self.check_timeout(Duration::try_from(timeout).map_err(|_| {
                Status::invalid_argument(format!(
                    "Action.timeout of {} s and {} ns is negative or malformed",
                    timeout.seconds, timeout.nanos
                ))
            })?)?;
        }
        Ok(())
    }

    /// The same for a Command that a policy wants to read: clients before API 2.2 have their properties there.
    ///
    /// # Errors
    /// As [`Router::check`].
    #[allow(deprecated)]
    pub fn check_command(&self, command: &Command) -> Result<(), Status> {
        command.platform.as_ref().map_or(Ok(()), |platform| self.check_count("Command", platform))
    }

    fn check_count(&self, what: &str, platform: &Platform) -> Result<(), Status> {
        check_count(what, platform, self.properties_max)
    }

    fn check_timeout(&self, timeout: Duration) -> Result<(), Status> {
        if timeout > self.maximum_timeout {
            return Err(Status::invalid_argument(format!(
                "the action asks for a timeout of {}, {} is the most that is allowed (timers.maximum_action_timeout)",
                humantime::format_duration(timeout),
                humantime::format_duration(self.maximum_timeout)
            )));
        }
        Ok(())
    }

    /// Where slow policies are asked.
    pub fn aside(&self) -> &Aside {
        &self.aside
    }

    /// Decides anew about an action that is queued, and that goes back to nothing that was too small for it (`enlarged`: as
    /// in its payload).
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn route_again(
        self: &Arc<Self>,
        facts: &Arc<ActionFacts>,
        enlarged: Option<SizeClass>,
    ) -> Result<Routed, Status> {
        let routed = self.route_aside(facts).await?;
        let Some(route) = enlarged.and_then(|to| self.enlarged(&routed.route, to, facts.timeout)) else {
            return Ok(routed);
        };
        let timeout = route.timeout.unwrap_or(self.default_timeout);
        Ok(Routed { route: Arc::new(route), timeout, ..routed })
    }

    /// Decides about an action; see [`Aside`] for where.
    ///
    /// # Errors
    /// As [`Router::route`].
    pub async fn route_aside(self: &Arc<Self>, facts: &Arc<ActionFacts>) -> Result<Routed, Status> {
        if !self.policies.is_slow(&facts.instance_name) {
            return self.route(facts);
        }
        let (router, asked) = (self.clone(), facts.clone());
        let routed = self.aside.run(true, move || router.route(&asked)).await;
        routed
            .unwrap_or_else(|| Err(Status::internal("the thread that asked the policies ended; see the log")))
    }

    /// Decides about an action.
    ///
    /// # Errors
    /// The policy's rejection, or what is wrong with its decision. Each names the policy.
    pub fn route(&self, facts: &Arc<ActionFacts>) -> Result<Routed, Status> {
        let decision = self.policies.route(facts, facts.wishes());
        if let Some(status) = rejected(&decision) {
            return Err(status);
        }
        let message = routing_decision(&decision);
        self.typed(decision.route, &format_args!("policy {}", decision.policy), message)
    }

    /// What a decision comes to: its properties typed, how long the action may execute, and what follows from earlier runs
    /// with its learning key.
    ///
    /// # Errors
    /// What is wrong with it, and who routed by it.
    pub fn typed(
        &self,
        mut route: Arc<Route>,
        routed_by: &dyn Display,
        mut decision: v1::RoutingDecision,
    ) -> Result<Routed, Status> {
        let by = |what: String| Status::failed_precondition(format!("{what} (routed by {routed_by})"));
        if let Some(what) = not_served(&route) {
            return Err(by(what.to_owned()));
        }
        let mut asked = self.schema.action(&route.platform).map_err(|e| by(property_help(&e)))?;
        self.warn_of_unknown(&asked);
        let timeout = match route.timeout {
            Some(timeout) => {
                self.check_timeout(timeout).map_err(|e| by(e.message().to_owned()))?;
                timeout
            }
            None => self.default_timeout,
        };
        decision.notes.extend(self.learning.decide(&mut route, &mut asked).as_deref().map(ToOwned::to_owned));
        decision.size = size(&route);
        Ok(Routed { route, asked, timeout, decision: pack(&decision) })
    }

    /// The same route for an action that runs again on a larger size class; `None` where it asks for the largest, or for one
    /// that is as large. Its time limit is then its own at least, whatever a policy allows it on smaller ones.
    pub fn enlarged(&self, route: &Route, to: SizeClass, own_timeout: Option<Duration>) -> Option<Route> {
        let size = larger_size(route.size, to)?;
        let or_default = |timeout: Option<Duration>| timeout.unwrap_or(self.default_timeout);
        let is_short = or_default(route.timeout) < or_default(own_timeout);
        let timeout = if is_short { own_timeout } else { route.timeout };
        Some(Route { size, timeout, ..route.clone() })
    }

    fn warn_of_unknown(&self, asked: &Asked) {
        if asked.unknown.is_empty() {
            return;
        }
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &asked.unknown {
            if warned.len() < WARNED_KEYS_MAX && warned.insert(key.clone()) {
                tracing::warn!(
                    key = &**key,
                    "actions ask for a platform property that supported_platform_properties doesn't have"
                );
            }
        }
    }
}

/// The action with the platform and the timeout that were decided.
pub fn routed_action(action: Action, routed: &Routed) -> Action {
    Action {
        platform: Some(platform(&routed.route.platform)),
        // Workers are always told one: Buildbarn's refuse an action without.
        timeout: prost_types::Duration::try_from(routed.timeout).ok(),
        // A copy: it would keep the whole buffer that the message came in.
        salt: bytes::Bytes::copy_from_slice(&action.salt),
        ..action
    }
}

/// The facts of an action that has arrived.
pub fn facts(arrival: &Arrival<'_>) -> ActionFacts {
    let Arrival { action, metadata, .. } = *arrival;
    let text = |field: fn(&RequestMetadata) -> &str| shared(metadata.map_or("", field));
    let tool = metadata.and_then(|m| m.tool_details.as_ref());
    ActionFacts {
        instance_name: shared(arrival.instance_name),
        digest: shared(arrival.digest),
        platform: action.platform.as_ref().map(properties),
        priority: arrival.priority,
        // Zero names no limit: some workers would kill the action at once, others never.
        timeout: action.timeout.and_then(|t| Duration::try_from(t).ok()).filter(|t| !t.is_zero()),
        do_not_cache: action.do_not_cache,
        skip_cache_lookup: arrival.skip_cache_lookup,
        tool_name: shared(tool.map_or("", |t| &t.tool_name)),
        tool_version: shared(tool.map_or("", |t| &t.tool_version)),
        invocation_id: text(|m| &m.tool_invocation_id),
        correlated_invocations_id: text(|m| &m.correlated_invocations_id),
        mnemonic: text(|m| &m.action_mnemonic),
        target_id: text(|m| &m.target_id),
        configuration_id: text(|m| &m.configuration_id),
        trigger: Trigger::Arrived,
        command: arrival.command.cloned(),
        now_unix_seconds: now(),
        ..ActionFacts::default()
    }
}

/// The same facts, for asking again about an action that is queued, and why.
pub fn facts_again(facts: &ActionFacts, trigger: Trigger) -> ActionFacts {
    ActionFacts { trigger, ..facts_now(facts) }
}

/// The same facts, at this time.
pub fn facts_now(facts: &ActionFacts) -> ActionFacts {
    ActionFacts { now_unix_seconds: now(), ..facts.clone() }
}

/// Most of what clients may say they don't: the empty text costs no memory.
fn shared(text: &str) -> Arc<str> {
    if text.is_empty() { Arc::default() } else { text.into() }
}

/// What policies are told the time is.
pub fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64())
}

/// The facts of a Command.
pub fn command_facts(command: &Command) -> CommandFacts {
    // Newer clients name outputs once; older ones by files and directories.
    let outputs: Vec<Arc<str>> = match command.output_paths.is_empty() {
        false => command.output_paths.iter().map(|p| shared(p)).collect(),
        true => legacy_outputs(command).map(|p| shared(p)).collect(),
    };
    CommandFacts {
        arguments: command.arguments.iter().map(|a| shared(a)).collect(),
        environment: command
            .environment_variables
            .iter()
            .map(|v| (shared(&v.name), shared(&v.value)))
            .collect(),
        #[allow(deprecated)]
        platform: command.platform.as_ref().map(properties).unwrap_or_default(),
        output_paths: outputs,
        working_directory: shared(&command.working_directory),
    }
}

#[allow(deprecated)]
fn legacy_outputs(command: &Command) -> impl Iterator<Item = &String> {
    command.output_files.iter().chain(&command.output_directories)
}

/// A REv2 platform as the core has it.
pub fn properties(platform: &Platform) -> Vec<Property> {
    platform.properties.iter().map(|p| Property::new(p.name.as_str(), p.value.as_str())).collect()
}

/// The core's properties as a REv2 platform.
pub fn platform(properties: &[Property]) -> Platform {
    let property = |p: &Property| platform::Property { name: p.name.to_string(), value: p.value.to_string() };
    Platform { properties: properties.iter().map(property).collect() }
}

/// What a client is told whose action a policy rejects.
pub fn rejected(decision: &Decision) -> Option<Status> {
    let rejection = decision.rejection.as_ref()?;
    let text = format!("rejected by policy {}: {rejection}", decision.policy);
    Some(Status::new(rejection.code.grpc().into(), text))
}

/// What this version does not do is refused, not done otherwise in silence.
fn not_served(route: &Route) -> Option<&'static str> {
    let asks = route.strategies.is_some();
    asks.then_some("the route asks for execution strategies, which this version does not offer")
}

fn property_help(error: &PropertyError) -> String {
    match error {
        PropertyError::Unknown { .. } => format!(
            "{error}; correct the action's exec_properties, or declare the key in supported_platform_properties, \
             or set unknown_property to \"ignore\""
        ),
        _ => error.to_string(),
    }
}

/// The size of a route that asks for `own`, for an action that runs again on a larger class, `to`; `None`: it stays.
fn larger_size(own: SizeClass, to: SizeClass) -> Option<SizeClass> {
    match (own, to) {
        (SizeClass::Largest, _) => None,
        // A size that is named is the one to begin with; a policy may have named one that is as large since.
        (SizeClass::Exactly(own), SizeClass::AtLeast(to) | SizeClass::Exactly(to)) if own >= to => None,
        (SizeClass::AtLeast(one), SizeClass::AtLeast(two)) => Some(SizeClass::AtLeast(one.max(two))),
        (SizeClass::Learned | SizeClass::Smallest | SizeClass::AtLeast(_) | SizeClass::Exactly(_), to) => {
            Some(to)
        }
    }
}

fn routing_decision(decision: &Decision) -> v1::RoutingDecision {
    v1::RoutingDecision {
        fallback_reason: decision.fallback.clone().unwrap_or_default(),
        fuel: decision.fuel,
        steps: steps(decision),
        ..message(&decision.route, &decision.policy, decision.generation)
    }
}

/// The size class that a route asks for; empty: any.
fn size(route: &Route) -> String {
    if route.size == SizeClass::Learned { String::new() } else { route.size.to_string() }
}

/// What is shown of a route, and of whose decision it is.
pub fn message(route: &Route, policy: &PolicyId, generation: u64) -> v1::RoutingDecision {
    let strings = |list: &[Arc<str>]| list.iter().map(|s| s.to_string()).collect();
    let is_shared = route.exclusivity == Exclusivity::Shared;
    v1::RoutingDecision {
        policy_name: policy.name.to_string(),
        policy_version: policy.version.to_string(),
        policy_digest: policy.digest_hex.to_string(),
        platform: platform(&route.platform).properties,
        pool: route.pool.as_deref().unwrap_or_default().to_owned(),
        invocation_keys: strings(&route.invocation_keys),
        priority: route.priority,
        notes: strings(&route.notes),
        environment: variables(route),
        exclusivity: if is_shared { String::new() } else { route.exclusivity.to_string() },
        size: size(route),
        generation,
        ..v1::RoutingDecision::default()
    }
}

fn variables(route: &Route) -> Vec<EnvironmentVariable> {
    let variable = |(name, value): &(Arc<str>, Arc<str>)| EnvironmentVariable {
        name: name.to_string(),
        value: value.to_string(),
    };
    route.environment.iter().map(variable).collect()
}

/// What is offered to the action's environment, for workers of ours (`pointsman.v1.ActionEnvironment`).
pub fn environment(route: &Route) -> Option<Any> {
    let is_any = !route.environment.is_empty();
    is_any.then(|| pack(&v1::ActionEnvironment { variables: variables(route) }))
}

/// Who said what, where there is more to tell than that one policy decided.
fn steps(decision: &Decision) -> Vec<v1::routing_decision::Step> {
    let step = |step: &Step| v1::routing_decision::Step {
        link: step.link.to_string(),
        policy_name: step.policy.name.to_string(),
        policy_version: step.policy.version.to_string(),
        policy_digest: step.policy.digest_hex.to_string(),
        trial: step.trial,
        failure: step.answer.as_ref().err().map(ToString::to_string).unwrap_or_default(),
        fuel: step.fuel,
    };
    match &*decision.steps {
        [only] if only.answer.is_ok() && !only.trial => Vec::new(),
        steps => steps.iter().map(step).collect(),
    }
}

/// Platforms have so many properties at most.
///
/// # Errors
/// `INVALID_ARGUMENT` that says how many there are.
pub fn check_count(what: &str, platform: &Platform, at_most: usize) -> Result<(), Status> {
    let count = platform.properties.len();
    if count > at_most {
        return Err(Status::invalid_argument(format!(
            "the {what} has {count} platform properties, {at_most} are allowed (limits.properties_per_action)"
        )));
    }
    Ok(())
}

/// Properties are sorted by name, then value, without doubles (REv2), so that equal platforms have equal digests.
///
/// # Errors
/// The two properties that are out of order.
pub fn check_sorted(platform: &Platform) -> Result<(), String> {
    let pairs = platform.properties.windows(2);
    let key = |p: &platform::Property| (p.name.clone(), p.value.clone());
    for pair in pairs {
        if (&pair[0].name, &pair[0].value) >= (&pair[1].name, &pair[1].value) {
            let ((name, value), (next_name, next_value)) = (key(&pair[0]), key(&pair[1]));
            return Err(format!(
                "properties must be sorted by name, then value, without doubles, but '{name}'='{value}' stands \
                 before '{next_name}'='{next_value}'"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{SizeClass, larger_size};

    #[test]
    fn what_was_too_small_is_not_named_again() {
        use SizeClass::{AtLeast, Exactly, Largest, Learned, Smallest};
        for (own, to, size) in [
            (Learned, AtLeast(2), Some(AtLeast(2))),
            (Smallest, AtLeast(2), Some(AtLeast(2))),
            (AtLeast(4), AtLeast(2), Some(AtLeast(4))),
            (Exactly(1), AtLeast(2), Some(AtLeast(2))),
            (Exactly(1), Exactly(2), Some(Exactly(2))),
            // A policy that came meanwhile names one that is large enough.
            (Exactly(2), AtLeast(2), None),
            (Exactly(4), Exactly(2), None),
            (Largest, AtLeast(2), None),
        ] {
            assert_eq!(larger_size(own, to), size, "{own} to {to}");
        }
    }
}
