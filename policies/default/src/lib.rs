//! The policy that is built into the server. It decides when no other is configured, and when another fails.
//!
//! Without configuration it takes the platform from the Command when the Action has none, as clients before REv2.2 need
//! it, and groups actions by the build they belong to, so that workers are shared out fairly between builds. All that the
//! small policies do is in it too, each switched on by a key of its own.

mod config;

use pointsman_policy_parts::{Facts, Part, request, schema};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, action, defaults, export_policy};

use config::{Fairness, KeySource, Settings};

const SCHEMA: &str = schema!(
    "default",
    "../config.schema.json",
    "../../parts/condition.schema.json",
    "../../property-rules/config.schema.json",
    "../../exclusive/config.schema.json",
    "../../size-classes/config.schema.json",
    "../../affinity/config.schema.json",
    "../../tenant-fair/config.schema.json"
);

/// The policy, configured.
#[derive(Debug)]
pub struct Default {
    settings: Settings,
}

impl Policy for Default {
    const NAME: &'static str = "default";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(SCHEMA.into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        let settings = Settings::read(config)?;
        request([
            commands(&settings.command_platform),
            commands(&settings.property_rules),
            commands(&settings.exclusive),
            commands(&settings.size_classes),
            commands(&settings.affinity),
            match &settings.fairness {
                Fairness::Tenants(part) => part.commands(),
                Fairness::Keys(_) => None,
            },
        ]);
        Ok(Self { settings })
    }

    fn route(&self) -> Result<(), Rejection> {
        let facts = Facts::default();
        let Settings { command_platform, property_rules, exclusive, size_classes, affinity, fairness } =
            &self.settings;
        route(command_platform, &facts)?;
        // First, so that the others see what rules have made of the properties.
        route(property_rules, &facts)?;
        route(exclusive, &facts)?;
        route(size_classes, &facts)?;
        route(affinity, &facts)?;
        match fairness {
            Fairness::Tenants(part) => part.route(&facts)?,
            Fairness::Keys(sources) => defaults::group_by(sources.iter().map(|source| match source {
                KeySource::CorrelatedInvocationsId => action::correlated_invocations_id(),
                KeySource::ToolInvocationId => action::invocation_id(),
                KeySource::Principal => action::principal(),
            })),
        }
        Ok(())
    }
}

fn commands(part: &Option<impl Part>) -> Option<pointsman_policy_sdk::CommandWhen> {
    part.as_ref().and_then(Part::commands)
}

fn route(part: &Option<impl Part>, facts: &Facts) -> Result<(), Rejection> {
    part.as_ref().map_or(Ok(()), |part| part.route(facts))
}

export_policy!(Default);

#[cfg(test)]
mod tests;
