//! The store is somebody else's: buildbox-casd keeps all blobs and results, and goes away in the middle of it.

use std::net::TcpListener;
use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{BazelVersion, Clients, Running, Server, ServerOptions, Signal};

/// A store in a folder of the clients' root.
fn start_casd(clients: &Clients, address: &str, folder: &str) -> anyhow::Result<Running> {
    let bind = format!("--bind={address}");
    Running::start(clients.command(&["buildbox-casd", &bind, "--log-level=warning", folder]))
}

#[tokio::test(flavor = "multi_thread")]
async fn bazel_builds_with_a_store_elsewhere() -> anyhow::Result<()> {
    let suite = "e2e with Bazel 7 and buildbox-casd";
    let Some(clients) = Clients::take(suite, &["bazel7", "buildbox"]).await? else { return Ok(()) };
    let (_folder, store) = clients.folder()?;
    let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let casd = start_casd(&clients, &address, &store)?;
    let config =
        format!("{{ unknown_property: 'ignore', storage: {{ remote: {{ address: 'grpc://{address}' }} }} }}");
    let server = Server::start_in(&clients, &ServerOptions::with_worker(&[]).config(&config)).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;

    let mut build = bazel.start(&server.address(), &["test", "//...", "//:slow"])?;
    build.wait_for("Executing genrule //:slow", Duration::from_secs(60)).await?;
    // Down for a second or two, which nobody may notice.
    casd.signal(Signal::KILL)?;
    casd.finish().await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let _casd = start_casd(&clients, &address, &store)?;
    build.finish().await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;
    ensure!(!server.file("state/storage").exists(), "something was stored here");

    bazel.run(&["clean"]).await?.expect_code(0)?;
    bazel.remote(&server.address(), &["build", "//..."]).await?.expect_code(0)?;
    bazel.expect_spawns("remote cache hit")?;
    Ok(())
}
