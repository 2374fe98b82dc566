//! The Action of a call, and the one thing that is done to it.
//!
//! **Invariant: only `platform`, and where a policy says so `timeout` and `do_not_cache`, differ in what is sent back.** The worker
//! executes what is sent back, and its result is cached under the digest of the original; any other change would put wrong
//! results into the cache. So an Action is edited as the bytes that it came in: what this program knows nothing of stays.

use std::time::Duration;

use bytes::{Buf as _, Bytes};
use pointsman_proto::rev2::{Action, platform};
use pointsman_scheduler::route::Property;
use prost::encoding::{DecodeContext, decode_key, skip_field};
use prost::{DecodeError, Message as _};

use crate::routing;

/// Numbers of the fields that can be edited.
const TIMEOUT: u32 = 6;
const DO_NOT_CACHE: u32 = 7;
const PLATFORM: u32 = 10;

/// What becomes of one Action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edits {
    /// All of its platform: sorted by name, then value, without doubles.
    pub(super) platform: Vec<Property>,
    /// Another time limit, if a policy set one.
    pub(super) timeout: Option<Duration>,
    /// A policy wants it shared with nobody: Buildbarn's scheduler has no other word for it.
    pub(super) do_not_cache: bool,
}

/// An Action with the bytes that it was read from.
#[derive(Clone, Debug)]
pub(super) struct ActionBytes {
    bytes: Bytes,
    /// What this program knows of it.
    pub(super) action: Action,
}

impl ActionBytes {
    /// Reads it.
    ///
    /// # Errors
    /// It is none.
    pub(super) fn read(bytes: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { action: Action::decode(&bytes[..])?, bytes })
    }

    /// As it came.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// It asks for nothing.
    pub(super) fn is_without_properties(&self) -> bool {
        self.action.platform.as_ref().is_none_or(|platform| platform.properties.is_empty())
    }

    /// The Action with these edits; the very same bytes if they change nothing.
    ///
    /// # Errors
    /// Never after it could be read.
    pub(super) fn edited(&self, edits: &Edits) -> Result<Bytes, DecodeError> {
        let platform = (!self.has(&edits.platform)).then(|| routing::platform(&edits.platform));
        let do_not_cache = edits.do_not_cache && !self.action.do_not_cache;
        let (has_timeout, has_platform) = (edits.timeout.is_some(), platform.is_some());
        let replaced = |field| match field {
            TIMEOUT => has_timeout,
            DO_NOT_CACHE => do_not_cache,
            PLATFORM => has_platform,
            _ => false,
        };
        if ![TIMEOUT, DO_NOT_CACHE, PLATFORM].into_iter().any(replaced) {
            return Ok(self.bytes.clone());
        }
        let changed = Action {
            timeout: edits.timeout.and_then(|timeout| prost_types::Duration::try_from(timeout).ok()),
            do_not_cache,
            platform,
            ..Action::default()
        };
        let mut edited = Vec::with_capacity(self.bytes.len() + changed.encoded_len());
        let mut rest = &self.bytes[..];
        while rest.has_remaining() {
            let field = rest;
            let (number, wire_type) = decode_key(&mut rest)?;
            skip_field(wire_type, number, &mut rest, DecodeContext::default())?;
            if !replaced(number) {
                edited.extend_from_slice(&field[..field.len() - rest.len()]);
            }
        }
        edited.extend(changed.encode_to_vec());
        Ok(edited.into())
    }

    fn has(&self, wanted: &[Property]) -> bool {
        let Some(platform) = &self.action.platform else { return false };
        let same = |(known, wanted): (&platform::Property, &Property)| {
            *known.name == *wanted.name && *known.value == *wanted.value
        };
        platform.properties.len() == wanted.len() && platform.properties.iter().zip(wanted).all(same)
    }
}

#[cfg(test)]
mod tests {
    use pointsman_proto::rev2::{Digest, Platform};

    use super::*;

    /// A field of a later version of the protocol: number 200, three bytes.
    const UNKNOWN: &[u8] = &[0xc2, 0x0c, 3, 7, 8, 9];
    /// A group, which nobody has used for fifteen years, with a field inside.
    const GROUP: &[u8] = &[0xcb, 0x0c, 0x08, 1, 0xcc, 0x0c];

    fn full() -> Vec<u8> {
        let digest = |hash: &str| Some(Digest { hash: hash.into(), size_bytes: 7 });
        let action = Action {
            command_digest: digest("c"),
            input_root_digest: digest("i"),
            timeout: Some(prost_types::Duration { seconds: 5, nanos: 1 }),
            salt: "salt".into(),
            platform: Some(routing::platform(&[Property::new("b", "1")])),
            ..Action::default()
        };
        [UNKNOWN, &action.encode_to_vec(), GROUP].concat()
    }

    fn edit(bytes: &[u8], edits: &Edits) -> Vec<u8> {
        ActionBytes::read(bytes.to_vec().into()).unwrap().edited(edits).unwrap().to_vec()
    }

    fn platform(properties: &[(&str, &str)]) -> Edits {
        let platform = properties.iter().map(|(name, value)| Property::new(*name, *value)).collect();
        Edits { platform, timeout: None, do_not_cache: false }
    }

    #[test]
    fn what_is_not_edited_is_the_very_same() {
        assert_eq!(edit(&full(), &platform(&[("b", "1")])), full());
        let without = Action { platform: None, ..Action::decode(&full()[..]).unwrap() };
        let edited = edit(&without.encode_to_vec(), &platform(&[]));
        assert_eq!(Action::decode(&edited[..]).unwrap().platform, Some(Platform::default()));
    }

    #[test]
    fn unknown_fields_stay_when_others_are_edited() {
        let edits = Edits {
            timeout: Some(Duration::from_millis(1500)),
            do_not_cache: true,
            ..platform(&[("a", ""), ("b", "1")])
        };
        let edited = edit(&full(), &edits);
        let held = |part: &[u8]| edited.windows(part.len()).any(|window| window == part);
        assert!(held(UNKNOWN) && held(GROUP), "{edited:?}");
        let (before, after) = (Action::decode(&full()[..]).unwrap(), Action::decode(&edited[..]).unwrap());
        let wanted = Action {
            timeout: Some(prost_types::Duration { seconds: 1, nanos: 500_000_000 }),
            do_not_cache: true,
            platform: Some(routing::platform(&edits.platform)),
            ..before
        };
        assert_eq!(after, wanted);
        // Again, it changes nothing.
        assert_eq!(edit(&edited, &platform(&[("a", ""), ("b", "1")])), edited);
    }

    #[test]
    fn a_flag_is_never_taken_away() {
        let action = Action { do_not_cache: true, ..Action::default() }.encode_to_vec();
        let edited = edit(&action, &platform(&[("a", "1")]));
        assert!(Action::decode(&edited[..]).unwrap().do_not_cache);
    }

    #[test]
    fn what_is_no_action_is_refused() {
        assert!(ActionBytes::read(Bytes::from_static(&[0x0a, 200])).is_err());
    }
}
