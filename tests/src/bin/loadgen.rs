//! Measures a scheduler against a server that only echoes: `loadgen` runs both, one after the other, each as
//! a process of its own, and prints a table; `loadgen suite` measures all that the project promises about speed.
use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pointsman_tests::load::{self, Group, Kind, Plan, PlannedGroup, Row, Server, Settings};
use std::{env, ffi::OsString, fs, io::Write as _, net::SocketAddr, path::PathBuf, time::Duration};

/// The server's allocator, so that the echo server has it too and the comparison is one of what servers do.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Load generator for Execute and Synchronize
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    load: Load,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the same calls without any scheduling; ends with its standard input
    Echo {
        /// Address to listen on
        #[arg(long)]
        listen: SocketAddr,
        /// What clients are told
        #[arg(long, default_value = "current")]
        updates: EchoUpdates,
    },
    /// Measure the router against the same messages echoed
    Route(Route),
    /// Measure everything that is promised about speed, and print one table
    Suite(Suite),
}

#[derive(Debug, Args)]
struct Route {
    /// Callers of the closed loop, each with one call under way
    #[arg(long, default_value_t = 64)]
    callers: usize,
    /// Connections that they share
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Calls a second of the open loop
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Distinct Commands, read before
    #[arg(long, default_value_t = 1000)]
    commands: usize,
    /// Seconds of each measurement
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Do all of it so many times
    #[arg(long, default_value_t = 3)]
    repeat: usize,
    /// The server's binary; the default is `pointsman` beside this program
    #[arg(long)]
    server: Option<PathBuf>,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct Suite {
    /// Only the group of this key; may be repeated (throughput, one, depth, fleet, fleet-pools, both, busy,
    /// one-slot, memory)
    #[arg(long)]
    only: Vec<String>,
    /// Seconds to measure each row
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Measure each group so many times, and show of each row the run with the median processor time
    #[arg(long, default_value_t = 1)]
    repeat: usize,
    #[command(flatten)]
    common: Common,
}

/// What both ways of measuring know.
#[derive(Debug, Args)]
struct Common {
    /// The server's binary; the default is `pointsman` beside this program
    #[arg(long)]
    server: Option<PathBuf>,
    /// One more argument for the server; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    server_arg: Vec<OsString>,
    /// What the echo server tells its clients
    #[arg(long, default_value = "current")]
    echo_updates: EchoUpdates,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum EchoUpdates {
    /// QUEUED only when no worker is waiting
    Current,
    /// QUEUED, EXECUTING and COMPLETED for each action
    All,
}

#[derive(Debug, Args)]
struct Load {
    /// Hosts with workers, each with one connection
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// Worker threads of each host
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Execute streams open at any time
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// Connections that the clients share
    #[arg(long, default_value_t = 4)]
    connections: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 2.0)]
    warmup: f64,
    /// Distinct actions, stored before and never cached, that the clients go round in
    #[arg(long, default_value_t = 4096)]
    actions_unique: usize,
    /// One client that runs one action at a time: latency without queueing
    #[arg(long)]
    one: bool,
    /// Platform property of actions and workers, as NAME=VALUE; may be repeated
    #[arg(long, value_parser = property, default_value = "OSFamily=linux")]
    platform: Vec<(String, String)>,
    /// HTTP/2 connections that the hosts share [default: one each, 64 at most]
    #[arg(long)]
    worker_connections: Option<usize>,
    /// Spread hosts and actions over so many pools
    #[arg(long, default_value_t = 0)]
    pools: usize,
    /// Further workers, in as many pools, which no action asks for
    #[arg(long, default_value_t = 0)]
    idle_workers: usize,
    /// Actions queued before that no worker can run
    #[arg(long, default_value_t = 0)]
    unmatched: usize,
    /// How many different pools those ask for
    #[arg(long, default_value_t = 100)]
    unmatched_classes: usize,
    /// Milliseconds that each action executes
    #[arg(long, default_value_t = 0)]
    action_ms: u64,
    /// That many execution slots: overrides --workers, with --threads each
    #[arg(long)]
    slots: Option<usize>,
    /// Measure the echo server only
    #[arg(long)]
    echo_only: bool,
    #[command(flatten)]
    common: Common,
}

fn property(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err(format!("asked for NAME=VALUE, got {text:?}")),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let cli = Cli::parse();
    let work = async {
        match &cli.command {
            Some(Command::Echo { listen, updates }) => echo(*listen, *updates).await,
            Some(Command::Route(route)) => route.run().await,
            Some(Command::Suite(suite)) => suite.run().await,
            None => cli.load.compare().await,
        }
    };
    tokio::select! {
        result = work => result,
        // Leaving this way drops the server, which kills its process.
        _ = tokio::signal::ctrl_c() => bail!("interrupted"),
    }
}

async fn echo(listen: SocketAddr, updates: EchoUpdates) -> Result<()> {
    let updates = match updates {
        EchoUpdates::Current => load::echo::Updates::Current,
        EchoUpdates::All => load::echo::Updates::All,
    };
    let (sender, input_ends) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Closed input and an error mean the same: whoever started us has gone.
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        let _ = sender.send(());
    });
    tokio::select! {
        result = load::echo::serve(listen, updates, std::future::pending()) => {
            result.with_context(|| format!("cannot serve on {listen}"))
        }
        // Connections that are still open do not keep it.
        _ = input_ends => Ok(()),
    }
}

fn seconds(value: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(value).with_context(|| format!("{value} seconds"))
}

