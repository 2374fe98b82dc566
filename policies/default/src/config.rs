//! What an operator can set.

use pointsman_policy_sdk::{Config, ConfigError};

/// The configuration, read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Take the platform from the Command when the Action has none.
    pub(crate) platform_from_command: bool,
    /// Where the path of fairness groups comes from, coarsest first.
    pub(crate) invocation_keys: Vec<KeySource>,
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

impl KeySource {
    const ALL: [(&'static str, Self); 3] = [
        ("correlated_invocations_id", Self::CorrelatedInvocationsId),
        ("tool_invocation_id", Self::ToolInvocationId),
        ("principal", Self::Principal),
    ];
}

impl Settings {
    pub(crate) fn read(text: &str) -> Result<Self, Vec<ConfigError>> {
        let mut config = Config::parse(text)?;
        let platform_from_command = config.bool("platform_from_command", true);
        let mut invocation_keys = vec![KeySource::CorrelatedInvocationsId, KeySource::ToolInvocationId];
        if let Some(names) = config.strings("invocation_keys") {
            invocation_keys.clear();
            for (index, name) in names.iter().enumerate() {
                match KeySource::ALL.iter().find(|(known, _)| known == name) {
                    Some((_, source)) => invocation_keys.push(*source),
                    None => {
                        let known: Vec<&str> = KeySource::ALL.iter().map(|(known, _)| *known).collect();
                        let message = format!("unknown source {name:?}, known are {}", known.join(", "));
                        config.error(format!("/invocation_keys/{index}"), message);
                    }
                }
            }
        }
        config.finish()?;
        Ok(Self { platform_from_command, invocation_keys })
    }
}
