//! One JSON form of all that a policy can read or decide: for decision records, golden cases and replay.
//!
//! Names are those of `wit/policy.wit` with underscores, times are whole milliseconds in keys that end in `_ms`. What
//! has its default value is left out, and what is absent has its default; an unknown key is an error that says where.
//!
//! The plain data itself knows nothing of this: [`Form`] gives it a JSON form from outside, so that the core needs no
//! serde. Within a type that derives serde's traits, name a field's form by `#[serde(with = "json::form")]`.

mod action;
mod host;
mod route;
#[cfg(test)]
mod tests;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::facts::CommandFacts;
pub use host::HostAnswers;
pub(crate) use host::stored;

/// Plain data that has a JSON form. Serde's traits can't be given to types of other crates.
pub trait Json: Sized {
    /// Writes it.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;

    /// Reads it.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;
}

/// Plain data as something that serde knows: `Form<&T>` can be written and `Form<T>` read.
#[derive(Clone, Copy, Debug)]
pub struct Form<T>(pub T);

impl<T: Json> Serialize for Form<&T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

impl<'de, T: Json> Deserialize<'de> for Form<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

/// JSON that does not say what it should.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{problem}", self.place())]
pub struct JsonError {
    /// Where, such as `cases[2].facts.platform[0].name`; empty when the text is no JSON at all.
    pub path: String,
    /// What is wrong there.
    pub problem: String,
}

impl JsonError {
    fn place(&self) -> String {
        if self.path.is_empty() { String::new() } else { format!("{}: ", self.path) }
    }
}

/// The JSON of `value`.
pub fn to_value<T: Json>(value: &T) -> Value {
    // Nothing here can fail: all keys are strings, and a number that JSON lacks becomes null.
    value.write(serde_json::value::Serializer).unwrap_or_default()
}

/// What `value` says, or where it says something else.
pub fn from_value<T: Json>(value: &Value) -> Result<T, JsonError> {
    located::<Form<T>, _>(value).map(|Form(read)| read)
}

/// What a JSON text says, or where it says something else.
pub fn from_slice<T: Json>(text: &[u8]) -> Result<T, JsonError> {
    read_slice::<Form<T>>(text).map(|Form(read)| read)
}

/// Like [`from_slice`] for types that are made for JSON.
pub(crate) fn read_slice<T: DeserializeOwned>(text: &[u8]) -> Result<T, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let read = located(&mut reader)?;
    reader.end().map_err(|error| JsonError { path: String::new(), problem: error.to_string() })?;
    Ok(read)
}

fn located<'de, T: Deserialize<'de>, D: Deserializer<'de>>(reader: D) -> Result<T, JsonError>
where
    D::Error: std::fmt::Display,
{
    serde_path_to_error::deserialize(reader).map_err(|error| {
        // The root is `.`, and a place that has not begun yet `?`.
        let path = error.path().to_string();
        let path = path.trim_end_matches('?').trim_end_matches('.').to_owned();
        JsonError { path, problem: error.into_inner().to_string() }
    })
}

/// For `#[serde(with = "json::form")]`.
pub mod form {
    use super::{Deserializer, Json, Serializer};

    /// Writes a field.
    pub fn serialize<T: Json, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        value.write(to)
    }

    /// Reads a field.
    pub fn deserialize<'de, T: Json, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        T::read(from)
    }
}

/// For `#[serde(with = "json::map")]`.
pub mod map {
    use std::collections::BTreeMap;

    use super::{Deserialize, Deserializer, Form, Json, Serializer};

    /// Writes a field.
    pub fn serialize<T: Json, S: Serializer>(values: &BTreeMap<String, T>, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(values.iter().map(|(key, value)| (key, Form(value))))
    }

    /// Reads a field.
    pub fn deserialize<'de, T: Json, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, T>, D::Error> {
        let read = BTreeMap::<String, Form<T>>::deserialize(from)?;
        Ok(read.into_iter().map(|(key, Form(value))| (key, value)).collect())
    }
}

/// For `skip_serializing_if`.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Gives types their forms by definitions that mirror them (`#[serde(remote)]`: a field that is forgotten there does
/// not compile).
macro_rules! forms {
    ($($type:ty: $definition:ident),+ $(,)?) => {$(
        impl $crate::json::Json for $type {
            fn write<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $definition::serialize(self, to)
            }

            fn read<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $definition::deserialize(from)
            }
        }
    )+};
}
use forms;

impl<T: Json> Json for Vec<T> {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(Form))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let list = Vec::<Form<T>>::deserialize(from)?;
        Ok(list.into_iter().map(|Form(item)| item).collect())
    }
}

impl<T: Json> Json for Option<T> {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(Form).serialize(to)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<Form<T>>::deserialize(from)?.map(|Form(item)| item))
    }
}

impl Json for Arc<str> {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Into::into)
    }
}

impl Json for Arc<CommandFacts> {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        (**self).write(to)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        CommandFacts::read(from).map(Self::new)
    }
}

/// In whole milliseconds: policies see no finer times either.
impl Json for Duration {
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(u64::try_from(self.as_millis()).unwrap_or(u64::MAX))
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        u64::deserialize(from).map(Self::from_millis)
    }
}