impl Load {
    fn settings(&self) -> Result<Settings> {
        let hosts = match self.slots {
            Some(slots) if self.threads > 0 => slots.div_ceil(self.threads),
            _ => self.workers,
        };
        if hosts == 0 || self.threads == 0 || self.clients == 0 || self.connections == 0 {
            bail!("workers, threads, clients and connections have to be 1 or more");
        }
        let clients = if self.one { 1 } else { self.clients };
        Ok(Settings {
            hosts,
            threads: self.threads,
            worker_connections: self.worker_connections.unwrap_or(64).clamp(1, hosts),
            clients,
            connections: self.connections.min(clients),
            window: seconds(self.seconds)?,
            warm_up: seconds(self.warmup)?,
            actions: self.actions_unique,
            platform: self.platform.clone(),
            pools: self.pools,
            idle_workers: self.idle_workers,
            unmatched: self.unmatched,
            unmatched_classes: self.unmatched_classes,
            action_time: Duration::from_millis(self.action_ms),
        })
    }

    async fn compare(&self) -> Result<()> {
        let settings = self.settings()?;
        let plan = |name: &str, kind, settings: &Settings| Plan {
            name: name.to_owned(),
            kind,
            settings: settings.clone(),
            aims: Vec::new(),
        };
        // Echo has no notion of what can't run: what waits would go to its workers.
        let mut plans = vec![plan("echo", Kind::Echo, &settings.without_bystanders())];
        if !self.echo_only {
            plans.push(plan("pointsman", Kind::Pointsman, &settings));
        }
        let group = PlannedGroup { key: "", title: settings.summary(), plans };
        self.common.measure(&[group], 1).await
    }
}

impl Route {
    async fn run(&self) -> Result<()> {
        let own = env::current_exe().context("cannot tell where this program is")?;
        let server = self.server.clone().unwrap_or_else(|| own.with_file_name("pointsman"));
        let settings = load::RouteSettings {
            callers: self.callers,
            connections: self.connections,
            rate: self.rate,
            commands: self.commands,
            window: seconds(self.seconds)?,
            warm_up: seconds(self.warmup)?,
            rounds: self.repeat,
        };
        let rounds = load::route(&own, &server, &settings).await?;
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&load::route_json(&rounds))?;
            fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        }
        write!(std::io::stdout(), "{}", load::route_table(&rounds)).context("cannot print the table")
    }
}

impl Suite {
    async fn run(&self) -> Result<()> {
        let mut groups = load::suite(seconds(self.seconds)?, seconds(self.warmup)?);
        let keys: Vec<_> = groups.iter().map(|group| group.key).collect();
        if let Some(unknown) = self.only.iter().find(|key| !keys.contains(&key.as_str())) {
            bail!("no group {unknown:?}: there are {}", keys.join(", "));
        }
        groups.retain(|group| self.only.is_empty() || self.only.iter().any(|key| key == group.key));
        self.common.measure(&groups, self.repeat.max(1)).await
    }
}

impl Common {
    /// Measures and prints; says on standard error what it is at.
    async fn measure(&self, planned: &[PlannedGroup], repeat: usize) -> Result<()> {
        let programs = self.programs(planned)?;
        let mut groups = Vec::new();
        for PlannedGroup { title, plans, .. } in planned {
            let mut runs = vec![Vec::new(); plans.len()];
            for _ in 0..repeat {
                for (plan, runs) in plans.iter().zip(&mut runs) {
                    writeln!(std::io::stderr(), "{title}: {}", plan.name)?;
                    runs.push(self.row(&programs, plan).await?);
                }
            }
            groups.push(Group { title: title.clone(), rows: runs.into_iter().filter_map(median).collect() });
        }
        if let Some(path) = &self.json {
            let text = serde_json::to_string_pretty(&load::json(&groups))?;
            fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
        }
        write!(std::io::stdout(), "{}", load::table(&groups)).context("cannot print the table")
    }

    async fn row(&self, programs: &Programs, plan: &Plan) -> Result<Row> {
        let Plan { name, kind, settings, aims } = plan;
        let server = match kind {
            Kind::Echo => Server::echo(&programs.own, &self.echo_arguments()).await?,
            Kind::Pointsman => Server::pointsman(&programs.server, settings, &self.server_arg).await?,
        };
        let measurement =
            load::measure(&server, settings).await.with_context(|| format!("measuring {name}"))?;
        server.kill().await?;
        Ok(Row { name: name.clone(), settings: settings.clone(), measurement, aims: aims.clone() })
    }

    fn echo_arguments(&self) -> Vec<OsString> {
        let updates = match self.echo_updates {
            EchoUpdates::Current => "current",
            EchoUpdates::All => "all",
        };
        vec!["--updates".into(), updates.into()]
    }

    fn programs(&self, planned: &[PlannedGroup]) -> Result<Programs> {
        let own = env::current_exe().context("cannot tell where this program is")?;
        let server = self.server.clone().unwrap_or_else(|| own.with_file_name("pointsman"));
        let needed = planned.iter().flat_map(|g| &g.plans).any(|p| p.kind == Kind::Pointsman);
        if needed && !server.is_file() {
            bail!(
                "no server at {}: build it first, name it with --server, or measure with --echo-only",
                server.display()
            );
        }
        Ok(Programs { own, server })
    }
}

struct Programs {
    own: PathBuf,
    server: PathBuf,
}

/// The run in the middle by processor time per action.
fn median(mut runs: Vec<Row>) -> Option<Row> {
    runs.sort_by(|a, b| {
        let cost = |row: &Row| row.measurement.server_cpu.as_secs_f64() / row.measurement.actions() as f64;
        cost(a).total_cmp(&cost(b))
    });
    let middle = runs.len() / 2;
    runs.into_iter().nth(middle)
}
