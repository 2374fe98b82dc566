//! Bazel in a sample workspace, and what it says it did.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::process::Command;

use super::clients::{Clients, script};
use super::process::{Finished, Running};

/// Where Bazel writes which spawn ran how, as seen in the root.
const EXECUTION_LOG: &str = "/w/execution-log.json";
/// Where Bazel writes every call that it made, as seen in the root.
const CALLS: &str = "/w/calls.bin";

/// Which Bazel, and with it which sample workspace. Both have the same targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BazelVersion {
    /// 7.7.1.
    Seven,
    /// 2.1.0, from the year when REv2 was new.
    Two,
}

impl BazelVersion {
    /// Its name for `clients.sh`.
    pub fn client(self) -> &'static str {
        match self {
            Self::Seven => "bazel7",
            Self::Two => "bazel2",
        }
    }

    pub(super) fn workspace(self) -> &'static str {
        match self {
            Self::Seven => "ws7",
            Self::Two => "ws2",
        }
    }

    fn log_calls(self) -> &'static str {
        match self {
            Self::Seven => "--remote_grpc_log",
            Self::Two => "--experimental_remote_grpc_log",
        }
    }
}

/// Bazel in its workspace of the clients' root.
#[derive(Debug)]
pub struct Bazel<'a> {
    clients: &'a Clients,
    version: BazelVersion,
}

/// One process that a build ran or found in the cache.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// What it was to make, as paths from the workspace.
    pub outputs: Vec<String>,
    /// How it ran: `remote`, `remote cache hit`, or something local.
    pub runner: String,
    /// Whether it may run remotely.
    pub remotable: bool,
}

impl<'a> Bazel<'a> {
    pub(super) fn new(clients: &'a Clients, version: BazelVersion) -> Self {
        Self { clients, version }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = script(&[self.version.client(), self.version.workspace()]);
        command.args(words);
        command
    }

    /// A file of its workspace, from where this test runs.
    pub fn file(&self, name: &str) -> PathBuf {
        self.clients.outside(&format!("/w/{}/{name}", self.version.workspace()))
    }

    /// A file that it built. `bazel-bin` is a link that only holds inside of the root.
    ///
    /// # Errors
    /// Nothing has been built.
    pub fn built(&self, name: &str) -> anyhow::Result<PathBuf> {
        let link = std::fs::read_link(self.file("bazel-bin")).context("there is no bazel-bin")?;
        Ok(self.clients.outside(link.to_str().context("bazel-bin is no text")?).join(name))
    }

    /// Runs Bazel to its end; `words` begin with its command.
    ///
    /// # Errors
    /// It can't be started, or does not end in time. Failing builds are no error here.
    pub async fn run(&self, words: &[&str]) -> anyhow::Result<Finished> {
        Running::start(self.command(words))?.finish().await
    }

    /// Starts a build or test (`words` begin with the command) against a server.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(&self, server: &str, words: &[&str]) -> anyhow::Result<Running> {
        let executor = format!("--remote_executor=grpc://{server}");
        let log = format!("--execution_log_json_file={EXECUTION_LOG}");
        let calls = format!("{}={CALLS}", self.version.log_calls());
        let mut command = self.command(words);
        command.args([
            &executor,
            &log,
            &calls,
            "--color=no",
            "--curses=no",
            "--show_progress_rate_limit=0.2",
        ]);
        Running::start(command)
    }

    /// Runs a build or test against a server to its end.
    ///
    /// # Errors
    /// It can't be started, or does not end in time. Failing builds are no error here.
    pub async fn remote(&self, server: &str, words: &[&str]) -> anyhow::Result<Finished> {
        self.start(server, words)?.finish().await
    }

    /// What the last [`Bazel::remote`] ran.
    ///
    /// # Errors
    /// There is no log, or it is not what Bazel writes.
    pub fn spawns(&self) -> anyhow::Result<Vec<Spawn>> {
        let text =
            std::fs::read_to_string(self.clients.outside(EXECUTION_LOG)).context("no execution log")?;
        let entries = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        entries
            .map(|entry| {
                let entry = entry.context("an execution log that is not JSON")?;
                let outputs = entry["listedOutputs"].as_array().map(Vec::as_slice).unwrap_or_default();
                Ok(Spawn {
                    outputs: outputs.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                    runner: entry["runner"].as_str().unwrap_or_default().to_owned(),
                    remotable: entry["remotable"].as_bool().unwrap_or_default(),
                })
            })
            .collect()
    }

    /// What the last [`Bazel::remote`] ran: something, and all that may run remotely as `runner`.
    ///
    /// # Errors
    /// It did not.
    pub fn expect_spawns(&self, runner: &str) -> anyhow::Result<Vec<Spawn>> {
        let spawns = self.spawns()?;
        ensure!(spawns.iter().any(|spawn| spawn.remotable), "the build ran nothing: {spawns:#?}");
        let odd = spawns.iter().find(|spawn| spawn.remotable && spawn.runner != runner);
        ensure!(odd.is_none(), "not {runner}: {odd:#?}");
        Ok(spawns)
    }

    /// The log of calls that the last [`Bazel::remote`] made: protobuf, with names and short blobs as they are.
    ///
    /// # Errors
    /// There is no log.
    pub fn calls(&self) -> anyhow::Result<String> {
        let bytes = std::fs::read(self.clients.outside(CALLS)).context("no log of calls")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}
