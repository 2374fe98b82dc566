//! JSON of what the server answered when a policy asked it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{form, forms, is_default, map};
use crate::asked::{Asked, HostAnswer};
use crate::facts::{Pool, Summary};

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
    #[serde(with = "map", skip_serializing_if = "is_default")]
    pub statistics: BTreeMap<String, Option<Summary>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Summary", default = "Summary::default", deny_unknown_fields)]
struct SummaryForm {
    #[serde(skip_serializing_if = "is_default")]
    attempts: u32,
    #[serde(skip_serializing_if = "is_default")]
    failures: u32,
    #[serde(rename = "p50_wall_ms", with = "form", skip_serializing_if = "is_default")]
    p50_wall: Duration,
    #[serde(rename = "p95_wall_ms", with = "form", skip_serializing_if = "is_default")]
    p95_wall: Duration,
    #[serde(skip_serializing_if = "is_default")]
    mean_cores: f64,
    #[serde(skip_serializing_if = "is_default")]
    p95_peak_memory_mib: u32,
}

forms! { Summary: SummaryForm }

impl HostAnswers {
    /// What was answered to these questions. Of several answers under one key the first one counts: later ones may be
    /// what the call itself has set.
    pub fn to(asked: &[Asked]) -> Self {
        let mut answers = Self::default();
        for Asked { argument, answer, .. } in asked {
            let key = || argument.as_deref().unwrap_or_default().to_owned();
            match answer {
                Some(HostAnswer::Now(now)) => answers.now = *now,
                Some(HostAnswer::Pools(pools)) => answers.pools = pools.to_vec(),
                Some(HostAnswer::Stored(value)) => {
                    answers.stored.entry(key()).or_insert_with(|| value.clone());
                }
                Some(HostAnswer::Statistics(summary)) => {
                    answers.statistics.entry(key()).or_insert_with(|| summary.clone());
                }
                None => {}
            }
        }
        answers
    }
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
