//! `learning` and `packing`: what follows from how earlier runs of an action went.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::Checker;
use super::checked::PropertyType;
use super::error::At;
use super::path::KeyPath;
use super::units::RawDuration;

/// `learning`: what is kept of how actions ran, for those to which a policy gives a learning key; and how their size class
/// follows from it. It costs nothing where no policy gives one.
#[derive(Clone, Debug, PartialEq)]
pub struct Learning {
    /// `dir`: the folder of it. Default `learning` below `state_dir`. One server uses it at a time.
    pub dir: PathBuf,
    /// `keys`: learning keys that are known, least recently used ones dropped; 1 to 1,000,000. Default 20,000, which takes
    /// some 12 MB of memory and at most twice that on disk.
    pub keys_max: u32,
    /// `flush_every`: how often what was learned is written; a server that is killed forgets as much. 100 ms to an hour.
    /// Default 5 s.
    pub flush_every: Duration,
    /// `min_attempts`: successful runs that must be known before their use of cores and memory decides anything; 1 to 100.
    /// Default 5. A kill or a time-out counts from the first.
    pub min_attempts: u32,
    /// `long`: from this median wall time on an action that uses more cores than the smallest class has goes to the largest.
    /// Default 60 s; 0 is any.
    pub long: Duration,
    /// `forget_after`: kills and time-outs longer ago no longer keep an action from that class. Default 7 days.
    pub forget_after: Duration,
    /// `cores`: the `minimum` property by which hosts say how many cores they have. Default `cpu_count`, if that is one.
    pub cores: Option<String>,
    /// `class_cores`: cores that one action has on a worker of a size class, as `{ "1": 1.5, "4": 6 }`. Default: what the
    /// host of such a worker that has the least says, by the actions that it runs at once. Give it where workers don't say,
    /// or say what is not theirs alone.
    pub class_cores: BTreeMap<u32, f64>,
}

/// `packing`: what is set aside for an action on its host.
#[derive(Clone, Debug, PartialEq)]
pub struct Packing {
    /// `by`. Default `asked`. With `measured` hosts run as many actions at once as they have room for by what earlier runs
    /// used, once `learning.min_attempts` of those are known; which hosts an action may go to still follows from what it
    /// asks for.
    pub by: PackBy,
    /// `cores`: the `minimum` property that counts cores; of it whole cores are set aside: as many as 95% of the runs
    /// stay below, or exceed by a tenth at most, as use is known no better than that.
    /// Default `cpu_count`, if that is one. `""`: none.
    pub cores: Option<String>,
    /// `memory`: the `minimum` property that counts memory; of it the most that a run has had is set aside, rounded up to
    /// 2 or 3 times a power of two. Workers report the largest process only, so leave it out (`""`) where actions have
    /// several large ones. Default `memory`, if that is one.
    pub memory: Option<String>,
    /// `memory_unit`: of that property. Default `MiB`, as the bundled worker has it.
    pub memory_unit: MemoryUnit,
    /// `beyond_asked`: whether more is set aside than the action asks for where it uses more. Default false.
    pub beyond_asked: bool,
}

/// What room on a host is counted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PackBy {
    /// What actions ask for.
    #[default]
    Asked,
    /// What earlier runs used.
    Measured,
}

/// Unit of a property that counts memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum MemoryUnit {
    /// Bytes.
    B,
    /// 1024 bytes.
    KiB,
    /// 1024 KiB.
    #[default]
    MiB,
    /// 1024 MiB.
    GiB,
}

impl MemoryUnit {
    /// Bytes of one.
    pub fn bytes(self) -> u64 {
        match self {
            Self::B => 1,
            Self::KiB => 1 << 10,
            Self::MiB => 1 << 20,
            Self::GiB => 1 << 30,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { keys: …, min_attempts: …, … }")]
pub(super) struct RawLearning {
    pub(super) dir: Option<PathBuf>,
    pub(super) keys: Option<u32>,
    pub(super) flush_every: Option<RawDuration>,
    pub(super) min_attempts: Option<u32>,
    pub(super) long: Option<RawDuration>,
    pub(super) forget_after: Option<RawDuration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) class_cores: BTreeMap<String, f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, expecting = "an object: { by: \"measured\", … }")]
pub(super) struct RawPacking {
    pub(super) by: Option<PackBy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cores: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) memory: Option<String>,
    pub(super) memory_unit: Option<MemoryUnit>,
    pub(super) beyond_asked: Option<bool>,
}

/// Types of the properties that there are; `None`: lists are compared as a whole.
type Known<'a> = Option<&'a BTreeMap<String, PropertyType>>;

const MS: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
/// A number of cores that is no slip.
const CORES_MAX: f64 = 10_000.0;

