//! Either Bazel, in the sample workspace.

use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Bazel, BazelVersion, Clients, Relay, Signal, executing};

use super::feature::{Cell, Feature, offered};
use super::support::{
    Hold, Pools, Queue, all_by_sha1, ends, executions, serve, serve_strictly, shows, started_once,
    tells_the_mistyped_property,
};

const NO_SUCH_COMMAND: &str = "a build stays with its actions to their end";

/// Bazel 7.
pub(crate) fn seven(feature: Feature) -> Cell {
    cell(BazelVersion::Seven, feature)
}

/// Bazel 2.
pub(crate) fn two(feature: Feature) -> Cell {
    let version = BazelVersion::Two;
    match feature {
        Feature::Compressed => Cell::NotOffered("Bazel 2 sends blobs as they are"),
        Feature::InlineOutputs => Cell::NotOffered("Bazel 2 asks for none"),
        Feature::Sha1 => {
            Cell::NotOffered("Bazel 2 does not say its function, and takes only the server's first one")
        }
        // The same paths in the server as with Bazel 7.
        Feature::Cached | Feature::InstanceName | Feature::Priority => cell(version, feature).on_demand(),
        _ => cell(version, feature),
    }
}

fn cell(version: BazelVersion, feature: Feature) -> Cell {
    match feature {
        Feature::Builds => offered(move |clients| builds(clients, version)),
        Feature::ExitCodes => offered(move |clients| exit_codes(clients, version)),
        Feature::FailureShown => offered(move |clients| failure_shown(clients, version)),
        Feature::Cached => offered(move |clients| cached(clients, version)),
        Feature::NotCached => offered(move |clients| not_cached(clients, version)),
        Feature::Directories => offered(move |clients| directories(clients, version)),
        Feature::BigFiles => offered(move |clients| big_files(clients, version)),
        Feature::Compressed => offered(move |clients| compressed(clients, version)),
        Feature::InlineOutputs => offered(move |clients| inline_outputs(clients, version)),
        Feature::Sha1 => offered(move |clients| sha1(clients, version)),
        Feature::InstanceName => offered(move |clients| instance_name(clients, version)),
        Feature::Platform => offered(move |clients| platform(clients, version)),
        Feature::UnknownProperty => offered(move |clients| unknown_property(clients, version)),
        Feature::Priority => offered(move |clients| priority(clients, version)),
        Feature::Timeout => offered(move |clients| timeout(clients, version)),
        Feature::Interrupt => offered(move |clients| interrupt(clients, version)),
        Feature::CutConnection => offered(move |clients| cut_connection(clients, version)),
        Feature::Detached | Feature::Cancel => Cell::NotOffered(NO_SUCH_COMMAND),
    }
}

/// All that is built by default: 22 actions of Bazel 2, 24 of Bazel 7, and one that is not remote.
async fn builds(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    bazel.remote(&server.address(), &["test", "//...", "--test_output=errors"]).await?.expect_code(0)?;
    let spawns = bazel.expect_spawns("remote")?;
    ensure!(spawns.len() > 20, "only {} spawns are in the log", spawns.len());
    let local = spawns.iter().find(|spawn| !spawn.remotable);
    ensure!(local.is_some_and(|spawn| !spawn.runner.contains("remote")), "local_only ran as {local:?}");
    server.stop().await?.expect_code(0)?;
    Ok(())
}

/// A failing test is told as one, with its log, and run again when asked again.
async fn exit_codes(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["test", "//:fail_test", "//:greet_test", "--test_output=errors"];
    for _ in 0..2 {
        // 3: the build is fine, a test is not.
        let test = bazel.remote(&server.address(), &words).await?.expect_code(3)?;
        shows(&test.text, &["FAILED", "the reason it fails: 2 is not 3", "1 fails"])?;
        let again = bazel.spawns()?;
        ensure!(again.iter().any(|spawn| spawn.runner == "remote"), "nothing ran:\n{}", test.text);
    }
    Ok(())
}

async fn failure_shown(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    // 1: the build fails.
    let build = bazel.remote(&server.address(), &["build", "//:fails"]).await?.expect_code(1)?;
    shows(&build.text, &["this goes to stdout", "this goes to stderr", "Exit 3"])
}

/// How the spawns of two builds ran, with nothing left of the first one but what the server has.
const COLD_THEN_CACHED: [&str; 2] = ["remote", "remote cache hit"];

