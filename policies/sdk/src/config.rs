//! Reads a policy's JSON configuration and says, with the place, everything that is wrong with it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::ConfigError;

/// The keys of a JSON object, taken out one by one; those left at the end are unknown.
///
/// Objects inside are read the same way: [`object`](Self::object) and [`objects`](Self::objects) give one of these for
/// each, and [`close`](Self::close) takes back what was wrong in it.
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
    /// JSON pointer to this object.
    path: String,
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
            Ok(value) => Self::of("", value).map_err(|error| vec![error]),
            Err(error) => Err(vec![ConfigError::new("", format!("not JSON: {error}"))]),
        }
    }

    /// The object that lies at `path`, a JSON pointer.
    ///
    /// # Errors
    /// When the value is no object.
    pub fn of(path: impl Into<String>, value: Value) -> Result<Self, ConfigError> {
        let path = path.into();
        match value {
            Value::Object(values) => Ok(Self { path, values, known: Vec::new(), errors: Vec::new() }),
            other => Err(ConfigError::new(path, format!("expected an object, found {}", kind(&other)))),
        }
    }

    /// JSON pointer to this object; empty for the whole configuration.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What is left of this object, as JSON text with its keys in order.
    pub fn text(&self) -> String {
        serde_json::to_string(&self.values).unwrap_or_default()
    }

    /// JSON pointer to the value of a key of this object.
    pub fn path_of(&self, key: &str) -> String {
        self.below(&[key])
    }

    /// Is the key there, and not taken out yet?
    pub fn has(&self, key: &str) -> bool {
        self.values.contains_key(key)
    }

    /// Is the value of a key that was not taken out yet a string?
    pub fn is_string(&self, key: &str) -> bool {
        self.values.get(key).is_some_and(Value::is_string)
    }

    /// JSON pointer to a value further in.
    pub fn below(&self, steps: &[&str]) -> String {
        self.path.clone() + &pointer(steps)
    }

    /// Says that a value is not what it should be.
    fn mistaken(&mut self, steps: &[&str], expected: &str, found: &Value) {
        self.error(self.below(steps), format!("expected {expected}, found {}", kind(found)));
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
                self.mistaken(&[key], "true or false", &other);
                default
            }
        }
    }

    /// A string.
    pub fn string(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(value) => Some(value),
            other => {
                self.mistaken(&[key], "a string", &other);
                None
            }
        }
    }

    /// A string that says something, such as the name of a property or a pool: the server takes no empty ones.
    pub fn name(&mut self, key: &'static str) -> Option<String> {
        let name = self.string(key)?;
        self.not_empty(&name, self.path_of(key)).then_some(name)
    }

    /// A list of such strings.
    pub fn names(&mut self, key: &'static str) -> Option<Vec<String>> {
        let mut names = self.strings(key)?;
        for (index, name) in names.iter().enumerate() {
            self.not_empty(name, self.below(&[key, &index.to_string()]));
        }
        names.retain(|name| !name.is_empty());
        Some(names)
    }

    /// Whether a name that lies at `path` is one; an empty one is reported.
    pub fn not_empty(&mut self, name: &str, path: impl Into<String>) -> bool {
        if name.is_empty() {
            self.error(path, "is empty, which is no name; give one, or leave it out");
        }
        !name.is_empty()
    }

    /// A whole number within a range.
    pub fn integer(&mut self, key: &'static str, range: RangeInclusive<i64>) -> Option<i64> {
        let value = self.take(key)?;
        let number = value.as_i64().filter(|number| range.contains(number));
        if number.is_none() {
            let found = if value.is_number() { value.to_string() } else { kind(&value).to_owned() };
            let (least, most) = (range.start(), range.end());
            self.error(
                self.path_of(key),
                format!("expected a whole number from {least} to {most}, found {found}"),
            );
        }
        number
    }

    /// A time such as `"1500ms"`, `"10s"`, `"5min"` or `"2h"`, in milliseconds; at most 49 days, which is what the
    /// interface can hold.
    pub fn duration_ms(&mut self, key: &'static str) -> Option<u32> {
        let text = self.string(key)?;
        let ms = duration_ms(&text);
        if ms.is_none() {
            self.error(
                self.path_of(key),
                format!("expected a time such as \"500ms\", \"10s\", \"5min\" or \"2h\", found {text:?}"),
            );
        }
        ms
    }

    /// One of several words, each of which stands for a value.
    pub fn word<T: Clone>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<T> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let text = self.string(key)?;
        let index = self.index_of(&text, &known, &[key])?;
        Some(words[index].1.clone())
    }

    /// A list of words, each of which stands for a value; `None` also when there is an unknown one among them.
    pub fn words<T: Clone>(&mut self, key: &'static str, words: &[(&str, T)]) -> Option<Vec<T>> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let indices = self.indices_of(key, &known)?;
        Some(indices.into_iter().map(|index| words[index].1.clone()).collect())
    }

    // Apart from the types of the values, so that a policy has this code once.

    fn indices_of(&mut self, key: &'static str, known: &[&str]) -> Option<Vec<usize>> {
        let given = self.strings(key)?;
        let mut indices = Vec::with_capacity(given.len());
        for (index, text) in given.iter().enumerate() {
            indices.extend(self.index_of(text, known, &[key, &index.to_string()]));
        }
        (indices.len() == given.len()).then_some(indices)
    }

    fn index_of(&mut self, text: &str, known: &[&str], steps: &[&str]) -> Option<usize> {
        let index = known.iter().position(|word| *word == text);
        if index.is_none() {
            let text = format!("unknown word {text:?}{}", hint(text, known, "; known are "));
            self.error(self.below(steps), text);
        }
        index
    }

    /// An object inside this one; to be given back by [`close`](Self::close).
    pub fn object(&mut self, key: &'static str) -> Option<Self> {
        let value = self.take(key)?;
        Self::of(self.path_of(key), value).map_err(|error| self.errors.push(error)).ok()
    }

    /// A list of objects, each to be given back by [`close`](Self::close).
    pub fn objects(&mut self, key: &'static str) -> Option<Vec<Self>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            other => {
                self.mistaken(&[key], "a list of objects", &other);
                return None;
            }
        };
        let mut objects = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match Self::of(self.below(&[key, &index.to_string()]), item) {
                Ok(object) => objects.push(object),
                Err(error) => self.errors.push(error),
            }
        }
        Some(objects)
    }

    /// Objects by name, each to be given back by [`close`](Self::close).
    pub fn object_map(&mut self, key: &'static str) -> Option<Vec<(String, Self)>> {
        let items = match self.take(key)? {
            Value::Object(items) => items,
            other => {
                self.mistaken(&[key], "an object of objects", &other);
                return None;
            }
        };
        let mut objects = Vec::with_capacity(items.len());
        for (name, item) in items {
            match Self::of(self.below(&[key, &name]), item) {
                Ok(object) => objects.push((name, object)),
                Err(error) => self.errors.push(error),
            }
        }
        Some(objects)
    }

    /// Strings by name, as [`string_map`](Self::string_map) has them, in the order of their names.
    pub fn string_pairs(&mut self, key: &'static str) -> Vec<(String, String)> {
        let mut pairs = Vec::new();
        for (name, path, value) in self.map(key).unwrap_or_default() {
            match value {
                Value::String(value) => pairs.push((name, value)),
                other => self.error(path, format!("expected a string, found {}", kind(&other))),
            }
        }
        pairs
    }

    /// Values of any kind by name, each with its JSON pointer.
    pub fn map(&mut self, key: &'static str) -> Option<Vec<(String, String, Value)>> {
        match self.take(key)? {
            Value::Object(items) => {
                let place = |(name, value): (String, Value)| {
                    let path = self.below(&[key, &name]);
                    (name, path, value)
                };
                Some(items.into_iter().map(place).collect())
            }
            other => {
                self.mistaken(&[key], "an object", &other);
                None
            }
        }
    }

    /// Counts a key among the known ones without taking it.
    pub fn know(&mut self, key: &'static str) {
        self.known.push(key);
    }

    /// Takes back an object that was read: what was wrong in it, and the keys that nobody asked for.
    pub fn close(&mut self, inner: Self) {
        if let Err(errors) = inner.finish() {
            self.errors.extend(errors);
        }
    }

    /// A list of strings.
    pub fn strings(&mut self, key: &'static str) -> Option<Vec<String>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            other => {
                self.mistaken(&[key], "a list of strings", &other);
                return None;
            }
        };
        let mut strings = Vec::with_capacity(items.len());
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::String(value) => strings.push(value),
                other => self.mistaken(&[key, &index.to_string()], "a string", &other),
            }
        }
        Some(strings)
    }

    /// Strings by name.
    pub fn string_map(&mut self, key: &'static str) -> Option<BTreeMap<String, String>> {
        let items = match self.take(key)? {
            Value::Object(items) => items,
            other => {
                self.mistaken(&[key], "an object of strings", &other);
                return None;
            }
        };
        let mut strings = BTreeMap::new();
        for (name, item) in items {
            match item {
                Value::String(value) => drop(strings.insert(name, value)),
                other => self.mistaken(&[key, &name], "a string", &other),
            }
        }
        Some(strings)
    }

    /// Adds an error of the policy's own; `path` is a JSON pointer into the whole configuration, as
    /// [`path_of`](Self::path_of) gives.
    pub fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.errors.push(ConfigError::new(path, message));
    }

    /// To be called when all keys have been taken.
    ///
    /// # Errors
    /// All errors so far, and one for each key that nobody asked for.
    pub fn finish(mut self) -> Result<(), Vec<ConfigError>> {
        for key in self.values.keys() {
            let advice = match &*self.known {
                [] => ": this policy has nothing to configure".into(),
                known => hint(key, known, ": known keys are "),
            };
            let path = self.path_of(key);
            self.errors.push(ConfigError::new(path, format!("unknown key {key:?}{advice}")));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(self.errors) }
    }
}

/// The known word that was probably meant, or all of them after `all`.
pub fn hint(written: &str, known: &[&str], all: &str) -> String {
    match known.iter().min_by_key(|word| distance(written, word)) {
        Some(near) if distance(written, near) <= near.len() / 2 => {
            format!("{} did you mean {near:?}?", &all[..1])
        }
        _ => format!("{all}{}", known.join(", ")),
    }
}

fn duration_ms(text: &str) -> Option<u32> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1,
        "s" => 1_000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    number.parse::<u32>().ok()?.checked_mul(factor)
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
mod tests;
