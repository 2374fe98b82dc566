//! A tree of values to the raw configuration, gathering every problem instead of stopping at the first.
//!
//! serde stops at the first error. All keys of the raw structure are optional, so the offending value is cut out of
//! the tree and the rest is read again until nothing is left to complain about.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, Expected, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::error::{At, Unplaced};
use super::nearest;
use super::path::{KeyPath, Segment};
use super::raw::Raw;

/// More than this many at once help nobody.
const PROBLEMS_MAX: usize = 50;

/// Reads what can be read, and says what can't.
pub(super) fn read(mut tree: Value) -> (Raw, Vec<Unplaced>) {
    let mut problems = Vec::new();
    while problems.len() < PROBLEMS_MAX {
        match Raw::deserialize(Reader(&tree)) {
            Ok(raw) => return (raw, problems),
            Err(refusal) => {
                let cut = refusal.path.clone();
                problems.push(Unplaced { path: refusal.path, at: refusal.at, text: refusal.text });
                if !prune(&mut tree, &cut.0) {
                    break;
                }
            }
        }
    }
    (Raw::default(), problems)
}

/// Removes what the path names; false when that would be the whole tree.
///
/// A list loses all its items with one bad item: removing only that one would shift the places of the others.
fn prune(tree: &mut Value, path: &[Segment]) -> bool {
    let Some(end) = path.iter().rposition(|segment| matches!(segment, Segment::Key(_))) else { return false };
    let parent = path[..end].iter().try_fold(tree, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
    });
    match (parent, &path[end]) {
        (Some(Value::Object(map)), Segment::Key(key)) => map.remove(key).is_some(),
        _ => false,
    }
}

/// serde's complaint, with its path and in our words.
#[derive(Debug)]
struct Refusal {
    path: KeyPath,
    at: At,
    text: String,
}

impl Refusal {
    fn below(mut self, segment: Segment) -> Self {
        self.path.prepend(segment);
        self
    }

    /// Names an unknown word, the nearest known one, and all known ones.
    fn unknown(what: &str, written: &str, known: &[&str], at: At) -> Self {
        let mut text = format!("unknown {what} {written:?}");
        if let Some(guess) = nearest(written, known.iter().copied()) {
            text.push_str(&format!("; did you mean {guess:?}?"));
        }
        if let Some((_, advice)) = FOREIGN.iter().find(|(foreign, _)| *foreign == written) {
            text.push_str(&format!("; {advice}"));
        }
        text.push_str(&format!("; known here: {}", known.join(", ")));
        Self { path: KeyPath::default(), at, text }
    }
}

/// Keys of NativeLink's `simple` scheduler that mean something here under another name.
const FOREIGN: [(&str, &str); 6] = [
    ("worker_timeout_s", "use timers.worker_expiry"),
    ("client_action_timeout_s", "use timers.abandoned"),
    ("retain_completed_for_s", "use timers.completed_retention"),
    ("max_job_retries", "use max_attempts, which counts the first run too"),
    ("max_action_executing_timeout_s", "use timers.maximum_action_timeout"),
    ("allocation_strategy", "use placement; \"spread\" takes the host that was used least recently"),
];

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

impl std::error::Error for Refusal {}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self { path: KeyPath::default(), at: At::Value, text: text.to_string() }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {found}"))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("value", variant, known, At::Value)
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::unknown("key", field, known, At::Key)
    }
}

/// Hands a value to serde. Objects and lists add their step to the path of any complaint from inside.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a Value);

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(value), _, _) => visitor.visit_u64(value),
                (_, Some(value), _) => visitor.visit_i64(value),
                (_, _, value) => visitor.visit_f64(value.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_str(text),
            Value::Array(list) => visitor.visit_seq(Items { list, next: 0 }),
            Value::Object(map) => visitor.visit_map(Entries { entries: map.iter(), value: None }),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::Object(_) => self.deserialize_any(visitor),
            // Derived structures would take a list of their fields' values; a file never means that.
            other => Err(de::Error::invalid_type(kind(other), &visitor)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        match self.0 {
            Value::String(text) => visitor.visit_enum(StrDeserializer::<Refusal>::new(text)),
            other => {
                let found: Refusal = de::Error::invalid_type(kind(other), &"one of the words");
                Err(de::Error::custom(format_args!("{} {}", found.text, known.join(", "))))
            }
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}

fn kind(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
            (Some(value), _, _) => Unexpected::Unsigned(value),
            (_, Some(value), _) => Unexpected::Signed(value),
            (_, _, value) => Unexpected::Float(value.unwrap_or(f64::NAN)),
        },
        Value::String(text) => Unexpected::Str(text),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    }
}

struct Items<'a> {
    list: &'a [Value],
    next: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refusal> {
        let Some(item) = self.list.get(self.next) else { return Ok(None) };
        let index = self.next;
        self.next += 1;
        seed.deserialize(Reader(item)).map(Some).map_err(|refusal| refusal.below(Segment::Index(index)))
    }
}

struct Entries<'a> {
    entries: serde_json::map::Iter<'a>,
    value: Option<(&'a String, &'a Value)>,
}

impl<'de> de::MapAccess<'de> for Entries<'_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Refusal> {
        self.value = self.entries.next();
        let Some((key, _)) = self.value else { return Ok(None) };
        let read = seed.deserialize(StrDeserializer::<Refusal>::new(key));
        read.map(Some).map_err(|refusal| refusal.below(Segment::Key(key.clone())))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refusal> {
        let Some((key, value)) = self.value else {
            return Err(de::Error::custom("a value was asked for before its key"));
        };
        seed.deserialize(Reader(value)).map_err(|refusal| refusal.below(Segment::Key(key.clone())))
    }
}
