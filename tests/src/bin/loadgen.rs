//! Measures a scheduler against a server that only echoes: `loadgen` runs both, one after the other, each as
//! a process of its own, and prints a table.
use anyhow::{Context as _, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use pointsman_tests::load::{self, Row, Server, Settings};
use std::{
    env,
    ffi::OsString,
    fs,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

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
    /// The server's binary; the default is `pointsman` beside this program
    #[arg(long)]
    server: Option<PathBuf>,
    /// One more argument for the server; may be repeated
    #[arg(long, allow_hyphen_values = true)]
    server_arg: Vec<OsString>,
    /// What the echo server tells its clients
    #[arg(long, default_value = "current")]
    echo_updates: EchoUpdates,
    /// Measure the echo server only
    #[arg(long)]
    echo_only: bool,
    /// Also write the figures to this file
    #[arg(long)]
    json: Option<PathBuf>,
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
    if let Some(Command::Echo { listen, updates }) = cli.command {
        return echo(listen, updates).await;
    }
    tokio::select! {
        result = compare(&cli.load) => result,
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

impl Load {
    fn settings(&self) -> Result<Settings> {
        if self.workers == 0 || self.threads == 0 || self.clients == 0 || self.connections == 0 {
            bail!("workers, threads, clients and connections have to be 1 or more");
        }
        let seconds = |s| Duration::try_from_secs_f64(s).with_context(|| format!("{s} seconds"));
        let clients = if self.one { 1 } else { self.clients };
        Ok(Settings {
            hosts: self.workers,
            threads: self.threads,
            clients,
            connections: self.connections.min(clients),
            window: seconds(self.seconds)?,
            warm_up: seconds(self.warmup)?,
            actions: self.actions_unique,
            platform: self.platform.clone(),
        })
    }

    fn echo_arguments(&self) -> Vec<OsString> {
        let updates = match self.echo_updates {
            EchoUpdates::Current => "current",
            EchoUpdates::All => "all",
        };
        vec!["--updates".into(), updates.into()]
    }

    fn server(&self, own: &Path) -> Result<PathBuf> {
        let path = self.server.clone().unwrap_or_else(|| own.with_file_name("pointsman"));
        if !path.is_file() {
            bail!(
                "no server at {}: build it first, name it with --server, or measure with --echo-only",
                path.display()
            );
        }
        Ok(path)
    }
}

async fn compare(load: &Load) -> Result<()> {
    let settings = load.settings()?;
    let own = env::current_exe().context("cannot tell where this program is")?;
    let program = if load.echo_only { None } else { Some(load.server(&own)?) };

    let mut rows = vec![measure("echo", Server::echo(&own, &load.echo_arguments()).await?, &settings).await?];
    if let Some(program) = program {
        let server = Server::pointsman(&program, &load.server_arg).await?;
        rows.push(measure("pointsman", server, &settings).await?);
    }
    if let Some(path) = &load.json {
        let text = serde_json::to_string_pretty(&load::json(&settings, &rows))?;
        fs::write(path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    }
    write!(std::io::stdout(), "{}", load::table(&settings, &rows)).context("cannot print the table")
}

async fn measure(name: &str, server: Server, settings: &Settings) -> Result<Row> {
    let measurement = load::measure(&server, settings).await.with_context(|| format!("measuring {name}"))?;
    server.kill().await?;
    Ok(Row { server: name.to_owned(), measurement })
}
