//! Shares workers out between tenants, then builds; work in the background gets what they leave.

use pointsman_policy_parts::{Facts, Part, schema, tenant_fair};
use pointsman_policy_sdk::{ConfigError, Policy, Rejection, export_policy};

/// The policy, configured.
#[derive(Debug)]
pub struct TenantFair(tenant_fair::TenantFair);

impl Policy for TenantFair {
    const NAME: &'static str = "tenant-fair";
    const VERSION: &'static str = env!("CARGO_PKG_VERSION");

    fn config_schema() -> Option<String> {
        Some(schema!("tenant-fair", "../config.schema.json", "../../parts/condition.schema.json").into())
    }

    fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
        pointsman_policy_parts::configure(config).map(Self)
    }

    fn route(&self) -> Result<(), Rejection> {
        self.0.route(&Facts::default())
    }
}

export_policy!(TenantFair);

#[cfg(test)]
mod tests {
    use pointsman_policy_sdk::testing::run_fixtures;

    #[test]
    fn fixtures() {
        run_fixtures::<super::TenantFair>(include_str!("../fixtures.json"));
    }
}
