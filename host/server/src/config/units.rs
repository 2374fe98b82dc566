//! Durations (`"30s"`, `"2h 30m"`) and sizes (`"10GiB"`), which always carry their unit.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde::ser::{Serialize, Serializer};

/// Reads a duration such as `30s`, `500ms` or `1h 30m`.
///
/// # Errors
/// A text that says what a duration looks like, when there is no unit or an unknown one.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text).map_err(|_| {
        format!("{text:?} is not a duration: write a number and a unit (ms, s, m, h, days), such as \"30s\"")
    })
}

/// Reads a size in bytes such as `64KiB`, `1.5GB` or `512B`.
///
/// # Errors
/// A text that says what a size looks like, when there is no unit or an unknown one.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let with_unit = text.trim_end().ends_with(|c: char| c.is_ascii_alphabetic());
    let size = with_unit.then(|| bytesize::ByteSize::from_str(text.trim()).ok()).flatten();
    size.map(|size| size.as_u64()).ok_or_else(|| {
        format!("{text:?} is not a size: write a number and a unit (B, kB, MB, GB, KiB, MiB, GiB, TiB), such as \"10GiB\"")
    })
}

/// A duration as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawDuration(pub(super) Duration);

/// A size in bytes as the file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawSize(pub(super) u64);

impl<'de> Deserialize<'de> for RawDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer
            .deserialize_str(TextWithUnit("a duration with its unit in quotes, such as \"30s\""))?;
        parse_duration(&text).map(RawDuration).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for RawSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = deserializer
            .deserialize_str(TextWithUnit("a size with its unit in quotes, such as \"10GiB\""))?;
        parse_size(&text).map(RawSize).map_err(de::Error::custom)
    }
}

impl Serialize for RawDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl Serialize for RawSize {
    /// The largest unit that keeps the size a whole number, so that reading it back gives the same.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        let whole = |shift: &u32| self.0 > 0 && self.0.trailing_zeros() >= *shift;
        match units.iter().find(|(_, shift)| whole(shift)) {
            Some((unit, shift)) => serializer.collect_str(&format_args!("{}{unit}", self.0 >> shift)),
            None => serializer.collect_str(&format_args!("{}B", self.0)),
        }
    }
}

/// Wants text, and says what kind of text.
struct TextWithUnit(&'static str);

impl Visitor<'_> for TextWithUnit {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }
}
