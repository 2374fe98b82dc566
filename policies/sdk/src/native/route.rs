//! Interface `route`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::{first_value, routing, sort};
use crate::testing::Route;
use crate::{Exclusivity, Property, SizeClass};

fn with<R>(name: &str, f: impl FnOnce(&mut Route) -> R) -> R {
    routing(name, |now| f(&mut now.call.route))
}

/// As a server: what must say something must not be empty.
fn named(function: &str, name: &str) {
    assert!(!name.is_empty(), "{function} was given an empty name, and a server would trap this call");
}

pub fn platform() -> Vec<Property> {
    with("route.platform", |route| route.platform.clone())
}

pub fn platform_value(name: &str) -> Option<String> {
    with("route.platform-value", |route| first_value(&route.platform, name))
}

pub fn set_platform(properties: &[Property]) {
    properties.iter().for_each(|property| named("set-platform", &property.name));
    with("route.set-platform", |route| {
        route.platform = properties.to_vec();
        sort(&mut route.platform);
    });
}

pub fn set_property(name: &str, value: &str) {
    named("set-property", name);
    with("route.set-property", |route| {
        route.platform.retain(|property| property.name != name);
        route.platform.push(Property::new(name, value));
        sort(&mut route.platform);
    });
}

pub fn remove_property(name: &str) {
    with("route.remove-property", |route| route.platform.retain(|property| property.name != name));
}

pub fn pool() -> Option<String> {
    with("route.pool", |route| route.pool.clone())
}

pub fn set_pool(name: Option<&str>) {
    name.into_iter().for_each(|name| named("set-pool", name));
    with("route.set-pool", |route| route.pool = name.map(Into::into));
}

pub fn size() -> SizeClass {
    with("route.size", |route| route.size)
}

pub fn set_size(size: SizeClass) {
    with("route.set-size", |route| route.size = size);
}

pub fn exclusive() -> Exclusivity {
    with("route.exclusive", |route| route.exclusive.clone())
}

pub fn set_exclusive(exclusivity: &Exclusivity) {
    with("route.set-exclusive", |route| route.exclusive = exclusivity.clone());
}

pub fn strategies() -> Option<Vec<String>> {
    with("route.strategies", |route| route.strategies.clone())
}

pub fn set_strategies(names: Option<&[String]>) {
    with("route.set-strategies", |route| route.strategies = names.map(<[String]>::to_vec));
}

pub fn invocation_keys() -> Vec<String> {
    with("route.invocation-keys", |route| route.invocation_keys.clone())
}

pub fn set_invocation_keys(keys: &[String]) {
    keys.iter().for_each(|key| named("set-invocation-keys", key));
    with("route.set-invocation-keys", |route| route.invocation_keys = keys.to_vec());
}

pub fn priority() -> i32 {
    with("route.priority", |route| route.priority)
}

pub fn set_priority(priority: i32) {
    with("route.set-priority", |route| route.priority = priority);
}

pub fn timeout_ms() -> Option<u32> {
    with("route.timeout-ms", |route| route.timeout_ms)
}

pub fn set_timeout_ms(timeout: u32) {
    with("route.set-timeout-ms", |route| route.timeout_ms = Some(timeout));
}

pub fn set_shared(shared: bool) {
    with("route.set-shared", |route| route.shared = shared);
}

pub fn affinity() -> Option<String> {
    with("route.affinity", |route| route.affinity.as_ref().map(|(key, _)| key.clone()))
}

pub fn set_affinity(key: &str, wait_ms: u32) {
    named("set-affinity", key);
    with("route.set-affinity", |route| route.affinity = Some((key.into(), wait_ms)));
}

pub fn learning_key() -> Option<String> {
    with("route.learning-key", |route| route.learning_key.clone())
}

pub fn set_learning_key(key: &str) {
    named("set-learning-key", key);
    with("route.set-learning-key", |route| route.learning_key = Some(key.into()));
}

pub fn set_environment(name: &str, value: &str) {
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    assert!(is_name, "set-environment: {name:?} is no name of a variable, and a server would trap this call");
    assert!(
        !value.contains('\0'),
        "set-environment: the value of {name} has a NUL, which a server would trap"
    );
    with("route.set-environment", |route| _ = route.environment.insert(name.into(), value.into()));
}

pub fn rank_candidates(at_most: u32) {
    with("route.rank-candidates", |route| route.rank_candidates = at_most);
}

pub fn note(text: &str) {
    with("route.note", |route| route.notes.push(text.into()));
}
