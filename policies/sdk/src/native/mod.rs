//! The interface as native code sees it: functions that speak of the call which a test described.
//!
//! Signatures must stay those of the generated bindings, else a policy compiles for one and not for the other;
//! `signatures.rs` holds them to it.

pub mod action;
pub mod command;
pub mod host;
pub mod route;
#[cfg(test)]
mod signatures;
pub mod terms;
pub mod worker;

use std::cell::RefCell;

use crate::bindings::pointsman::policy::host::Level;
use crate::testing::{Call, Ran};
use crate::{CommandWhen, ConfigError, Policy, Property};

/// Everything a policy can read or change while it runs in a test.
struct Now {
    call: Call,
    place: Place,
    requested: Option<CommandWhen>,
    log: Vec<(Level, String)>,
}

/// What the policy is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Configure,
    /// `route-action` or `completed`.
    Action,
    /// `admit`.
    Worker,
}

thread_local! {
    static NOW: RefCell<Option<Now>> = const { RefCell::new(None) };
}

pub(crate) fn run<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    at(config, call, Place::Action, |policy: &P, ran| ran.rejection = policy.route().err())
}

pub(crate) fn admit<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    at(config, call, Place::Worker, |policy: &P, ran| ran.rejection = policy.admit().err())
}

pub(crate) fn completed<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    let attempt = call.attempt.clone().unwrap_or_else(|| panic!("the call has no attempt"));
    at(config, call, Place::Action, |policy: &P, ran| ran.next = Some(policy.completed(&attempt)))
}

fn at<P: Policy>(
    config: &str,
    call: Call,
    place: Place,
    ask: impl FnOnce(&P, &mut Ran),
) -> Result<Ran, Vec<ConfigError>> {
    let now = Now { call, place: Place::Configure, requested: None, log: Vec::new() };
    NOW.with(|cell| *cell.borrow_mut() = Some(now));
    let mut ran = Ran::default();
    let result = P::configure(config).map(|policy| {
        NOW.with(|cell| {
            if let Some(now) = &mut *cell.borrow_mut() {
                now.place = place;
            }
        });
        ask(&policy, &mut ran);
    });
    let now = NOW.with(|cell| cell.borrow_mut().take());
    let now = now.unwrap_or_else(|| panic!("a policy ran another one"));
    result?;
    let Call { route, terms, host, .. } = now.call;
    ran.route = route;
    ran.terms = terms;
    ran.stored = host.stored;
    ran.requested = now.requested;
    ran.log = now.log;
    sort(&mut ran.route.platform);
    sort(&mut ran.terms.platform);
    Ok(ran)
}

/// For functions that may be called at any time.
fn always<R>(name: &str, f: impl FnOnce(&mut Now) -> R) -> R {
    NOW.with(|cell| match &mut *cell.borrow_mut() {
        Some(now) => f(now),
        None => panic!("{name} was called outside of a call that pointsman_policy_sdk::testing makes"),
    })
}

/// For functions that speak of an action.
fn routing<R>(name: &str, f: impl FnOnce(&mut Now) -> R) -> R {
    always(name, |now| {
        assert_eq!(now.place, Place::Action, "{name} speaks of an action, which is not at hand");
        f(now)
    })
}

/// For functions that speak of a worker.
fn admitting<R>(name: &str, f: impl FnOnce(&mut Now) -> R) -> R {
    always(name, |now| {
        assert_eq!(now.place, Place::Worker, "{name} speaks of a worker, which is not at hand");
        f(now)
    })
}

/// As the server keeps properties: in order, without doubles.
pub(crate) fn sort(properties: &mut Vec<Property>) {
    properties.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
    properties.dedup();
}

fn first_value(properties: &[Property], name: &str) -> Option<String> {
    properties.iter().filter(|property| property.name == name).map(|property| property.value.clone()).min()
}
