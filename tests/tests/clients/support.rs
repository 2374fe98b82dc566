//! What the checks of all clients need.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pointsman_proto::rev2::Digest;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::harness::{
    Clients, Observed, Running, Server, ServerOptions, executing, finished_operations, operations,
    start_worker,
};

/// A command that takes as long as there is a [`Hold`]; the target `held` of the workspaces runs it too.
pub(crate) const HELD: &str = "while [ -e /w/hold ]; do sleep 0.1; done";

/// Keeps actions from their end until dropped, so that no test has to guess how long to sleep.
pub(crate) struct Hold(PathBuf);

impl Hold {
    pub(crate) fn new(clients: &Clients) -> anyhow::Result<Self> {
        let file = clients.outside("/w/hold");
        std::fs::write(&file, "")?;
        Ok(Self(file))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // If it stays, the actions of the next test do too, which then says so.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A server with a worker in the clients' root.
pub(crate) async fn serve(clients: &Clients) -> anyhow::Result<Server> {
    Server::start_in(clients, &ServerOptions::with_worker(&[])).await
}

/// A server that, as it has a configuration file, refuses properties that are not declared.
pub(crate) async fn serve_strictly(clients: &Clients) -> anyhow::Result<Server> {
    Server::start_in(clients, &ServerOptions::with_worker(&[]).config("{}")).await
}

/// What somebody who mistyped OSFamily has to read.
pub(crate) fn tells_the_mistyped_property(text: &str) -> anyhow::Result<()> {
    shows(text, &["OSFamliy", "OSFamily", "supported_platform_properties"])
}

/// `text` holds all of `parts`.
pub(crate) fn shows(text: &str, parts: &[&str]) -> anyhow::Result<()> {
    for part in parts {
        ensure!(text.contains(part), "{part:?} is not shown:\n{text}");
    }
    Ok(())
}

/// No process of `words` runs any more, after a while at most.
pub(crate) async fn ends(words: &[&str]) -> anyhow::Result<()> {
    let line: Vec<u8> = words.iter().flat_map(|word| [word.as_bytes(), b"\0"].concat()).collect();
    let runs = || -> anyhow::Result<bool> {
        let mut lines = std::fs::read_dir("/proc")?
            .filter_map(|entry| std::fs::read(entry.ok()?.path().join("cmdline")).ok());
        Ok(lines.any(|other| other == line))
    };
    for _ in 0..100 {
        if !runs()? {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{words:?} is left")
}

/// A server with two workers, which differ in their property `pool`, `cpu` or `gpu`.
pub(crate) struct Pools {
    pub(crate) server: Server,
    _workers: [Running; 2],
}

impl Pools {
    pub(crate) async fn start(clients: &Clients) -> anyhow::Result<Self> {
        let options = ServerOptions::default().config("{ supported_platform_properties: { pool: 'exact' } }");
        let server = Server::start_in(clients, &options).await?;
        let worker = |pool: &str| {
            let property = format!("pool={pool}");
            start_worker(clients, &server, pool, &["--only-given-platform", "--platform", &property])
        };
        let workers = [worker("cpu")?, worker("gpu")?];
        Ok(Self { server, _workers: workers })
    }

    /// All that was asked for so far ran in this pool, and something did.
    pub(crate) async fn all_ran_in(&self, pool: &str) -> anyhow::Result<()> {
        let done = finished_operations(self.server.channel()?).await?;
        let here = |operation: &Observed| operation.worker.contains(&format!("\"hostname\":\"{pool}\""));
        ensure!(!done.is_empty() && done.iter().all(here), "not all in {pool}: {done:#?}");
        Ok(())
    }
}

/// Both an action that was held and what else there was of it ran only once.
pub(crate) async fn started_once(server: &Server) -> anyhow::Result<()> {
    let done = finished_operations(server.channel()?).await?;
    let started: BTreeSet<_> = done.iter().map(|operation| operation.started).collect();
    ensure!(started.len() == 1, "the action was started {} times: {done:#?}", started.len());
    Ok(())
}

/// How many times the server was asked to execute something that it still knows of.
pub(crate) async fn executions(server: &Server) -> anyhow::Result<usize> {
    Ok(operations(server.channel()?).await?.len())
}

/// Actions were executed, and were all named by SHA-1.
pub(crate) async fn all_by_sha1(server: &Server) -> anyhow::Result<()> {
    let done = finished_operations(server.channel()?).await?;
    ensure!(!done.is_empty() && done.iter().all(|operation| operation.action.len() == 40), "{done:#?}");
    Ok(())
}

/// A queue of one worker that is held, with an action of ordinary priority in it.
pub(crate) struct Queue {
    pub(crate) server: Server,
    hold: Hold,
    waiting: [Updates; 2],
    rival: Digest,
}

impl Queue {
    pub(crate) async fn start(clients: &Clients) -> anyhow::Result<Self> {
        let arguments = ["--with-worker", "--worker-concurrency", "1"].map(str::to_owned).to_vec();
        let options = ServerOptions { arguments, ..ServerOptions::default() };
        let server = Server::start_in(clients, &options).await?;
        let hold = Hold::new(clients)?;
        let client = FakeClient::new(server.channel()?);
        let first = client.upload_action(&ActionSpec::new(["/bin/sh", "-c", HELD])).await?;
        let first = client.execute(&first).await?;
        executing(server.channel()?).await?;
        let rival = client.upload_action(&ActionSpec::new(["/bin/echo", "rival"])).await?;
        let second = client.execute(&rival).await?;
        Ok(Self { server, hold, waiting: [first, second], rival })
    }

    /// Frees the worker when a third action waits, and sees which of the two was taken first.
    pub(crate) async fn third_overtakes(self, third: Running) -> anyhow::Result<()> {
        let arrived = async {
            while executions(&self.server).await? < 3 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(Duration::from_secs(60), arrived).await.context("no third action came")??;
        drop(self.hold);
        third.finish().await?.expect_code(0)?;
        for updates in self.waiting {
            updates.finish().await?;
        }

        let mut done = finished_operations(self.server.channel()?).await?;
        done.sort_by_key(|operation| operation.started);
        let order: Vec<_> = done.iter().map(|operation| operation.action.as_str()).collect();
        ensure!(order.len() == 3, "three actions were to run: {done:#?}");
        ensure!(order[2] == self.rival.hash, "the rival came before: {done:#?}");
        Ok(())
    }
}
