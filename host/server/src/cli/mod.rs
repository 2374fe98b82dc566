//! The command line: parsing and printing, nothing else. One file per subcommand.

mod admin;
mod bazel;
mod config;
mod logging;
mod metrics;
mod pairs;
mod policy;
mod router;
mod serve;
mod signals;
mod sizes;
mod worker;

use std::borrow::Cow;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

pub use logging::LogFormat;

/// What a command ends with when its flags or its configuration are wrong (`EX_USAGE` of `sysexits.h`). No socket
/// was opened then.
pub const EXIT_USAGE: u8 = 64;

/// What a command ends with when something failed while it ran.
pub const EXIT_FAILURE: u8 = 1;

/// What a command ends with when the scheduler that it asks does not answer (`EX_UNAVAILABLE` of `sysexits.h`).
pub const EXIT_UNAVAILABLE: u8 = 69;

/// Schedules remote build execution; decisions are made by Wasm policies that can be swapped under a running build.
#[derive(Debug, Parser)]
#[command(name = "pointsman", version, arg_required_else_help = true)]
pub struct Cli {
    /// How log lines look; they go to standard error. POINTSMAN_LOG (else RUST_LOG) sets what is logged, such as
    /// "info,pointsman_scheduler=debug".
    #[arg(long, global = true, value_enum, default_value_t)]
    log_format: LogFormat,

    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the scheduler with its storage, and a worker on request.
    Serve(serve::ServeArgs),
    /// Route actions for a Buildbarn that keeps its scheduler (its `actionRouter: { remote: … }`).
    Router(router::RouterArgs),
    /// Run a worker for a scheduler that is elsewhere.
    Worker(worker::WorkerArgs),
    /// Look at configurations.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    #[command(flatten)]
    Admin(admin::AdminCommand),
    /// Build and look at policies.
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Look at what was learned of how much actions need.
    #[command(subcommand)]
    Sizes(sizes::SizesCommand),
    /// Make platforms and flags for Bazel and Buck2 from pools, and check those of a workspace.
    #[command(subcommand)]
    Bazel(bazel::BazelCommand),
    /// Print what there is at /metrics, with what it means.
    Metrics,
    /// Print a completion script for a shell.
    Completions {
        /// The shell that will read it.
        shell: clap_complete::Shell,
    },
}

/// How results are printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For eyes.
    #[default]
    Table,
    /// For programs; the form is kept between versions.
    Json,
}

/// Why a command failed, and so what the process ends with.
#[derive(Debug)]
enum Failure {
    /// The flags or the configuration are wrong.
    Usage(String),
    /// What was looked at is not in order.
    Refused(String),
    /// The scheduler that was to be asked does not answer.
    Unavailable(String),
    /// It was started, and something failed.
    Run(anyhow::Error),
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Run(error)
    }
}

impl From<crate::config::ConfigError> for Failure {
    fn from(error: crate::config::ConfigError) -> Self {
        Self::Usage(error.to_string())
    }
}

/// Prints a result, which belongs on standard output.
fn print(text: &str) -> Result<(), Failure> {
    Ok(writeln!(std::io::stdout(), "{}", harmless(text)).context("standard output can't be written")?)
}

/// What clients, workers and policies call things must not steer a terminal: control characters are shown as they are
/// written in a string. Lines stay lines.
fn harmless(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c.is_control() && c != '\n')
}

/// The same for what is to be within one line.
fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, char::is_control)
}

fn escaped(text: &str, is_harmful: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_harmful) {
        return Cow::Borrowed(text);
    }
    let shown = |c: char| if is_harmful(c) { c.escape_default().to_string() } else { c.to_string() };
    Cow::Owned(text.chars().map(shown).collect())
}

/// Runs the program with these arguments, the first being its name, and says what the process ends with.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(refusal) => {
            // Help and version are "errors" of clap's that belong on standard output and are no failure. When even
            // printing fails, there is nobody left to tell.
            let _ = refusal.print();
            return ExitCode::from(if refusal.use_stderr() { EXIT_USAGE } else { 0 });
        }
    };
    // First of all, so that whatever comes next has somewhere to complain.
    if let Err(text) = logging::init(cli.log_format) {
        eprintln!("pointsman: {text}");
        return ExitCode::from(EXIT_USAGE);
    }
    match run(cli.command) {
        Ok(code) => code,
        Err(Failure::Usage(text)) => {
            eprintln!("{text}");
            ExitCode::from(EXIT_USAGE)
        }
        Err(Failure::Refused(text)) => {
            eprintln!("{text}");
            ExitCode::from(EXIT_FAILURE)
        }
        Err(Failure::Unavailable(text)) => {
            eprintln!("{text}");
            ExitCode::from(EXIT_UNAVAILABLE)
        }
        Err(Failure::Run(error)) => {
            tracing::error!("{error:#}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Serve(args) => serve::run(args)?,
        Command::Router(args) => router::run(args)?,
        Command::Worker(args) => worker::run(args)?,
        Command::Config(command) => config::run(command)?,
        Command::Policy(command) => policy::run(command)?,
        Command::Sizes(command) => sizes::run(command)?,
        Command::Bazel(command) => bazel::run(command)?,
        Command::Metrics => metrics::run()?,
        Command::Admin(command) => return admin::run(command),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "pointsman", &mut std::io::stdout());
        }
    }
    Ok(ExitCode::SUCCESS)
}