impl Checker {
    pub(super) fn learning(&mut self, raw: RawLearning, state_dir: &Path, known: Known<'_>) -> Learning {
        let learning = Learning {
            dir: raw.dir.unwrap_or_else(|| state_dir.join("learning")),
            keys_max: raw.keys.unwrap_or(20_000),
            flush_every: raw.flush_every.map_or(5000 * MS, |every| every.0),
            min_attempts: raw.min_attempts.unwrap_or(5),
            // 0 is allowed: every parallel action goes to the largest class then.
            long: Self::optional_timer(raw.long, 60_000 * MS),
            forget_after: self.timer("learning.forget_after", raw.forget_after, 7 * DAY),
            cores: self.amount("learning.cores", raw.cores, "cpu_count", known),
            class_cores: self.class_cores(raw.class_cores),
        };
        let within = |n: u32, min: u32, max: u32| (min..=max).contains(&n);
        if !within(learning.keys_max, 1, 1_000_000) {
            self.wrong("learning.keys", format!("is {}; give 1 to 1000000", learning.keys_max));
        }
        if !within(learning.min_attempts, 1, 100) {
            let text = format!(
                "is {}; give 1 to 100, since no more than the latest 127 to 255 runs are told apart",
                learning.min_attempts
            );
            self.wrong("learning.min_attempts", text);
        }
        if !(100 * MS..=3_600_000 * MS).contains(&learning.flush_every) {
            let given = humantime::format_duration(learning.flush_every);
            self.wrong("learning.flush_every", format!("is {given}; give 100ms to 1h"));
        }
        learning
    }

    fn class_cores(&mut self, raw: BTreeMap<String, f64>) -> BTreeMap<u32, f64> {
        let mut classes = BTreeMap::new();
        for (class, cores) in raw {
            let at = KeyPath::of("learning.class_cores").key(&class);
            match class.parse() {
                Ok(number) => _ = classes.insert(number, cores),
                Err(_) => {
                    self.complain(at.clone(), At::Key, "is no size class, which is a number from 0 to 2^32-1")
                }
            }
            if !(cores > 0.0 && cores <= CORES_MAX) {
                let text = format!(
                    "is {cores}; give the cores of one action there, more than 0 and at most {CORES_MAX}"
                );
                self.complain(at, At::Value, text);
            }
        }
        classes
    }

    pub(super) fn packing(&mut self, raw: RawPacking, known: Known<'_>) -> Packing {
        let packing = Packing {
            by: raw.by.unwrap_or_default(),
            cores: self.amount("packing.cores", raw.cores, "cpu_count", known),
            memory: self.amount("packing.memory", raw.memory, "memory", known),
            memory_unit: raw.memory_unit.unwrap_or_default(),
            beyond_asked: raw.beyond_asked.unwrap_or(false),
        };
        if packing.by == PackBy::Measured && packing.cores.is_none() && packing.memory.is_none() {
            let text = "is \"measured\", but neither packing.cores nor packing.memory names a property of type minimum, so \
                        there is nothing to measure; name one of them, or leave this out";
            self.wrong("packing.by", text);
        }
        if packing.cores.is_some() && packing.cores == packing.memory {
            self.wrong(
                "packing.memory",
                "is the same property as packing.cores; name another, or \"\" for none",
            );
        }
        packing
    }

    /// A property of type `minimum`: the one that is given, else the usual one if it is there. `""` is none.
    fn amount(&mut self, path: &str, given: Option<String>, usual: &str, known: Known<'_>) -> Option<String> {
        let kind = |key: &str| known.and_then(|known| known.get(key)).copied();
        let Some(key) = given else {
            return (kind(usual) == Some(PropertyType::Minimum)).then(|| usual.to_owned());
        };
        if key.is_empty() {
            return None;
        }
        if known.is_none() {
            self.wrong(path, "has no effect with matching: \"exact_set\", where no property is an amount; leave one of the two out");
        } else if kind(&key) != Some(PropertyType::Minimum) {
            let text = format!(
                "is {key:?}, which is no property of type minimum; declare it so in supported_platform_properties, or name \
                 another, or \"\" for none"
            );
            self.wrong(path, text);
        }
        Some(key)
    }
}

impl From<&Learning> for RawLearning {
    fn from(learning: &Learning) -> Self {
        Self {
            dir: Some(learning.dir.clone()),
            keys: Some(learning.keys_max),
            flush_every: Some(RawDuration(learning.flush_every)),
            min_attempts: Some(learning.min_attempts),
            long: Some(RawDuration(learning.long)),
            forget_after: Some(RawDuration(learning.forget_after)),
            cores: Some(learning.cores.clone().unwrap_or_default()),
            class_cores: learning
                .class_cores
                .iter()
                .map(|(class, cores)| (class.to_string(), *cores))
                .collect(),
        }
    }
}

impl From<&Packing> for RawPacking {
    fn from(packing: &Packing) -> Self {
        Self {
            by: Some(packing.by),
            cores: Some(packing.cores.clone().unwrap_or_default()),
            memory: Some(packing.memory.clone().unwrap_or_default()),
            memory_unit: Some(packing.memory_unit),
            beyond_asked: Some(packing.beyond_asked),
        }
    }
}
