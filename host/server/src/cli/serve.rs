//! `pointsman serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::Failure;
use super::pairs::{by_key, parse_pair};
use super::signals::{hangups, shutdown_token};
use crate::config::{Config, ConfigError, HttpListen, Overrides};
use crate::reload::Reload;

/// Flags win over the file.
#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The configuration file (JSON5); none is needed.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where clients and workers connect, as IP:PORT [default: 127.0.0.1:8980].
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where /metrics, /healthz and /readyz are, as IP:PORT, or "off" [default: 127.0.0.1:8981 if that is free].
    #[arg(long, value_name = "ADDR")]
    http_listen: Option<HttpListen>,
    /// Where everything is kept that has no folder of its own.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Where blobs and action results are kept.
    #[arg(long, value_name = "DIR")]
    storage_dir: Option<PathBuf>,
    /// The policy: a Wasm component, watched and swapped when it changes.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The policy's configuration: JSON5 itself when it starts with a brace, else a file that holds it.
    #[arg(long, value_name = "JSON|FILE", value_parser = policy_config)]
    policy_config: Option<serde_json::Value>,
    /// Run a worker in this process.
    #[arg(long)]
    with_worker: bool,
    /// Actions that the worker runs at one time [default: one per processor].
    #[arg(long, value_name = "N")]
    worker_concurrency: Option<u32>,
    /// A platform property of the worker, in place of its own value for that key; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    worker_platform: Vec<(String, String)>,
}

/// Checks everything, then serves until a signal asks for the end.
pub(super) fn run(args: ServeArgs) -> Result<(), Failure> {
    let (file, overrides) = split(args);
    let config = configure(file.as_deref(), &overrides)?;
    if !config.listen.ip().is_loopback() {
        tracing::warn!(
            "{} is not a loopback address: whoever reaches it can run commands on the workers",
            config.listen
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime can't be started")?;
    Ok(runtime.block_on(async {
        let asked = hangups()?;
        let read_file = file.clone();
        let read = Box::new(move || configure(read_file.as_deref(), &overrides));
        crate::serve::run(config, Reload { file, read, asked }, shutdown_token()?).await
    })?)
}

/// The file, and what goes over it.
fn split(args: ServeArgs) -> (Option<PathBuf>, Overrides) {
    let overrides = Overrides {
        listen: args.listen,
        http_listen: args.http_listen,
        state_dir: args.state_dir,
        storage_dir: args.storage_dir,
        policy_file: args.policy,
        policy_config: args.policy_config,
        with_worker: args.with_worker,
        worker_concurrency: args.worker_concurrency,
        worker_platform: by_key(args.worker_platform),
    };
    (args.config, overrides)
}

fn configure(file: Option<&Path>, overrides: &Overrides) -> Result<Config, ConfigError> {
    match file {
        Some(file) => Config::load(file, overrides),
        None => Config::without_file(overrides),
    }
}

pub(super) fn policy_config(text: &str) -> Result<serde_json::Value, String> {
    let content = if text.trim_start().starts_with('{') {
        text.to_owned()
    } else {
        std::fs::read_to_string(text).map_err(|error| {
            format!(
                "can't be read as a file: {error}; give JSON that starts with a brace, or an existing file"
            )
        })?
    };
    json5::from_str(&content).map_err(|error| format!("not valid JSON5: {error}"))
}
