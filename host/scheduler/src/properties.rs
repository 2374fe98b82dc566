//! The property schema: which keys exist, and how an action's value is held against a worker's.
//!
//! A route's properties are typed once, at submission; a worker's once, when it registers. After that the core
//! compares numbers and interned atoms only.

use std::collections::BTreeMap;
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::holds::write_entries;
use crate::ids::Text;
use crate::route::Property;

/// How the values of one key are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertyType {
    /// The worker lists exactly the asked value.
    Exact,
    /// An amount that the action takes from its host while it runs.
    Minimum,
    /// The worker has the key; its value doesn't matter.
    Priority,
    /// Matches every worker.
    Ignore,
}

/// What becomes of an action that asks for a key outside the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownProperty {
    /// It is refused.
    Reject,
    /// It waits, with that reason.
    Queue,
    /// The key is dropped.
    Ignore,
}

/// One thing that an action asks of a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Atom {
    /// The worker has the key.
    Has(Text),
    /// The worker lists this value for the key.
    Equals(Text, Text),
    /// The key is outside the schema, so no worker can have it.
    Unknown(Text),
    /// The worker's whole property list is this one. Of the workers that have it, those with the longest instance name
    /// prefix are meant.
    Whole(Text),
}

/// Amounts by `minimum` key, in the schema's order. 0: not asked, or not offered.
pub type Amounts = SmallVec<[u64; 4]>;

/// An action's properties, typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Sorted, without doubles.
    pub atoms: Vec<Atom>,
    /// What it takes from its host.
    pub demand: Amounts,
    /// Keys outside the schema that were dropped or wait for ever.
    pub unknown: Vec<Text>,
    /// What it takes by measurement, where that is known: as much is set aside for it on its host instead of `demand`, and
    /// no more than the host has in all. Which hosts it may go to follows from `demand`.
    pub measured: Option<Amounts>,
    /// How long it is expected to execute, where something is known. Of what arrives together the longest goes first.
    pub expected: Option<Duration>,
}

/// A worker's properties, typed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Offered {
    /// Every atom that it meets, sorted.
    pub atoms: Vec<Atom>,
    /// What its host has in all.
    pub totals: Amounts,
}

/// Why a property list can't be typed. Each text names the key, and what would do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// A worker advertises, or an action asks for, a key outside the schema.
    #[error("unknown platform property '{key}': known are {known}{}", nearest_hint(.nearest))]
    Unknown {
        /// The key.
        key: Text,
        /// All keys of the schema, for people.
        known: String,
        /// The known key that looks most like it.
        nearest: Option<Text>,
    },
    /// The value of a `minimum` key is not a number.
    #[error(
        "platform property '{key}' is of type minimum, so its value must be a whole number from 0 to 2^64-1, not '{value}'"
    )]
    NotANumber {
        /// The key.
        key: Text,
        /// The value.
        value: Text,
    },
    /// A worker lists several totals for one `minimum` key.
    #[error(
        "platform property '{key}' is of type minimum, so a worker lists it once; it is listed as '{first}' and '{second}'"
    )]
    ListedTwice {
        /// The key.
        key: Text,
        /// One value.
        first: u64,
        /// The other.
        second: u64,
    },
}

fn nearest_hint(nearest: &Option<Text>) -> String {
    nearest.as_ref().map(|n| format!("; did you mean '{n}'?")).unwrap_or_default()
}

/// Key → type, fixed for the life of the process.
#[derive(Clone, Debug)]
pub struct Schema {
    types: BTreeMap<Text, PropertyType>,
    /// Keys of type `minimum`, in order: index in [`Amounts`].
    minimums: Vec<Text>,
    unknown: UnknownProperty,
    /// Lists are compared as a whole, and keys mean nothing.
    exact_set: bool,
}

impl Schema {
    /// `matching: exact_set`, as Buildbarn matches: an action goes to workers whose whole property list is the action's,
    /// and of those to the ones with the longest instance name prefix that begins its own. No key is unknown, and none is
    /// an amount. Unlike in Buildbarn, shorter prefixes serve again as soon as no worker with the longest one is there.
    pub fn exact_set() -> Self {
        let unknown = UnknownProperty::Ignore;
        Self { types: BTreeMap::new(), minimums: Vec::new(), unknown, exact_set: true }
    }

