//! The configuration as the file has it: every key optional, unknown keys refused, nothing interpreted.
//!
//! What a key means, who uses it and when to change it is said at the field of the same name in `checked.rs`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::checked::{PropertyType, UnknownProperty};
use super::units::{RawDuration, RawSize};

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { … }")]
pub(super) struct Raw {
    pub(super) listen: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) state_dir: Option<PathBuf>,
    pub(super) storage: RawStorage,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) supported_platform_properties: Option<BTreeMap<String, PropertyType>>,
    pub(super) unknown_property: Option<UnknownProperty>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) host_key: Option<Vec<String>>,
    pub(super) timers: RawTimers,
    pub(super) max_attempts: Option<u32>,
    pub(super) priority_step: Option<RawDuration>,
    pub(super) limits: RawLimits,
    pub(super) policy: RawPolicy,
    pub(super) worker: RawWorker,
    pub(super) worker_match_logging_interval_s: Option<i64>,
    /// NativeLink's place for the two keys of the same name above.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) schedulers: Vec<RawScheduler>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { embedded: { … } }")]
pub(super) struct RawStorage {
    pub(super) embedded: RawEmbedded,
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
#[serde(deny_unknown_fields, default, expecting = "an object: { heartbeat: \"10s\", … }")]
pub(super) struct RawTimers {
    pub(super) heartbeat: Option<RawDuration>,
    pub(super) idle_poll: Option<RawDuration>,
    pub(super) worker_expiry: Option<RawDuration>,
    pub(super) abandoned: Option<RawDuration>,
    pub(super) completed_retention: Option<RawDuration>,
    pub(super) default_action_timeout: Option<RawDuration>,
    pub(super) maximum_action_timeout: Option<RawDuration>,
    pub(super) shutdown_grace: Option<RawDuration>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { queued_actions: …, … }")]
pub(super) struct RawLimits {
    pub(super) queued_actions: Option<u32>,
    pub(super) properties_per_action: Option<u32>,
    pub(super) command_size: Option<RawSize>,
    pub(super) message_size: Option<RawSize>,
    pub(super) streams_per_connection: Option<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { file: …, config: { … } }")]
pub(super) struct RawPolicy {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<PathBuf>,
    pub(super) config: Option<serde_json::Value>,
    pub(super) fuel: Option<u64>,
    pub(super) deadline: Option<RawDuration>,
    pub(super) memory: Option<RawSize>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { enabled: true, … }")]
pub(super) struct RawWorker {
    pub(super) enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) concurrency: Option<u32>,
    pub(super) platform: BTreeMap<String, OneOrMore>,
    pub(super) dir: Option<PathBuf>,
    pub(super) cache_size: Option<RawSize>,
    pub(super) storage_patience: Option<RawDuration>,
}

/// A property's value, or its values: one name may be advertised several times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct OneOrMore(pub(super) Vec<String>);

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

impl<'de> Deserialize<'de> for OneOrMore {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrMoreVisitor)
    }
}

struct OneOrMoreVisitor;

impl<'de> serde::de::Visitor<'de> for OneOrMoreVisitor {
    type Value = OneOrMore;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a value in quotes, or a list of them")
    }

    fn visit_str<E>(self, value: &str) -> Result<OneOrMore, E> {
        Ok(OneOrMore(vec![value.to_owned()]))
    }

    fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<OneOrMore, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(OneOrMore(values))
    }
}
