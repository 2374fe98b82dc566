//! The sections `policy` and `policies` as the file has them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::checked_policy::{Isolation, NewVersions, OnError};
use super::units::{RawDuration, RawSize};

/// Settings for all policies, and the short form of one that is alone.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { file: …, config: { … } }")]
pub(super) struct RawPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) config: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) config_files: BTreeMap<String, PathBuf>,
    pub(super) dir: Option<PathBuf>,
    pub(super) fuel: Option<u64>,
    pub(super) deadline: Option<RawDuration>,
    pub(super) memory: Option<RawSize>,
    pub(super) probation: RawProbation,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { length: \"10min\", … }")]
pub(super) struct RawProbation {
    pub(super) length: Option<RawDuration>,
    pub(super) events: Option<u32>,
    pub(super) traps: Option<f64>,
    pub(super) over_budget: Option<f64>,
    pub(super) more_rejections: Option<f64>,
}

/// One of several policies.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { file: …, config: { … } }")]
pub(super) struct RawLink {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    pub(super) config: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) config_files: BTreeMap<String, PathBuf>,
    pub(super) on_error: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) public_keys: Vec<String>,
    pub(super) isolation: Option<Isolation>,
    pub(super) new_versions: Option<NewVersions>,
    pub(super) trial_share: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) canary_prefixes: Vec<String>,
}
