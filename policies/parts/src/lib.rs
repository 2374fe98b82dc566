//! What the policies in the box are made of. Each part is one thing that a policy can do: it has its configuration, and
//! its logic on the calls of the SDK. A small policy is one part; the default policy has all of them, each switched on by
//! its own key.
//!
//! | Part | What it does |
//! | --- | --- |
//! | [`command_platform`] | the platform from the Command when the Action has none |
//! | [`property_rules`] | ordered rules that edit properties, or refuse |
//! | [`exclusive`] | actions that are alone on their host, or few at once |
//! | [`size_classes`] | which size of worker an action gets |
//! | [`affinity`] | actions that go where their like has been before |
//! | [`tenant_fair`] | workers shared out between tenants, then builds; work in the background |
//!
//! [`condition`] and [`pattern`] are the language in which parts say which actions they mean.

pub mod affinity;
pub mod command_platform;
pub mod condition;
pub mod exclusive;
mod facts;
pub mod pattern;
pub mod property_rules;
pub mod schema;
pub mod size_classes;
pub mod tenant_fair;

pub use facts::Facts;

use pointsman_policy_sdk::{CommandWhen, Config, ConfigError, Rejection, command};

/// One thing that a policy can do.
pub trait Part: Sized {
    /// Takes its keys out of `config`, and reports what is wrong with them there. What it gives in that case is never
    /// used.
    fn read(config: &mut Config) -> Self;

    /// Which Commands it has to see.
    fn commands(&self) -> Option<CommandWhen>;

    /// Reads facts, edits the route.
    ///
    /// # Errors
    /// The action can't run as it is.
    fn route(&self, facts: &Facts) -> Result<(), Rejection>;
}

/// The part that is all of a policy, configured by all of its configuration.
///
/// # Errors
/// All that is wrong with the configuration, each with its place.
pub fn configure<P: Part>(text: &str) -> Result<P, Vec<ConfigError>> {
    let mut config = Config::parse(text)?;
    let part = P::read(&mut config);
    config.finish()?;
    request([part.commands()]);
    Ok(part)
}

/// Asks for the Commands that any of several parts has to see. To be called once, in `configure`.
pub fn request(wanted: impl IntoIterator<Item = Option<CommandWhen>>) {
    let all = wanted.into_iter().flatten().reduce(|a, b| if a == CommandWhen::Always { a } else { b });
    if let Some(when) = all {
        command::request(when);
    }
}

/// A switch of the default policy: `key` holds the configuration of the part, and without it the part is off.
pub fn switched<P: Part>(config: &mut Config, key: &'static str) -> Option<P> {
    let mut inner = config.object(key)?;
    let part = P::read(&mut inner);
    config.close(inner);
    Some(part)
}

/// The package of a label: `//a/b` of `//a/b:c`. Empty when the client named no target.
fn package(target: &str) -> &str {
    target.rsplit_once(':').map_or(target, |(package, _)| package)
}

/// The last step of a path.
fn basename(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

#[cfg(test)]
mod tests;
