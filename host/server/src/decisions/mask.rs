//! Fields of records that are not for everybody who reads them.
//!
//! A masked field reads `***`. Single values (not lists of arguments or paths) are masked where else they turn up, too:
//! in keys that a policy made of them, in notes and in reasons. What a policy derives from one is beyond this.

use std::str::FromStr;

use serde_json::Value;

use crate::config::nearest;

const MASKED: &str = "***";

/// A value of fewer bytes than this is masked in its field alone: elsewhere it is found by chance.
const FOUND_AGAIN_MIN: usize = 4;

/// A field of `decision_log.mask`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mask {
    /// A text about the action or worker: `principal`, `invocation_id`, …
    Text(&'static str),
    /// All of a command's arguments, or output paths.
    List(&'static str),
    /// The value of an environment variable, of commands and of routes; `None`: of all.
    Environment(Option<String>),
    /// The values of a platform property, wherever there are platforms.
    Property(String),
    /// What policies have stored.
    StoredValues,
    /// Names and ids of workers.
    Workers,
}

const TEXTS: [&str; 9] = [
    "principal",
    "invocation_id",
    "correlated_invocations_id",
    "tool_name",
    "tool_version",
    "target_id",
    "configuration_id",
    "instance_name",
    "working_directory",
];
const LISTS: [&str; 2] = ["arguments", "output_paths"];
const OTHERS: [&str; 5] = ["environment", "stored_values", "workers", "property:NAME", "environment:NAME"];

/// There is no such field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MaskError(String);

impl FromStr for Mask {
    type Err = MaskError;

    fn from_str(text: &str) -> Result<Self, MaskError> {
        let known = |list: &[&'static str]| list.iter().copied().find(|known| *known == text);
        match text.split_once(':') {
            Some(("property", name)) if !name.is_empty() => return Ok(Self::Property(name.to_owned())),
            Some(("environment", name)) if !name.is_empty() => {
                return Ok(Self::Environment(Some(name.to_owned())));
            }
            _ => {}
        }
        match text {
            "environment" => Ok(Self::Environment(None)),
            "stored_values" => Ok(Self::StoredValues),
            "workers" => Ok(Self::Workers),
            _ => match (known(&TEXTS), known(&LISTS)) {
                (Some(field), _) => Ok(Self::Text(field)),
                (_, Some(field)) => Ok(Self::List(field)),
                _ => Err(unknown(text)),
            },
        }
    }
}

fn unknown(text: &str) -> MaskError {
    let all = || TEXTS.into_iter().chain(LISTS).chain(OTHERS);
    let guess = nearest(text, all()).map(|guess| format!("; did you mean {guess:?}?")).unwrap_or_default();
    let known = all().collect::<Vec<_>>().join(", ");
    MaskError(format!("a record has no field {text:?}{guess}; known here: {known}"))
}

impl std::fmt::Display for Mask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Text(field) | Self::List(field) => f.write_str(field),
            Self::Environment(None) => f.write_str("environment"),
            Self::Environment(Some(name)) => write!(f, "environment:{name}"),
            Self::Property(name) => write!(f, "property:{name}"),
            Self::StoredValues => f.write_str("stored_values"),
            Self::Workers => f.write_str("workers"),
        }
    }
}

/// The record without what is masked.
pub(super) fn masked(mut record: Value, masks: &[Mask]) -> Value {
    let mut values = Vec::new();
    for mask in masks {
        mask.apply(&mut record, &mut values);
    }
    values.retain(|value: &String| value.len() >= FOUND_AGAIN_MIN);
    // Of two of which one is part of the other, the longer first.
    values.sort_by_key(|value| std::cmp::Reverse(value.len()));
    values.dedup();
    if !values.is_empty() {
        hide_again(&mut record, &values);
    }
    record
}

impl Mask {
    /// Adds what it masks to `values`, if that is to be looked for elsewhere.
    fn apply(&self, record: &mut Value, values: &mut Vec<String>) {
        match self {
            Self::Text(field) => {
                for holder in ["/facts", "/facts/command", "/worker"] {
                    let text = record.pointer_mut(holder).and_then(|holder| holder.get_mut(*field));
                    hide(text, values);
                }
            }
            Self::List(field) => {
                let list = record.pointer_mut("/facts/command").and_then(|command| command.get_mut(*field));
                if let Some(list) = list {
                    *list = vec![MASKED].into();
                }
            }
            Self::Environment(name) => {
                // Of the command, and of routes.
                each_list(record, "environment", &mut |variables| {
                    hide_named(Some(variables), name.as_deref(), values);
                });
            }
            Self::Property(name) => each_list(record, "platform", &mut |platform| {
                hide_named(Some(platform), Some(name), values);
            }),
            Self::StoredValues => {
                let steps = record.get_mut("steps").and_then(Value::as_array_mut);
                for stored in steps.into_iter().flatten().filter_map(|step| step.pointer_mut("/host/stored"))
                {
                    let kept = stored.as_object_mut().into_iter().flatten();
                    kept.filter(|(_, value)| !value.is_null()).for_each(|(_, value)| *value = MASKED.into());
                }
            }
            Self::Workers => {
                hide_named(record.pointer_mut("/worker/id"), None, values);
                hide(record.pointer_mut("/attempt/worker"), values);
                for list in ["/candidates", "/facts/attempts"] {
                    let list = record.pointer_mut(list).and_then(Value::as_array_mut);
                    list.into_iter().flatten().for_each(|item| hide(item.get_mut("worker"), values));
                }
            }
        }
    }
}

