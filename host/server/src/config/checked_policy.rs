//! Policies, as the program uses their configuration.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pointsman_policy::signature::SigningKey;
use pointsman_policy::{LinkPlan, Mode, Plan, ProbationRules, Rollout, Share, Source};
use serde::{Deserialize, Serialize};

use super::config_files::{self, ConfigFile};

/// `policy`, `policies` and `chains`: the Wasm components that decide, and what they may use. What is in `policies` and
/// `chains`, and `policy.probation`, can be changed while the server runs (SIGHUP, or just by saving the file).
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `dir`: where versions are kept that must survive a restart, and compiled code. Default `policies` below
    /// `state_dir`. Nobody else may write there.
    pub dir: PathBuf,
    /// `fuel`: what one call may burn, roughly one per Wasm instruction. Default 50 million, some milliseconds. A
    /// call that needs more is stopped and the policy's `on_error` says who decides.
    pub fuel: u64,
    /// `deadline`: how long one call may take on the clock. Default 5 s. `fuel` is what judges a policy; this is a
    /// net for what fuel does not count, so keep it generous, or a busy machine fails healthy calls.
    pub deadline: Duration,
    /// `memory`: bytes of linear memory of one instance. Default 64 MiB.
    pub memory_max_bytes: u64,
    /// `probation`: what a new version may do wrong before it is rolled back by itself.
    pub probation: Probation,
    /// `policies`: by name. The short form `policy: { file, config }` is one of the name `main`. A chain may also name
    /// `default`, the policy that is part of the program.
    pub links: BTreeMap<String, PolicyLink>,
    /// `chains`: by instance name prefix, which policies are asked, one after the other; the longest prefix that fits
    /// counts. Default: the only policy there is, for all.
    pub chains: BTreeMap<String, Vec<String>>,
}

/// `policy.probation`. Shares are of all calls of the version since it came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Probation {
    /// `length`: how long it lasts. Default 10 min.
    pub length: Duration,
    /// `events`: so many failures are too few to judge by, and ten times as many rejections. Default 3.
    pub events_min: u32,
    /// `traps`: share of calls that may fail. Default 0.002; a policy that traps has a mistake in it.
    pub traps_max: f64,
    /// `over_budget`: share of calls that may use too much fuel or time. Default 0.002.
    pub over_budget_max: f64,
    /// `more_rejections`: how much larger the share of rejections may be than it was with the version before. Default
    /// 0.2.
    pub more_rejections_max: f64,
}

/// One of `policies`.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyLink {
    /// `file`: the component; watched, and swapped in when it changes and passes its checks. `None` is the default
    /// policy that is part of the program, until another is pushed.
    pub file: Option<PathBuf>,
    /// `config`: handed to the policy as JSON; what it may hold is the policy's own business. Default `{}`.
    pub config: serde_json::Value,
    /// `config_files`: by JSON pointer into `config`, JSON5 files with what stands there. They are watched, and what changes
    /// is a new configuration: checked by the policy, and swapped in or refused as a whole.
    pub config_files: BTreeMap<String, ConfigFile>,
    /// `on_error`: what is done when it fails. Default `last_good`.
    pub on_error: OnError,
    /// `sha256`: the only version that is let in, from wherever it comes. Default: any.
    pub sha256: Option<String>,
    /// `public_keys`: keys of minisign, one of which must have signed each version (`FILE.minisig` beside the file).
    /// Default: none need be signed.
    pub public_keys: Vec<String>,
    /// `isolation`: whether a policy can remember in its memory what it saw. Default `instance`.
    pub isolation: Isolation,
    /// `new_versions`: how a new version begins. Default `in_force`.
    pub new_versions: NewVersions,
    /// `trial_share`: on which share of actions it is tried out. Default 1 in shadow, 0.1 as a canary.
    pub trial_share: f64,
    /// `canary_prefixes`: instance names for which a canary decides, in place of a share of all invocations.
    pub canary_prefixes: Vec<String>,
}

/// What is done when a policy fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// The version before it decides; without one the default policy, if no other policy is in the chain.
    #[default]
    LastGood,
    /// The chain goes on without it.
    Skip,
    /// The request is refused with `UNAVAILABLE`.
    Reject,
}

/// What one call of a policy may leave for the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Memory: instances are used again.
    #[default]
    Instance,
    /// Nothing but what it stores by `host.set`: each call has a new instance, which takes tens of microseconds or, in
    /// Python, a millisecond.
    Call,
}

/// How a new version begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NewVersions {
    /// In force, on probation.
    #[default]
    InForce,
    /// It is asked, and what it says is only compared, until it is promoted.
    Shadow,
    /// It decides about a share, until it is promoted.
    Canary,
}

impl Policy {
    /// What the policy manager is told. Keys have been checked, so none is left out.
    pub fn plan(&self) -> Plan {
        let text = |text: &String| -> Arc<str> { text.as_str().into() };
        Plan {
            links: self.links.iter().map(|(name, link)| (text(name), link.plan())).collect(),
            chains: self
                .chains
                .iter()
                .map(|(p, names)| (text(p), names.iter().map(text).collect()))
                .collect(),
            probation: ProbationRules {
                length: self.probation.length,
                events_min: self.probation.events_min.into(),
                traps_max: self.probation.traps_max,
                over_budget_max: self.probation.over_budget_max,
                more_rejections_max: self.probation.more_rejections_max,
            },
        }
    }

    /// Configuration of the default policy where it has to decide for one that failed.
    pub fn default_config(&self) -> String {
        self.plan().default_config().to_owned()
    }
}

impl PolicyLink {
    /// All of its configuration, that in files included.
    pub(super) fn whole_config(&self) -> serde_json::Value {
        // Files without a place were refused when the configuration was checked.
        config_files::join(&self.config, &self.config_files).unwrap_or_else(|_| self.config.clone())
    }

    fn plan(&self) -> LinkPlan {
        LinkPlan {
            source: self.file.clone().map_or(Source::Default, Source::File),
            config: self.whole_config().to_string(),
            places: config_files::places(&self.config_files),
            on_error: match self.on_error {
                OnError::LastGood => pointsman_policy::OnError::LastGood,
                OnError::Skip => pointsman_policy::OnError::Skip,
                OnError::Reject => pointsman_policy::OnError::Reject,
            },
            pin: self.sha256.clone(),
            public_keys: self.public_keys.iter().filter_map(|key| SigningKey::parse(key).ok()).collect(),
            isolation: match self.isolation {
                Isolation::Instance => pointsman_policy::Isolation::Instance,
                Isolation::Call => pointsman_policy::Isolation::Call,
            },
            rollout: match self.new_versions {
                NewVersions::InForce => Rollout::InForce,
                NewVersions::Shadow => Rollout::Trial(Mode::Shadow(self.trial_share)),
                NewVersions::Canary => Rollout::Trial(Mode::Canary(self.canary())),
            },
        }
    }

    fn canary(&self) -> Share {
        match self.canary_prefixes.is_empty() {
            true => Share::Invocations(self.trial_share),
            false => Share::Prefixes(self.canary_prefixes.iter().map(|p| p.as_str().into()).collect()),
        }
    }
}
