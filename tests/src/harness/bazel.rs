//! Bazel in a sample workspace, and what it says it did.

use anyhow::Context;
use serde_json::Value;
use tokio::process::Command;

use super::clients::{Clients, script};
use super::process::{Finished, Running};

/// Where Bazel writes which spawn ran how, as seen in the root.
const EXECUTION_LOG: &str = "/w/execution-log.json";

/// Bazel in one workspace of the clients' root.
#[derive(Debug)]
pub struct Bazel<'a> {
    clients: &'a Clients,
    workspace: String,
}

/// One process that a build ran or found in the cache.
#[derive(Clone, Debug)]
pub struct Spawn {
    /// The target's label.
    pub target: String,
    /// What kind of action it was of.
    pub mnemonic: String,
    /// How it ran: `remote`, `remote cache hit`, or something local.
    pub runner: String,
}

impl<'a> Bazel<'a> {
    pub(super) fn new(clients: &'a Clients, workspace: &str) -> Self {
        Self { clients, workspace: workspace.to_owned() }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = script(&["bazel7", &self.workspace]);
        command.args(words);
        command
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
        let mut command = self.command(words);
        command.args([&executor, &log, "--color=no", "--curses=no", "--show_progress_rate_limit=0.2"]);
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
    /// There is no log, or it is not what Bazel 7 writes.
    pub fn spawns(&self) -> anyhow::Result<Vec<Spawn>> {
        let text =
            std::fs::read_to_string(self.clients.outside(EXECUTION_LOG)).context("no execution log")?;
        let entries = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let word = |entry: &Value, key: &str| entry[key].as_str().unwrap_or_default().to_owned();
        entries
            .map(|entry| {
                let entry = entry.context("an execution log that is not JSON")?;
                Ok(Spawn {
                    target: word(&entry, "targetLabel"),
                    mnemonic: word(&entry, "mnemonic"),
                    runner: word(&entry, "runner"),
                })
            })
            .collect()
    }
}
