//! A policy for tests: has all hooks, and lets actions, workers and results say what it is to do.
//!
//! | Hook | What it goes by |
//! | --- | --- |
//! | `on-action` | properties: `hooks-rank` (so many candidates), `hooks-size` (`smallest`, `largest` or a number), `hooks-timeout-ms`, `hooks-environment` (a variable with the action's mnemonic), `hooks-retry-pool` (the pool after an attempt has failed) |
//! | `on-worker` | entries of the worker's id: `refuse`, `set` (`key=value`), `pool`, `size-class`, `inflight`, `strategies`, `exclusive` |
//! | `on-result` | the exit code: see [`completed`]; properties: `hooks-distrust` (not the first result, in the pool `big`), `hooks-accept` (with a note) |
//! | `on-assignment` | the other way round |
//!
//! In the configuration `pool` is the pool of workers that don't name one, and `refuse` why all are turned away.

#[allow(unsafe_code, missing_docs, unreachable_pub, clippy::all)]
mod bindings {
    wit_bindgen::generate!({
        path: "../../../wit",
        world: "full",
        generate_unused_types: true,
    });
}

use std::cell::OnceCell;

use bindings::exports::pointsman::policy::on_assignment::Choice;
use bindings::exports::pointsman::policy::on_result::Next;
use bindings::exports::pointsman::policy::{lifecycle, on_action, on_assignment, on_result, on_worker};
use bindings::pointsman::policy::types::{Attempt, Candidate, Code, Outcome, Rejection, SizeClass, Trigger};
use bindings::pointsman::policy::{action, route, terms, worker};

thread_local! {
    static CONFIG: OnceCell<serde_json::Value> = const { OnceCell::new() };
}

struct Hooks;

impl lifecycle::Guest for Hooks {
    fn configure(config: String) -> Result<lifecycle::Manifest, Vec<lifecycle::ConfigError>> {
        let config: serde_json::Value = serde_json::from_str(&config).map_err(|error| {
            vec![lifecycle::ConfigError { path: String::new(), message: error.to_string() }]
        })?;
        CONFIG.with(|cell| cell.set(config).ok());
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(lifecycle::Manifest { name: "hooks".to_owned(), version, config_schema: None })
    }
}

impl on_action::Guest for Hooks {
    fn route_action() -> Result<(), Rejection> {
        route::remove_property("hooks-distrust");
        route::remove_property("hooks-accept");
        let take = |name| route::platform_value(name).inspect(|_| route::remove_property(name));
        if let Some(n) = take("hooks-rank").and_then(|n| n.parse().ok()) {
            route::rank_candidates(n);
        }
        match take("hooks-size").as_deref() {
            None => {}
            Some("smallest") => route::set_size(SizeClass::Smallest),
            Some("largest") => route::set_size(SizeClass::Largest),
            Some(class) => route::set_size(SizeClass::Exactly(class.parse().unwrap_or(0))),
        }
        if let Some(timeout) = take("hooks-timeout-ms").and_then(|ms| ms.parse().ok()) {
            route::set_timeout_ms(timeout);
        }
        if let Some(variable) = take("hooks-environment") {
            route::set_environment(&variable, &action::mnemonic());
        }
        if let Some(pool) = take("hooks-retry-pool")
            && action::cause() == Trigger::Retried
        {
            route::set_pool(Some(&pool));
        }
        for attempt in action::attempts() {
            route::note(&format!("{} on {}", outcome(attempt.outcome), attempt.worker));
        }
        Ok(())
    }
}

impl on_worker::Guest for Hooks {
    fn admit() -> Result<(), Rejection> {
        let configured = |key| CONFIG.with(|cell| Some(cell.get()?[key].as_str()?.to_owned()));
        if let Some(reason) = configured("refuse") {
            return Err(rejected(Code::FailedPrecondition, &reason));
        }
        if let Some(pool) = configured("pool") {
            terms::set_pool(&pool);
        }
        for entry in worker::id() {
            let value = entry.value;
            match entry.name.as_str() {
                "refuse" => return Err(rejected(Code::FailedPrecondition, &value)),
                "pool" => terms::set_pool(&value),
                "set" => {
                    let (key, value) = value.split_once('=').unwrap_or((&value, ""));
                    terms::set_property(key, value);
                }
                "size-class" => terms::set_size_class(value.parse().unwrap_or(0)),
                "inflight" => terms::set_max_inflight(value.parse().unwrap_or(0)),
                "strategies" => {
                    terms::set_strategies(&value.split(',').map(Into::into).collect::<Vec<_>>());
                }
                "exclusive" => {
                    terms::set_exclusive(value.parse().ok());
                    terms::set_exclusive_below(7);
                }
                "trap" => std::process::abort(),
                _ => {}
            }
        }
        terms::note(&format!("of size class {}", worker::size_class()));
        Ok(())
    }
}

impl on_result::Guest for Hooks {
    fn completed(attempt: Attempt) -> Next {
        let before = action::attempts().len();
        if before == 0 && action::platform_value("hooks-distrust").is_some() {
            route::set_pool(Some("big"));
            return Next::Again;
        }
        if action::platform_value("hooks-accept").is_some() {
            route::note("as it is");
            return Next::Accept;
        }
        completed(&attempt, before)
    }
}

/// 42 once more in the pool `big`, unless there were attempts before; 43 is rejected; 44 runs again whenever it ends so; 45
/// is the policy's end; 46 runs again as no server can.
fn completed(attempt: &Attempt, before: usize) -> Next {
    match attempt.exit_code {
        42 if before == 0 => {
            route::set_pool(Some("big"));
            route::note("once more, on large machines");
            Next::Again
        }
        43 => Next::Fail(rejected(
            Code::ResourceExhausted,
            &format!("{} after {before}", outcome(attempt.outcome)),
        )),
        44 => Next::Again,
        45 => std::process::abort(),
        46 => {
            route::set_timeout_ms(u32::MAX);
            Next::Again
        }
        _ => Next::Accept,
    }
}

impl on_assignment::Guest for Hooks {
    fn rank(candidates: Vec<Candidate>) -> Vec<Choice> {
        let choice = |(index, candidate): (usize, &Candidate)| {
            let reason = format!("{} of {} comes late", candidate.worker, candidates.len());
            Choice { index: u32::try_from(index).unwrap_or(u32::MAX), reason }
        };
        candidates.iter().enumerate().rev().map(choice).collect()
    }
}

fn rejected(code: Code, reason: &str) -> Rejection {
    Rejection { code, reason: reason.to_owned(), help: Some("ask the test".to_owned()) }
}

fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::TimedOut => "timed out",
        Outcome::Killed => "killed",
        Outcome::WorkerLost => "worker lost",
        Outcome::InfrastructureError => "infrastructure error",
    }
}

#[cfg(target_family = "wasm")]
#[allow(unsafe_code)]
const _: () = {
    use bindings::export;
    export!(Hooks with_types_in bindings);
};
