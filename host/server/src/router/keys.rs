//! Invocation keys, in the types that Buildbarn's scheduler can compare: it renders each as JSON, so it must know the type.
//!
//! What policies give are texts. One that is the client's own invocation id, or correlated id, is sent as Buildbarn's own
//! extractors send it, a RequestMetadata with that field alone, so that its pages show it as such; any other as a
//! `google.protobuf.Value`.

use std::sync::Arc;

use pointsman_proto::pack;
use pointsman_proto::rev2::RequestMetadata;
use prost::Message as _;
use prost_types::{Any, Value, value};

/// One level of the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// The client's `correlated_invocations_id`, whatever it is.
    Correlated,
    /// Its `tool_invocation_id`.
    Invocation,
    /// A policy's own.
    Own(Arc<str>),
}

/// For clients that say nothing of themselves; the SDK's word for them too.
const NO_INVOCATION: &str = "(no invocation)";
/// Where a policy wants one queue for all. The scheduler refuses an empty path.
const ALL: &str = "(all)";

/// Where `google.protobuf` types are, for whoever looks.
const VALUE_URL: &str = "type.googleapis.com/google.protobuf.Value";

/// The path that policies gave, without what is only this client's.
pub(super) fn from_route(keys: &[Arc<str>], metadata: Option<&RequestMetadata>) -> Vec<Key> {
    let ids = metadata.map(|m| (&*m.correlated_invocations_id, &*m.tool_invocation_id));
    let (correlated, invocation) = ids.unwrap_or_default();
    let mut path: Vec<Key> = Vec::with_capacity(keys.len().max(1));
    for key in keys {
        let new = |this: &Key| !path.contains(this);
        path.push(match &**key {
            "" => Key::Own(key.clone()),
            // Each once: two ids may be the same text.
            text if text == correlated && new(&Key::Correlated) => Key::Correlated,
            text if text == invocation && new(&Key::Invocation) => Key::Invocation,
            _ => Key::Own(key.clone()),
        });
    }
    if path.is_empty() {
        path.push(Key::Own(ALL.into()));
    }
    path
}

/// What the built-in policy gives: builds, and invocations in them.
pub(super) fn plain() -> Vec<Key> {
    vec![Key::Correlated, Key::Invocation]
}

/// A path as it is sent; never empty.
pub(super) fn encode(path: &[Key], metadata: Option<&RequestMetadata>) -> Vec<Any> {
    let keys = path.iter().filter_map(|key| match key {
        Key::Correlated => {
            let id = &metadata?.correlated_invocations_id;
            let only =
                || RequestMetadata { correlated_invocations_id: id.clone(), ..RequestMetadata::default() };
            (!id.is_empty()).then(|| pack(&only()))
        }
        Key::Invocation => {
            let id = &metadata?.tool_invocation_id;
            let only = || RequestMetadata { tool_invocation_id: id.clone(), ..RequestMetadata::default() };
            (!id.is_empty()).then(|| pack(&only()))
        }
        Key::Own(text) => Some(own(text)),
    });
    let keys: Vec<Any> = keys.collect();
    if keys.is_empty() { vec![own(NO_INVOCATION)] } else { keys }
}

fn own(text: &str) -> Any {
    let value = Value { kind: Some(value::Kind::StringValue(text.to_owned())) };
    Any { type_url: VALUE_URL.to_owned(), value: value.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(correlated: &str, invocation: &str) -> RequestMetadata {
        RequestMetadata {
            correlated_invocations_id: correlated.into(),
            tool_invocation_id: invocation.into(),
            action_mnemonic: "CppCompile".into(),
            ..RequestMetadata::default()
        }
    }

    fn path(keys: &[&str], metadata: Option<&RequestMetadata>) -> Vec<Key> {
        from_route(&keys.iter().map(|key| (*key).into()).collect::<Vec<_>>(), metadata)
    }

    #[test]
    fn the_clients_ids_are_told_from_a_policys_own_keys() {
        let client = metadata("c", "i");
        let mixed = path(&["team", "c", "i"], Some(&client));
        assert_eq!(mixed, [Key::Own("team".into()), Key::Correlated, Key::Invocation]);
        assert_eq!(path(&["x", "x"], Some(&metadata("x", "x"))), plain());
        assert_eq!(path(&["", "i"], None), [Key::Own("".into()), Key::Own("i".into())]);
        assert_eq!(path(&[], Some(&client)), [Key::Own("(all)".into())]);
    }

    #[test]
    fn a_key_has_the_field_that_groups_and_no_other() {
        let sent = encode(&plain(), Some(&metadata("c", "i")));
        let only = [
            RequestMetadata { correlated_invocations_id: "c".into(), ..RequestMetadata::default() },
            RequestMetadata { tool_invocation_id: "i".into(), ..RequestMetadata::default() },
        ];
        assert_eq!(sent, only.map(|key| pack(&key)));
        assert_eq!(encode(&plain(), Some(&metadata("", "i"))), sent[1..]);
    }

    #[test]
    fn there_is_always_a_key() {
        for nobody in [None, Some(&metadata("", ""))] {
            assert_eq!(encode(&plain(), nobody), [own(NO_INVOCATION)]);
        }
    }
}
