//! The worker as a process of its own, and one that is taken away.

use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{BazelVersion, Server, ServerOptions, Signal, start_worker};

use super::with_bazel;

/// Heartbeats short enough to wait for.
const CONFIG: &str = "{
    unknown_property: 'ignore',
    timers: { heartbeat: '500ms', worker_expiry: '2s' },
}";

#[tokio::test(flavor = "multi_thread")]
async fn a_build_survives_the_loss_of_a_worker() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let options = ServerOptions::default().config(CONFIG);
    let server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;

    let lost = start_worker(&clients, &server, "lost", &[])?;
    let mut build = bazel.start(&server.address(), &["test", "//...", "//:slow"])?;
    build.wait_for("Executing genrule //:slow", Duration::from_secs(60)).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    lost.signal(Signal::KILL)?;

    let other = start_worker(&clients, &server, "other", &[])?;
    build.finish().await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;

    // One that is asked to go ends by itself.
    other.signal(Signal::TERM)?;
    let ended = other.finish().await?.expect_code(0)?;
    ensure!(!ended.text.contains("panicked"), "{}", ended.text);
    Ok(())
}
