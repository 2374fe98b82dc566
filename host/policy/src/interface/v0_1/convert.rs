//! Between the types of the interface and plain data.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::{Exclusivity, Property, Scope, SizeClass};

use super::bindings::exports::pointsman::policy::lifecycle;
use super::imports::types;
use crate::decision::{Code, Rejection};
use crate::facts::{Attempt, Outcome, Pool, Summary, Trigger};
use crate::hooks::Candidate;
use crate::interface::{ConfigProblem, Manifest};
use crate::state::{State, bad};

/// Counts and times that don't fit saturate.
pub(super) fn ms(duration: Duration) -> u32 {
    duration.as_millis().try_into().unwrap_or(u32::MAX)
}

pub(super) fn strings(list: &[Arc<str>]) -> Vec<String> {
    list.iter().map(|text| text.to_string()).collect()
}

pub(super) fn optional(text: Option<&Arc<str>>) -> Option<String> {
    text.map(|text| text.to_string())
}

pub(super) fn properties_out(list: &[Property]) -> Vec<types::Property> {
    list.iter().map(|p| types::Property { name: p.name.to_string(), value: p.value.to_string() }).collect()
}

pub(super) fn property_in(state: &State, name: String, value: String) -> wasmtime::Result<Property> {
    let name = state.name("the name of a property", name)?;
    let value = state.text("the value of a property", value)?;
    Ok(Property { name, value })
}

pub(super) fn properties_in(state: &State, list: Vec<types::Property>) -> wasmtime::Result<Vec<Property>> {
    let (count, limit) = (list.len(), state.limits.properties);
    if count > limit {
        return Err(bad(format!("set-platform was given {count} properties, allowed are {limit}")));
    }
    list.into_iter().map(|p| property_in(state, p.name, p.value)).collect()
}

/// Sets the only value of a property in a list that is in order.
pub(super) fn set_property(
    list: &mut Vec<Property>,
    property: Property,
    limit: usize,
) -> wasmtime::Result<()> {
    list.retain(|known| known.name != property.name);
    if list.len() >= limit {
        return Err(bad(format!("set-property would add to {limit} properties, and no more are allowed")));
    }
    let place = list.partition_point(|known| *known < property);
    list.insert(place, property);
    Ok(())
}

/// A variable that every shell and every kernel takes.
pub(super) fn variable_in(
    state: &State,
    name: String,
    value: String,
) -> wasmtime::Result<(Arc<str>, Arc<str>)> {
    let is_name = !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let name = state.name("the name of a variable", name)?;
    if !is_name {
        return Err(bad(format!(
            "the variable {name:?} is not named by letters, digits and _ alone, with no digit first"
        )));
    }
    if value.contains('\0') {
        return Err(bad(format!(
            "the value of the variable {name} has a NUL, which no environment can hold"
        )));
    }
    Ok((name, state.text("the value of a variable", value)?))
}

/// A list of names that each must say something.
pub(super) fn names_in(state: &State, what: &str, list: Vec<String>) -> wasmtime::Result<Vec<Arc<str>>> {
    let (count, limit) = (list.len(), state.limits.list_items);
    if count > limit {
        return Err(bad(format!("{what} was given {count} names, allowed are {limit}")));
    }
    list.into_iter().map(|name| state.name(what, name)).collect()
}

pub(super) fn size_out(size: SizeClass) -> types::SizeClass {
    match size {
        SizeClass::Learned | SizeClass::AtLeast(_) => types::SizeClass::Learned,
        SizeClass::Smallest => types::SizeClass::Smallest,
        SizeClass::Largest => types::SizeClass::Largest,
        SizeClass::Exactly(class) => types::SizeClass::Exactly(class),
    }
}

pub(super) fn size_in(size: types::SizeClass) -> SizeClass {
    match size {
        types::SizeClass::Learned => SizeClass::Learned,
        types::SizeClass::Smallest => SizeClass::Smallest,
        types::SizeClass::Largest => SizeClass::Largest,
        types::SizeClass::Exactly(class) => SizeClass::Exactly(class),
    }
}

pub(super) fn exclusivity_out(exclusivity: &Exclusivity) -> types::Exclusivity {
    match exclusivity {
        Exclusivity::Shared => types::Exclusivity::Shared,
        Exclusivity::Host => types::Exclusivity::Host,
        Exclusivity::Group { name, scope, at_most } => types::Exclusivity::Group(types::Group {
            name: name.to_string(),
            scope: match scope {
                Scope::Host => types::Scope::Host,
                Scope::Pool => types::Scope::Pool,
                Scope::Cluster => types::Scope::Cluster,
            },
            at_most: *at_most,
        }),
    }
}

