//! buildbox's `trexe`: one command at a time, by a client on grpc-c++ that can leave an action and come back for it.

use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Clients, Finished, Relay, Running, Server, ServerOptions, Signal, executing};

use super::feature::{Cell, Feature, offered};
use super::support::{
    HELD, Hold, Pools, Queue, all_by_sha1, ends, executions, serve, serve_strictly, shows, started_once,
    tells_the_mistyped_property,
};

/// trexe.
pub(crate) fn cell(feature: Feature) -> Cell {
    match feature {
        Feature::Builds => offered(builds),
        Feature::ExitCodes => offered(exit_codes),
        Feature::FailureShown => offered(failure_shown),
        Feature::Cached => offered(cached),
        Feature::NotCached => offered(not_cached),
        Feature::Directories => offered(directories),
        Feature::BigFiles => offered(big_files),
        Feature::Sha1 => offered(sha1),
        Feature::InstanceName => offered(instance_name),
        Feature::Platform => offered(platform),
        Feature::UnknownProperty => offered(unknown_property),
        Feature::Priority => offered(priority),
        Feature::Timeout => offered(timeout),
        Feature::Interrupt => offered(interrupt),
        Feature::CutConnection => offered(cut_connection),
        Feature::Detached => offered(detached),
        Feature::Cancel => offered(cancel),
        Feature::Compressed => Cell::NotOffered("trexe sends blobs as they are"),
        Feature::InlineOutputs => Cell::NotOffered("trexe asks for none"),
    }
}

/// `trexe` in the clients' root.
pub(super) struct Trexe<'a> {
    clients: &'a Clients,
    remote: String,
}

impl<'a> Trexe<'a> {
    fn new(clients: &'a Clients, server: &Server) -> Self {
        Self::at(clients, &server.address())
    }

    pub(super) fn at(clients: &'a Clients, address: &str) -> Self {
        Self { clients, remote: format!("--remote=http://{address}") }
    }

    /// Runs it with these flags, and with a script for the worker unless that is empty.
    pub(super) fn start(&self, flags: &[&str], script: &str) -> anyhow::Result<Running> {
        let command: &[&str] = if script.is_empty() { &[] } else { &["--", "/bin/sh", "-c", script] };
        let words = [&["trexe", self.remote.as_str()], flags, command].concat();
        Running::start(self.clients.command(&words))
    }

    async fn run(&self, flags: &[&str], script: &str) -> anyhow::Result<Finished> {
        self.start(flags, script)?.finish().await
    }

    /// Leaves an action with the server; the name of its operation.
    async fn leave(&self, flags: &[&str], script: &str) -> anyhow::Result<String> {
        let left = self.run(&[&["--no-wait"], flags].concat(), script).await?.expect_code(0)?;
        let name = left.text.trim().to_owned();
        ensure!(!name.is_empty() && !name.contains(char::is_whitespace), "no name of an operation: {name:?}");
        Ok(name)
    }
}

async fn builds(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    std::fs::write(server.file("in"), "from here\n")?;
    let input = format!("--input-path={}:in", server.file_inside("in"));
    let into = format!("--d={}", server.file_inside("out"));
    let flags = [&input, "--platform-properties=OSFamily=linux,cpu_count=1", "--output-path=o", &into];
    let script = "cat in >o; echo and back >>o; echo said; echo complained >&2";
    let run = Trexe::new(&clients, &server).run(&flags, script).await?.expect_code(0)?;
    shows(&run.text, &["said", "complained"])?;
    ensure!(std::fs::read_to_string(server.file("out/o"))? == "from here\nand back\n");
    Ok(())
}

async fn exit_codes(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    for code in [0, 7] {
        trexe.run(&[], &format!("exit {code}")).await?.expect_code(code)?;
    }
    Ok(())
}

async fn failure_shown(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let script = "echo goes to stdout; echo goes to stderr >&2; exit 3";
    let run = Trexe::new(&clients, &server).run(&[], script).await?.expect_code(3)?;
    shows(&run.text, &["goes to stdout", "goes to stderr"])
}

/// Runs one action three times with these flags; how often the server was asked to execute it.
async fn three_times(clients: &Clients, flags: &[&str]) -> anyhow::Result<usize> {
    let server = serve(clients).await?;
    let trexe = Trexe::new(clients, &server);
    let into = format!("--d={}", server.file_inside("out"));
    for _ in 0..3 {
        trexe.run(&[flags, &["--output-path=o", &into]].concat(), "echo hi >o").await?.expect_code(0)?;
        ensure!(std::fs::read_to_string(server.file("out/o"))? == "hi\n");
        std::fs::remove_file(server.file("out/o"))?;
    }
    executions(&server).await
}

async fn cached(clients: Clients) -> anyhow::Result<()> {
    let executed = three_times(&clients, &[]).await?;
    ensure!(executed == 1, "executed {executed} times");
    Ok(())
}

async fn not_cached(clients: Clients) -> anyhow::Result<()> {
    for flag in ["--do-not-cache", "--skip-cache-lookup"] {
        let executed = three_times(&clients, &[flag]).await?;
        ensure!(executed == 3, "with {flag} executed {executed} times");
    }
    Ok(())
}

async fn directories(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    std::fs::create_dir_all(server.file("in/sub"))?;
    std::fs::write(server.file("in/sub/file"), "b\n")?;
    let input = format!("--input-path={}:in", server.file_inside("in"));
    let into = format!("--d={}", server.file_inside("out"));
    let script = "mkdir made && cp -r in/sub made && ln -s sub/file made/link";
    let flags = [&input, "--output-path=made", &into];
    Trexe::new(&clients, &server).run(&flags, script).await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(server.file("out/made/sub/file"))? == "b\n");
    ensure!(std::fs::read_link(server.file("out/made/link"))?.to_str() == Some("sub/file"));
    Ok(())
}

