//! Pants. It takes some ten seconds to start, so most of it is run on demand.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Clients, Finished, Relay, Running, Signal, executing};

use super::feature::{Cell, Feature, offered};
use super::support::{Hold, Pools, executions, serve, serve_strictly, shows, tells_the_mistyped_property};

/// Pants.
pub(crate) fn cell(feature: Feature) -> Cell {
    match feature {
        Feature::Builds => offered(builds),
        Feature::ExitCodes => offered(exit_codes),
        Feature::FailureShown => offered(failure_shown).on_demand(),
        Feature::Cached => offered(cached).on_demand(),
        Feature::Directories => offered(directories).on_demand(),
        Feature::BigFiles => offered(big_files).on_demand(),
        Feature::InstanceName => offered(instance_name).on_demand(),
        Feature::Platform => offered(platform),
        Feature::UnknownProperty => offered(unknown_property).on_demand(),
        Feature::Timeout => offered(timeout).on_demand(),
        Feature::Interrupt => offered(interrupt).on_demand(),
        Feature::CutConnection => offered(cut_connection).on_demand(),
        Feature::NotCached => Cell::NotOffered("no target says that of itself"),
        Feature::Sha1 => Cell::NotOffered("Pants knows only SHA-256"),
        Feature::Compressed => Cell::NotOffered("Pants sends blobs as they are"),
        Feature::InlineOutputs => Cell::NotOffered("Pants asks for none"),
        Feature::Priority => Cell::NotOffered("Pants has no setting for it"),
        Feature::Detached | Feature::Cancel => Cell::NotOffered("Pants stays to the end"),
    }
}

/// Pants in a fresh copy of its workspace; it keeps nothing of earlier runs but what the server has.
pub(super) struct Pants<'a> {
    clients: &'a Clients,
    addresses: [String; 2],
}

impl<'a> Pants<'a> {
    pub(super) async fn new(clients: &'a Clients, address: &str) -> anyhow::Result<Self> {
        clients.workspace("pantsws").await?;
        let addresses =
            ["execution", "store"].map(|what| format!("--remote-{what}-address=grpc://{address}"));
        Ok(Self { clients, addresses })
    }

    pub(super) fn start(&self, words: &[&str]) -> anyhow::Result<Running> {
        let [execution, store] = &self.addresses;
        let flags = ["--remote-execution", execution, store, "--no-local-cache"];
        Running::start(self.clients.pants("pantsws", &[&flags, words].concat()))
    }

    async fn run(&self, words: &[&str]) -> anyhow::Result<Finished> {
        self.start(words)?.finish().await
    }

    /// A file that `export-codegen` wrote.
    fn built(&self, name: &str) -> PathBuf {
        self.clients.outside(&format!("/w/pantsws/dist/codegen/{name}"))
    }
}

async fn builds(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    pants.run(&["export-codegen", "//:copy"]).await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(pants.built("out.txt"))? == "a line of input\ncopied\n");
    Ok(())
}

async fn exit_codes(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let run = pants.run(&["test", "//:pass_test", "//:fail_test"]).await?.expect_code(1)?;
    shows(&run.text, &["//:pass_test succeeded", "the reason it fails", "//:fail_test failed"])
}

async fn failure_shown(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let run = pants.run(&["export-codegen", "//:fails"]).await?.expect_code(1)?;
    shows(&run.text, &["this goes to stdout", "this goes to stderr", "exit code 3"])
}

/// Pants looks into the action cache itself, when it is told to.
async fn cached(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let mut executed = Vec::new();
    for _ in 0..2 {
        let pants = Pants::new(&clients, &server.address()).await?;
        pants.run(&["--remote-cache-read", "export-codegen", "//:copy"]).await?.expect_code(0)?;
        ensure!(std::fs::read_to_string(pants.built("out.txt"))? == "a line of input\ncopied\n");
        executed.push(executions(&server).await?);
    }
    // What it finds out about a machine it asks in each run; the command itself it does not.
    ensure!(executed[1] < 2 * executed[0], "executions after each run: {executed:?}");
    Ok(())
}

async fn directories(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    pants.run(&["export-codegen", "//:make", "//:read"]).await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(pants.built("made/link"))? == "b\n");
    ensure!(std::fs::read_link(pants.built("made/link"))?.to_str() == Some("sub/file"));
    shows(&std::fs::read_to_string(pants.built("listing.txt"))?, &["made/sub:\nfile"])
}

async fn big_files(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    pants.run(&["export-codegen", "//:double"]).await?.expect_code(0)?;
    let content = std::fs::read(clients.outside("/w/pantsws/big_in.bin"))?;
    ensure!(std::fs::read(pants.built("doubled.bin"))? == content.repeat(2), "it came back otherwise");
    Ok(())
}

async fn instance_name(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let words = ["--remote-instance-name=a/b", "export-codegen", "//:copy"];
    pants.run(&words).await?.expect_code(0)?;
    Ok(())
}

fn property(text: &str) -> String {
    format!("--remote-execution-extra-platform-properties=[\"{text}\"]")
}

async fn platform(clients: Clients) -> anyhow::Result<()> {
    let pools = Pools::start(&clients).await?;
    let pants = Pants::new(&clients, &pools.server.address()).await?;
    pants.run(&[&property("pool=gpu"), "export-codegen", "//:copy"]).await?.expect_code(0)?;
    pools.all_ran_in("gpu").await
}

async fn unknown_property(clients: Clients) -> anyhow::Result<()> {
    let server = serve_strictly(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let run = pants.run(&[&property("OSFamliy=linux"), "export-codegen", "//:copy"]).await?.expect_code(1)?;
    tells_the_mistyped_property(&run.text)
}

async fn timeout(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let run = pants.run(&["export-codegen", "//:hangs"]).await?.expect_code(1)?;
    shows(&run.text, &["Exceeded user timeout of 2s"])
}

/// The action goes on, and the next run joins it.
async fn interrupt(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let pants = Pants::new(&clients, &server.address()).await?;
    let hold = Hold::new(&clients)?;
    let mut run = pants.start(&["export-codegen", "//:held"])?;
    run.wait_for("Starting: Running the `shell_command` at `//:held`", Duration::from_secs(60)).await?;
    executing(server.channel()?).await?;
    run.signal(Signal::INT)?;
    ensure!(run.finish().await?.code() != 0, "it was not interrupted");

    let mut again = pants.start(&["export-codegen", "//:held"])?;
    again.wait_for("Starting: Running the `shell_command` at `//:held`", Duration::from_secs(60)).await?;
    drop(hold);
    again.finish().await?.expect_code(0)?;
    Ok(())
}

/// Pants executes anew, and joins the action that it had.
async fn cut_connection(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let relay = Relay::start(server.address()).await?;
    let pants = Pants::new(&clients, &relay.address()).await?;
    let hold = Hold::new(&clients)?;
    let mut run = pants.start(&["export-codegen", "//:held"])?;
    run.wait_for("Starting: Running the `shell_command` at `//:held`", Duration::from_secs(60)).await?;
    executing(server.channel()?).await?;
    relay.cut()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(hold);
    run.finish().await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(pants.built("held.txt"))? == "late\n");
    Ok(())
}