fn hide(text: Option<&mut Value>, values: &mut Vec<String>) {
    if let Some(value @ Value::String(_)) = text
        && let Value::String(text) = std::mem::replace(value, MASKED.into())
    {
        values.push(text);
    }
}

/// Values of `[{ name, value }]` of that name, or of all.
fn hide_named(list: Option<&mut Value>, name: Option<&str>, values: &mut Vec<String>) {
    for item in list.and_then(Value::as_array_mut).into_iter().flatten() {
        if name.is_none_or(|name| item["name"] == name) {
            hide(item.get_mut("value"), values);
        }
    }
}

/// All lists of that name.
fn each_list(value: &mut Value, name: &str, hide: &mut impl FnMut(&mut Value)) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                if key == name { hide(value) } else { each_list(value, name, hide) }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_list(item, name, hide)),
        _ => {}
    }
}

/// Masks these values inside of all texts, keys of what is stored included.
fn hide_again(value: &mut Value, values: &[String]) {
    let hidden = |text: &str| {
        values
            .iter()
            .any(|v| text.contains(v))
            .then(|| values.iter().fold(text.to_owned(), |text, value| text.replace(value.as_str(), MASKED)))
    };
    match value {
        Value::String(text) => {
            if let Some(hidden) = hidden(text) {
                *text = hidden;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide_again(item, values)),
        Value::Object(fields) => {
            let keys: Vec<(String, String)> =
                fields.keys().filter_map(|key| Some((key.clone(), hidden(key)?))).collect();
            for (key, hidden) in keys {
                if let Some(value) = fields.remove(&key) {
                    fields.insert(hidden, value);
                }
            }
            fields.values_mut().for_each(|value| hide_again(value, values));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn masks(fields: &[&str]) -> Vec<Mask> {
        fields.iter().map(|field| field.parse().unwrap()).collect()
    }

    #[test]
    fn masked_values_are_masked_where_they_turn_up_again() {
        let record = json!({
            "facts": { "invocation_id": "build-77", "tool_name": "ci", "platform": [{ "name": "key", "value": "s3cret" }] },
            "before": { "platform": [{ "name": "key", "value": "s3cret" }, { "name": "os", "value": "linux" }] },
            "steps": [{
                "host": { "stored": { "of build-77": "x", "none": null } },
                "route": { "invocation_keys": ["ci", "build-77"], "notes": ["s3cret seen"], "platform": [] },
            }],
        });
        let shown = masked(record, &masks(&["invocation_id", "property:key", "tool_name"]));
        assert_eq!(
            shown,
            json!({
                "facts": { "invocation_id": "***", "tool_name": "***", "platform": [{ "name": "key", "value": "***" }] },
                "before": { "platform": [{ "name": "key", "value": "***" }, { "name": "os", "value": "linux" }] },
                "steps": [{
                    "host": { "stored": { "of ***": "x", "none": null } },
                    "route": { "invocation_keys": ["ci", "***"], "notes": ["*** seen"], "platform": [] },
                }],
            }),
            "two letters are found by chance"
        );
    }

    #[test]
    fn lists_and_stores_are_masked_as_wholes() {
        let record = json!({
            "facts": { "command": { "arguments": ["a", "b"], "output_paths": ["o"], "working_directory": "home",
                "environment": [{ "name": "TOKEN", "value": "t" }, { "name": "PATH", "value": "/bin" }] } },
            "steps": [{ "host": { "stored": { "k": "v", "none": null } } }],
        });
        let all = masks(&["arguments", "environment:TOKEN", "stored_values", "working_directory"]);
        assert_eq!(
            masked(record, &all),
            json!({
                "facts": { "command": { "arguments": ["***"], "output_paths": ["o"], "working_directory": "***",
                    "environment": [{ "name": "TOKEN", "value": "***" }, { "name": "PATH", "value": "/bin" }] } },
                "steps": [{ "host": { "stored": { "k": "***", "none": null } } }],
            })
        );
    }

    #[test]
    fn fields_read_as_they_are_written() {
        for field in TEXTS.into_iter().chain(LISTS).chain(OTHERS) {
            assert_eq!(field.parse::<Mask>().unwrap().to_string(), field);
        }
        let error = "invocation-id".parse::<Mask>().unwrap_err().to_string();
        assert!(error.contains("did you mean \"invocation_id\"?"), "{error}");
        assert!("property:".parse::<Mask>().is_err());
    }
}
