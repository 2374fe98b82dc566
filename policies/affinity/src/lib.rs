//! Sends actions to the worker that last ran one like it.

use pointsman_policy_parts::{Facts, Part, affinity, schema};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct Affinity(affinity::Affinity);

impl Policy for Affinity {
    const NAME: &'static str = "affinity";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("affinity", "../config.schema.json", "../../parts/condition.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }
}

export_policy!(Affinity);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::Affinity>(include_str!("../fixtures.json"));
    }
}
