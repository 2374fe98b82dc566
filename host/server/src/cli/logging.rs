//! Where log lines go and what they look like.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line each, coloured on a terminal.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// The variables that say what is logged; the first one that is set counts.
const VARIABLES: [&str; 2] = ["POINTSMAN_LOG", "RUST_LOG"];

/// Starts logging to standard error, once per process; standard output belongs to results.
pub(super) fn init(format: LogFormat) -> Result<(), String> {
    let filter = filter()?;
    let builder = fmt().with_writer(std::io::stderr).with_env_filter(filter);
    let started = match format {
        LogFormat::Text => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| format!("logging can't be started: {error}"))
}

fn filter() -> Result<EnvFilter, String> {
    let set =
        VARIABLES.iter().find_map(|name| Some((name, std::env::var(name).ok().filter(|v| !v.is_empty())?)));
    let Some((name, value)) = set else { return Ok(EnvFilter::new("info")) };
    EnvFilter::try_new(&value).map_err(|error| {
        format!("{name} is {value:?}: {error}; write a level, or targets and levels such as \"info,pointsman=debug\"")
    })
}
