//! Policies are swapped under a running server.

use std::path::Path;
use std::time::Duration;

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::{unpack, v1};
use pointsman_tests::fake_client::Update;

use crate::support::{TestServer, action, host, server_with, within};

const DEFAULT: &[u8] = include_bytes!("../../../policies/prebuilt/default.wasm");

/// The default policy with a remark at its end: it does the same, and has a digest of its own.
pub(crate) fn version(remark: &str) -> Vec<u8> {
    let name = remark.as_bytes();
    let length = u8::try_from(name.len()).unwrap();
    [DEFAULT, &[0, length + 1, length], name].concat()
}

/// Replaces a file as an editor does.
pub(crate) fn replace(file: &Path, content: &[u8]) {
    let next = file.with_extension("next");
    std::fs::write(&next, content).unwrap();
    std::fs::rename(&next, file).unwrap();
}

pub(crate) async fn server_with_policy(folder: &Path, content: &[u8]) -> (TestServer, std::path::PathBuf) {
    let file = folder.join("policy.wasm");
    replace(&file, content);
    (server_with(&format!("policy: {{ file: '{}' }}", file.display())).await, file)
}

pub(crate) fn decided_by(update: &Update) -> v1::RoutingDecision {
    let partial = update.metadata.partial_execution_metadata.as_ref().unwrap();
    unpack(&partial.auxiliary_metadata[0]).unwrap()
}

async fn generation(server: &TestServer, number: u64) {
    within(async {
        while server.server.policies.in_force().number() != number {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_new_version_routes_what_is_queued_too() {
    let folder = tempfile::tempdir().unwrap();
    let (server, file) = server_with_policy(folder.path(), &version("one")).await;
    let client = server.client().await;
    let mut queued = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let before = decided_by(&within(queued.until(Stage::Queued)).await.unwrap());
    let first = server.server.policies.in_force().number();

    replace(&file, &version("two"));
    generation(&server, first + 1).await;
    within(async {
        // The queue is decided anew in the background.
        while server.server.driver.queued_after(None, 1).iter().all(|(_, _, p, _)| {
            unpack::<v1::RoutingDecision>(&p.shown.decision).unwrap().policy_digest == before.policy_digest
        }) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let _worker = server.eager_worker(&host("h")).await;
    let finished = within(queued.finish()).await.unwrap();
    let after = decided_by(finished.updates.last().unwrap());
    assert_ne!(after.policy_digest, before.policy_digest);
    assert_eq!(after.generation, before.generation + 1);
}

#[tokio::test]
async fn a_broken_version_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (server, file) = server_with_policy(folder.path(), &version("one")).await;
    let in_force = server.server.policies.in_force().number();
    let whole = version("two");
    replace(&file, &whole[..whole.len() / 2]);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(server.server.policies.in_force().number(), in_force);
    let client = server.client().await;
    let _worker = server.eager_worker(&host("h")).await;
    within(client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap().finish())
        .await
        .unwrap();
    // And the next good one takes effect.
    replace(&file, &whole);
    generation(&server, in_force + 1).await;
}

#[tokio::test]
async fn a_server_does_not_start_with_a_policy_that_it_cannot_load() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.wasm");
    std::fs::write(&file, b"not wasm").unwrap();
    let text = format!(
        "{{ listen: '127.0.0.1:0', state_dir: '{}', policy: {{ file: '{}' }} }}",
        folder.path().display(),
        file.display()
    );
    let config = pointsman::config::Config::parse(&text, "test.json5").unwrap();
    let error = pointsman::serve::Server::start(&config).await.err().map(|e| format!("{e:#}")).unwrap();
    assert!(error.contains("policy.wasm"), "{error}");
}