    /// A schema from `supported_platform_properties` and `unknown_property`.
    pub fn new(types: impl IntoIterator<Item = (Text, PropertyType)>, unknown: UnknownProperty) -> Self {
        let types: BTreeMap<_, _> = types.into_iter().collect();
        let minimums =
            types.iter().filter(|(_, t)| **t == PropertyType::Minimum).map(|(k, _)| k.clone()).collect();
        Self { types, minimums, unknown, exact_set: false }
    }

    /// Keys of type `minimum`, in the order of [`Amounts`].
    pub fn minimums(&self) -> &[Text] {
        &self.minimums
    }

    /// The type of a key; `None` if it is outside the schema.
    pub fn type_of(&self, key: &str) -> Option<PropertyType> {
        self.types.get(key).copied()
    }

    /// Types what an action asks.
    ///
    /// # Errors
    /// A value that isn't a number where one is needed; a key outside the schema if such actions are refused.
    pub fn action(&self, properties: &[Property]) -> Result<Asked, PropertyError> {
        if self.exact_set {
            return Ok(Asked { atoms: vec![whole(properties)], ..Asked::default() });
        }
        let mut asked = Asked { demand: self.nothing(), ..Asked::default() };
        for Property { name, value } in properties {
            match self.types.get(name) {
                Some(PropertyType::Exact) => asked.atoms.push(Atom::Equals(name.clone(), value.clone())),
                Some(PropertyType::Priority) => asked.atoms.push(Atom::Has(name.clone())),
                Some(PropertyType::Ignore) => {}
                Some(PropertyType::Minimum) => {
                    // Asked twice, both hold: the larger one says it all.
                    let amount = &mut asked.demand[self.index(name)];
                    *amount = number(name, value)?.max(*amount);
                    asked.atoms.push(Atom::Has(name.clone()));
                }
                None => {
                    match self.unknown {
                        UnknownProperty::Reject => return Err(self.unknown_key(name)),
                        UnknownProperty::Queue => asked.atoms.push(Atom::Unknown(name.clone())),
                        UnknownProperty::Ignore => {}
                    }
                    asked.unknown.push(name.clone());
                }
            }
        }
        asked.atoms.sort_unstable();
        asked.atoms.dedup();
        Ok(asked)
    }

    /// Types what a worker advertises.
    ///
    /// # Errors
    /// A key outside the schema, whatever `unknown_property` says; a total that isn't a number, or is given twice.
    pub fn worker(&self, properties: &[Property]) -> Result<Offered, PropertyError> {
        if self.exact_set {
            return Ok(Offered { atoms: vec![whole(properties)], totals: Amounts::new() });
        }
        let mut offered = Offered { atoms: Vec::with_capacity(properties.len() * 2), totals: self.nothing() };
        let mut listed: SmallVec<[Option<u64>; 4]> = smallvec![None; self.minimums.len()];
        for Property { name, value } in properties {
            match self.types.get(name).ok_or_else(|| self.unknown_key(name))? {
                PropertyType::Exact => offered.atoms.push(Atom::Equals(name.clone(), value.clone())),
                PropertyType::Minimum => {
                    let (i, second) = (self.index(name), number(name, value)?);
                    if let Some(first) = listed[i].replace(second).filter(|first| *first != second) {
                        return Err(PropertyError::ListedTwice { key: name.clone(), first, second });
                    }
                    offered.totals[i] = second;
                }
                PropertyType::Priority | PropertyType::Ignore => {}
            }
            offered.atoms.push(Atom::Has(name.clone()));
        }
        offered.atoms.sort_unstable();
        offered.atoms.dedup();
        Ok(offered)
    }

    fn nothing(&self) -> Amounts {
        smallvec![0; self.minimums.len()]
    }

    fn index(&self, minimum: &Text) -> usize {
        // The key was found in `types` as a minimum, so it is here.
        self.minimums.binary_search(minimum).unwrap_or_default()
    }

    fn unknown_key(&self, key: &Text) -> PropertyError {
        let known = match self.types.len() {
            0 => "none".to_owned(),
            _ => self.types.keys().map(|k| &**k).collect::<Vec<_>>().join(", "),
        };
        let nearest = self
            .types
            .keys()
            .map(|k| (strsim::levenshtein(&key.to_lowercase(), &k.to_lowercase()), k))
            .min()
            .filter(|(d, k)| *d <= k.len().max(key.len()) / 2)
            .map(|(_, k)| k.clone());
        PropertyError::Unknown { key: key.clone(), known, nearest }
    }
}

