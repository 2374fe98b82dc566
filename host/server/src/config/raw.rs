//! The configuration as the file has it: every key optional, unknown keys refused, nothing interpreted.
//!
//! What a key means, who uses it and when to change it is said at the field of the same name in `checked.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::checked::{Matching, Placement, PropertyType, Services, TooSmall, UnknownProperty};
use super::decision_log::RawDecisionLog;
use super::http::HttpListen;
use super::learning::{RawLearning, RawPacking};
pub(super) use super::raw_platform::RawPlatformValues;
use super::raw_policy::{RawLink, RawPolicy};
use super::units::{RawDuration, RawSize};

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { … }")]
pub(super) struct Raw {
    pub(super) listen: Option<SocketAddr>,
    pub(super) http: RawHttp,
    pub(super) services: Option<Services>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_dir: Option<PathBuf>,
    pub(super) storage: RawStorage,
    pub(super) action_cache: RawActionCache,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supported_platform_properties: Option<BTreeMap<String, PropertyType>>,
    pub(super) matching: Option<Matching>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unknown_property: Option<UnknownProperty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_key: Option<Vec<String>>,
    pub(super) pools: Vec<RawPool>,
    pub(super) timers: RawTimers,
    pub(super) max_attempts: Option<u32>,
    pub(super) attempts: RawAttempts,
    pub(super) sizes: RawSizes,
    pub(super) quarantine_after: Option<u32>,
    pub(super) reserved_percent: Option<u32>,
    pub(super) placement: Option<Placement>,
    pub(super) priority_step: Option<RawDuration>,
    pub(super) limits: RawLimits,
    pub(super) learning: RawLearning,
    pub(super) packing: RawPacking,
    pub(super) policy: RawPolicy,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) policies: BTreeMap<String, RawLink>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) chains: BTreeMap<String, Vec<String>>,
    pub(super) decision_log: RawDecisionLog,
    pub(super) worker: RawWorker,
    pub(super) worker_match_logging_interval_s: Option<i64>,
    /// NativeLink's place for the two keys of the same name above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) schedulers: Vec<RawScheduler>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { listen: … }")]
pub(super) struct RawHttp {
    pub(super) listen: Option<HttpListen>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { embedded: { … } } or { remote: { … } }")]
pub(super) struct RawStorage {
    pub(super) embedded: RawEmbedded,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remote: Option<RawRemote>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { address: \"grpc://HOST:PORT\" }")]
pub(super) struct RawRemote {
    pub(super) address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance_name: Option<String>,
    pub(super) patience: Option<RawDuration>,
    pub(super) small_blob_cache: Option<RawSize>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { dir: …, max_size: … }")]
pub(super) struct RawEmbedded {
    pub(super) dir: Option<PathBuf>,
    pub(super) max_size: Option<RawSize>,
    pub(super) action_cache_entries: Option<u64>,
    pub(super) small_blob_cache: Option<RawSize>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { name: …, platform: { … } }")]
pub(super) struct RawPool {
    pub(super) name: Option<String>,
    pub(super) platform: BTreeMap<String, RawPlatformValues>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instance_name_prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size_class: Option<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) strategies: Vec<String>,
    pub(super) max_inflight_tasks: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { look_again_after: \"1s\", … }")]
pub(super) struct RawActionCache {
    pub(super) look_again_after: Option<RawDuration>,
    pub(super) write_results: Option<bool>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { heartbeat: \"10s\", … }")]
pub(super) struct RawTimers {
    pub(super) heartbeat: Option<RawDuration>,
    pub(super) heartbeat_max: Option<RawDuration>,
    pub(super) idle_poll: Option<RawDuration>,
    pub(super) worker_expiry: Option<RawDuration>,
    pub(super) abandoned: Option<RawDuration>,
    pub(super) completed_retention: Option<RawDuration>,
    pub(super) default_action_timeout: Option<RawDuration>,
    pub(super) maximum_action_timeout: Option<RawDuration>,
    pub(super) retry_backoff: Option<RawDuration>,
    pub(super) retry_backoff_max: Option<RawDuration>,
    pub(super) exhausted_pause: Option<RawDuration>,
    pub(super) exhausted_pause_max: Option<RawDuration>,
    pub(super) quarantine: Option<RawDuration>,
    pub(super) quarantine_max: Option<RawDuration>,
    pub(super) reservation_after: Option<RawDuration>,
    pub(super) reservation_timeout: Option<RawDuration>,
    pub(super) unschedulable_timeout: Option<RawDuration>,
    pub(super) shutdown_grace: Option<RawDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { lost: …, … }")]
pub(super) struct RawAttempts {
    pub(super) lost: Option<u32>,
    pub(super) given_back: Option<u32>,
    pub(super) reported: Option<u32>,
    pub(super) exhausted_forgiven: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { rerun: [\"killed\", …] }")]
pub(super) struct RawSizes {
    pub(super) rerun: Option<Vec<TooSmall>>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { queued_actions: …, … }")]
pub(super) struct RawLimits {
    pub(super) queued_actions: Option<u32>,
    pub(super) properties_per_action: Option<u32>,
    pub(super) command_size: Option<RawSize>,
    pub(super) message_size: Option<RawSize>,
    pub(super) streams_per_connection: Option<u32>,
    pub(super) classes: Option<u32>,
    pub(super) demands: Option<u32>,
    pub(super) workers: Option<u32>,
    pub(super) heartbeats_per_second: Option<u32>,
    pub(super) holds: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { enabled: true, … }")]
pub(super) struct RawWorker {
    pub(super) enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<u32>,
    /// NativeLink's workers have it under the other name.
    #[serde(alias = "platform_properties")]
    pub(super) platform: BTreeMap<String, RawPlatformValues>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strategies: Option<Vec<String>>,
    pub(super) query_timeout: Option<RawDuration>,
    pub(super) dir: Option<PathBuf>,
    pub(super) cache_size: Option<RawSize>,
    pub(super) storage_patience: Option<RawDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { name: …, simple: { … } }")]
pub(super) struct RawScheduler {
    pub(super) name: Option<String>,
    pub(super) simple: Option<RawSimple>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { supported_platform_properties: { … } }")]
pub(super) struct RawSimple {
    pub(super) supported_platform_properties: Option<BTreeMap<String, PropertyType>>,
    pub(super) worker_match_logging_interval_s: Option<i64>,
}
