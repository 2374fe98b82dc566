//! Chooses the size of worker for each action.

use pointsman_policy_parts::{Facts, Part, schema, size_classes};
use pointsman_policy_sdk::{Attempt, ConfigError, Next, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct SizeClasses(size_classes::SizeClasses);

impl Policy for SizeClasses {
    const NAME: &'static str = "size-classes";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("size-classes", "../config.schema.json", "../../parts/condition.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }

    fn completed(&self, attempt: &Attempt) -> Next {
        self.0.completed(attempt)
    }
}

export_policy!(SizeClasses, on_result);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::SizeClasses>(include_str!("../fixtures.json"));
    }
}
