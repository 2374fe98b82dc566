//! Policies over a restart of the real program, however it ended and whatever has become of the file meanwhile.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_policy::digest_hex;
use pointsman_tests::fake_client::FakeClient;
use pointsman_tests::fake_worker::{FakeWorker, exited};
use pointsman_tests::harness::{Server, ServerOptions, Signal};
use serde_json::Value;

use crate::policies::{decided_by, replace, version};
use crate::support::{action, host, within};

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server with a policy file elsewhere, and that file.
async fn server(folder: &Path, content: &[u8]) -> anyhow::Result<(Server, PathBuf)> {
    let file = folder.join("policy.wasm");
    replace(&file, content);
    let config = format!("{{ policy: {{ file: '{}' }} }}", file.display());
    let options = ServerOptions { config, ..ServerOptions::default() };
    Ok((Server::start(&options).await?, file))
}

/// SHA-256 of the policy that decides about a new action, which must succeed.
async fn decides(server: &Server, name: &str) -> anyhow::Result<String> {
    let worker = FakeWorker::new(server.channel()?, &host("h"));
    let _running = worker.start(|work| async move { exited(&work, 0) });
    let client = FakeClient::connect(server.address().parse()?).await?;
    let digest = client.upload_action(&action(name)).await?;
    let finished = within(client.execute(&digest).await?.finish()).await?;
    let status = finished.response.status.clone().unwrap_or_default();
    ensure!(status.code == 0, "the action ended with {status:?}");
    let decision = decided_by(finished.updates.last().context("no update")?);
    ensure!(decision.fallback_reason.is_empty(), "{}", decision.fallback_reason);
    Ok(decision.policy_digest)
}

/// Waits until a version would survive a crash: some milliseconds after it has come into force.
async fn until_kept(server: &Server, version: &[u8]) -> anyhow::Result<()> {
    let (link, digest) = (server.file("state/policies/links/main.json"), digest_hex(version));
    let kept = || -> anyhow::Result<bool> {
        let state: Value = serde_json::from_slice(&std::fs::read(&link)?)?;
        Ok(state["active"]["digest_hex"] == *digest)
    };
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !kept()? {
        ensure!(tokio::time::Instant::now() < deadline, "{digest} does not come into force");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

async fn kill_and_start(server: &mut Server) -> anyhow::Result<()> {
    server.end(Signal::KILL).await?;
    server.start_again().await
}

#[tokio::test]
async fn the_last_good_version_survives_kill_9() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (one, two) = (version("one"), version("two"));
    let (mut server, file) = server(folder.path(), &one).await?;
    assert_eq!(decides(&server, "1").await?, digest_hex(&one));

    // Broken while it runs, and still broken when it starts again.
    replace(&file, &one[..one.len() / 2]);
    server.wait_for_log("it is not a WebAssembly component", PATIENCE).await?;
    kill_and_start(&mut server).await?;
    assert_eq!(decides(&server, "2").await?, digest_hex(&one));

    // A good one arrives, and is gone at the next start.
    replace(&file, &two);
    until_kept(&server, &two).await?;
    assert_eq!(decides(&server, "3").await?, digest_hex(&two));
    std::fs::remove_file(&file)?;
    kill_and_start(&mut server).await?;
    assert_eq!(decides(&server, "4").await?, digest_hex(&two));

    // Broken while it was down, in another way; and what was kept of the last good one is damaged too.
    server.end(Signal::KILL).await?;
    replace(&file, b"neither");
    let kept = server.file("state/policies/components").join(format!("{}.wasm", digest_hex(&two)));
    let mut bytes = std::fs::read(&kept)?;
    bytes[100] ^= 1;
    std::fs::write(&kept, bytes)?;
    server.start_again().await?;
    assert_eq!(decides(&server, "6").await?, digest_hex(&one), "the one before is still whole");

    // All that was kept is rubbish: the program says so and goes on with a good file.
    server.end(Signal::KILL).await?;
    for entry in std::fs::read_dir(server.file("state/policies/links"))? {
        std::fs::write(entry?.path(), b"{ torn")?;
    }
    for entry in std::fs::read_dir(server.file("state/policies/cwasm"))? {
        std::fs::write(entry?.path(), b"rubbish")?;
    }
    replace(&file, &two);
    server.start_again().await?;
    assert_eq!(decides(&server, "7").await?, digest_hex(&two));
    server.wait_for_log("can't be read and was set aside", PATIENCE).await?;
    Ok(())
}
