//! Takes the platform of an action from its Command, where older clients put it.

use pointsman_policy_parts::{Facts, Part, command_platform, schema};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct CommandPlatform(command_platform::CommandPlatform);

impl Policy for CommandPlatform {
    const NAME: &'static str = "command-platform";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("command-platform", "../config.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }
}

export_policy!(CommandPlatform);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::CommandPlatform>(include_str!("../fixtures.json"));
    }
}
