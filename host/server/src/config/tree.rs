//! JSON5 text to a tree of values. Keys given twice are refused: the second would win in silence.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::error::Problem;

/// So deep may lists and objects be nested: reading recurses.
const DEPTH_MAX: usize = 100;

/// Reads the text. Errors of syntax carry line and column.
pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    if let Some((line, column)) = too_deep(text) {
        let text = format!("lists and objects are nested more than {DEPTH_MAX} deep");
        return Err(Problem { line, column, key: String::new(), text });
    }
    json5::from_str::<Tree>(text).map(|tree| tree.0).map_err(|error| {
        let message = error.to_string();
        let what = message.split(" at line ").next().unwrap_or(&message).to_owned();
        let (line, column) = match error.position() {
            // The parser names the start of what is unfinished; what has to be mended is at the end.
            _ if what.starts_with("EOF") => end_of(text),
            Some(position) => (position.line + 1, position.column + 1),
            None => end_of(text),
        };
        let text = match error.code() {
            Some(_) => format!("not valid JSON5: {}", what.replace("EOF parsing", "the file ends inside of")),
            None => what,
        };
        Problem { line, column, key: String::new(), text }
    })
}

/// Where the text is nested too deep. Brackets in strings and comments count, which no real file notices.
fn too_deep(text: &str) -> Option<(usize, usize)> {
    let mut depth: usize = 0;
    for (line, content) in text.lines().enumerate() {
        for (column, c) in content.chars().enumerate() {
            match c {
                '[' | '{' => depth += 1,
                ']' | '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth > DEPTH_MAX {
                return Some((line + 1, column + 1));
            }
        }
    }
    None
}

/// Line and column just behind the last line's text: where an unfinished file ends.
fn end_of(text: &str) -> (usize, usize) {
    let last = text.trim_end();
    let line = last.lines().count().max(1);
    (line, last.lines().last().map_or(0, |line| line.chars().count()) + 1)
}

struct Tree(Value);

impl<'de> de::Deserialize<'de> for Tree {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TreeVisitor).map(Tree)
    }
}

struct TreeVisitor;

impl<'de> Visitor<'de> for TreeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("a number must be finite: no Infinity, no NaN"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Tree(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(NewKey(&map))? {
            let Tree(value) = entries.next_value()?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

/// Refuses a key that is there already, while the parser still stands on it.
struct NewKey<'a>(&'a Map<String, Value>);

impl<'de> DeserializeSeed<'de> for NewKey<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NewKey<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<String, E> {
        if self.0.contains_key(key) {
            return Err(E::custom(format_args!("{key:?} is given twice in one object; keep one of them")));
        }
        Ok(key.to_owned())
    }
}
