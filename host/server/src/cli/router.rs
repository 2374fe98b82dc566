//! `pointsman router`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;

use super::signals::{hangups, shutdown_token};
use super::{Failure, print};
use crate::config::{Config, HttpListen, Overrides};
use crate::reload::Reload;

/// Flags win over the file.
#[derive(Debug, Args)]
pub(super) struct RouterArgs {
    /// The configuration file (JSON5). It names the CAS (storage.remote) and the policies.
    #[arg(long, short, value_name = "FILE")]
    config: PathBuf,
    /// Where the scheduler connects, as IP:PORT [default: 127.0.0.1:8980].
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Where /metrics, /healthz and /readyz are, as IP:PORT, or "off" [default: 127.0.0.1:8981 if that is free].
    #[arg(long, value_name = "ADDR")]
    http_listen: Option<HttpListen>,
    /// Where versions of policies are kept; each router has a folder of its own.
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// The policy: a Wasm component, watched and swapped when it changes.
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// The policy's configuration: JSON5 itself when it starts with a brace, else a file that holds it.
    #[arg(long, value_name = "JSON|FILE", value_parser = super::serve::policy_config)]
    policy_config: Option<serde_json::Value>,
    /// Look at the configuration and the policies, and end: with 64 if a router can't do what they say.
    #[arg(long)]
    check: bool,
    #[arg(long, hide = true)]
    with_worker: bool,
}

/// Checks everything, then routes until a signal asks for the end.
pub(super) fn run(args: RouterArgs) -> Result<(), Failure> {
    if args.with_worker {
        let text =
            "--with-worker: a router has no worker, its scheduler has; see `pointsman serve` for both in one";
        return Err(Failure::Usage(text.to_owned()));
    }
    let is_check = args.check;
    let (file, overrides) = split(args);
    let config = Config::load_router(&file, &overrides)?;
    if is_check {
        return check(&file, &config);
    }
    if !config.listen.ip().is_loopback() {
        tracing::warn!(
            "{} is not a loopback address: whoever reaches it can push policies, and so say where actions go;              `public_keys` takes only signed ones",
            config.listen
        );
    }
    Ok(runtime()?.block_on(async {
        let asked = hangups()?;
        let read_file = file.clone();
        let read = Box::new(move || Config::load_router(&read_file, &overrides));
        crate::router::run(config, Reload { file: Some(file), read, asked }, shutdown_token()?).await
    })?)
}

/// What `--check` and `pointsman config check --router` do, the file having been read.
pub(super) fn check(file: &Path, config: &Config) -> Result<(), Failure> {
    look(config)?.map_err(|error| Failure::Usage(format!("{}: {error:#}", file.display())))?;
    print(&format!("{}: ok", file.display()))
}

/// Loads the policies; the inner error is what they are refused for.
pub(super) fn look(config: &Config) -> Result<anyhow::Result<()>, Failure> {
    Ok(runtime()?.block_on(crate::router::check(config)))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().context("the runtime can't be started")
}

/// The file, and what goes over it.
fn split(args: RouterArgs) -> (PathBuf, Overrides) {
    let overrides = Overrides {
        listen: args.listen,
        http_listen: args.http_listen,
        state_dir: args.state_dir,
        policy_file: args.policy,
        policy_config: args.policy_config,
        ..Overrides::default()
    };
    (args.config, overrides)
}
