//! What the server's default policy does, for policies that take its place and want to keep that.
//!
//! ```
//! use pointsman_policy_sdk::{Config, ConfigError, Policy, Rejection, defaults, route};
//!
//! struct Mine;
//!
//! impl Policy for Mine {
//!     const NAME: &'static str = "mine";
//!     const VERSION: &'static str = "1.0.0";
//!
//!     fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
//!         defaults::request();
//!         Config::parse(config)?.finish()?;
//!         Ok(Self)
//!     }
//!
//!     fn route(&self) -> Result<(), Rejection> {
//!         defaults::apply();
//!         route::note("and then mine");
//!         Ok(())
//!     }
//! }
//! ```

use crate::{CommandWhen, Property, action, command, route};

/// The group of all actions whose client said nothing about itself. Without it they would stand in no group and
/// compete with whole groups.
pub const NO_INVOCATION: &str = "(no invocation)";

/// To be called in `configure`: asks for what [`platform_from_command`] needs.
pub fn request() {
    command::request(CommandWhen::WithoutPlatform);
}

/// All that the default policy does when it is not configured otherwise.
pub fn apply() {
    platform_from_command();
    group_by([action::correlated_invocations_id(), action::invocation_id()]);
}

/// An Action without platform gets that of its Command, where older clients put it.
pub fn platform_from_command() {
    if let Some(platform) = missing_platform() {
        route::set_platform(&platform);
    }
}

/// The platform of the Command, if the Action has none.
pub fn missing_platform() -> Option<Vec<Property>> {
    (!action::has_platform()).then(command::platform)
}

/// Sets the path of groups among which workers are shared out, coarsest first, without those that are empty. When all
/// are, the group is [`NO_INVOCATION`]; when none are given there are no groups, that is, one queue for all.
pub fn group_by(keys: impl IntoIterator<Item = String>) {
    let mut keys: Vec<String> = keys.into_iter().collect();
    let wanted = !keys.is_empty();
    keys.retain(|key| !key.is_empty());
    if keys.is_empty() && wanted {
        keys.push(NO_INVOCATION.into());
    }
    route::set_invocation_keys(&keys);
}
