//! `bazel`, and `bazel` of a pool: what `pointsman bazel` makes platforms and flags of. The scheduler itself has no use for them.

use pointsman_bazel::Label;
use pointsman_bazel::model::STRATEGIES;
use serde::{Deserialize, Serialize};

use super::check::Checker;
use super::error::At;
use super::nearest;
use super::path::KeyPath;

/// `bazel`: the side of builds that no pool is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bazel {
    /// `host`: the machine that runs Bazel.
    pub host: BazelHost,
}

/// `bazel.host`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BazelHost {
    /// `platform`: the label of its platform. Default `@platforms//host:host`, which Bazel has by itself.
    pub platform: Label,
    /// `strategies`: what its actions may run by. Default worker, sandboxed, local: nothing of it goes to workers.
    pub strategies: Vec<String>,
}

/// `pools[].bazel`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BazelPool {
    /// `platform`: the label of its platform, where a workspace has one already. Default: `pointsman bazel flags` writes one.
    pub platform: Option<Label>,
    /// `strategies`: what actions of its platform may run by; `remote` is one of them. Default: nothing else is.
    pub strategies: Vec<String>,
    /// `constraint_values`: labels of what its workers are, such as `@platforms//os:linux`. Default: by ISA (or Arch) and
    /// OSFamily of its platform if it has both; else they are taken to be as the host.
    pub constraint_values: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { host: { … } }")]
pub(super) struct RawBazel {
    host: RawBazelHost,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { strategies: […], … }")]
struct RawBazelHost {
    platform: Option<String>,
    strategies: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { strategies: [\"remote\"], … }")]
pub(super) struct RawBazelPool {
    #[serde(skip_serializing_if = "Option::is_none")]
    platform: Option<String>,
    strategies: Option<Vec<String>>,
    constraint_values: Vec<String>,
}

impl From<&Bazel> for RawBazel {
    fn from(bazel: &Bazel) -> Self {
        let BazelHost { platform, strategies } = &bazel.host;
        Self {
            host: RawBazelHost { platform: Some(platform.to_string()), strategies: Some(strategies.clone()) },
        }
    }
}

impl From<&BazelPool> for RawBazelPool {
    fn from(pool: &BazelPool) -> Self {
        Self {
            platform: pool.platform.as_ref().map(Label::to_string),
            strategies: Some(pool.strategies.clone()),
            constraint_values: pool.constraint_values.clone(),
        }
    }
}

impl Checker {
    pub(super) fn bazel(&mut self, raw: RawBazel) -> Bazel {
        let at = KeyPath::of("bazel.host");
        let platform = self.label(&at.key("platform"), raw.host.platform);
        let strategies = self.strategies(&at, raw.host.strategies, &["worker", "sandboxed", "local"]);
        Bazel { host: BazelHost { platform: platform.unwrap_or_else(Label::host), strategies } }
    }

    /// `at` is the pool's place.
    pub(super) fn bazel_pool(&mut self, at: &KeyPath, raw: RawBazelPool) -> BazelPool {
        let at = at.key("bazel");
        let platform = self.label(&at.key("platform"), raw.platform);
        let strategies = self.strategies(&at, raw.strategies, &["remote"]);
        if !strategies.iter().any(|strategy| strategy == "remote") {
            let text =
                "lacks \"remote\", the only strategy by which anything reaches the pool's workers; add it";
            self.complain(at.key("strategies"), At::Value, text);
        }
        for value in &raw.constraint_values {
            if let Err(why) = Label::parse(value) {
                let text = format!("{value:?} is no label: {why}; write @repository//package:name");
                self.complain(at.key("constraint_values"), At::Value, text);
            }
        }
        BazelPool { platform, strategies, constraint_values: raw.constraint_values }
    }

    fn label(&mut self, at: &KeyPath, given: Option<String>) -> Option<Label> {
        match Label::parse(&given?) {
            Ok(label) => Some(label),
            Err(why) => {
                self.complain(at.clone(), At::Value, format!("is no label: {why}; write //package:name"));
                None
            }
        }
    }

    fn strategies(&mut self, at: &KeyPath, given: Option<Vec<String>>, usual: &[&str]) -> Vec<String> {
        let at = at.key("strategies");
        let Some(given) = given else { return usual.iter().map(|name| (*name).to_owned()).collect() };
        if given.is_empty() {
            let text = "is empty, and to Bazel an empty list allows everything; name at least one, or leave the key out";
            self.complain(at.clone(), At::Value, text);
        }
        for name in given.iter().filter(|name| !STRATEGIES.contains(&&***name)) {
            let guess = nearest(name, STRATEGIES)
                .map(|guess| format!("; did you mean {guess:?}?"))
                .unwrap_or_default();
            let text =
                format!("{name:?} is no strategy of Bazel{guess}; known here: {}", STRATEGIES.join(", "));
            self.complain(at.clone(), At::Value, text);
        }
        given
    }
}
