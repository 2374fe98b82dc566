//! `pointsman policy componentize`.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use pointsman_policy::componentize;

use super::{read, refused};
use crate::cli::{Failure, print};

#[derive(Debug, Args)]
pub(in crate::cli) struct ComponentizeArgs {
    /// The core module (`target/wasm32-unknown-unknown/…/NAME.wasm`).
    input: PathBuf,
    /// Where the component is written.
    output: PathBuf,
}

pub(super) fn run(args: &ComponentizeArgs) -> Result<(), Failure> {
    let ComponentizeArgs { input, output } = args;
    let component = componentize(&read(input)?).map_err(|error| refused(input, &error))?;
    std::fs::write(output, &component).with_context(|| format!("can't write {}", output.display()))?;
    print(&format!("{}: {} bytes", output.display(), component.len()))
}
