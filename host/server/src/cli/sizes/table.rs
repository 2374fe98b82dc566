//! Suggestions as the table of the policy `size-classes`: each learning key as a condition that means the same actions.
//!
//! That policy makes keys of parts, as in `mnemonic=CppLink target=//a:b`. A part that is a hash (`arguments#…`) can't be
//! turned back, and an entry without it would mean more actions than the key does: such keys, and others of which no entry
//! means the same, are left out, and counted.

use std::collections::{BTreeMap, BTreeSet};

use pointsman_proto::v1::ListSizesResponse;
use pointsman_proto::v1::list_sizes_response::Key;
use serde_json::{Map, Value, json};

/// Entries, and keys that can be none.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) entries: Vec<Value>,
    pub(super) left_out: BTreeMap<Why, Vec<String>>,
}

/// Why no entry can mean the actions of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// A part of it is a hash.
    Hashed,
    /// It has a text in which something was replaced.
    Replaced,
    /// It lacks a part that others have: an entry would mean those, too.
    FewerParts,
    /// It is so long that only its beginning and a hash are kept.
    Cut,
    /// It is not made of parts.
    Foreign,
}

impl Why {
    fn text(self) -> &'static str {
        match self {
            Self::Hashed => {
                "a part of it is a hash (of arguments, outputs, environment, platform, or of a long text)"
            }
            Self::Replaced => "learning_key.replace has changed a text in it (`~=`)",
            Self::FewerParts => {
                "it lacks a part that other keys have, so an entry would mean their actions, too"
            }
            Self::Cut => "it is so long that its end is a hash",
            Self::Foreign => "it is not made of parts as the policy size-classes makes them",
        }
    }
}

/// Parts of a key, in the order in which they stand there; those of the policy `size-classes`. A condition has a key of the
/// same name for each of the first seven, the others are hashes.
const PARTS: [&str; 11] = [
    "instance",
    "tool",
    "mnemonic",
    "target",
    "package",
    "executable",
    "first_output",
    "arguments",
    "outputs",
    "environment",
    "platform",
];

/// What belongs on more than the smallest class, those with the most running time first.
pub(super) fn of(answer: &ListSizesResponse) -> Table {
    let smallest = answer.classes.first().map_or(0, |class| class.size_class);
    let all: BTreeSet<&str> = answer.keys.iter().flat_map(|k| parts(&k.key)).map(|part| part.name).collect();
    let mut table = Table::default();
    for Key { key, suggested, .. } in &answer.keys {
        let Some(size) = suggested.filter(|size| *size > smallest) else { continue };
        match condition(key, &all) {
            Ok(mut entry) => {
                entry.insert("size".to_owned(), json!(size));
                table.entries.push(Value::Object(entry));
            }
            Err(why) => table.left_out.entry(why).or_default().push(key.clone()),
        }
    }
    table
}

/// Keys of one kind that are named.
const NAMED_MAX: usize = 3;

/// What whoever takes the table has to know: what it does not have, by kind.
pub(super) fn told(left_out: &BTreeMap<Why, Vec<String>>, answer: &ListSizesResponse) -> Vec<String> {
    let kind = |(why, keys): (&Why, &Vec<String>)| {
        let named = keys.iter().take(NAMED_MAX).map(|key| format!("{key:?}")).collect::<Vec<_>>().join(", ");
        let more = if keys.len() > NAMED_MAX { ", …" } else { "" };
        let keys = if keys.len() == 1 { "1 key is".to_owned() } else { format!("{} keys are", keys.len()) };
        format!("{keys} left out, as no entry can mean the same: {}: {named}{more}", why.text())
    };
    let mut lines: Vec<String> = left_out.iter().map(kind).collect();
    let shown = u32::try_from(answer.keys.len()).unwrap_or(u32::MAX);
    if shown < answer.known {
        lines.push(format!(
            "{} more keys, with less running time, were not looked at: --limit says how many are, 10000 at most",
            answer.known - shown
        ));
    }
    lines
}

/// One part of a key.
#[derive(Debug)]
struct Part<'a> {
    name: &'static str,
    /// `=`, `~=` or `#`.
    is: &'static str,
    text: &'a str,
}

/// The parts that a key is made of; none: it is not.
fn parts(key: &str) -> Vec<Part<'_>> {
    let (mut parts, mut rest, mut place) = (Vec::new(), key, 0);
    while !rest.is_empty() {
        let Some((found, is, after)) = begins(rest, place) else { return Vec::new() };
        // Texts have spaces, so what ends one is the beginning of a later part.
        let next = after.match_indices(' ').find(|(at, _)| begins(&after[at + 1..], found + 1).is_some());
        let text = next.map_or(after, |(at, _)| &after[..at]);
        parts.push(Part { name: PARTS[found], is, text });
        rest = next.map_or("", |(at, _)| &after[at + 1..]);
        place = found + 1;
    }
    parts
}

/// The part that a text begins with, of those from `place` on, and what comes after its name.
fn begins(text: &str, place: usize) -> Option<(usize, &'static str, &str)> {
    PARTS.iter().enumerate().skip(place).find_map(|(found, name)| {
        let after = text.strip_prefix(name)?;
        ["=", "~=", "#"].into_iter().find_map(|is| Some((found, is, after.strip_prefix(is)?)))
    })
}

