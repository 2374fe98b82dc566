//! The last route of each kind of action, for when no other can be had.
//!
//! Actions are of one kind if all is equal that a policy can read of them and that stays the same from one build to the next. So
//! what is built again after a change of its sources is of the kind that it was: inputs and salt are not among it.

use std::sync::Arc;

use pointsman_policy::ActionFacts;
use pointsman_proto::rev2::Digest;
use pointsman_storage::BoundedCache;

use super::action::Edits;
use super::keys::Key;

/// A route that was found by policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) edits: Edits,
    pub(super) keys: Vec<Key>,
}

/// What makes an action one of a kind.
pub(super) type Kind = Box<[u8]>;

/// What an entry takes beside its texts, roughly.
const ENTRY_BYTES: usize = 200;
/// What a property or key takes beside its bytes.
const ITEM_BYTES: usize = 64;

/// Latest routes, bounded by the memory that they take.
#[derive(Debug)]
pub(super) struct KnownRoutes(BoundedCache<Kind, Arc<Known>>);

impl KnownRoutes {
    pub(super) fn new(max_bytes: u64) -> Self {
        Self(BoundedCache::new(max_bytes))
    }

    pub(super) fn get(&self, kind: &Kind) -> Option<Arc<Known>> {
        self.0.get(kind)
    }

    pub(super) fn remember(&self, kind: Kind, known: Known) {
        // Most of the time it is the same one, and is only moved to the front.
        if self.0.get(&kind).is_some_and(|last| *last == known) {
            return;
        }
        let weight = weight(&kind, &known);
        self.0.insert(kind, Arc::new(known), weight);
    }

    /// Number of routes, and bytes that they take.
    pub(super) fn size(&self) -> (usize, u64) {
        self.0.size()
    }
}

/// The kind of an action with this Command.
pub(super) fn kind(facts: &ActionFacts, command: Option<&Digest>) -> Kind {
    let mut kind = Vec::with_capacity(256);
    // With its length, so that no two lists of texts come to the same.
    let mut add = |text: &[u8]| {
        kind.extend((text.len() as u64).to_le_bytes());
        kind.extend(text);
    };
    for text in [
        &facts.instance_name,
        &facts.tool_name,
        &facts.tool_version,
        &facts.mnemonic,
        &facts.target_id,
        &facts.configuration_id,
    ] {
        add(text.as_bytes());
    }
    let (hash, size) = command.map_or(("", 0), |digest| (&*digest.hash, digest.size_bytes));
    add(hash.as_bytes());
    add(&size.to_le_bytes());
    add(&facts.timeout.unwrap_or_default().as_nanos().to_le_bytes());
    add(&[facts.do_not_cache.into(), facts.platform.is_some().into()]);
    for property in facts.platform.iter().flatten() {
        add(property.name.as_bytes());
        add(property.value.as_bytes());
    }
    kind.into()
}

fn weight(kind: &Kind, known: &Known) -> u64 {
    let properties = known.edits.platform.iter().map(|p| p.name.len() + p.value.len() + ITEM_BYTES);
    let keys = known.keys.iter().map(|key| match key {
        Key::Own(text) => text.len() + ITEM_BYTES,
        Key::Correlated | Key::Invocation => ITEM_BYTES,
    });
    (kind.len() + ENTRY_BYTES + properties.sum::<usize>() + keys.sum::<usize>()) as u64
}

#[cfg(test)]
mod tests {
    use pointsman_scheduler::route::Property;

    use super::*;

    #[test]
    fn whatever_a_policy_can_read_makes_another_kind() {
        let (one, two) =
            (Digest { hash: "a".into(), size_bytes: 1 }, Digest { hash: "a".into(), size_bytes: 2 });
        let facts = ActionFacts::default;
        let all = [
            kind(&facts(), None),
            kind(&facts(), Some(&one)),
            kind(&facts(), Some(&two)),
            kind(&ActionFacts { instance_name: "x".into(), ..facts() }, None),
            kind(&ActionFacts { mnemonic: "x".into(), ..facts() }, None),
            kind(&ActionFacts { target_id: "x".into(), ..facts() }, None),
            kind(&ActionFacts { do_not_cache: true, ..facts() }, None),
            kind(&ActionFacts { platform: Some(vec![]), ..facts() }, None),
            kind(&ActionFacts { platform: Some(vec![Property::new("a", "bc")]), ..facts() }, None),
            kind(&ActionFacts { platform: Some(vec![Property::new("ab", "c")]), ..facts() }, None),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        let another_build = ActionFacts { invocation_id: "i".into(), digest: "d/1".into(), ..facts() };
        assert_eq!(kind(&another_build, None), all[0]);
    }

    #[test]
    fn there_are_no_more_than_fit() {
        let routes = KnownRoutes::new(2000);
        let known = || Known {
            edits: Edits { platform: vec![Property::new("a", "1")], timeout: None, do_not_cache: false },
            keys: super::super::keys::plain(),
        };
        for n in 0..100_u32 {
            routes.remember(n.to_le_bytes().into(), known());
        }
        let (count, bytes) = routes.size();
        assert!(count > 2 && bytes <= 2000, "{count} {bytes}");
        assert!(routes.get(&99_u32.to_le_bytes().into()).is_some_and(|found| *found == known()));
        assert!(routes.get(&0_u32.to_le_bytes().into()).is_none());
    }
}
