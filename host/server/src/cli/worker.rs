//! `pointsman worker`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use pointsman_worker::{PlatformQuery, Strategy, WorkerConfig};

use super::Failure;
use super::pairs::{by_key, parse_pair};
use super::signals::shutdown_token;
use crate::config::{parse_duration, parse_size};

/// A worker for any scheduler that speaks Buildbarn's worker protocol.
#[derive(Debug, Args)]
pub(super) struct WorkerArgs {
    /// The scheduler: HOST:PORT, grpc://HOST:PORT or http://HOST:PORT.
    #[arg(long, value_name = "URL")]
    scheduler: String,
    /// Blobs and action results, when they are not the scheduler's.
    #[arg(long, value_name = "URL")]
    storage: Option<String>,
    /// Where actions run and inputs are cached; a folder of this worker alone.
    #[arg(long, value_name = "DIR", default_value = "pointsman-worker")]
    work_dir: PathBuf,
    /// The name of this machine, in the worker's id [default: its host name].
    #[arg(long)]
    name: Option<String>,
    /// Serve this instance name and those below it [default: all].
    #[arg(long, value_name = "PREFIX", default_value = "", hide_default_value = true)]
    instance_name_prefix: String,
    /// A platform property, in place of this machine's own value for that key; may be repeated.
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_pair)]
    platform: Vec<(String, String)>,
    /// A platform property whose values this command prints, one per line, in place of this machine's own; may be
    /// repeated. It is run once, without a shell and with an empty environment; the worker ends when it fails.
    #[arg(long, value_name = "KEY=COMMAND", value_parser = parse_query)]
    platform_query: Vec<PlatformQuery>,
    /// How it may run actions; may be repeated. The first is used where an action's route names no strategy. With
    /// `sandboxed`, bubblewrap must be installed [default: local, and sandboxed where bubblewrap works].
    #[arg(long, value_name = "NAME", value_parser = Strategy::parse)]
    strategy: Vec<Strategy>,
    /// How long each such command may take.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = parse_duration)]
    query_timeout: Duration,
    /// Offer only the properties given, and none that are found out about this machine.
    #[arg(long)]
    only_given_platform: bool,
    /// Actions at one time [default: one per processor].
    #[arg(long, value_name = "N")]
    concurrency: Option<usize>,
    /// The size class among workers of the same platform.
    #[arg(long, value_name = "N", default_value_t = 0)]
    size_class: u32,
    /// Input files to keep for later actions, such as 10GiB.
    #[arg(long, value_name = "SIZE", default_value = "10GiB", value_parser = parse_size)]
    cache_size: u64,
    /// How long a storage that can't be reached is tried again before an action is given back.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_duration)]
    storage_patience: Duration,
}

/// Works until a signal asks for the end; what runs then is finished first.
pub(super) fn run(args: WorkerArgs) -> Result<(), Failure> {
    let config = configure(args);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("the runtime can't be started")?;
    let worked = runtime.block_on(async {
        let shutdown = shutdown_token()?;
        pointsman_worker::run(config, shutdown).await.context("the worker stopped")
    });
    Ok(worked?)
}

fn configure(args: WorkerArgs) -> WorkerConfig {
    let mut config = WorkerConfig::new(args.scheduler, args.work_dir);
    config.storage = args.storage;
    config.instance_name_prefix = args.instance_name_prefix;
    config.size_class = args.size_class;
    config.cache_max_bytes = args.cache_size;
    config.storage_patience = args.storage_patience;
    if let Some(name) = args.name {
        config.name = name;
    }
    if let Some(concurrency) = args.concurrency {
        config.concurrency = concurrency;
    }
    let given = by_key(args.platform);
    let queried = |key: &str| args.platform_query.iter().any(|query| query.key() == key);
    config.platform.retain(|(key, _)| !args.only_given_platform && !given.contains_key(key) && !queried(key));
    config.query_timeout = args.query_timeout;
    config.strategies = (!args.strategy.is_empty()).then_some(args.strategy);
    for (key, values) in given {
        config.platform.extend(values.into_iter().map(|value| (key.clone(), value)));
    }
    config.platform_queries = args.platform_query;
    config
}

fn parse_query(text: &str) -> Result<PlatformQuery, String> {
    let (key, command) = parse_pair(text).map_err(|_| "expected KEY=COMMAND".to_owned())?;
    PlatformQuery::new(key, command).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Only {
        #[command(flatten)]
        args: WorkerArgs,
    }

    fn configured(flags: &[&str]) -> WorkerConfig {
        let line = ["x", "--scheduler", "h:1"].iter().chain(flags);
        configure(Only::parse_from(line).args)
    }

    fn platform(flags: &[&str]) -> Vec<(String, String)> {
        configured(flags).platform
    }

    #[test]
    fn queries_replace_what_is_found_and_join_what_is_given() {
        let config = configured(&["--platform-query", "Pool=sh -c 'echo a=b'", "--platform", "gpu=x"]);
        assert!(config.platform.iter().all(|(key, _)| key != "Pool"));
        let told: Vec<_> = config.platform_queries.iter().map(|q| (q.key(), q.command())).collect();
        assert_eq!(told, [("Pool", "sh -c 'echo a=b'")]);
        assert!(Only::try_parse_from(["x", "--scheduler", "h:1", "--platform-query", "a='"]).is_err());
    }

    #[test]
    fn given_properties_replace_found_ones() {
        let found = platform(&[]);
        let replaced = platform(&["--platform", "Pool=a", "--platform", "Pool=b"]);
        assert_eq!(replaced.len(), found.len() + 1);
        assert_eq!(replaced.iter().filter(|(key, _)| key == "Pool").count(), 2);
        let bare = platform(&["--only-given-platform", "--platform", "a="]);
        assert_eq!(bare, [("a".to_owned(), String::new())]);
    }
}
