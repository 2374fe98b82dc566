//! `pointsman policy`: one file per command.

mod check;
mod componentize;
mod log;
mod manage;
mod record;
mod tables;

use std::path::Path;

use clap::Subcommand;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum PolicyCommand {
    /// Wrap the core module that a compiler wrote into a component that `serve --policy` takes.
    Componentize(componentize::ComponentizeArgs),
    /// Compile a policy, compare its interface with the one offered here, and configure it, as `serve` would.
    Check(check::CheckArgs),
    /// Show which versions are in force and on trial, how they do, and what came of the last new one.
    Status(manage::LinkArgs),
    /// Show what happened to policies.
    History(manage::LinkArgs),
    /// Send a version to a scheduler: checked, then in force or on trial. Exits with 0 once it is.
    Push(manage::PushArgs),
    /// Put the version that is on trial in force.
    Promote(manage::LinkArgs),
    /// Put the version before the one in force back.
    Rollback(manage::RollbackArgs),
    /// Show what policies decided, and why: the latest decisions of a scheduler, or those in files of its decision log.
    Log(log::LogArgs),
}

pub(super) fn run(command: PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Componentize(args) => componentize::run(&args),
        PolicyCommand::Check(args) => check::run(args),
        PolicyCommand::Status(args) => manage::status(args),
        PolicyCommand::History(args) => manage::history(args),
        PolicyCommand::Push(args) => manage::push(args),
        PolicyCommand::Promote(args) => manage::promote(args),
        PolicyCommand::Rollback(args) => manage::rollback(args),
        PolicyCommand::Log(args) => log::run(args),
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
