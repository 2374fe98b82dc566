//! Facts and routes for tests.

use std::sync::Arc;

use pointsman_policy::{ActionFacts, Generation, Options, Policy, Runtime};
use pointsman_scheduler::route::{Property, Route};

pub(crate) fn runtime() -> Runtime {
    Runtime::new(Options::default()).unwrap()
}

/// The policy that decides first about actions without an instance name.
pub(crate) fn first(generation: &Generation) -> Arc<Policy> {
    generation.first("").unwrap().clone()
}

pub(crate) fn properties(pairs: &[(&str, &str)]) -> Vec<Property> {
    pairs.iter().map(|(name, value)| Property::new(*name, *value)).collect()
}

/// An action with a platform and all a client says about itself.
pub(crate) fn facts() -> ActionFacts {
    ActionFacts {
        digest: "abc/1".into(),
        platform: Some(properties(&[("OSFamily", "linux")])),
        mnemonic: "CppCompile".into(),
        invocation_id: "invocation".into(),
        correlated_invocations_id: "build".into(),
        now_unix_seconds: 1_000.0,
        ..ActionFacts::default()
    }
}

/// What the client of these facts asks for.
pub(crate) fn wishes(facts: &ActionFacts) -> Route {
    Route { platform: facts.platform.clone().unwrap_or_default(), shared: true, ..Route::default() }
}

pub(crate) fn strings(list: &[Arc<str>]) -> Vec<&str> {
    list.iter().map(|text| &**text).collect()
}
