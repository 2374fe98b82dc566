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

use std::cell::RefCell;

use crate::bindings::pointsman::policy::host::Level;
use crate::testing::{Call, Ran};
use crate::{CommandWhen, ConfigError, Policy, Property};

/// Everything a policy can read or change while it runs in a test.
struct Now {
    call: Call,
    configuring: bool,
    requested: Option<CommandWhen>,
    log: Vec<(Level, String)>,
}

thread_local! {
    static NOW: RefCell<Option<Now>> = const { RefCell::new(None) };
}

pub(crate) fn run<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    let now = Now { call, configuring: true, requested: None, log: Vec::new() };
    NOW.with(|cell| *cell.borrow_mut() = Some(now));
    let result = P::configure(config).map(|policy| {
        NOW.with(|cell| {
            if let Some(now) = &mut *cell.borrow_mut() {
                now.configuring = false;
            }
        });
        policy.route().err()
    });
    let now = NOW.with(|cell| cell.borrow_mut().take());
    let (rejection, now) = (result?, now.unwrap_or_else(|| panic!("a policy ran another one")));
    let mut route = now.call.route;
    sort(&mut route.platform);
    Ok(Ran { route, rejection, requested: now.requested, log: now.log, stored: now.call.host.stored })
}

/// For functions that may be called at any time.
fn always<R>(name: &str, f: impl FnOnce(&mut Now) -> R) -> R {
    NOW.with(|cell| match &mut *cell.borrow_mut() {
        Some(now) => f(now),
        None => panic!("{name} was called outside of pointsman_policy_sdk::testing::run"),
    })
}

/// For functions that speak of an action.
fn routing<R>(name: &str, f: impl FnOnce(&mut Now) -> R) -> R {
    always(name, |now| {
        assert!(!now.configuring, "{name} speaks of an action, so it can't be called in configure");
        f(now)
    })
}

/// As the server keeps properties: in order, without doubles.
fn sort(properties: &mut Vec<Property>) {
    properties.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
    properties.dedup();
}

fn first_value(properties: &[Property], name: &str) -> Option<String> {
    properties.iter().filter(|property| property.name == name).map(|property| property.value.clone()).min()
}
