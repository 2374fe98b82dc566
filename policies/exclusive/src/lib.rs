//! Runs actions alone on their host, or few of a group at once.

use pointsman_policy_parts::{Facts, Part, exclusive, schema};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct Exclusive(exclusive::Exclusive);

impl Policy for Exclusive {
    const NAME: &'static str = "exclusive";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("exclusive", "../config.schema.json", "../../parts/condition.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }

    fn admit(&self) -> Result<(), Rejection> {
        self.0.admit();
        Ok(())
    }
}

export_policy!(Exclusive, on_worker);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::Exclusive>(include_str!("../fixtures.json"));
    }
}
