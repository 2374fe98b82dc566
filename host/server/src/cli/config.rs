//! `pointsman config check` and `config print`.

use std::path::PathBuf;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Output, print};
use crate::config::{Config, ConfigError, Overrides};

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Say what is wrong with a configuration file, and end with 64 when something is.
    Check {
        /// The file.
        file: PathBuf,
        /// It is for `pointsman router`: keys that have no effect there are refused, and the policies are loaded, to see whether
        /// they set what a router can't hand on.
        #[arg(long)]
        router: bool,
        /// How to print.
        #[arg(long, short, value_enum, default_value_t)]
        output: Output,
    },
    /// Print the configuration that is in force with a file, or with none, every key spelled out, as JSON.
    Print {
        /// The file; without it the defaults.
        file: Option<PathBuf>,
    },
}

pub(super) fn run(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file, router: true, output: Output::Table } => {
            let config = Config::load_router(&file, &Overrides::default())?;
            super::router::check(&file, &config)
        }
        ConfigCommand::Check { file, router: false, output: Output::Table } => {
            Config::load(&file, &Overrides::default())?;
            print(&format!("{}: ok", file.display()))
        }
        ConfigCommand::Check { file, router, output: Output::Json } => {
            let load = if router { Config::load_router } else { Config::load };
            let problems = match load(&file, &Overrides::default()) {
                Err(error) => problems(&error),
                Ok(config) if router => policies_problem(&config)?.into_iter().collect(),
                Ok(_) => Vec::new(),
            };
            let name = file.display().to_string();
            print(&format!(
                "{:#}",
                json!({ "file": name, "ok": problems.is_empty(), "problems": problems })
            ))?;
            match problems.len() {
                0 => Ok(()),
                count => Err(Failure::Usage(format!("{name}: {count} problems"))),
            }
        }
        ConfigCommand::Print { file } => {
            let config = match file {
                Some(file) => Config::load(&file, &Overrides::default())?,
                None => Config::default(),
            };
            print(&format!("{:#}", config.to_json()))
        }
    }
}

/// What a router's policies are refused for.
fn policies_problem(config: &Config) -> Result<Option<Value>, Failure> {
    let refused = super::router::look(config)?.err();
    Ok(refused.map(|error| json!({ "line": 0, "column": 0, "key": "", "text": format!("{error:#}") })))
}

fn problems(error: &ConfigError) -> Vec<Value> {
    let problem = |p: &crate::config::Problem| json!({ "line": p.line, "column": p.column, "key": p.key, "text": p.text });
    error.problems.iter().map(problem).collect()
}
