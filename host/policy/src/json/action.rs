//! JSON of what is known about an action.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::Property;
use serde::{Deserialize, Serialize};

use super::{form, forms, is_default};
use crate::facts::{ActionFacts, Attempt, CommandFacts, Outcome, Trigger};

forms! {
    ActionFacts: ActionFactsForm,
    CommandFacts: CommandFactsForm,
    Attempt: AttemptForm,
    Outcome: OutcomeForm,
    Trigger: TriggerForm,
    Property: PropertyForm,
}

/// The time is not among the facts: `host.now` tells it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "ActionFacts", default = "ActionFacts::default", deny_unknown_fields)]
struct ActionFactsForm {
    #[serde(with = "form", skip_serializing_if = "is_default")]
    instance_name: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    digest: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    platform: Option<Vec<Property>>,
    #[serde(skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(rename = "timeout_ms", with = "form", skip_serializing_if = "is_default")]
    timeout: Option<Duration>,
    #[serde(skip_serializing_if = "is_default")]
    do_not_cache: bool,
    #[serde(skip_serializing_if = "is_default")]
    skip_cache_lookup: bool,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    tool_name: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    tool_version: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    invocation_id: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    correlated_invocations_id: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    mnemonic: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    target_id: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    configuration_id: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    principal: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    attempts: Vec<Attempt>,
    #[serde(rename = "cause", with = "form", skip_serializing_if = "is_default")]
    trigger: Trigger,
    #[serde(with = "form", skip_serializing_if = "Option::is_none")]
    command: Option<Arc<CommandFacts>>,
    #[serde(skip)]
    now_unix_seconds: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "CommandFacts", default = "CommandFacts::default", deny_unknown_fields)]
struct CommandFactsForm {
    #[serde(with = "form", skip_serializing_if = "is_default")]
    arguments: Vec<Arc<str>>,
    #[serde(with = "pairs", skip_serializing_if = "is_default")]
    environment: Vec<(Arc<str>, Arc<str>)>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    platform: Vec<Property>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    output_paths: Vec<Arc<str>>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    working_directory: Arc<str>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Attempt", deny_unknown_fields)]
struct AttemptForm {
    #[serde(with = "form")]
    outcome: Outcome,
    #[serde(default, skip_serializing_if = "is_default")]
    exit_code: i32,
    #[serde(default, with = "form", skip_serializing_if = "is_default")]
    signal: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "is_default")]
    size_class: u32,
    #[serde(default, with = "form", skip_serializing_if = "is_default")]
    worker: Arc<str>,
    #[serde(default, with = "form", skip_serializing_if = "is_default")]
    strategy: Option<Arc<str>>,
    #[serde(rename = "wall_ms", default, with = "form", skip_serializing_if = "is_default")]
    wall: Duration,
    #[serde(default, skip_serializing_if = "is_default")]
    cores: Option<f64>,
    #[serde(default, skip_serializing_if = "is_default")]
    peak_memory_mib: Option<u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Outcome", rename_all = "snake_case")]
enum OutcomeForm {
    Succeeded,
    Failed,
    TimedOut,
    Killed,
    WorkerLost,
    InfrastructureError,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Trigger", rename_all = "snake_case")]
enum TriggerForm {
    Arrived,
    Retried,
    Rerouted,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Property", deny_unknown_fields)]
struct PropertyForm {
    #[serde(with = "form")]
    name: Arc<str>,
    #[serde(with = "form")]
    value: Arc<str>,
}

/// Pairs of strings as `{"name", "value"}`, like properties.
pub(super) mod pairs {
    use std::sync::Arc;

    use pointsman_scheduler::route::Property;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::json::Form;

    type Pairs = Vec<(Arc<str>, Arc<str>)>;

    pub(in crate::json) fn serialize<S: Serializer>(pairs: &Pairs, to: S) -> Result<S::Ok, S::Error> {
        let property = |(name, value): &(Arc<str>, Arc<str>)| Property::new(name.clone(), value.clone());
        let properties: Vec<Property> = pairs.iter().map(property).collect();
        to.collect_seq(properties.iter().map(Form))
    }

    pub(in crate::json) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Pairs, D::Error> {
        let Form(properties) = Form::<Vec<Property>>::deserialize(from)?;
        Ok(properties.into_iter().map(|property| (property.name, property.value)).collect())
    }
}
