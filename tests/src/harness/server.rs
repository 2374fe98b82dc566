//! The server's binary on a port of its own, with a folder of its own.

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use pointsman_proto::rev2::GetCapabilitiesRequest;
use pointsman_proto::rev2::capabilities_client::CapabilitiesClient;
use tempfile::TempDir;
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};

use super::binary::Binary;
use super::clients::Clients;
use super::process::{Finished, Running, Signal};

/// How long a server may take from its start to its first answer: on a busy machine the policy takes seconds to
/// compile.
const START: Duration = Duration::from_secs(60);

/// How long a server may take to drain.
const STOP: Duration = Duration::from_secs(30);

/// How a server is started.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions {
    /// Further arguments of `serve`.
    pub arguments: Vec<String>,
    /// The configuration file's text; none is given when empty.
    pub config: String,
}

impl ServerOptions {
    /// A worker for two actions at a time, and what the README's first command adds to `serve`.
    pub fn with_worker(further: &[&str]) -> Self {
        let arguments = ["--with-worker", "--worker-concurrency", "2"].iter().chain(further);
        Self { arguments: arguments.map(|&word| word.to_owned()).collect(), ..Self::default() }
    }

    /// With this text as the configuration file.
    pub fn config(self, text: &str) -> Self {
        Self { config: text.to_owned(), ..self }
    }
}

/// A server that runs. Dropped in a failing test, it shows its log.
#[derive(Debug)]
pub struct Server {
    /// `None` only while it is stopped.
    running: Option<Running>,
    command: Command,
    address: SocketAddr,
    folder: TempDir,
    inside: String,
}

impl Server {
    /// Starts the program where this test runs.
    ///
    /// # Errors
    /// It can't be started, or answers nothing in time.
    pub async fn start(options: &ServerOptions) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let inside = folder.path().to_str().context("a folder whose name is not text")?.to_owned();
        let command = Command::new(Binary::find()?.path());
        Self::launch(command, folder, inside, options).await
    }

    /// Starts the program in the root of the clients, where a worker finds Bazel's compiler.
    ///
    /// # Errors
    /// It can't be started, or answers nothing in time.
    pub async fn start_in(clients: &Clients, options: &ServerOptions) -> anyhow::Result<Self> {
        let (folder, inside) = clients.folder()?;
        let command = clients.command(&[&clients.install()?]);
        Self::launch(command, folder, inside, options).await
    }

    async fn launch(
        mut command: Command,
        folder: TempDir,
        inside: String,
        options: &ServerOptions,
    ) -> anyhow::Result<Self> {
        let address = free_address()?;
        command.args(["serve", "--listen", &address.to_string(), "--state-dir", &format!("{inside}/state")]);
        if !options.config.is_empty() {
            std::fs::write(folder.path().join("pointsman.json5"), &options.config)?;
            command.args(["--config", &format!("{inside}/pointsman.json5")]);
        }
        command.args(&options.arguments);
        let mut server = Self { running: None, command, address, folder, inside };
        server.start_again().await?;
        Ok(server)
    }

    /// Starts it where it was, with what it left in its folder.
    ///
    /// # Errors
    /// It can't be started, or answers nothing in time.
    pub async fn start_again(&mut self) -> anyhow::Result<()> {
        let before = self.command.as_std();
        let mut command = Command::new(before.get_program());
        command.args(before.get_args());
        self.running = Some(Running::start(command)?);
        self.wait_until_ready().await
    }

    /// Ends it so that it can be started again.
    ///
    /// # Errors
    /// It does not end in time, or is not running.
    pub async fn end(&mut self, signal: Signal) -> anyhow::Result<Finished> {
        let running = self.running.take().context("the server was stopped before")?;
        running.signal(signal)?;
        running.finish_within(STOP).await
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + START;
        loop {
            if let Some(running) = &mut self.running
                && !running.is_running()
            {
                bail!("the server ended at its start:\n{}", running.text());
            }
            let mut client = CapabilitiesClient::new(self.channel()?);
            match client.get_capabilities(GetCapabilitiesRequest::default()).await {
                Ok(_) => return Ok(()),
                Err(status) if tokio::time::Instant::now() > deadline => {
                    bail!("the server answers nothing in {START:?} ({status}):\n{}", self.log());
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// `IP:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// A connection to it, made when first used.
    ///
    /// # Errors
    /// Never with an address of this harness.
    pub fn channel(&self) -> anyhow::Result<Channel> {
        Ok(Endpoint::from_shared(format!("http://{}", self.address))?.connect_lazy())
    }

    /// A file in its folder, from where this test runs.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The same file, from where the server runs.
    pub fn file_inside(&self, name: &str) -> String {
        format!("{}/{name}", self.inside)
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.running.as_ref().map(Running::text).unwrap_or_default()
    }

    /// Waits until the log holds `wanted`.
    ///
    /// # Errors
    /// It does not in time, or the server ends.
    pub async fn wait_for_log(&mut self, wanted: &str, patience: Duration) -> anyhow::Result<()> {
        match &mut self.running {
            Some(running) => running.wait_for(wanted, patience).await,
            None => bail!("the server was stopped"),
        }
    }

    /// Asks it to drain and waits for its end.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn stop(mut self) -> anyhow::Result<Finished> {
        self.end(Signal::TERM).await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(running) = &mut self.running else { return };
        if std::thread::panicking() {
            // Shown past the capture: whoever reads the failure needs it. A failing write can't be reported.
            let _ = writeln!(std::io::stderr(), "log of the server at {}:\n{}", self.address, running.text());
        }
        // A worker's actions end with it; kill -9 would leave them behind.
        let _ = running.signal(Signal::TERM);
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while running.is_running() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A port that was free a moment ago. Chosen here and not by the server, so that a server may come back on it.
pub(super) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?)
}

/// Puts a file in place the way editors and deployments do: written beside, then renamed over.
///
/// # Errors
/// It can't be written.
pub fn replace(target: &Path, content: &[u8]) -> anyhow::Result<()> {
    let part = target.with_extension("part");
    std::fs::write(&part, content)?;
    std::fs::rename(&part, target).context("a file can't be replaced")
}