pub(super) fn exclusivity_in(
    state: &State,
    exclusivity: types::Exclusivity,
) -> wasmtime::Result<Exclusivity> {
    Ok(match exclusivity {
        types::Exclusivity::Shared => Exclusivity::Shared,
        types::Exclusivity::Host => Exclusivity::Host,
        types::Exclusivity::Group(group) => {
            let name = state.name("the name of an exclusive group", group.name)?;
            if group.at_most == 0 {
                return Err(bad(format!(
                    "the exclusive group {name:?} allows 0 actions, so none could ever run"
                )));
            }
            let scope = match group.scope {
                types::Scope::Host => Scope::Host,
                types::Scope::Pool => Scope::Pool,
                types::Scope::Cluster => Scope::Cluster,
            };
            Exclusivity::Group { name, scope, at_most: group.at_most }
        }
    })
}

pub(super) fn trigger_out(trigger: Trigger) -> types::Trigger {
    match trigger {
        Trigger::Arrived => types::Trigger::Arrived,
        Trigger::Retried => types::Trigger::Retried,
        Trigger::Rerouted => types::Trigger::Rerouted,
    }
}

pub(super) fn attempt_out(attempt: &Attempt) -> types::Attempt {
    types::Attempt {
        outcome: match attempt.outcome {
            Outcome::Succeeded => types::Outcome::Succeeded,
            Outcome::Failed => types::Outcome::Failed,
            Outcome::TimedOut => types::Outcome::TimedOut,
            Outcome::Killed => types::Outcome::Killed,
            Outcome::WorkerLost => types::Outcome::WorkerLost,
            Outcome::InfrastructureError => types::Outcome::InfrastructureError,
        },
        exit_code: attempt.exit_code,
        signal: optional(attempt.signal.as_ref()),
        size_class: attempt.size_class,
        worker: attempt.worker.to_string(),
        strategy: optional(attempt.strategy.as_ref()),
        wall_ms: ms(attempt.wall),
        cores: attempt.cores,
        peak_memory_mib: attempt.peak_memory_mib,
    }
}

pub(super) fn pool_out(pool: &Pool) -> types::Pool {
    types::Pool {
        name: pool.name.to_string(),
        workers: pool.workers,
        idle_workers: pool.idle_workers,
        executing: pool.executing,
        queued: pool.queued,
        oldest_queued_ms: ms(pool.oldest_queued),
    }
}

pub(super) fn summary_out(summary: &Summary) -> types::Summary {
    types::Summary {
        attempts: summary.attempts,
        failures: summary.failures,
        p50_wall_ms: ms(summary.p50_wall),
        p95_wall_ms: ms(summary.p95_wall),
        mean_cores: summary.mean_cores,
        p95_peak_memory_mib: summary.p95_peak_memory_mib,
    }
}

pub(super) fn candidate_out(candidate: &Candidate) -> types::Candidate {
    types::Candidate {
        worker: candidate.worker.to_string(),
        pool: candidate.pool.to_string(),
        executing: candidate.executing,
        affine: candidate.affine,
        idle_ms: ms(candidate.idle),
    }
}

pub(super) fn rejection(state: &State, rejection: types::Rejection) -> wasmtime::Result<Rejection> {
    let reason = state.name("the reason of a rejection", rejection.reason)?.to_string();
    let help = match rejection.help {
        Some(help) => Some(state.text("the help of a rejection", help)?.to_string()),
        None => None,
    };
    let code = match rejection.code {
        types::Code::InvalidArgument => Code::InvalidArgument,
        types::Code::FailedPrecondition => Code::FailedPrecondition,
        types::Code::PermissionDenied => Code::PermissionDenied,
        types::Code::ResourceExhausted => Code::ResourceExhausted,
        types::Code::Unavailable => Code::Unavailable,
    };
    Ok(Rejection { code, reason, help })
}

pub(super) fn manifest(manifest: lifecycle::Manifest) -> Manifest {
    Manifest { name: manifest.name, version: manifest.version, config_schema: manifest.config_schema }
}

pub(super) fn config_problem(error: lifecycle::ConfigError) -> ConfigProblem {
    ConfigProblem { path: error.path, message: error.message, place: None }
}