/// Builds cold, cleans, builds again, and looks at either build.
async fn cold_then_cached(
    clients: &Clients,
    version: BazelVersion,
    words: &[&str],
    each: impl Fn(&Bazel<'_>, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let server = serve(clients).await?;
    let bazel = clients.bazel(version).await?;
    for runner in COLD_THEN_CACHED {
        bazel.remote(&server.address(), words).await?.expect_code(0)?;
        bazel.expect_spawns(runner)?;
        each(&bazel, runner)?;
        bazel.run(&["clean"]).await?.expect_code(0)?;
    }
    Ok(())
}

async fn cached(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    cold_then_cached(&clients, version, &["test", "//..."], |_, _| Ok(())).await
}

async fn not_cached(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["build", "//:uncached", "//:uncached_remotely"];
    for _ in 0..2 {
        bazel.remote(&server.address(), &words).await?.expect_code(0)?;
        bazel.expect_spawns("remote")?;
        bazel.run(&["clean"]).await?.expect_code(0)?;
    }
    Ok(())
}

async fn directories(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    cold_then_cached(&clients, version, &["build", "//:tree"], |bazel, _| {
        let folder = bazel.built("tree.d")?;
        ensure!(std::fs::read_to_string(folder.join("sub/file"))? == "b\n");
        ensure!(std::fs::read_link(folder.join("link"))?.to_str() == Some("file"));
        shows(&std::fs::read_to_string(bazel.built("tree.txt")?)?, &["tree.d/link\n", "tree.d/sub/file\n"])
    })
    .await
}

async fn big_files(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["build", "//:big", "//:use_big", "//:use_big_source"];
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    ensure!(std::fs::metadata(bazel.built("big.bin")?)?.len() == 6_000_000);
    for (file, bytes) in [("use_big.txt", "6000000"), ("use_big_source.txt", "5500000")] {
        let counted = std::fs::read_to_string(bazel.built(file)?)?;
        ensure!(counted.trim() == bytes, "{file} holds {counted:?}");
    }
    Ok(())
}

async fn compressed(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let words = ["build", "//:big", "//:use_big_source", "//:hello", "--remote_cache_compression"];
    cold_then_cached(&clients, version, &words, |bazel, runner| {
        let calls = bazel.calls()?;
        shows(&calls, &["compressed-blobs/zstd/"])?;
        ensure!(runner != COLD_THEN_CACHED[0] || calls.contains("uploads/"), "nothing was sent");
        Ok(())
    })
    .await
}

/// Bazel asks for the list of headers that a compilation read. In the answer from the cache it costs no call.
async fn inline_outputs(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    cold_then_cached(&clients, version, &["build", "//:greet"], |bazel, runner| match runner {
        "remote" => Ok(()),
        _ => shows(&bazel.calls()?, &["greet.pic.o: greet.cc"]),
    })
    .await
}

/// A startup option, so another server of Bazel.
async fn sha1(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    for runner in COLD_THEN_CACHED {
        let words = ["--digest_function=SHA1", "build", "//:link1", "//:use_big_source", "//:tree"];
        bazel.remote(&server.address(), &words).await?.expect_code(0)?;
        bazel.expect_spawns(runner)?;
        bazel.run(&["--digest_function=SHA1", "clean"]).await?.expect_code(0)?;
    }
    all_by_sha1(&server).await
}

/// A name of several parts, which has a cache of its own.
async fn instance_name(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    for (name, runner) in [("a/b", "remote"), ("a/b", "remote cache hit"), ("a", "remote")] {
        let name = format!("--remote_instance_name={name}");
        let words = ["build", "//:link1", "//:use_big_source", &name];
        bazel.remote(&server.address(), &words).await?.expect_code(0)?;
        bazel.expect_spawns(runner)?;
        bazel.run(&["clean"]).await?.expect_code(0)?;
    }

    let words = ["build", "//:link0", "--remote_instance_name=a/blobs/b"];
    let build = bazel.remote(&server.address(), &words).await?;
    ensure!(build.code() != 0, "{}", build.text);
    shows(&build.text, &["INVALID_ARGUMENT", "a/blobs/b"])
}

/// A target's own property wins over the default of the command line.
async fn platform(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let pools = Pools::start(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["build", "//:pool_gpu", "--remote_default_exec_properties=pool=cpu"];
    bazel.remote(&pools.server.address(), &words).await?.expect_code(0)?;
    pools.all_ran_in("gpu").await
}

async fn unknown_property(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve_strictly(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["build", "//:link0", "--remote_default_exec_properties=OSFamliy=linux"];
    // 34: Bazel calls it a remote error.
    let build = bazel.remote(&server.address(), &words).await?.expect_code(34)?;
    shows(&build.text, &["FAILED_PRECONDITION"])?;
    tells_the_mistyped_property(&build.text)?;

    let words = ["build", "//:link0", "--remote_default_exec_properties=OSFamily=linux"];
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    Ok(())
}

async fn priority(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let queue = Queue::start(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["build", "//:link0", "--remote_execution_priority=-10"];
    let build = bazel.start(&queue.server.address(), &words)?;
    queue.third_overtakes(build).await
}

async fn timeout(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let words = ["test", "//:hang_test", "--test_timeout=2", "--test_output=errors"];
    let test = bazel.remote(&server.address(), &words).await?.expect_code(3)?;
    shows(&test.text, &["TIMEOUT", "waiting for what never comes"])?;
    // Nothing of it is left, and the worker takes the next action.
    ends(&["sleep", "600"]).await?;
    bazel.remote(&server.address(), &["build", "//:link0"]).await?.expect_code(0)?;
    Ok(())
}

/// The action goes on, and the next build joins it.
async fn interrupt(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let bazel = clients.bazel(version).await?;
    let hold = Hold::new(&clients)?;
    let build = bazel.start(&server.address(), &["build", "//:held"])?;
    executing(server.channel()?).await?;
    build.signal(Signal::INT)?;
    // 8: Bazel was interrupted.
    build.finish().await?.expect_code(8)?;

    let again = bazel.start(&server.address(), &["build", "//:held"])?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(hold);
    again.finish().await?.expect_code(0)?;
    started_once(&server).await
}

/// Bazel asks after the operation that it had.
async fn cut_connection(clients: Clients, version: BazelVersion) -> anyhow::Result<()> {
    let server = serve(&clients).await?;
    let relay = Relay::start(server.address()).await?;
    let bazel = clients.bazel(version).await?;
    let hold = Hold::new(&clients)?;
    let build = bazel.start(&relay.address(), &["build", "//:held"])?;
    executing(server.channel()?).await?;
    relay.cut()?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(hold);
    build.finish().await?.expect_code(0)?;
    shows(&bazel.calls()?, &["Execution/WaitExecution"])?;
    ensure!(executions(&server).await? == 1, "it was executed anew");
    Ok(())
}
