//! Ctrl-C in a build, then the same build.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Server, Signal, finished_operations};

use super::{WORKSPACE, with_bazel, with_worker};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_build_goes_on_where_it_was() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let server = Server::start_in(&clients, &with_worker(&[])).await?;
    let bazel = clients.bazel(WORKSPACE).await?;

    let mut build = bazel.start(&server.address(), &["build", "//:slow"])?;
    build.wait_for("Executing genrule //:slow", Duration::from_secs(60)).await?;
    // The action sleeps for eight seconds; by now it runs.
    tokio::time::sleep(Duration::from_secs(2)).await;
    build.signal(Signal::INT)?;
    // 8: Bazel was interrupted.
    build.finish().await?.expect_code(8)?;

    bazel.remote(&server.address(), &["build", "//:slow"]).await?.expect_code(0)?;
    // Whether the second build joined the action that still ran or found its result: it was started once.
    let operations = finished_operations(server.channel()?).await?;
    let started: BTreeSet<_> = operations.iter().map(|operation| operation.started).collect();
    ensure!(started.len() == 1, "the action was started {} times: {operations:#?}", started.len());
    Ok(())
}
