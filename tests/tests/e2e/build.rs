//! Whole builds: what is remote, what is cached, and how failures are told.

use anyhow::ensure;
use pointsman_tests::harness::Server;

use super::{WORKSPACE, all_spawns_are, with_bazel, with_worker};

/// Builds cold, cleans, builds again: first everything is remote, then everything is a cache hit.
async fn cold_then_cached(flags: &[&str]) -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let bazel = clients.bazel(WORKSPACE).await?;
    let words = [&["test", "//...", "--test_output=errors"], flags].concat();

    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    let spawns = all_spawns_are(&bazel, "remote")?;
    let local = spawns.iter().find(|spawn| spawn.target == "//:local_only");
    ensure!(local.is_some_and(|spawn| !spawn.runner.contains("remote")), "local_only ran as {local:?}");

    bazel.run(&["clean"]).await?.expect_code(0)?;
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    all_spawns_are(&bazel, "remote cache hit")?;
    server.stop().await?.expect_code(0)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_build_is_remote_and_the_next_one_cached() -> anyhow::Result<()> {
    cold_then_cached(&[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_may_travel_compressed() -> anyhow::Result<()> {
    cold_then_cached(&["--remote_cache_compression"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_name_may_have_several_parts() -> anyhow::Result<()> {
    cold_then_cached(&["--remote_instance_name=a/b"]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_shown_with_their_logs() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let bazel = clients.bazel(WORKSPACE).await?;

    // 3: the build is fine, a test is not.
    let words = ["test", "//:fail_test", "--test_output=errors"];
    let test = bazel.remote(&server.address(), &words).await?.expect_code(3)?;
    ensure!(
        test.text.contains("the reason it fails: 2 is not 3"),
        "the test's log is not shown:\n{}",
        test.text
    );
    ensure!(test.text.contains("FAILED"), "{}", test.text);

    // 1: the build fails.
    let rule = bazel.remote(&server.address(), &["build", "//:fails"]).await?.expect_code(1)?;
    for line in ["this goes to stdout", "this goes to stderr", "Exit 3"] {
        ensure!(rule.text.contains(line), "{line:?} is not shown:\n{}", rule.text);
    }

    // A failure is run again, not remembered.
    let again = bazel.remote(&server.address(), &words).await?.expect_code(3)?;
    ensure!(bazel.spawns()?.iter().any(|spawn| spawn.runner == "remote"), "nothing ran:\n{}", again.text);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_test_that_hangs_times_out() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let bazel = clients.bazel(WORKSPACE).await?;

    let words = ["test", "//:hang_test", "--test_timeout=2", "--test_output=errors"];
    let test = bazel.remote(&server.address(), &words).await?.expect_code(3)?;
    ensure!(test.text.contains("TIMEOUT"), "not told as a timeout:\n{}", test.text);
    ensure!(test.text.contains("waiting for what never comes"), "its log is not shown:\n{}", test.text);
    // Nothing of it is left, and the worker takes the next action.
    let left =
        clients.run(&["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'sleep 60[0]'"]).await?;
    ensure!(left.text.trim() == "0", "a hung process is left:\n{}", left.text);
    bazel.remote(&server.address(), &["build", "//:link0"]).await?.expect_code(0)?;
    Ok(())
}
