//! `pointsman policy componentize` and `policy check`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;
use pointsman_policy::{Options, Policy, Runtime, componentize};
use serde_json::{Value, json};

use super::{Failure, Output, print};

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Wrap the core module that a compiler wrote into a component that `serve --policy` takes.
    Componentize {
        /// The core module (`target/wasm32-unknown-unknown/…/NAME.wasm`).
        input: PathBuf,
        /// Where the component is written.
        output: PathBuf,
    },
    /// Compile a policy, compare its interface with the one offered here, and configure it, as `serve` would.
    Check {
        /// The component, or a core module.
        file: PathBuf,
        /// Its configuration: JSON5 itself when it starts with a brace, else a file that holds it.
        #[arg(long, value_name = "JSON|FILE", value_parser = super::serve::policy_config)]
        config: Option<serde_json::Value>,
        /// How to print.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
}

pub(super) fn run(command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Componentize { input, output } => {
            let component = componentize(&read(&input)?).map_err(|error| refused(&input, &error))?;
            std::fs::write(&output, &component)
                .with_context(|| format!("can't write {}", output.display()))?;
            print(&format!("{}: {} bytes", output.display(), component.len()))
        }
        PolicyCommand::Check { file, config, output } => {
            let bytes = read(&file)?;
            let runtime = Runtime::new(Options::default()).context("policies can't be run here")?;
            let config = config.map_or_else(|| "{}".to_owned(), |config| config.to_string());
            let policy = runtime.load(&bytes, &config).map_err(|error| refused(&file, &error))?;
            print(&describe(&file, &policy, output))
        }
    }
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

fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let usage = |text: String| Failure::Usage(format!("{}: {text}", file.display()));
    let kind = std::fs::metadata(file).map_err(|error| usage(format!("can't be read: {error}")))?;
    // A pipe would be waited for without an end.
    if !kind.is_file() {
        return Err(usage("is not a file: give a component's file".to_owned()));
    }
    std::fs::read(file).map_err(|error| usage(format!("can't be read: {error}")))
}

fn refused(file: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Refused(format!("{}: {error}", file.display()))
}
