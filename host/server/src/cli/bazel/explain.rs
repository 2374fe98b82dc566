//! `pointsman bazel explain`.

use clap::Args;
use pointsman_bazel::Label;
use pointsman_bazel::flags::Flags;
use pointsman_bazel::model::{Model, Spawn};
use pointsman_bazel::rc;

use super::super::{Failure, print};
use super::rc_args::{RcArgs, label};

#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    #[command(flatten)]
    rc: RcArgs,
    /// The action's mnemonic, as `bazel aquery` has it.
    #[arg(long)]
    mnemonic: String,
    /// What Bazel shows while it runs, such as "Compiling a.cc"; --strategy_regexp goes by it.
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// Its execution platform, as `bazel aquery` has it.
    #[arg(long, value_name = "LABEL", value_parser = label)]
    exec_platform: Label,
    /// A tag or execution requirement of the action, such as no-remote or supports-workers.
    #[arg(long = "tag", value_name = "TAG")]
    tags: Vec<String>,
    /// The command of Bazel that runs it [default: build, or test for TestRunner].
    #[arg(long, value_name = "COMMAND")]
    command: Option<String>,
}

pub(super) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let read = args.rc.read()?;
    let usual = if args.mnemonic == "TestRunner" { "test" } else { "build" };
    let command = args.command.as_deref().unwrap_or(usual);
    let expanded = rc::expand(&read.lines, command, &args.rc.configs, args.rc.os());
    let (flags, bad) = Flags::read(&expanded.map_err(|error| Failure::Usage(error.to_string()))?.words);
    if let Some(bad) = bad.first() {
        return Err(Failure::Usage(format!("{}: {}: {}; write {}", bad.place, bad.what, bad.why, bad.form)));
    }
    let model = Model::new(&flags, args.rc.os(), args.rc.version());
    if let Some((flag, why)) = model.unreadable().first() {
        let text = format!("{}: the filter of --strategy_regexp can't be judged: {why}", flag.place);
        return Err(Failure::Usage(text));
    }
    let spawn = Spawn {
        mnemonic: &args.mnemonic,
        description: args.description.as_deref(),
        platform: &args.exec_platform,
        tags: &args.tags,
    };
    let decision = model.decide(&spawn);
    print(&decision.steps(&args.mnemonic, &args.exec_platform))?;
    match decision.runs {
        Some(_) => Ok(()),
        None => Err(Failure::Refused(format!("{} can't be run on {}", args.mnemonic, args.exec_platform))),
    }
}
