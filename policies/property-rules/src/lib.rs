//! Edits properties of actions by ordered rules, chooses their pool, or refuses them.

use pointsman_policy_parts::{Facts, Part, property_rules, schema};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct PropertyRules(property_rules::PropertyRules);

impl Policy for PropertyRules {
    const NAME: &'static str = "property-rules";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("property-rules", "../config.schema.json", "../../parts/condition.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }
}

export_policy!(PropertyRules);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::PropertyRules>(include_str!("../fixtures.json"));
    }
}
