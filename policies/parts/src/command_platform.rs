//! The platform from the Command. Clients from before REv2.2 put it there, and some still put it nowhere else (Bazel 2,
//! Pants 2.17, Buck2).

use pointsman_policy_sdk::{CommandWhen, Config, Property, Rejection, action, command, defaults};

use crate::{Facts, Part};

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../command-platform/config.schema.json");

/// Words for [`When`].
pub const WHEN: [(&str, When); 3] = [
    ("without_platform", When::WithoutPlatform),
    ("without_properties", When::WithoutProperties),
    ("missing_properties", When::MissingProperties),
];

/// Which actions get something from their Command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// Those whose Action has no platform; one that is there, even an empty one, stays as it is.
    #[default]
    WithoutPlatform,
    /// Those whose Action has no properties.
    WithoutProperties,
    /// All: properties that the Action does not name are taken from the Command.
    MissingProperties,
}

/// The part, configured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandPlatform {
    /// Which actions get something.
    pub when: When,
}

impl Part for CommandPlatform {
    fn read(config: &mut Config) -> Self {
        Self { when: config.word("when", &WHEN).unwrap_or_default() }
    }

    fn commands(&self) -> Option<CommandWhen> {
        Some(match self.when {
            When::WithoutPlatform => CommandWhen::WithoutPlatform,
            When::WithoutProperties | When::MissingProperties => CommandWhen::Always,
        })
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        let platform = match self.when {
            When::WithoutPlatform => defaults::missing_platform(),
            When::WithoutProperties => action::platform().is_empty().then(command::platform),
            When::MissingProperties => with_missing(facts),
        };
        if let Some(platform) = platform {
            facts.set_platform(&platform);
        }
        Ok(())
    }
}

/// The platform so far and what only the Command has; `None` when that is nothing.
fn with_missing(facts: &Facts) -> Option<Vec<Property>> {
    let mut missing = command::platform();
    facts.platform(|known| {
        missing.retain(|property| known.iter().all(|other| other.name != property.name));
        (!missing.is_empty()).then(|| [known, &missing].concat())
    })
}
