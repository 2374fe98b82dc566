//! JSON of what the server answered when a policy asked it.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{form, is_default};
use crate::facts::Pool;

/// What the interface `host` answers in one call of a hook. With it and the facts the call can be made again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostAnswers {
    /// `now`: seconds since the Unix epoch.
    #[serde(skip_serializing_if = "is_default")]
    pub now: f64,
    /// Values that were stored before the call. A key without a value was asked for and not there, just as one that is
    /// not listed. In JSON a value is a string, or `{"base64": "…"}` when it is no text.
    #[serde(with = "stored", skip_serializing_if = "is_default")]
    pub stored: BTreeMap<String, Option<Vec<u8>>>,
    /// `pools`.
    #[serde(with = "form", skip_serializing_if = "is_default")]
    pub pools: Vec<Pool>,
    /// `statistics` by key; without a value as in `stored`.
    #[serde(skip_serializing_if = "is_default")]
    pub statistics: BTreeMap<String, Option<Summary>>,
}

/// What has been learned for one key. Durations are of successful attempts only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Summary {
    /// Attempts in all.
    pub attempts: u32,
    /// Those that failed.
    pub failures: u32,
    /// Median of the durations.
    pub p50_wall_ms: u32,
    /// 95th percentile of the durations.
    pub p95_wall_ms: u32,
    /// CPU time by wall time, on average.
    pub mean_cores: f64,
    /// 95th percentile of the highest memory use, in MiB.
    pub p95_peak_memory_mib: u32,
}

/// A stored value in JSON.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    Text(String),
    Bytes(Base64),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Base64 {
    base64: String,
}

/// Bytes as [`Stored`].
struct Bytes<B>(B);

impl Serialize for Bytes<&[u8]> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => to.serialize_str(text),
            Err(_) => Base64 { base64: STANDARD.encode(self.0) }.serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Bytes<Vec<u8>> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        match Stored::deserialize(from) {
            Ok(Stored::Text(text)) => Ok(Self(text.into_bytes())),
            Ok(Stored::Bytes(Base64 { base64 })) => STANDARD
                .decode(base64)
                .map(Self)
                .map_err(|error| D::Error::custom(format!("it is not base64: {error}"))),
            Err(_) => Err(D::Error::custom("a stored value is a string or {\"base64\": \"…\"}")),
        }
    }
}

/// For maps of stored values.
pub(crate) mod stored {
    use super::{BTreeMap, Bytes, Deserialize, Deserializer, Serializer};

    type Values = BTreeMap<String, Option<Vec<u8>>>;

    pub(crate) fn serialize<S: Serializer>(values: &Values, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(values.iter().map(|(key, value)| (key, value.as_deref().map(Bytes))))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Values, D::Error> {
        let read = BTreeMap::<String, Option<Bytes<Vec<u8>>>>::deserialize(from)?;
        Ok(read.into_iter().map(|(key, value)| (key, value.map(|Bytes(bytes)| bytes))).collect())
    }
}
