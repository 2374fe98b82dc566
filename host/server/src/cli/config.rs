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
        ConfigCommand::Check { file, output: Output::Table } => {
            Config::load(&file, &Overrides::default())?;
            print(&format!("{}: ok", file.display()))
        }
        ConfigCommand::Check { file, output: Output::Json } => {
            let error = Config::load(&file, &Overrides::default()).err();
            let problems = error.as_ref().map_or_else(Vec::new, problems);
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

fn problems(error: &ConfigError) -> Vec<Value> {
    let problem = |p: &crate::config::Problem| json!({ "line": p.line, "column": p.column, "key": p.key, "text": p.text });
    error.problems.iter().map(problem).collect()
}
