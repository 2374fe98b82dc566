//! The values of one platform property of the bundled worker, in the forms that a file may have them:
//! `"x"`, `["x", "y"]`, `{ values: ["x"] }` (NativeLink's) and `{ query_cmd: "command" }`.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

/// What was given. That it is exactly one of the two is for the check to say.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct RawPlatformValues {
    pub(super) values: Option<Vec<String>>,
    pub(super) query_cmd: Option<String>,
}

impl RawPlatformValues {
    pub(super) fn listed(values: Vec<String>) -> Self {
        Self { values: Some(values), query_cmd: None }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Object {
    values: Option<Vec<String>>,
    query_cmd: Option<String>,
}

impl<'de> Deserialize<'de> for RawPlatformValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyForm)
    }
}

impl Serialize for RawPlatformValues {
    /// A plain list where there is no command.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.query_cmd {
            None => self.values.serialize(serializer),
            Some(command) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("query_cmd", command)?;
                map.end()
            }
        }
    }
}

struct AnyForm;

impl<'de> Visitor<'de> for AnyForm {
    type Value = RawPlatformValues;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value in quotes, a list of them, { values: […] } or { query_cmd: \"…\" }")
    }

    fn visit_str<E>(self, value: &str) -> Result<RawPlatformValues, E> {
        Ok(RawPlatformValues::listed(vec![value.to_owned()]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<RawPlatformValues, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element()? {
            values.push(value);
        }
        Ok(RawPlatformValues::listed(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<RawPlatformValues, A::Error> {
        let Object { values, query_cmd } = Object::deserialize(MapAccessDeserializer::new(map))?;
        Ok(RawPlatformValues { values, query_cmd })
    }
}
