//! The policy that is built into the server. It decides when no other is configured, and when another fails.
//!
//! It takes the platform from the Command when the Action has none, as clients before REv2.2 need it, and groups
//! actions by the build they belong to, so that workers are shared out fairly between builds.

mod config;
mod decide;

use pointsman_policy_sdk::{
    CommandWhen, ConfigError, Policy, Rejection, action, command, export_policy, route,
};

use config::Settings;

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
            command::request(CommandWhen::WithoutPlatform);
        }
        Ok(Self { settings })
    }

    fn route(&self) -> Result<(), Rejection> {
        if self.settings.platform_from_command && !action::has_platform() {
            route::set_platform(&command::platform());
        }
        let keys = decide::invocation_keys(&self.settings.invocation_keys, |source| match source {
            config::KeySource::CorrelatedInvocationsId => action::correlated_invocations_id(),
            config::KeySource::ToolInvocationId => action::invocation_id(),
            config::KeySource::Principal => action::principal(),
        });
        route::set_invocation_keys(&keys);
        Ok(())
    }
}

export_policy!(Default);

#[cfg(test)]
mod tests;
