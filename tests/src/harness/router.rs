//! The server's binary as a router, on ports of its own, with a folder of its own.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use pointsman_proto::remoteactionrouter::action_router_client::ActionRouterClient;
use tempfile::TempDir;
use tokio::process::Command;
use tonic::transport::{Channel, Endpoint};

use super::binary::Binary;
use super::http::{HttpAnswer, http};
use super::process::{Finished, Running, Signal};
use super::server::free_address;

/// How long a router may take from its start to its readiness.
const START: Duration = Duration::from_secs(60);
/// How long it may take to its end.
const STOP: Duration = Duration::from_secs(30);

/// A router that runs. Dropped in a failing test, it shows its log.
#[derive(Debug)]
pub struct RouterProcess {
    running: Running,
    /// Where it listens.
    pub address: SocketAddr,
    http: SocketAddr,
    folder: TempDir,
}

impl RouterProcess {
    /// Starts one with this text as the configuration file, and further arguments of `router`. Whatever the text says, it
    /// listens on ports of its own and keeps its state in a folder of its own.
    ///
    /// # Errors
    /// It can't be started, or is not ready in time.
    pub async fn start(config: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let file = folder.path().join("router.json5");
        std::fs::write(&file, config)?;
        Self::launch(folder, file, arguments).await
    }

    /// The same with a file that lies somewhere.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_with(file: PathBuf, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::launch(tempfile::tempdir()?, file, arguments).await
    }

    async fn launch(folder: TempDir, file: PathBuf, arguments: &[&str]) -> anyhow::Result<Self> {
        let (address, http) = (free_address()?, free_address()?);
        let mut command = Command::new(Binary::find()?.path());
        command.arg("router").arg("--config").arg(file);
        command.args(["--listen", &address.to_string(), "--http-listen", &http.to_string()]);
        command.arg("--state-dir").arg(folder.path().join("state")).args(arguments);
        command.env_remove("POINTSMAN_LOG").env_remove("RUST_LOG");
        let mut router = Self { running: Running::start(command)?, address, http, folder };
        router.wait_until_ready().await?;
        Ok(router)
    }

    async fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + START;
        loop {
            if !self.running.is_running() {
                bail!("the router ended at its start:\n{}", self.log());
            }
            match http(self.http, "GET", "/readyz").await {
                Ok(answer) if answer.status == 200 => return Ok(()),
                _ if tokio::time::Instant::now() > deadline => {
                    bail!("the router is not ready in {START:?}:\n{}", self.log());
                }
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }

    /// A connection to it.
    ///
    /// # Errors
    /// Nothing listens there.
    pub async fn channel(&self) -> anyhow::Result<Channel> {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.address))?.tcp_nodelay(true);
        endpoint.connect().await.context("can't connect to the router")
    }

    /// The same as a scheduler has it.
    ///
    /// # Errors
    /// As [`Self::channel`].
    pub async fn client(&self) -> anyhow::Result<ActionRouterClient<Channel>> {
        Ok(ActionRouterClient::new(self.channel().await?))
    }

    /// A page of its side port.
    ///
    /// # Errors
    /// It does not answer.
    pub async fn page(&self, path: &str) -> anyhow::Result<HttpAnswer> {
        http(self.http, "GET", path).await
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.running.text()
    }

    /// Its configuration file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("router.json5")
    }

    /// Sends it a signal.
    ///
    /// # Errors
    /// The system refuses.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        self.running.signal(signal)
    }

    /// Waits until the log holds `wanted`.
    ///
    /// # Errors
    /// It does not in half a minute, or the router ends.
    pub async fn wait_for_log(&mut self, wanted: &str) -> anyhow::Result<()> {
        self.running.wait_for(wanted, Duration::from_secs(30)).await
    }

    /// Resident memory, in bytes.
    ///
    /// # Errors
    /// It has ended.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        crate::load::resident_bytes(self.running.id().context("the router has ended")?)
    }

    /// Asks it to end and waits for that.
    ///
    /// # Errors
    /// It does not end in time.
    pub async fn stop(mut self) -> anyhow::Result<Finished> {
        self.running.signal(Signal::TERM)?;
        // Taken out, so that what is dropped has nothing to end.
        let idle = Running::start(Command::new("true"))?;
        std::mem::replace(&mut self.running, idle).finish_within(STOP).await
    }
}

impl Drop for RouterProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // Shown past the capture: whoever reads the failure needs it. A failing write can't be reported.
            let log = self.running.text();
            let _ = writeln!(std::io::stderr(), "log of the router at {}:\n{log}", self.address);
        }
    }
}
