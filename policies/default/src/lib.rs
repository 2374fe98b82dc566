//! The policy that is built into the server. It decides when no other is configured, and when another fails.
//!
//! It takes the platform from the Command when the Action has none, as clients before REv2.2 need it, and groups
//! actions by the build they belong to, so that workers are shared out fairly between builds.

mod config;

use pointsman_policy_sdk::{ConfigError, Policy, Rejection, action, defaults, export_policy};

use config::{KeySource, Settings};

/// The policy, configured.
#[derive(Debug)]
pub struct Default {
    settings: Settings,
}

impl Policy for Default {
    const NAME: &'static str = "default";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(include_str!("../config.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        let settings = Settings::read(config)?;
        if settings.platform_from_command {
            defaults::request();
        }
        Ok(Self { settings })
    }

    fn route(&self) -> Result<(), Rejection> {
        if self.settings.platform_from_command {
            defaults::platform_from_command();
        }
        defaults::group_by(self.settings.invocation_keys.iter().map(|source| match source {
            KeySource::CorrelatedInvocationsId => action::correlated_invocations_id(),
            KeySource::ToolInvocationId => action::invocation_id(),
            KeySource::Principal => action::principal(),
        }));
        Ok(())
    }
}

export_policy!(Default);

#[cfg(test)]
mod tests;