/// The condition that means the actions of a key, where keys have these parts.
fn condition(key: &str, all: &BTreeSet<&str>) -> Result<Map<String, Value>, Why> {
    let parts = parts(key);
    let has = |is: &str| parts.iter().any(|part| part.is == is);
    if parts.is_empty() {
        return Err(Why::Foreign);
    }
    if is_cut(key) {
        return Err(Why::Cut);
    }
    if has("#") {
        return Err(Why::Hashed);
    }
    if has("~=") {
        return Err(Why::Replaced);
    }
    if parts.len() < all.len() {
        return Err(Why::FewerParts);
    }
    // Globs have a meaning of their own.
    let pattern = |text: &str| if escaped(text) == text { json!(text) } else { json!({ "equals": text }) };
    Ok(parts.iter().map(|part| (part.name.to_owned(), pattern(part.text))).collect())
}

/// As `pointsman_learning::bounded` ends what it cuts.
fn is_cut(key: &str) -> bool {
    key.rsplit_once("…#")
        .is_some_and(|(_, hash)| hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
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

    fn means(key: &str) -> Result<Value, Why> {
        let all = parts(key).iter().map(|part| part.name).collect();
        condition(key, &all).map(Value::Object)
    }

    #[test]
    fn keys_become_conditions() {
        for (key, condition) in [
            ("mnemonic=CppLink target=//a:b", Ok(json!({ "mnemonic": "CppLink", "target": "//a:b" }))),
            (
                "tool=buck2 2026 executable=/usr/bin/gcc",
                Ok(json!({ "tool": "buck2 2026", "executable": "/usr/bin/gcc" })),
            ),
            ("package=//third_party/llvm", Ok(json!({ "package": "//third_party/llvm" }))),
            ("target=//a:b package=//a", Ok(json!({ "target": "//a:b", "package": "//a" }))),
            ("first_output=out/a b=c.o", Ok(json!({ "first_output": "out/a b=c.o" }))),
            ("target=//a:b*", Ok(json!({ "target": { "equals": "//a:b*" } }))),
            ("first_output~=buck-out/x", Err(Why::Replaced)),
            ("mnemonic=CppLink arguments#0123456789abcdef", Err(Why::Hashed)),
            ("target#0123456789abcdef", Err(Why::Hashed)),
            ("target=//a…#0123456789abcdef", Err(Why::Cut)),
            ("//a:b", Err(Why::Foreign)),
            ("a=b", Err(Why::Foreign)),
            ("target=//a mnemonic=x", Ok(json!({ "target": "//a mnemonic=x" }))),
            ("(nothing known)", Err(Why::Foreign)),
        ] {
            assert_eq!(means(key), condition, "{key}");
        }
    }

    #[test]
    fn parts_are_those_of_the_policy() {
        let schema = include_str!("../../../../../policies/size-classes/config.schema.json");
        let schema: Value = serde_json::from_str(schema).unwrap();
        let of_policy = &schema["properties"]["learning_key"]["properties"]["parts"]["items"]["enum"];
        assert_eq!(*of_policy, json!(PARTS));
        let conditions = &schema["properties"]["table"]["items"]["properties"];
        assert!(PARTS[..7].iter().all(|part| conditions[part].is_object()));
    }

    fn key(key: &str, suggested: Option<u32>) -> Key {
        Key { key: key.to_owned(), suggested, ..Key::default() }
    }

    fn answer(keys: Vec<Key>) -> ListSizesResponse {
        let class = |size_class| Class { size_class, cores: 1.0 };
        let known = u32::try_from(keys.len()).unwrap();
        ListSizesResponse {
            keys,
            known,
            classes: [1, 4, 8].map(class).into(),
            ..ListSizesResponse::default()
        }
    }

    #[test]
    fn only_what_needs_more_than_the_smallest_class_is_named() {
        let keys = vec![
            key("target=//a", Some(4)),
            key("target=//b", Some(1)),
            key("target=//c", None),
            key("x", Some(8)),
        ];
        let Table { entries, left_out } = of(&answer(keys));
        assert_eq!(entries, [json!({ "target": "//a", "size": 4 })]);
        assert_eq!(left_out, [(Why::Foreign, vec!["x".to_owned()])].into());
    }

    #[test]
    fn an_entry_never_means_more_actions_than_its_key() {
        // The first action had no mnemonic; an entry for its target would mean the second, too.
        let keys = vec![key("target=//a", Some(8)), key("mnemonic=X target=//a", Some(4))];
        let Table { entries, left_out } = of(&answer(keys));
        assert_eq!(entries, [json!({ "mnemonic": "X", "target": "//a", "size": 4 })]);
        assert_eq!(left_out, [(Why::FewerParts, vec!["target=//a".to_owned()])].into());
    }

    #[test]
    fn what_is_left_out_is_said() {
        let keys = (0..5)
            .map(|n| key(&format!("arguments#{n}"), Some(8)))
            .chain([key("\u{1b}x", Some(8))])
            .collect();
        let mut answer = answer(keys);
        answer.known = 10_006;
        let told = told(&of(&answer).left_out, &answer);
        assert_eq!(
            told,
            [
                "5 keys are left out, as no entry can mean the same: a part of it is a hash (of arguments, outputs, \
                 environment, platform, or of a long text): \"arguments#0\", \"arguments#1\", \"arguments#2\", …",
                "1 key is left out, as no entry can mean the same: it is not made of parts as the policy size-classes \
                 makes them: \"\\u{1b}x\"",
                "10000 more keys, with less running time, were not looked at: --limit says how many are, 10000 at most",
            ]
        );
    }
}
