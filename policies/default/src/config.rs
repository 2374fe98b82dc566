//! What an operator can set.

use pointsman_policy_parts::affinity::Affinity;
use pointsman_policy_parts::command_platform::{CommandPlatform, WHEN};
use pointsman_policy_parts::exclusive::Exclusive;
use pointsman_policy_parts::property_rules::PropertyRules;
use pointsman_policy_parts::size_classes::SizeClasses;
use pointsman_policy_parts::switched;
use pointsman_policy_parts::tenant_fair::TenantFair;
use pointsman_policy_sdk::{Config, ConfigError};

/// The configuration, read. What is `None` is switched off.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) command_platform: Option<CommandPlatform>,
    pub(crate) property_rules: Option<PropertyRules>,
    pub(crate) exclusive: Option<Exclusive>,
    pub(crate) size_classes: Option<SizeClasses>,
    pub(crate) affinity: Option<Affinity>,
    pub(crate) fairness: Fairness,
}

/// Among whom workers are shared out.
#[derive(Debug)]
pub(crate) enum Fairness {
    /// Groups whose path is made of these, coarsest first.
    Keys(Vec<KeySource>),
    /// Tenants first.
    Tenants(TenantFair),
}

/// What one level of fairness groups is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeySource {
    /// One value for all invocations of, say, a CI job.
    CorrelatedInvocationsId,
    /// One value per invocation of the client.
    ToolInvocationId,
    /// Who the client authenticated as.
    Principal,
}

const KEY_SOURCES: [(&str, KeySource); 3] = [
    ("correlated_invocations_id", KeySource::CorrelatedInvocationsId),
    ("tool_invocation_id", KeySource::ToolInvocationId),
    ("principal", KeySource::Principal),
];

impl Settings {
    pub(crate) fn read(text: &str) -> Result<Self, Vec<ConfigError>> {
        let mut config = Config::parse(text)?;
        let settings = Self {
            command_platform: command_platform(&mut config),
            fairness: fairness(&mut config),
            property_rules: switched(&mut config, "property_rules"),
            exclusive: switched(&mut config, "exclusive"),
            size_classes: switched(&mut config, "size_classes"),
            affinity: switched(&mut config, "affinity"),
        };
        let about_workers = settings.exclusive.as_ref().is_some_and(Exclusive::is_about_workers);
        let about_results = settings.size_classes.as_ref().is_some_and(SizeClasses::is_about_results);
        for (is, path, what, policy) in [
            (about_workers, "/exclusive/workers", "workers", "exclusive"),
            (about_results, "/size_classes/rerun_after", "results", "size-classes"),
        ] {
            if is {
                let text = format!(
                    "the default policy is not asked about {what}; put the policy {policy} into the chain"
                );
                config.error(path, text);
            }
        }
        config.finish()?;
        Ok(settings)
    }
}

/// `true`, `false`, or one of the words of the policy `command-platform`.
fn command_platform(config: &mut Config) -> Option<CommandPlatform> {
    const KEY: &str = "platform_from_command";
    if config.is_string(KEY) {
        return Some(CommandPlatform { when: config.word(KEY, &WHEN).unwrap_or_default() });
    }
    config.bool(KEY, true).then(CommandPlatform::default)
}

fn fairness(config: &mut Config) -> Fairness {
    let both = config.has("invocation_keys") && config.has("tenant_fair");
    let keys = config.words("invocation_keys", &KEY_SOURCES);
    let tenants = switched(config, "tenant_fair");
    if both {
        let text = "tenant_fair says itself which groups there are (its key `below`); leave one of both out";
        config.error(config.path_of("invocation_keys"), text);
    }
    match tenants {
        Some(tenants) => Fairness::Tenants(tenants),
        None => Fairness::Keys(
            keys.unwrap_or_else(|| vec![KeySource::CorrelatedInvocationsId, KeySource::ToolInvocationId]),
        ),
    }
}
