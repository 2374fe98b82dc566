//! Parts of a policy's configuration that lie in files of their own, such as a table that is large, or that others keep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pointsman_policy::{Places, digest_hex, read_bounded};
use serde_json::{Map, Value};

use super::error::At;
use super::locate::locate;
use super::path::{KeyPath, Segment};
use super::tree;

/// Bytes of one file.
const FILE_BYTES_MAX: usize = 16 << 20;

/// A file with a part of a policy's configuration, as it was when the configuration was read.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfigFile {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of what was read, in lower-case hex.
    pub digest_hex: String,
    value: Value,
    text: Arc<str>,
}

/// A file that a configuration refers to, whether or not it could be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Where it is.
    pub path: PathBuf,
    /// SHA-256 of what was read, in lower-case hex; `None`: it could not be read.
    pub digest_hex: Option<String>,
}

/// A place in a policy's configuration: a JSON pointer, or the name of a key.
fn steps(pointer: &str) -> Vec<String> {
    match pointer.strip_prefix('/') {
        Some(steps) => steps.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect(),
        None => vec![pointer.to_owned()],
    }
}

impl ConfigFile {
    /// Reads a file of JSON5, whatever value it has. The error has the name of the file, and the line if there is one.
    pub(super) fn read(path: &Path) -> (Seen, Result<Self, String>) {
        let read = read_bounded(path, FILE_BYTES_MAX);
        let seen = Seen { path: path.to_owned(), digest_hex: read.as_deref().ok().map(digest_hex) };
        let read = read.map_err(|error| format!("{}: can't be read: {error}", path.display()));
        (seen, read.and_then(|bytes| Self::parse(path, bytes)))
    }

    fn parse(path: &Path, bytes: Vec<u8>) -> Result<Self, String> {
        let name = path.display();
        if bytes.len() > FILE_BYTES_MAX {
            return Err(format!(
                "{name}: has more than {FILE_BYTES_MAX} bytes, which is what a policy can be given"
            ));
        }
        let digest_hex = digest_hex(&bytes);
        let text = String::from_utf8(bytes).map_err(|error| format!("{name}: is not UTF-8: {error}"))?;
        let value = tree::parse(&text)
            .map_err(|problem| format!("{name}:{}:{}: {}", problem.line, problem.column, problem.text))?;
        Ok(Self { path: path.to_owned(), digest_hex, value, text: text.into() })
    }
}

/// Puts what files say in its places in a configuration.
///
/// # Errors
/// For each file that has no place: its pointer, and why.
pub(super) fn join(
    config: &Value,
    files: &BTreeMap<String, ConfigFile>,
) -> Result<Value, Vec<(String, String)>> {
    let mut whole = config.clone();
    let mut problems = Vec::new();
    for (pointer, file) in files {
        if let Err(problem) = put(&mut whole, &steps(pointer), &file.value) {
            problems.push((pointer.clone(), problem));
        }
    }
    if problems.is_empty() { Ok(whole) } else { Err(problems) }
}

fn put(whole: &mut Value, steps: &[String], value: &Value) -> Result<(), String> {
    let Some((step, rest)) = steps.split_first() else { return Ok(()) };
    if step.is_empty() {
        return Err("names no key; give a JSON pointer, as in \"/table\"".into());
    }
    let Value::Object(object) = whole else {
        return Err(format!("goes through something that is not an object, at {step:?}"));
    };
    if rest.is_empty() {
        if object.contains_key(step) {
            return Err("has a value already; leave it out of `config`, or leave the file out".into());
        }
        object.insert(step.clone(), value.clone());
        return Ok(());
    }
    put(object.entry(step).or_insert_with(|| Value::Object(Map::new())), rest, value)
}

/// Says of a place in the joined configuration where in which file it is: what a policy says of its configuration names
/// places in what it was given.
pub(super) fn places(files: &BTreeMap<String, ConfigFile>) -> Places {
    let files: Vec<(Vec<String>, ConfigFile)> =
        files.iter().map(|(pointer, file)| (steps(pointer), file.clone())).collect();
    if files.is_empty() {
        return Places::default();
    }
    Places::new(move |pointer| {
        let wanted = if pointer.is_empty() { Vec::new() } else { steps(pointer) };
        // A file may lie within what another one says.
        let covering = files.iter().filter(|(at, _)| wanted.starts_with(at));
        let (at, file) = covering.max_by_key(|(at, _)| at.len())?;
        let name = file.path.display();
        Some(match locate(&file.text, &within(&file.value, &wanted[at.len()..]), At::Key) {
            Some((line, column)) => format!("{name}:{line}:{column}"),
            None => name.to_string(),
        })
    })
}

/// Steps into a value, as a path: what is a number in a pointer may be the name of a key.
fn within(mut value: &Value, steps: &[String]) -> KeyPath {
    let mut path = KeyPath::default();
    for step in steps {
        let (segment, next) = match (value, step.parse()) {
            (Value::Array(list), Ok(index)) => (Segment::Index(index), list.get(index)),
            _ => (Segment::Key(step.clone()), value.get(step)),
        };
        path.0.push(segment);
        let Some(next) = next else { break };
        value = next;
    }
    path
}
