//! Suggestions as the table of the policy `size-classes`: each learning key as a condition that means the same actions.
//!
//! That policy makes keys of parts, as in `mnemonic=CppLink target=//a:b`. A part that is a hash (`arguments#…`) can't be
//! turned back, and an entry without it would mean more actions than the key does.

use pointsman_proto::v1::ListSizesResponse;
use pointsman_proto::v1::list_sizes_response::Key;
use serde_json::{Map, Value, json};

/// Entries, and keys that can be none.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Value>,
    pub(super) left_out: Vec<String>,
}

/// Parts of a key, in the order in which they stand there, and the key of a condition that means the same.
const PARTS: [(&str, &str); 7] = [
    ("instance", "instance"),
    ("tool", "tool"),
    ("mnemonic", "mnemonic"),
    ("target", "target"),
    ("package", "target"),
    ("executable", "executable"),
    ("first_output", "output"),
];

/// What belongs on more than the smallest class, those with the most running time first.
pub(super) fn of(answer: &ListSizesResponse) -> Table {
    let smallest = answer.classes.first().map_or(0, |class| class.size_class);
    let mut table = Table::default();
    for Key { key, suggested, .. } in &answer.keys {
        let Some(size) = suggested.filter(|size| *size > smallest) else { continue };
        match condition(key) {
            Some(mut entry) => {
                entry.insert("size".to_owned(), json!(size));
                table.entries.push(Value::Object(entry));
            }
            None => table.left_out.push(key.clone()),
        }
    }
    table
}

/// The condition that means the actions of a key; `None`: there is none.
fn condition(key: &str) -> Option<Map<String, Value>> {
    let mut condition = Map::new();
    let mut rest = key;
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        let place = PARTS.iter().position(|(part, _)| *part == name)?;
        // Values have spaces, so what ends one is the beginning of a later part.
        let next = after.match_indices(' ').find(|(at, _)| begins_part(&after[at + 1..], place));
        let value = next.map_or(after, |(at, _)| &after[..at]);
        rest = next.map_or("", |(at, _)| &after[at + 1..]);
        let pattern = match name {
            // Every target of the package.
            "package" => json!(format!("{}:*", escaped(value))),
            // Globs have a meaning of their own.
            _ if escaped(value) != value => json!({ "equals": value }),
            _ => json!(value),
        };
        // A target says more than its package.
        if name != "package" || !condition.contains_key("target") {
            condition.insert(PARTS[place].1.to_owned(), pattern);
        }
    }
    (!condition.is_empty()).then_some(condition)
}

/// Whether a text begins with a part that may stand after the one at `place`. Hashes do, too.
fn begins_part(text: &str, place: usize) -> bool {
    const HASHED: [&str; 4] = ["arguments", "outputs", "environment", "platform"];
    let later = PARTS[place + 1..].iter().map(|(name, _)| *name).chain(HASHED);
    let mut ends = later.filter_map(|name| text.strip_prefix(name));
    ends.any(|after| after.starts_with(['=', '#']))
}

/// As a glob that means exactly this.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '*' | '?' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use pointsman_proto::v1::list_sizes_response::Class;

    use super::*;

    fn means(key: &str) -> Value {
        condition(key).map_or(Value::Null, Value::Object)
    }

    #[test]
    fn keys_become_conditions() {
        for (key, condition) in [
            ("mnemonic=CppLink target=//a:b", json!({ "mnemonic": "CppLink", "target": "//a:b" })),
            (
                "tool=buck2 2026 executable=/usr/bin/gcc",
                json!({ "tool": "buck2 2026", "executable": "/usr/bin/gcc" }),
            ),
            ("package=//third_party/llvm", json!({ "target": "//third_party/llvm:*" })),
            ("target=//a:b package=//a", json!({ "target": "//a:b" })),
            ("first_output=out/a b=c.o", json!({ "output": "out/a b=c.o" })),
            ("target=//a:b*", json!({ "target": { "equals": "//a:b*" } })),
            ("mnemonic=CppLink arguments#0123456789abcdef", Value::Null),
            ("target#0123456789abcdef", Value::Null),
            ("//a:b", Value::Null),
            ("a=b", Value::Null),
            ("(nothing known)", Value::Null),
        ] {
            assert_eq!(means(key), condition, "{key}");
        }
    }

    #[test]
    fn only_what_needs_more_than_the_smallest_class_is_named() {
        let key = |key: &str, suggested| Key { key: key.to_owned(), suggested, ..Key::default() };
        let class = |size_class| Class { size_class, cores: 1.0 };
        let answer = ListSizesResponse {
            keys: vec![
                key("target=//a", Some(4)),
                key("target=//b", Some(1)),
                key("target=//c", None),
                key("x", Some(8)),
            ],
            classes: [1, 4, 8].map(class).into(),
            ..ListSizesResponse::default()
        };
        let Table { entries, left_out } = of(&answer);
        assert_eq!(entries, [json!({ "target": "//a", "size": 4 })]);
        assert_eq!(left_out, ["x"]);
    }
}