async fn big_files(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let content: Vec<u8> = (0..5_500_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(server.file("in"), &content)?;
    let input = format!("--input-path={}:in", server.file_inside("in"));
    let into = format!("--d={}", server.file_inside("out"));
    let flags = [&input, "--output-path=o", &into];
    Trexe::new(&clients, &server).run(&flags, "cat in in >o").await?.expect_code(0)?;
    ensure!(std::fs::read(server.file("out/o"))? == content.repeat(2), "it came back otherwise");
    Ok(())
}

async fn sha1(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    let into = format!("--d={}", server.file_inside("out"));
    for _ in 0..2 {
        let flags = ["--digest-function=SHA1", "--output-path=o", &into];
        trexe.run(&flags, "echo hi >o").await?.expect_code(0)?;
        ensure!(std::fs::read_to_string(server.file("out/o"))? == "hi\n");
    }
    ensure!(executions(&server).await? == 1, "it was not found in the cache");
    all_by_sha1(&server).await
}

async fn instance_name(clients: Clients) -> anyhow::Result<()> {
    let executed = three_times(&clients, &["--instance=a/b"]).await?;
    ensure!(executed == 1, "executed {executed} times");
    let server = serve(&clients).await?;
    let run = Trexe::new(&clients, &server).run(&["--instance=a/blobs/b"], "true").await?;
    ensure!(run.code() != 0, "{}", run.text);
    shows(&run.text, &["a/blobs/b"])
}

async fn platform(clients: Clients) -> anyhow::Result<()> {
    let pools = Pools::start(&clients).await?;
    let trexe = Trexe::new(&clients, &pools.server);
    trexe.run(&["--platform-properties=pool=gpu"], "true").await?.expect_code(0)?;
    pools.all_ran_in("gpu").await
}

async fn unknown_property(clients: Clients) -> anyhow::Result<()> {
    let server = serve_strictly(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    let run = trexe.run(&["--platform-properties=OSFamliy=linux"], "true").await?;
    ensure!(run.code() != 0, "{}", run.text);
    tells_the_mistyped_property(&run.text)
}

async fn priority(clients: Clients) -> anyhow::Result<()> {
    let queue = Queue::start(&clients).await?;
    let run = Trexe::new(&clients, &queue.server).start(&["--priority=-10"], "true")?;
    queue.third_overtakes(run).await
}

async fn timeout(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    let run = trexe.run(&["--exec-timeout=2"], "sleep 600").await?;
    ensure!(run.code() != 0, "{}", run.text);
    shows(&run.text, &["the command did not end within 2s"])?;
    trexe.run(&[], "true").await?.expect_code(0)?;
    Ok(())
}

/// The action goes on, and the same command joins it.
async fn interrupt(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    let hold = Hold::new(&clients)?;
    let run = trexe.start(&[], HELD)?;
    executing(server.channel()?).await?;
    run.signal(Signal::INT)?;
    ensure!(run.finish().await?.code() != 0, "it was not interrupted");

    let again = trexe.start(&[], HELD)?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(hold);
    again.finish().await?.expect_code(0)?;
    started_once(&server).await
}

/// trexe asks after the operation that it had.
async fn cut_connection(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let relay = Relay::start(server.address()).await?;
    let hold = Hold::new(&clients)?;
    let run = Trexe::at(&clients, &relay.address()).start(&[], HELD)?;
    executing(server.channel()?).await?;
    relay.cut()?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(hold);
    run.finish().await?.expect_code(0)?;
    ensure!(executions(&server).await? == 1, "it was executed anew");
    Ok(())
}

async fn detached(clients: Clients) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let trexe = Trexe::new(&clients, &server);
    let hold = Hold::new(&clients)?;
    let name = trexe.leave(&["--output-path=o"], &format!("{HELD}; echo late >o")).await?;
    let operation = format!("--operation={name}");

    // Not over yet, which is no failure of the action.
    let run = trexe.run(&[&operation, "--no-wait"], "").await?;
    ensure!(run.code() != 0, "{}", run.text);
    drop(hold);
    let into = format!("--d={}", server.file_inside("later"));
    trexe.run(&[&operation, "--wait", &into], "").await?.expect_code(0)?;
    ensure!(std::fs::read_to_string(server.file("later/o"))? == "late\n");
    Ok(())
}

/// The client is told, and the command dies when the worker next calls.
async fn cancel(clients: Clients) -> anyhow::Result<()> {
    let config = "{ unknown_property: 'ignore', timers: { heartbeat: '500ms' } }";
    let options = ServerOptions::with_worker(&[]).config(config);
    let server = Server::start_in(&clients, &options).await?;
    let trexe = Trexe::new(&clients, &server);
    let operation = format!("--operation={}", trexe.leave(&[], "exec sleep 601").await?);
    executing(server.channel()?).await?;
    trexe.run(&[&operation, "--cancel"], "").await?.expect_code(0)?;
    // Without a folder for outputs it does not ask.
    let into = format!("--d={}", server.file_inside("never"));
    let run = trexe.run(&[&operation, "--wait", &into], "").await?;
    ensure!(run.code() != 0, "{}", run.text);
    shows(&run.text.to_lowercase(), &["cancel"])?;
    ends(&["sleep", "601"]).await
}
