//! Reads a policy's JSON configuration and says, with the place, everything that is wrong with it.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::ConfigError;

/// The keys of a JSON object, taken out one by one; those left at the end are unknown.
///
/// ```
/// use pointsman_policy_sdk::{Config, ConfigError};
///
/// fn read(text: &str) -> Result<bool, Vec<ConfigError>> {
///     let mut config = Config::parse(text)?;
///     let strict = config.bool("strict", true);
///     config.finish()?;
///     Ok(strict)
/// }
///
/// assert_eq!(read("{}"), Ok(true));
/// assert_eq!(read(r#"{"strct": false}"#).unwrap_err()[0].path, "/strct");
/// ```
#[derive(Debug)]
pub struct Config {
    values: Map<String, Value>,
    known: Vec<&'static str>,
    errors: Vec<ConfigError>,
}

impl Config {
    /// Reads an object; an empty text counts as `{}`.
    ///
    /// # Errors
    /// When the text is not JSON, or not an object.
    pub fn parse(text: &str) -> Result<Self, Vec<ConfigError>> {
        let text = if text.trim().is_empty() { "{}" } else { text };
        match serde_json::from_str(text) {
            Ok(Value::Object(values)) => Ok(Self { values, known: Vec::new(), errors: Vec::new() }),
            Ok(other) => {
                Err(vec![ConfigError::new("", format!("expected an object, found {}", kind(&other)))])
            }
            Err(error) => Err(vec![ConfigError::new("", format!("not JSON: {error}"))]),
        }
    }

    /// Takes a key out, whatever its value.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.values.remove(key)
    }

    /// A truth value.
    pub fn bool(&mut self, key: &'static str, default: bool) -> bool {
        match self.take(key) {
            None => default,
            Some(Value::Bool(value)) => value,
            Some(other) => {
                self.error(pointer(&[key]), format!("expected true or false, found {}", kind(&other)));
                default
            }
        }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(value) => Some(value),
            other => {
                self.error(pointer(&[key]), format!("expected a string, found {}", kind(&other)));
                None
            }
        }
    }

    /// A list of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            other => {
                self.error(pointer(&[key]), format!("expected a list of strings, found {}", kind(&other)));
                return None;
            }
        };
        let mut strings = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::String(value) => strings.push(value),
                other => self.error(
                    pointer(&[key, &index.to_string()]),
                    format!("expected a string, found {}", kind(&other)),
                ),
            }
        }
        Some(strings)
    }

    /// Strings by name.
    pub fn string_map(&mut self, key: &'static str) -> Option<BTreeMap<String, String>> {
        let items = match self.take(key)? {
            Value::Object(items) => items,
            other => {
                self.error(pointer(&[key]), format!("expected an object of strings, found {}", kind(&other)));
                return None;
            }
        };
        let mut strings = BTreeMap::new();
        for (name, item) in items {
            match item {
                Value::String(value) => drop(strings.insert(name, value)),
                other => {
                    self.error(pointer(&[key, &name]), format!("expected a string, found {}", kind(&other)));
                }
            }
        }
        Some(strings)
    }

    /// Adds an error of the policy's own.
    pub fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(ConfigError::new(path, message));
    }

    /// To be called when all keys have been taken.
    ///
    /// # Errors
    /// All errors so far, and one for each key that nobody asked for.
    pub fn finish(mut self) -> Result<(), Vec<ConfigError>> {
        for key in self.values.keys() {
            let advice = match self.known.iter().min_by_key(|known| distance(key, known)) {
                Some(near) if distance(key, near) <= near.len() / 2 => format!("did you mean {near:?}?"),
                Some(_) => format!("known keys are {}", self.known.join(", ")),
                None => "this policy has nothing to configure".into(),
            };
            self.errors.push(ConfigError::new(pointer(&[key]), format!("unknown key {key:?}: {advice}")));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

/// A JSON pointer (RFC 6901) of these steps.
fn pointer(steps: &[&str]) -> String {
    steps.iter().flat_map(|step| ["/".to_owned(), step.replace('~', "~0").replace('/', "~1")]).collect()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// How many bytes have to be changed, added or removed to turn one into the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_is_told_with_its_place() {
        let mut config =
            Config::parse(r#"{"a": 1, "list": ["x", 2], "nmae": "n", "map": {"k": null}, "we/ird": 0}"#)
                .unwrap();
        assert!(config.bool("a", true));
        assert_eq!(config.strings("list"), Some(vec!["x".to_owned()]));
        assert_eq!(config.string("name"), None);
        assert_eq!(config.string_map("map"), Some(BTreeMap::new()));
        let errors = config.finish().unwrap_err();
        let seen: Vec<(&str, &str)> = errors.iter().map(|e| (&*e.path, &*e.message)).collect();
        assert_eq!(
            seen,
            [
                ("/a", "expected true or false, found a number"),
                ("/list/1", "expected a string, found a number"),
                ("/map/k", "expected a string, found null"),
                ("/nmae", "unknown key \"nmae\": did you mean \"name\"?"),
                ("/we~1ird", "unknown key \"we/ird\": known keys are a, list, name, map"),
            ]
        );
    }

    #[test]
    fn only_objects_are_configurations() {
        assert_eq!(Config::parse("[]").unwrap_err()[0].message, "expected an object, found a list");
        assert!(Config::parse("{").unwrap_err()[0].message.starts_with("not JSON: "));
        Config::parse(" ").unwrap().finish().unwrap();
    }
}
