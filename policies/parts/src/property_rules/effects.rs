//! What a rule does to properties.

use pointsman_policy_sdk::Property;

use crate::pattern::Patterns;

/// Values by name. There are few of them in a rule.
pub(super) type Pairs = Vec<(String, String)>;

/// What is under this name.
pub(super) fn get<'a, T>(pairs: &'a [(String, T)], name: &str) -> Option<&'a T> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value)
}

/// All edits of one rule, in the order in which they are made.
#[derive(Clone, Debug, Default)]
pub(super) struct Effects {
    /// Old name to new name; values stay.
    pub(super) rename: Pairs,
    /// By property: old value to new value. The value under `*` is for all that are not listed.
    pub(super) map: Vec<(String, Pairs)>,
    /// The only value of a property from now on, whether or not it had any.
    pub(super) replace: Pairs,
    /// A further value.
    pub(super) add: Pairs,
    /// The value where there is none.
    pub(super) default: Pairs,
    /// Names of properties that go.
    pub(super) remove: Option<Patterns>,
    /// Names of the only properties that stay.
    pub(super) keep_only: Option<Patterns>,
}

/// Value of `map` for all that are not listed.
pub(super) const ALL_OTHERS: &str = "*";

impl Effects {
    pub(super) fn is_empty(&self) -> bool {
        let maps = [&self.rename, &self.replace, &self.add, &self.default];
        maps.iter().all(|map| map.is_empty())
            && self.map.is_empty()
            && self.remove.is_none()
            && self.keep_only.is_none()
    }

    /// The edited platform; `None` when nothing changes.
    pub(super) fn on(&self, platform: &[Property]) -> Option<Vec<Property>> {
        if self.is_empty() {
            return None;
        }
        let mut edited = platform.to_vec();
        for property in &mut edited {
            if let Some(name) = get(&self.rename, &property.name) {
                property.name.clone_from(name);
            }
            if let Some(values) = get(&self.map, &property.name)
                && let Some(value) = get(values, &property.value).or_else(|| get(values, ALL_OTHERS))
            {
                property.value.clone_from(value);
            }
        }
        for (name, value) in &self.replace {
            edited.retain(|known| known.name != *name);
            edited.push(Property::new(name, value));
        }
        edited.extend(self.add.iter().map(|(name, value)| Property::new(name, value)));
        for (name, value) in &self.default {
            if edited.iter().all(|known| known.name != *name) {
                edited.push(Property::new(name, value));
            }
        }
        edited.retain(|property| {
            let named = |patterns: &Option<Patterns>| patterns.as_ref().map(|p| p.matches(&property.name));
            named(&self.remove) != Some(true) && named(&self.keep_only) != Some(false)
        });
        (edited != platform).then_some(edited)
    }
}
