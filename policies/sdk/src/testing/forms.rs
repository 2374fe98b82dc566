//! The JSON form of golden cases, as the server reads it (`host/policy/src/json`), for the types of tests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Action, Command, Host, HostExclusive, Route, Terms, Worker};
use crate::{
    Attempt, Code, Exclusivity, Group, Outcome, Pool, Property, Rejection, Scope, SizeClass, Summary, Trigger,
};

/// A name and a value.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    name: String,
    value: String,
}

fn properties(pairs: Vec<Pair>) -> Vec<Property> {
    pairs.into_iter().map(|Pair { name, value }| Property { name, value }).collect()
}

/// In order and without doubles, as the server keeps them.
fn pairs(properties: &[Property]) -> Vec<Pair> {
    let mut properties = properties.to_vec();
    crate::native::sort(&mut properties);
    properties.into_iter().map(|Property { name, value }| Pair { name, value }).collect()
}

fn variables(variables: &BTreeMap<String, String>) -> Vec<Pair> {
    let pair = |(name, value): (&String, &String)| Pair { name: name.clone(), value: value.clone() };
    variables.iter().map(pair).collect()
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct FactsForm {
    instance_name: String,
    digest: String,
    pub(super) platform: Option<Vec<Pair>>,
    pub(super) priority: i32,
    pub(super) timeout_ms: Option<u32>,
    do_not_cache: bool,
    skip_cache_lookup: bool,
    tool_name: String,
    tool_version: String,
    invocation_id: String,
    correlated_invocations_id: String,
    mnemonic: String,
    target_id: String,
    configuration_id: String,
    principal: String,
    attempts: Vec<AttemptForm>,
    cause: Option<CauseForm>,
    command: CommandForm,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct CommandForm {
    arguments: Vec<String>,
    environment: Vec<Pair>,
    platform: Vec<Pair>,
    output_paths: Vec<String>,
    working_directory: String,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum CauseForm {
    Arrived,
    Retried,
    Rerouted,
}

impl FactsForm {
    pub(super) fn split(self) -> (Action, Command) {
        let command = Command {
            arguments: self.command.arguments,
            environment: self.command.environment.into_iter().map(|pair| (pair.name, pair.value)).collect(),
            platform: properties(self.command.platform),
            output_paths: self.command.output_paths,
            working_directory: self.command.working_directory,
        };
        let action = Action {
            instance_name: self.instance_name,
            digest: self.digest,
            platform: self.platform.map(properties),
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            do_not_cache: self.do_not_cache,
            skip_cache_lookup: self.skip_cache_lookup,
            tool_name: self.tool_name,
            tool_version: self.tool_version,
            invocation_id: self.invocation_id,
            correlated_invocations_id: self.correlated_invocations_id,
            mnemonic: self.mnemonic,
            target_id: self.target_id,
            configuration_id: self.configuration_id,
            principal: self.principal,
            attempts: self.attempts.into_iter().map(AttemptForm::read).collect(),
            cause: self.cause.map(|cause| match cause {
                CauseForm::Arrived => Trigger::Arrived,
                CauseForm::Retried => Trigger::Retried,
                CauseForm::Rerouted => Trigger::Rerouted,
            }),
        };
        (action, command)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptForm {
    outcome: OutcomeForm,
    #[serde(default)]
    exit_code: i32,
    #[serde(default)]
    signal: Option<String>,
    #[serde(default)]
    size_class: u32,
    #[serde(default)]
    worker: String,
    #[serde(default)]
    strategy: Option<String>,
    #[serde(default)]
    wall_ms: u32,
    #[serde(default)]
    cores: Option<f64>,
    #[serde(default)]
    peak_memory_mib: Option<u32>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeForm {
    Succeeded,
    Failed,
    TimedOut,
    Killed,
    WorkerLost,
    InfrastructureError,
}

impl AttemptForm {
    pub(super) fn read(self) -> Attempt {
        Attempt {
            outcome: match self.outcome {
                OutcomeForm::Succeeded => Outcome::Succeeded,
                OutcomeForm::Failed => Outcome::Failed,
                OutcomeForm::TimedOut => Outcome::TimedOut,
                OutcomeForm::Killed => Outcome::Killed,
                OutcomeForm::WorkerLost => Outcome::WorkerLost,
                OutcomeForm::InfrastructureError => Outcome::InfrastructureError,
            },
            exit_code: self.exit_code,
            signal: self.signal,
            size_class: self.size_class,
            worker: self.worker,
            strategy: self.strategy,
            wall_ms: self.wall_ms,
            cores: self.cores,
            peak_memory_mib: self.peak_memory_mib,
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RouteForm {
    platform: Vec<Pair>,
    pool: Option<String>,
    size: SizeForm,
    exclusivity: ExclusivityForm,
    strategies: Option<Vec<String>>,
    invocation_keys: Vec<String>,
    priority: i32,
    timeout_ms: Option<u32>,
    shared: bool,
    affinity: Option<AffinityForm>,
    learning_key: Option<String>,
    environment: Vec<Pair>,
    rank_candidates: u32,
    notes: Vec<String>,
}

impl Default for RouteForm {
    fn default() -> Self {
        Self::of(&Route::default())
    }
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum SizeForm {
    Learned,
    Smallest,
    Largest,
    Exactly(u32),
}

#[derive(Clone, Deserialize, Serialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum ExclusivityForm {
    Shared,
    Host,
    Group { name: String, scope: ScopeForm, at_most: u32 },
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum ScopeForm {
    Host,
    Pool,
    Cluster,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AffinityForm {
    key: String,
    wait_ms: u32,
}

impl RouteForm {
    pub(super) fn of(route: &Route) -> Self {
        Self {
            platform: pairs(&route.platform),
            pool: route.pool.clone(),
            size: match route.size {
                SizeClass::Learned => SizeForm::Learned,
                SizeClass::Smallest => SizeForm::Smallest,
                SizeClass::Largest => SizeForm::Largest,
                SizeClass::Exactly(class) => SizeForm::Exactly(class),
            },
            exclusivity: match &route.exclusive {
                Exclusivity::Shared => ExclusivityForm::Shared,
                Exclusivity::Host => ExclusivityForm::Host,
                Exclusivity::Group(Group { name, scope, at_most }) => ExclusivityForm::Group {
                    name: name.clone(),
                    scope: match scope {
                        Scope::Host => ScopeForm::Host,
                        Scope::Pool => ScopeForm::Pool,
                        Scope::Cluster => ScopeForm::Cluster,
                    },
                    at_most: *at_most,
                },
            },
            strategies: route.strategies.clone(),
            invocation_keys: route.invocation_keys.clone(),
            priority: route.priority,
            timeout_ms: route.timeout_ms,
            shared: route.shared,
            affinity: route.affinity.clone().map(|(key, wait_ms)| AffinityForm { key, wait_ms }),
            learning_key: route.learning_key.clone(),
            environment: variables(&route.environment),
            rank_candidates: route.rank_candidates,
            notes: route.notes.clone(),
        }
    }

    pub(super) fn read(self) -> Route {
        Route {
            platform: properties(self.platform),
            pool: self.pool,
            size: match self.size {
                SizeForm::Learned => SizeClass::Learned,
                SizeForm::Smallest => SizeClass::Smallest,
                SizeForm::Largest => SizeClass::Largest,
                SizeForm::Exactly(class) => SizeClass::Exactly(class),
            },
            exclusive: match self.exclusivity {
                ExclusivityForm::Shared => Exclusivity::Shared,
                ExclusivityForm::Host => Exclusivity::Host,
                ExclusivityForm::Group { name, scope, at_most } => Exclusivity::Group(Group {
                    name,
                    scope: match scope {
                        ScopeForm::Host => Scope::Host,
                        ScopeForm::Pool => Scope::Pool,
                        ScopeForm::Cluster => Scope::Cluster,
                    },
                    at_most,
                }),
            },
            strategies: self.strategies,
            invocation_keys: self.invocation_keys,
            priority: self.priority,
            timeout_ms: self.timeout_ms,
            shared: self.shared,
            affinity: self.affinity.map(|affinity| (affinity.key, affinity.wait_ms)),
            learning_key: self.learning_key,
            environment: self.environment.into_iter().map(|pair| (pair.name, pair.value)).collect(),
            rank_candidates: self.rank_candidates,
            notes: self.notes,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct WorkerForm {
    id: Vec<Pair>,
    instance_name_prefix: String,
    platform: Vec<Pair>,
    size_class: u32,
    principal: String,
}

impl WorkerForm {
    pub(super) fn read(self) -> Worker {
        Worker {
            id: properties(self.id),
            instance_name_prefix: self.instance_name_prefix,
            platform: properties(self.platform),
            size_class: self.size_class,
            principal: self.principal,
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TermsForm {
    platform: Vec<Pair>,
    pool: Option<String>,
    size_class: u32,
    strategies: Option<Vec<String>>,
    max_inflight: Option<u32>,
    exclusive: HostExclusiveForm,
    exclusive_below: Option<u32>,
    notes: Vec<String>,
}

impl Default for TermsForm {
    fn default() -> Self {
        Self::of(&Terms::default())
    }
}

#[derive(Clone, Copy, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum HostExclusiveForm {
    Allowed,
    Never,
    NotMoreOftenThanMs(u32),
}

impl TermsForm {
    pub(super) fn of(terms: &Terms) -> Self {
        Self {
            platform: pairs(&terms.platform),
            pool: terms.pool.clone(),
            size_class: terms.size_class,
            strategies: terms.strategies.clone(),
            max_inflight: terms.max_inflight,
            exclusive: match terms.exclusive {
                HostExclusive::Allowed => HostExclusiveForm::Allowed,
                HostExclusive::Never => HostExclusiveForm::Never,
                HostExclusive::NotMoreOftenThanMs(ms) => HostExclusiveForm::NotMoreOftenThanMs(ms),
            },
            exclusive_below: terms.exclusive_below,
            notes: terms.notes.clone(),
        }
    }

    pub(super) fn read(self) -> Terms {
        Terms {
            platform: properties(self.platform),
            pool: self.pool,
            size_class: self.size_class,
            strategies: self.strategies,
            max_inflight: self.max_inflight,
            exclusive: match self.exclusive {
                HostExclusiveForm::Allowed => HostExclusive::Allowed,
                HostExclusiveForm::Never => HostExclusive::Never,
                HostExclusiveForm::NotMoreOftenThanMs(ms) => HostExclusive::NotMoreOftenThanMs(ms),
            },
            exclusive_below: self.exclusive_below,
            notes: self.notes,
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct HostForm {
    now: f64,
    stored: BTreeMap<String, String>,
    pools: Vec<PoolForm>,
    statistics: BTreeMap<String, Option<SummaryForm>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PoolForm {
    name: String,
    #[serde(default)]
    workers: u32,
    #[serde(default)]
    idle_workers: u32,
    #[serde(default)]
    executing: u32,
    #[serde(default)]
    queued: u32,
    #[serde(default)]
    oldest_queued_ms: u32,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct SummaryForm {
    attempts: u32,
    failures: u32,
    p50_wall_ms: u32,
    p95_wall_ms: u32,
    mean_cores: f64,
    p95_peak_memory_mib: u32,
}

impl HostForm {
    pub(super) fn read(self) -> Host {
        let pool = |pool: PoolForm| Pool {
            name: pool.name,
            workers: pool.workers,
            idle_workers: pool.idle_workers,
            executing: pool.executing,
            queued: pool.queued,
            oldest_queued_ms: pool.oldest_queued_ms,
        };
        let summary = |summary: SummaryForm| Summary {
            attempts: summary.attempts,
            failures: summary.failures,
            p50_wall_ms: summary.p50_wall_ms,
            p95_wall_ms: summary.p95_wall_ms,
            mean_cores: summary.mean_cores,
            p95_peak_memory_mib: summary.p95_peak_memory_mib,
        };
        let statistics = self.statistics.into_iter();
        Host {
            statistics: statistics.filter_map(|(key, known)| Some((key, summary(known?)))).collect(),
            stored: self.stored.into_iter().map(|(key, value)| (key, value.into_bytes())).collect(),
            pools: self.pools.into_iter().map(pool).collect(),
            now: self.now,
        }
    }
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RejectionForm {
    #[serde(default)]
    code: Option<CodeForm>,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    help: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum CodeForm {
    InvalidArgument,
    FailedPrecondition,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
}

impl RejectionForm {
    /// What of the rejection is not as this says; nothing it does not say can differ.
    pub(super) fn differs(&self, found: &Rejection) -> Option<String> {
        let code = match found.code {
            Code::InvalidArgument => CodeForm::InvalidArgument,
            Code::FailedPrecondition => CodeForm::FailedPrecondition,
            Code::PermissionDenied => CodeForm::PermissionDenied,
            Code::ResourceExhausted => CodeForm::ResourceExhausted,
            Code::Unavailable => CodeForm::Unavailable,
        };
        let same = self.code.is_none_or(|expected| expected == code)
            && self.reason.as_ref().is_none_or(|expected| *expected == found.reason)
            && self.help.as_ref().is_none_or(|expected| found.help.as_ref() == Some(expected));
        (!same).then(|| format!("the rejection is {code:?}, {:?}, {:?}", found.reason, found.help))
    }
}
