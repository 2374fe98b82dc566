//! `pointsman policy check`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use pointsman_policy::{Options, Policy, Runtime};
use serde_json::{Value, json};

use super::{read, refused};
use crate::cli::{Failure, Output, print};

#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    /// The component, or a core module.
    file: PathBuf,
    /// Its configuration: JSON5 itself when it starts with a brace, else a file that holds it.
    #[arg(long, value_name = "JSON|FILE", value_parser = crate::cli::serve::policy_config)]
    config: Option<serde_json::Value>,
    /// How to print.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: CheckArgs) -> Result<(), Failure> {
    let CheckArgs { file, config, output } = args;
    let bytes = read(&file)?;
    let runtime = Runtime::new(Options::default()).context("policies can't be run here")?;
    let config = config.map_or_else(|| "{}".to_owned(), |config| config.to_string());
    let policy = runtime.load(&bytes, &config).map_err(|error| refused(&file, &error))?;
    print(&describe(&file, &policy, output))
}

fn describe(file: &Path, policy: &Policy, output: Output) -> String {
    let id = policy.policy();
    let hooks: Vec<_> = policy.hooks().iter().map(|hook| hook.name()).collect();
    let schema = policy.config_schema().and_then(|schema| serde_json::from_str::<Value>(schema).ok());
    match output {
        Output::Table => format!(
            "{}: ok\n  policy   {} {}\n  sha256   {}\n  hooks    {}\n  command  {}",
            file.display(),
            id.name,
            id.version,
            id.digest_hex,
            if hooks.is_empty() { "none".to_owned() } else { hooks.join(", ") },
            wants_command(policy),
        ),
        Output::Json => format!(
            "{:#}",
            json!({
                "file": file.display().to_string(),
                "name": &*id.name,
                "version": &*id.version,
                "sha256": &*id.digest_hex,
                "hooks": hooks,
                "wants_command": wants_command(policy),
                "config_schema": schema,
            })
        ),
    }
}

/// When the policy is given the Command of an action, which costs a look-up.
fn wants_command(policy: &Policy) -> &'static str {
    match (policy.wants_command(true), policy.wants_command(false)) {
        (true, _) => "always",
        (false, true) => "when the action has no platform",
        (false, false) => "never",
    }
}
