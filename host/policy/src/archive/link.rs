//! What is known about one link, the place of a policy in a chain.

use serde::{Deserialize, Serialize};

/// Earlier versions that can be rolled back to.
const PREVIOUS_MAX: usize = 5;
/// Versions that are known to have failed.
const ROLLED_BACK_MAX: usize = 50;
/// Events that are remembered.
const HISTORY_MAX: usize = 200;

/// State of a link over restarts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkState {
    /// SHA-256 of the policy file that was last acted on: it is looked at again only when it has become another.
    pub seen: Option<String>,
    /// The version in force; `None`: the built-in default, with nothing kept about it.
    pub active: Option<Version>,
    /// Versions that were in force before, the latest first; at most 5.
    pub previous: Vec<Version>,
    /// The version that is on trial.
    pub candidate: Option<Trial>,
    /// Versions that were taken out of force for what they did, the oldest first; at most 50.
    pub rolled_back: Vec<RolledBack>,
    /// What happened, the oldest first; at most 200.
    pub history: Vec<Event>,
}

/// A policy with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// SHA-256 of its file, in lower-case hex.
    pub digest_hex: String,
    /// Name from its manifest.
    pub name: String,
    /// Version from its manifest.
    pub version: String,
    /// SHA-256 of its configuration as JSON. The configuration itself may hold secrets and is not kept.
    pub config_sha256: String,
    /// When it came into force, or on trial: milliseconds since the Unix epoch.
    pub since_unix_ms: u64,
    /// Where it came from.
    pub source: Source,
    /// Content of its signature file, if it has one.
    #[serde(default)]
    pub signature: Option<String>,
}

/// Where a version came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The file that the configuration names.
    File,
    /// `pointsman policy push`.
    Push,
    /// Embedded in the program.
    Default,
}

impl Source {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Push => "push",
            Self::Default => "built-in",
        }
    }
}

/// A version on trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// Which one.
    pub version: Version,
    /// How it is tried.
    pub mode: TrialMode,
}

/// How a version is tried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrialMode {
    /// It is asked about this share of actions, and its answers are only compared.
    Shadow(f64),
    /// It decides for this share of invocations.
    Canary(f64),
    /// It decides for instance names below these.
    CanaryPrefixes(Vec<String>),
}

/// A version that was taken out of force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// SHA-256 of its file.
    pub digest_hex: String,
    /// What it did.
    pub reason: String,
    /// When: milliseconds since the Unix epoch.
    pub unix_ms: u64,
}

/// Something that happened to a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// When: milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// In one word, such as `installed` or `refused`.
    pub what: String,
    /// SHA-256 of the file that it is about; may be empty.
    pub digest_hex: String,
    /// Name of the policy; may be empty.
    pub name: String,
    /// Version of the policy; may be empty.
    pub version: String,
    /// Who did it; empty: the server itself.
    pub by: String,
    /// What more there is to say.
    pub detail: String,
}

impl LinkState {
    /// Puts a version in force. What was in force can be rolled back to.
    pub fn activate(&mut self, version: Version) {
        let before = self.active.replace(version);
        let same =
            |a: &Version, b: &Version| (&a.digest_hex, &a.config_sha256) == (&b.digest_hex, &b.config_sha256);
        let now = self.active.as_ref();
        // Each is listed once, so that five rollbacks lead to five different versions.
        self.previous.retain(|old| {
            now.is_none_or(|now| !same(old, now)) && before.as_ref().is_none_or(|before| !same(old, before))
        });
        if let Some(before) = before.filter(|before| now.is_none_or(|now| !same(before, now))) {
            self.previous.insert(0, before);
        }
        self.previous.truncate(PREVIOUS_MAX);
    }

    /// Notes that a version was taken out of force.
    pub fn note_rolled_back(&mut self, entry: RolledBack) {
        self.rolled_back.push(entry);
        keep_last(&mut self.rolled_back, ROLLED_BACK_MAX);
    }

    /// Why a version was last taken out of force, if it was.
    pub fn rolled_back(&self, digest_hex: &str) -> Option<&RolledBack> {
        self.rolled_back.iter().rev().find(|entry| entry.digest_hex == digest_hex)
    }

    /// Notes what happened.
    pub fn note(&mut self, event: Event) {
        self.history.push(event);
        keep_last(&mut self.history, HISTORY_MAX);
    }

    /// SHA-256 of all components that must be kept for it.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        let versions = self
            .active
            .iter()
            .chain(&self.previous)
            .chain(self.candidate.as_ref().map(|trial| &trial.version));
        versions.map(|version| &*version.digest_hex)
    }

    /// The state within its bounds.
    pub(super) fn trimmed(mut self) -> Self {
        self.previous.truncate(PREVIOUS_MAX);
        keep_last(&mut self.rolled_back, ROLLED_BACK_MAX);
        keep_last(&mut self.history, HISTORY_MAX);
        self
    }
}

fn keep_last<T>(list: &mut Vec<T>, max: usize) {
    list.drain(..list.len().saturating_sub(max));
}
