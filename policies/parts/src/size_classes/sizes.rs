//! Names of sizes.

use pointsman_policy_sdk::{Config, SizeClass, hint};
use serde_json::Value;

/// What operators and actions call the size classes of workers.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    classes: Vec<(String, u32)>,
}

const WORDS: [(&str, SizeClass); 3] =
    [("learned", SizeClass::Learned), ("smallest", SizeClass::Smallest), ("largest", SizeClass::Largest)];

impl Sizes {
    /// Takes `classes` out of the configuration.
    pub(super) fn read(config: &mut Config) -> Self {
        let mut classes = Vec::new();
        for (name, path, value) in config.map("classes").unwrap_or_default() {
            if WORDS.iter().any(|(word, _)| *word == name) {
                config.error(path, format!("{name:?} has a meaning of its own already; use another name"));
                continue;
            }
            match value.as_u64().and_then(|number| u32::try_from(number).ok()) {
                Some(class) => classes.push((name, class)),
                None => config.error(path, "expected the number of a size class, as its workers report it"),
            }
        }
        Self { classes }
    }

    /// A word, a name of `classes`, or, while there are none of those, a number.
    pub(super) fn named(&self, text: &str) -> Option<SizeClass> {
        let word = WORDS.iter().find(|(word, _)| *word == text).map(|(_, size)| *size);
        let class = || self.classes.iter().find(|(name, _)| name == text).map(|(_, class)| *class);
        let number = || text.parse().ok().filter(|_| self.classes.is_empty());
        word.or_else(|| class().or_else(number).map(SizeClass::Exactly))
    }

    /// What a name that is none was probably meant to be.
    pub(super) fn hint(&self, text: &str) -> String {
        let mut known: Vec<&str> = self.classes.iter().map(|(name, _)| &**name).collect();
        known.extend(WORDS.iter().map(|(word, _)| *word));
        format!(", which is unknown{}", hint(text, &known, "; known are "))
    }

    /// A size of the configuration: a name, or a number, which may also be one that has no name.
    pub(super) fn optional(&self, config: &mut Config, key: &'static str) -> Option<SizeClass> {
        let value = config.take(key)?;
        let size = match &value {
            Value::String(text) => self.named(text),
            number => number.as_u64().and_then(|number| u32::try_from(number).ok()).map(SizeClass::Exactly),
        };
        if size.is_none() {
            let text = match &value {
                Value::String(text) => format!("the size is {text:?}{}", self.hint(text)),
                _ => "expected a size: learned, smallest, largest, a name of `classes`, or a number".into(),
            };
            config.error(config.path_of(key), text);
        }
        size
    }

    /// The same where there must be one.
    pub(super) fn required(&self, config: &mut Config, key: &'static str) -> SizeClass {
        if !config.has(key) {
            config.error(config.path_of(key), "is needed: the size of these actions");
        }
        self.optional(config, key).unwrap_or(SizeClass::Learned)
    }

    /// The next larger class that has a name.
    pub(super) fn larger_than(&self, class: u32) -> Option<u32> {
        self.classes.iter().map(|(_, class)| *class).filter(|other| *other > class).min()
    }
}
