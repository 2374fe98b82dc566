//! `pointsman bazel`: the side of builds, made from pools and checked without a build.

mod explain;
mod flags;
mod lint;
mod rc_args;

use clap::Subcommand;

use super::Failure;

#[derive(Debug, Subcommand)]
pub(super) enum BazelCommand {
    /// Write platforms and flags for Bazel, and the same for Buck2, from the pools of a configuration.
    Flags(flags::FlagsArgs),
    /// Say what is wrong with the strategies of a .bazelrc; ends with 1 when something is, with 64 when it can't be read.
    Lint(lint::LintArgs),
    /// Say which strategies Bazel tries for an action, step by step; ends with 1 when none of them can run it.
    Explain(explain::ExplainArgs),
}

pub(super) fn run(command: BazelCommand) -> Result<(), Failure> {
    match command {
        BazelCommand::Flags(args) => flags::run(&args),
        BazelCommand::Lint(args) => lint::run(args),
        BazelCommand::Explain(args) => explain::run(&args),
    }
}
