//! Interface `action`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::{first_value, routing};
use crate::testing::Action;
use crate::{Attempt, Property, Trigger};

fn read<R>(name: &str, f: impl FnOnce(&Action) -> R) -> R {
    routing(name, |now| f(&now.call.action))
}

pub fn instance_name() -> String {
    read("action.instance-name", |action| action.instance_name.clone())
}

pub fn digest() -> String {
    read("action.digest", |action| action.digest.clone())
}

pub fn has_platform() -> bool {
    read("action.has-platform", |action| action.platform.is_some())
}

pub fn platform() -> Vec<Property> {
    read("action.platform", |action| {
        let mut platform = action.platform.clone().unwrap_or_default();
        platform.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        platform
    })
}

pub fn platform_value(name: &str) -> Option<String> {
    read("action.platform-value", |action| first_value(action.platform.as_deref()?, name))
}

pub fn priority() -> i32 {
    read("action.priority", |action| action.priority)
}

pub fn timeout_ms() -> Option<u32> {
    read("action.timeout-ms", |action| action.timeout_ms)
}

pub fn do_not_cache() -> bool {
    read("action.do-not-cache", |action| action.do_not_cache)
}

pub fn skip_cache_lookup() -> bool {
    read("action.skip-cache-lookup", |action| action.skip_cache_lookup)
}

pub fn tool_name() -> String {
    read("action.tool-name", |action| action.tool_name.clone())
}

pub fn tool_version() -> String {
    read("action.tool-version", |action| action.tool_version.clone())
}

pub fn invocation_id() -> String {
    read("action.invocation-id", |action| action.invocation_id.clone())
}

pub fn correlated_invocations_id() -> String {
    read("action.correlated-invocations-id", |action| action.correlated_invocations_id.clone())
}

pub fn mnemonic() -> String {
    read("action.mnemonic", |action| action.mnemonic.clone())
}

pub fn target_id() -> String {
    read("action.target-id", |action| action.target_id.clone())
}

pub fn configuration_id() -> String {
    read("action.configuration-id", |action| action.configuration_id.clone())
}

pub fn principal() -> String {
    read("action.principal", |action| action.principal.clone())
}

pub fn attempts() -> Vec<Attempt> {
    read("action.attempts", |action| action.attempts.clone())
}

pub fn cause() -> Trigger {
    read("action.cause", |action| action.cause.unwrap_or(Trigger::Arrived))
}
