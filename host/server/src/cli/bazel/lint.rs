//! `pointsman bazel lint`.

use std::path::{Path, PathBuf};

use clap::Args;
use pointsman_bazel::Label;
use pointsman_bazel::lint::{Finding, PoolPlatform, Surroundings, lint};
use serde_json::{Value, json};

use super::super::{Failure, Output, print};
use super::flags::{PACKAGE, package, site};
use super::rc_args::{RcArgs, label};
use crate::config::{Config, Overrides};

#[derive(Debug, Args)]
pub(in crate::cli) struct LintArgs {
    #[command(flatten)]
    rc: RcArgs,
    /// The scheduler's configuration, whose pools the flags are compared with.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where the platforms of pools are that have none of their own, as for `pointsman bazel flags`.
    #[arg(long, value_name = "//PACKAGE", default_value = PACKAGE, value_parser = package)]
    package: String,
    /// An execution platform that is registered elsewhere, in MODULE.bazel say.
    #[arg(long = "platform", value_name = "LABEL", value_parser = label)]
    platforms: Vec<Label>,
    /// A file of such labels, one a line; what follows a # is skipped.
    #[arg(long = "platforms", value_name = "FILE")]
    platforms_file: Option<PathBuf>,
    /// A command of Bazel whose options are looked at.
    #[arg(long = "command", value_name = "COMMAND", default_values = ["build", "test"])]
    commands: Vec<String>,
    /// --remote_executor is given on Bazel's command line, or by a file that is not looked at.
    #[arg(long)]
    remote: bool,
    /// How to print.
    #[arg(long, short, value_enum, default_value_t)]
    output: Output,
}

pub(super) fn run(args: LintArgs) -> Result<(), Failure> {
    let rc = args.rc.read()?;
    let mut registered = args.platforms;
    if let Some(file) = &args.platforms_file {
        registered.extend(listed(file)?);
    }
    let around = Surroundings {
        os: args.rc.os(),
        version: args.rc.version(),
        configs: args.rc.configs.clone(),
        commands: args.commands,
        registered,
        pools: args.config.as_deref().map(|file| pools(file, &args.package)).transpose()?.unwrap_or_default(),
        pools_file: args.config.as_ref().map(|file| file.display().to_string()),
        remote: args.remote,
    };
    let findings = lint(&rc, &around).map_err(|error| Failure::Usage(error.to_string()))?;
    let name = args.rc.bazelrc.display().to_string();
    match args.output {
        Output::Json => print(&format!(
            "{:#}",
            json!({ "file": name, "ok": findings.is_empty(), "findings": findings.iter().map(value).collect::<Vec<_>>() })
        ))?,
        Output::Table if findings.is_empty() => print(&format!("{name}: ok"))?,
        Output::Table => print(&findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("\n"))?,
    }
    match findings.len() {
        0 => Ok(()),
        1 => Err(Failure::Refused(format!("{name}: 1 finding"))),
        count => Err(Failure::Refused(format!("{name}: {count} findings"))),
    }
}

fn value(finding: &Finding) -> Value {
    json!({
        "file": finding.place.as_ref().map(|place| &*place.file),
        "line": finding.place.as_ref().map(|place| place.line),
        "severity": finding.severity.to_string(),
        "code": finding.code,
        "what": finding.what,
        "why": finding.why,
        "do": finding.advice,
    })
}

/// The platforms of a configuration's pools.
fn pools(file: &Path, package: &str) -> Result<Vec<PoolPlatform>, Failure> {
    let config = Config::load(file, &Overrides::default())?;
    let site = site(&config, file, package);
    let pools = site.pools.iter().map(|pool| {
        let platform = label(&pool.label(package)).map_err(Failure::Usage)?;
        Ok(PoolPlatform { pool: pool.name.clone(), platform, strategies: pool.strategies.clone() })
    });
    pools.collect()
}

/// The labels of a file.
fn listed(file: &Path) -> Result<Vec<Label>, Failure> {
    let name = file.display();
    let text = std::fs::read_to_string(file).map_err(|error| {
        Failure::Usage(format!("{name}: can't be read: {error}; give a file of labels, one a line"))
    })?;
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()));
    let one = |(number, text): (usize, &str)| {
        label(text).map_err(|why| Failure::Usage(format!("{name}:{number}: {text:?}: {why}")))
    };
    lines.filter(|(_, text)| !text.is_empty()).map(one).collect()
}