/// A list as one atom. Both protocols want it sorted; one that isn't is taken for what it means.
fn whole(properties: &[Property]) -> Atom {
    let mut sorted: Vec<_> = properties.iter().map(|p| (p.name.clone(), p.value.clone())).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let mut text = String::new();
    // Writing to a String does not fail.
    _ = write_entries(&mut text, &sorted);
    Atom::Whole(text.into())
}

fn number(key: &Text, value: &Text) -> Result<u64, PropertyError> {
    // `u64::from_str` takes a leading '+', which no other scheduler does.
    let digits = !value.is_empty() && value.bytes().all(|b| b.is_ascii_digit());
    value
        .parse()
        .ok()
        .filter(|_| digits)
        .ok_or_else(|| PropertyError::NotANumber { key: key.clone(), value: value.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(unknown: UnknownProperty) -> Schema {
        Schema::new(
            [
                ("cpu_count".into(), PropertyType::Minimum),
                ("gpu".into(), PropertyType::Exact),
                ("OSFamily".into(), PropertyType::Priority),
                ("note".into(), PropertyType::Ignore),
            ],
            unknown,
        )
    }

    fn list(properties: &[(&str, &str)]) -> Vec<Property> {
        properties.iter().map(|(k, v)| Property::new(*k, *v)).collect()
    }

    #[test]
    fn an_action_is_typed_by_key() {
        let asked = schema(UnknownProperty::Reject)
            .action(&list(&[
                ("OSFamily", "linux"),
                ("cpu_count", "2"),
                ("cpu_count", "4"),
                ("gpu", "a100"),
                ("note", "x"),
            ]))
            .unwrap();
        assert_eq!(
            asked.atoms,
            [
                Atom::Has("OSFamily".into()),
                Atom::Has("cpu_count".into()),
                Atom::Equals("gpu".into(), "a100".into())
            ]
        );
        assert_eq!(asked.demand[..], [4]);
    }

    #[test]
    fn an_unknown_key_names_the_nearest() {
        let error =
            schema(UnknownProperty::Reject).action(&list(&[("cpu-count", "1")])).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown platform property 'cpu-count': known are OSFamily, cpu_count, gpu, note; did you mean 'cpu_count'?"
        );
        let queued = schema(UnknownProperty::Queue).action(&list(&[("zzz", "1")])).unwrap();
        assert_eq!(queued.atoms, [Atom::Unknown("zzz".into())]);
        let ignored = schema(UnknownProperty::Ignore).action(&list(&[("zzz", "1")])).unwrap();
        assert!(ignored.atoms.is_empty());
        assert_eq!(ignored.unknown, [Text::from("zzz")]);
    }

    #[test]
    fn lists_as_a_whole() {
        let schema = Schema::exact_set();
        let whole = |properties| schema.action(&list(properties)).unwrap().atoms;
        assert_eq!(
            whole(&[("cpu", "x"), ("b", "1"), ("b", "2")]),
            [Atom::Whole(r#"{"b":"1","b":"2","cpu":"x"}"#.into())]
        );
        assert_eq!(
            whole(&[("cpu", "x"), ("b", "2")]),
            schema.worker(&list(&[("b", "2"), ("cpu", "x")])).unwrap().atoms
        );
        assert_ne!(whole(&[("a", "1,b")]), whole(&[("a", "1"), ("b", "")]));
        assert_eq!(whole(&[]), [Atom::Whole("{}".into())]);
    }

    #[test]
    fn a_worker_may_list_several_exact_values_but_one_total() {
        let s = schema(UnknownProperty::Ignore);
        let offered = s.worker(&list(&[("cpu_count", "8"), ("gpu", "a100"), ("gpu", "h100")])).unwrap();
        assert!(offered.atoms.contains(&Atom::Equals("gpu".into(), "h100".into())));
        assert_eq!(offered.totals[..], [8]);
        assert!(matches!(
            s.worker(&list(&[("cpu_count", "8"), ("cpu_count", "9")])),
            Err(PropertyError::ListedTwice { .. })
        ));
        assert!(matches!(s.worker(&list(&[("cpu_count", "+8")])), Err(PropertyError::NotANumber { .. })));
        assert!(matches!(s.worker(&list(&[("zzz", "")])), Err(PropertyError::Unknown { .. })));
    }
}
