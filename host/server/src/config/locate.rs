//! Line and column of a key path: the file is read once more, by a reader that stops on purpose when it is there.
//!
//! The parser says where it was when a reader refused something. So the place is the parser's own, and no second
//! JSON5 scanner has to agree with it.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::error::At;
use super::path::{KeyPath, Segment};

/// Line and column (from 1) of the key or value at `path`, or of the nearest enclosing value that the text has.
/// `None` when nothing of the path is in the text.
pub(super) fn locate(text: &str, path: &KeyPath, at: At) -> Option<(usize, usize)> {
    let exact = find(text, &path.0, at);
    exact.or_else(|| (1..path.0.len()).rev().find_map(|length| find(text, &path.0[..length], At::Value)))
}

fn find(text: &str, path: &[Segment], at: At) -> Option<(usize, usize)> {
    let mut reached = false;
    let mut deserializer = json5::Deserializer::from_str(text);
    let seeker = Seeker { path, at, reached: &mut reached };
    let error = seeker.deserialize(&mut deserializer).err()?;
    let position = error.position()?;
    reached.then_some((position.line + 1, position.column + 1))
}

struct Seeker<'a> {
    path: &'a [Segment],
    at: At,
    reached: &'a mut bool,
}

impl Seeker<'_> {
    fn here<E: de::Error, T>(self) -> Result<T, E> {
        if self.path.is_empty() {
            *self.reached = true;
            return Err(E::custom("here"));
        }
        Err(E::custom("the path goes through a value that holds nothing"))
    }
}

impl<'de> DeserializeSeed<'de> for Seeker<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seeker<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<(), E> {
        self.here()
    }

    fn visit_i64<E: de::Error>(self, _: i64) -> Result<(), E> {
        self.here()
    }

    fn visit_u64<E: de::Error>(self, _: u64) -> Result<(), E> {
        self.here()
    }

    fn visit_f64<E: de::Error>(self, _: f64) -> Result<(), E> {
        self.here()
    }

    fn visit_str<E: de::Error>(self, _: &str) -> Result<(), E> {
        self.here()
    }

    fn visit_unit<E: de::Error>(self) -> Result<(), E> {
        self.here()
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Some((Segment::Index(index), rest)) = self.path.split_first() else { return self.here() };
        for _ in 0..*index {
            if items.next_element::<IgnoredAny>()?.is_none() {
                break;
            }
        }
        items.next_element_seed(Seeker { path: rest, at: self.at, reached: self.reached }).map(|_| ())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Some((Segment::Key(wanted), rest)) = self.path.split_first() else { return self.here() };
        let stop_on_key = self.at == At::Key && rest.is_empty();
        loop {
            let key = KeySeeker { wanted, stop: stop_on_key, reached: &mut *self.reached };
            match entries.next_key_seed(key)? {
                None => return Ok(()),
                Some(true) => {
                    return entries.next_value_seed(Seeker {
                        path: rest,
                        at: self.at,
                        reached: self.reached,
                    });
                }
                Some(false) => entries.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
    }
}

/// Says whether a key is the wanted one; refuses it when the key itself is what we look for.
struct KeySeeker<'a> {
    wanted: &'a str,
    stop: bool,
    reached: &'a mut bool,
}

impl<'de> DeserializeSeed<'de> for KeySeeker<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeeker<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<bool, E> {
        if key == self.wanted && self.stop {
            *self.reached = true;
            return Err(E::custom("here"));
        }
        Ok(key == self.wanted)
    }
}
