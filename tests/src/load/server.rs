//! A server under test as a child process.
use super::{CpuClock, Settings, process::resident_bytes, settings::POOL_KEY};
use crate::fake_client::FakeClient;
use anyhow::{Context as _, Result, bail};
use pointsman_proto::rev2::GetCapabilitiesRequest;
use serde_json::json;
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    time::Duration,
};
use tempfile::TempDir;
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep},
};
use tonic::Code;

/// How long a server may take to answer its first call.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// Lines of the server's log that a failure shows.
const LOG_LINES_SHOWN: usize = 20;

/// A running server; dropping it kills the process and deletes its folder.
#[derive(Debug)]
pub struct Server {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Server {
    /// Starts the echo server: `program echo --listen ADDRESS`.
    ///
    /// # Errors
    /// When it cannot be started, or does not answer within a minute.
    pub async fn echo(program: &Path, arguments: &[OsString]) -> Result<Self> {
        Self::start(program, |_| Ok(vec!["echo".into()]), arguments).await
    }

    /// Starts Pointsman: `program serve --storage-dir DIR --listen ADDRESS`, with an empty folder. It has a
    /// configuration file only if the measurement needs pools, or more of something than it allows.
    ///
    /// # Errors
    /// As [`Server::echo`].
    pub async fn pointsman(program: &Path, settings: &Settings, arguments: &[OsString]) -> Result<Self> {
        let config = settings.needs_pools().then(|| config(settings));
        let serve = |folder: &Path| {
            let mut first = vec!["serve".into(), "--storage-dir".into(), folder.join("storage").into()];
            if let Some(config) = config {
                let file = folder.join("pointsman.json5");
                fs::write(&file, config).context("cannot write the server's configuration")?;
                first.extend(["--config".into(), file.into()]);
            }
            Ok(first)
        };
        Self::start(program, serve, arguments).await
    }

    /// Starts Pointsman as a router with the built-in policy: `program router --config FILE --listen ADDRESS`.
    ///
    /// # Errors
    /// As [`Server::echo`].
    pub async fn router(program: &Path, cas: SocketAddr) -> Result<Self> {
        let route = |folder: &Path| {
            let file = folder.join("router.json5");
            let config = json!({ "storage": { "remote": { "address": format!("grpc://{cas}") } } });
            fs::write(&file, config.to_string()).context("cannot write the router's configuration")?;
            let words =
                ["router".into(), "--http-listen".into(), "off".into(), "--config".into(), file.into()];
            Ok([&words[..], &["--state-dir".into(), folder.join("state").into()]].concat())
        };
        Self::start(program, route, &[]).await
    }

    async fn start(
        program: &Path,
        first: impl FnOnce(&Path) -> Result<Vec<OsString>>,
        arguments: &[OsString],
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("cannot make a folder for the server")?;
        let log = File::create(log(folder.path())).context("cannot make a log for the server")?;
        let address = free_address()?;
        let mut command = Command::new(program);
        command.args(first(folder.path())?).arg("--listen").arg(address.to_string()).args(arguments);
        // The echo server ends when its input does, even if we are killed.
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { child, address, folder };
        server.answers().await?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its processor time.
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_clock(&self) -> Result<CpuClock> {
        let id = self.child.id().context("the server has ended")?;
        Ok(CpuClock::new(&id.to_string()))
    }

    /// Memory that it has at present, in bytes.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resident_bytes(&self) -> Result<u64> {
        resident_bytes(self.child.id().context("the server has ended")?)
    }

    /// The last lines of what it printed.
    pub fn log_end(&self) -> String {
        let log = fs::read(log(self.folder.path())).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_SHOWN)..].join("\n")
    }

    /// Kills it and waits until it is gone.
    ///
    /// # Errors
    /// When the process cannot be killed.
    pub async fn kill(mut self) -> Result<()> {
        self.child.kill().await.context("cannot kill the server")
    }

    async fn answers(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_TIME_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} before it answered; its log:\n{}", self.log_end());
            }
            let error = match self.capabilities().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(error.context(format!(
                    "no answer from the server within {START_TIME_MAX:?}; its log:\n{}",
                    self.log_end()
                )));
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn capabilities(&self) -> Result<()> {
        let client = FakeClient::connect(self.address).await?;
        match client.capabilities().get_capabilities(GetCapabilitiesRequest::default()).await {
            // That is an answer too: a router has no capabilities.
            Err(status) if status.code() == Code::Unimplemented => Ok(()),
            answer => Ok(answer.map(drop)?),
        }
    }
}

/// Knows the key that spreads workers and actions over pools, and those of the default configuration that
/// `--platform` may name.
fn config(settings: &Settings) -> String {
    let queued = settings.unmatched + settings.clients + 1000;
    let mut kinds: BTreeMap<_, _> =
        settings.platform.iter().map(|(name, _)| (name.as_str(), "priority")).collect();
    kinds.insert(POOL_KEY, "exact");
    json!({
        "supported_platform_properties": kinds,
        "unknown_property": "reject",
        "limits": { "queued_actions": queued },
    })
    .to_string()
}

fn log(folder: &Path) -> std::path::PathBuf {
    folder.join("log")
}

/// A port that was free a moment ago: the server is told it, because it cannot tell us.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?)
}
