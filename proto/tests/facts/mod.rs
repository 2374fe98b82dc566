//! What a protocol definition says about the wire, in a form that two sources can be compared in.
pub(crate) mod ours;
pub(crate) mod theirs;

use std::collections::BTreeMap;

/// Message, enum or service → field number, value number or method → what it is.
///
/// Type names are folded, see [`fold`]; names of fields, enum values, oneofs and methods are exact.
pub(crate) type Facts = BTreeMap<String, BTreeMap<Key, String>>;

/// How an entry is found on the wire.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Key {
    /// Number of a field or an enum value.
    Number(i32),
    /// Path of a method, as in the HTTP/2 request.
    Method(String),
}

/// Brings the path of a type to lower case without underscores, because generated Rust code no longer has
/// the exact name.
pub(crate) fn fold<'a>(segments: impl IntoIterator<Item = &'a str>) -> String {
    let folded = segments.into_iter().map(|s| s.replace('_', "").to_lowercase());
    folded.collect::<Vec<_>>().join(".")
}

/// Everything that differs, and how many entries were compared.
pub(crate) fn differences(ours: &Facts, theirs: &Facts) -> (Vec<String>, usize) {
    let (mut wrong, mut compared) = (Vec::new(), 0);
    for name in ours.keys().chain(theirs.keys().filter(|k| !ours.contains_key(*k))) {
        match (ours.get(name), theirs.get(name)) {
            (Some(o), Some(t)) => {
                for key in o.keys().chain(t.keys().filter(|k| !o.contains_key(k))) {
                    compared += 1;
                    let (o, t) = (o.get(key), t.get(key));
                    if o != t {
                        wrong.push(format!("{name} {key:?}: ours {o:?}, theirs {t:?}"));
                    }
                }
            }
            (o, _) => wrong.push(format!("{name}: only {}", if o.is_some() { "ours" } else { "theirs" })),
        }
    }
    (wrong, compared)
}
