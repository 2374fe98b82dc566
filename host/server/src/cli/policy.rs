//! `pointsman policy componentize` and `policy check`.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Subcommand;

use super::{Failure, Output};

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
