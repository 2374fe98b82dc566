//! `router`: what `pointsman router` waits for and keeps; and which keys of a configuration a router has no use for.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check::{Checker, MIB, SECOND};
use super::checked::Values;
use super::checked_policy::PolicyLink;
use super::error::{At, Unplaced};
use super::path::{KeyPath, Segment};
use super::units::{RawDuration, RawSize};

/// `router`: used by `pointsman router` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouterSettings {
    /// `deadline`: how long a call may take, all included: reading the Command, policies, and what is done when they fail. A
    /// caller that waits for less time is answered sooner. Default 2 s. Buildbarn's scheduler has no deadline of its own here,
    /// and each Execute waits for this; raise it only where the CAS is slow.
    pub deadline: Duration,
    /// `unsupported`: what is done when a policy sets what only a scheduler could carry out (a pool, a size, a priority, …).
    /// Default `drop`.
    pub unsupported: Unsupported,
    /// `known_routes`: bytes of memory for the last route of each kind of action, by which actions go when policies or the
    /// CAS fail. Default 32 MiB, some 50,000 kinds. 0 keeps none.
    pub known_routes_max_bytes: u64,
}

/// What is done with an edit that can't be handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unsupported {
    /// It is dropped; the log says so once for each version of a policy, and a metric counts.
    #[default]
    Drop,
    /// The action is refused with `FAILED_PRECONDITION`, and told what.
    Reject,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { deadline: \"2s\", … }")]
pub(super) struct RawRouter {
    deadline: Option<RawDuration>,
    unsupported: Option<Unsupported>,
    known_routes: Option<RawSize>,
}

impl From<&RouterSettings> for RawRouter {
    fn from(settings: &RouterSettings) -> Self {
        Self {
            deadline: Some(RawDuration(settings.deadline)),
            unsupported: Some(settings.unsupported),
            known_routes: Some(RawSize(settings.known_routes_max_bytes)),
        }
    }
}

impl Checker {
    pub(super) fn router(&mut self, raw: &RawRouter) -> RouterSettings {
        RouterSettings {
            deadline: self.timer("router.deadline", raw.deadline, 2 * SECOND),
            unsupported: raw.unsupported.unwrap_or_default(),
            // 0 is allowed: none are kept.
            known_routes_max_bytes: raw.known_routes.map_or(32 * MIB, |size| size.0),
        }
    }
}

const WORKERS: &str = "the workers are the scheduler's that asks the router";
const QUEUE: &str = "the queue is the scheduler's that asks the router";
const MATCHING: &str = "the scheduler that asks the router compares whole property lists";
const EXECUTION: &str = "a router executes nothing, and no action's end is told to it";

/// Keys without effect, and why.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("services", "a router has one service"),
    ("storage.embedded", "a router keeps nothing: it reads Commands from storage.remote"),
    ("action_cache", EXECUTION),
    ("supported_platform_properties", MATCHING),
    ("matching", MATCHING),
    ("unknown_property", MATCHING),
    ("host_key", WORKERS),
    ("pools", WORKERS),
    ("max_attempts", EXECUTION),
    ("attempts", EXECUTION),
    ("sizes", EXECUTION),
    ("quarantine_after", WORKERS),
    ("reserved_percent", WORKERS),
    ("placement", WORKERS),
    ("priority_step", QUEUE),
    ("learning", EXECUTION),
    ("packing", WORKERS),
    ("worker", "a router has no worker"),
    ("bazel", "`pointsman bazel` makes platforms of pools, and a router has none"),
    ("worker_match_logging_interval_s", QUEUE),
    ("schedulers", QUEUE),
];

/// The only keys below these that have an effect.
const WITH_EFFECT: &[(&str, &[&str])] = &[
    ("timers", &["maximum_action_timeout", "shutdown_grace"]),
    ("limits", &["properties_per_action", "command_size", "message_size", "streams_per_connection"]),
];

/// Keys of the default policy's configuration that make it set what can't be handed on.
const PARTS: &[(&str, &str)] = &[
    ("exclusive", "exclusive actions"),
    ("size_classes", "size classes"),
    ("affinity", "affinity to a worker"),
];

/// What is wrong with a configuration as that of a router. `tree` is the file.
pub(super) fn problems(tree: &Value, values: &Values) -> Vec<Unplaced> {
    let mut problems = Vec::new();
    let mut complain = |path: KeyPath, at: At, text: String| problems.push(Unplaced { path, at, text });
    let has = |path: &KeyPath| find(tree, path).is_some();
    for (key, why) in WITHOUT_EFFECT {
        let path = KeyPath::of(key);
        if has(&path) {
            complain(path, At::Key, format!("has no effect in a router: {why}; leave it out"));
        }
    }
    for (section, known) in WITH_EFFECT {
        let given = tree.get(section).and_then(Value::as_object);
        for key in given.into_iter().flat_map(|section| section.keys()) {
            if !known.contains(&&**key) {
                let text = format!(
                    "has no effect in a router, which waits for nothing but calls and queues nothing (of {section} it reads \
                     {}); leave it out",
                    known.join(", ")
                );
                complain(KeyPath::of(section).key(key), At::Key, text);
            }
        }
    }
    if values.remote_storage.is_none() {
        let text = "a router reads Commands from the CAS of the scheduler that asks it: give storage: { remote: { address: \
                    \"grpc://HOST:PORT\" } }";
        complain(KeyPath::of("storage"), At::Key, text.to_owned());
    }
    for (name, link) in &values.policy.links {
        // The short form stands for one of that name.
        let long = KeyPath::of("policies").key(name);
        let place = if has(&long) { long } else { KeyPath::of("policy") };
        for (key, what) in parts_without_effect(link) {
            let mut path = place.key("config");
            path.0.extend(key);
            complain(
                path,
                At::Key,
                format!(
                    "a router can't hand on {what}: Buildbarn's scheduler takes a platform, a time limit, do_not_cache and invocation \
                 keys; leave it out"
                ),
            );
        }
    }
    problems
}

fn find<'a>(tree: &'a Value, path: &KeyPath) -> Option<&'a Value> {
    path.0.iter().try_fold(tree, |value, step| match step {
        Segment::Key(key) => value.get(key),
        Segment::Index(index) => value.get(index),
    })
}

/// Where the built-in policy is told to set what can't be handed on. Of other policies nothing is known before they are asked.
fn parts_without_effect(link: &PolicyLink) -> Vec<(Vec<Segment>, &'static str)> {
    if link.file.is_some() {
        return Vec::new();
    }
    let config = link.whole_config();
    let key = |key: &str| Segment::Key(key.to_owned());
    let mut found: Vec<_> = PARTS
        .iter()
        .filter(|(part, _)| config.get(part).is_some())
        .map(|(part, what)| (vec![key(part)], *what))
        .collect();
    let rules = config.pointer("/property_rules/rules").and_then(Value::as_array);
    for (index, rule) in rules.into_iter().flatten().enumerate() {
        if rule.get("pool").is_some() {
            let path = vec![key("property_rules"), key("rules"), Segment::Index(index), key("pool")];
            found.push((path, "pools: set a platform property by which the scheduler's queues differ"));
        }
    }
    if config.pointer("/tenant_fair/background").is_some() {
        found.push((vec![key("tenant_fair"), key("background")], "priorities"));
    }
    found
}
