//! Every way in which an Execute fails: which code, and whether as the call's status or inside the response.

use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman::driver::Selection;
use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{Digest, ExecuteResponse};
use pointsman_proto::rpc::{self, PreconditionFailure};
use pointsman_proto::unpack;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, digest_of};
use pointsman_tests::harness::{Relay, build_policy, replace};
use tonic::{Code, Status};

use crate::steps::{cancel, execute, failed, given, name, response, status, told_idle, until};
use crate::support::{action, host, server, server_with, start, within};

/// The status of an Execute call that fails as such.
async fn refused(client: &FakeClient, spec: &ActionSpec) -> Status {
    client.execute(&client.upload_action(spec).await.unwrap()).await.unwrap_err()
}

#[tokio::test]
async fn queue_full() {
    let server = server_with("limits: { queued_actions: 1 }").await;
    let client = server.client().await;
    let _first = execute(&client, &action("1")).await;
    let status = refused(&client, &action("2")).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("limits.queued_actions"), "{status}");
}

#[tokio::test]
async fn unknown_property() {
    let server = server().await;
    let client = server.client().await;
    let status = refused(&client, &action("1").with_property("cpu-count", "2")).await;
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.details().is_empty(), "details would make clients upload and try again");
}

#[tokio::test]
async fn malformed_property() {
    let server = server().await;
    let client = server.client().await;
    let status = refused(&client, &action("1").with_property("cpu_count", "many")).await;
    assert_eq!(status.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn unschedulable() {
    let server = start(tempfile::tempdir().unwrap(), "unschedulable_timeout: '200ms'", "").await;
    let client = server.client().await;
    let (code, text) = status(execute(&client, &action("1").with_property("Pool", "x")).await).await;
    assert_eq!(code, rpc::Code::FailedPrecondition);
    assert!(text.contains("no worker is connected"), "{text}");
}

/// A policy that rejects what has this property.
const REJECTS: &str = "tests/guests/steer/build.sh";
const REJECTED: (&str, &str) = ("steer-reject", "not on these machines");

#[tokio::test]
async fn rejected_by_a_policy() {
    let Some(policy) = build_policy("rejected by a policy", REJECTS).await.unwrap() else { return };
    let server = server_with(&format!("policy: {{ file: '{}' }}", policy.display())).await;
    let client = server.client().await;
    let status = refused(&client, &action("1").with_property(REJECTED.0, REJECTED.1)).await;
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("rejected by policy steer"), "{status}");
    assert!(status.message().contains(REJECTED.1), "{status}");
}

#[tokio::test]
async fn refused_by_a_new_policy() {
    let Some(policy) = build_policy("refused by a new policy", REJECTS).await.unwrap() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.wasm");
    replace(&file, include_bytes!("../../../policies/prebuilt/default.wasm")).unwrap();
    let server =
        server_with(&format!("unknown_property: 'ignore', policy: {{ file: '{}' }}", file.display())).await;
    let client = server.client().await;
    let queued = execute(&client, &action("1").with_property(REJECTED.0, REJECTED.1)).await;
    let kept = execute(&client, &action("2")).await;
    replace(&file, &std::fs::read(policy).unwrap()).unwrap();
    let (code, text) = status(queued).await;
    assert_eq!(code, rpc::Code::FailedPrecondition);
    assert!(text.contains("rejected by policy steer") && text.contains(REJECTED.1), "{text}");
    // Nobody else is.
    let _worker = server.eager_worker(&host("h")).await;
    assert_eq!(response(kept).await.status, None);
}

#[tokio::test]
async fn cancelled() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let name = name(&mut updates).await;
    cancel(&client, &name).await;
    assert_eq!(status(updates).await.0, rpc::Code::Cancelled);
}

#[tokio::test]
async fn ended_by_an_operator() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let name = name(&mut updates).await;
    assert_eq!(server.server.driver.cancel_selected(&Selection::One(name.clone())), [name]);
    let (code, text) = status(updates).await;
    assert_eq!(code, rpc::Code::FailedPrecondition);
    assert!(text.contains("an operator ended the operation"), "{text}");
}

#[tokio::test]
async fn abandoned() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let name = name(&mut updates).await;
    drop(updates);
    until(|| server.server.driver.counts().operations == 0).await;
    let status = client.wait_execution(&name).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
}

#[tokio::test]
async fn attempts_used_up() {
    let server = server_with("max_attempts: 1").await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    worker.complete(failed(rpc::Code::Internal.into(), "bad disk"));
    worker.prefer_being_idle(true);
    told_idle(&mut worker).await;
    let (code, text) = status(updates).await;
    assert_eq!(code, rpc::Code::FailedPrecondition);
    assert!(text.contains("bad disk"), "{text}");
}

#[tokio::test]
async fn timed_out() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    worker.report(ExecutionState::Running(()));
    worker.complete(failed(rpc::Code::DeadlineExceeded.into(), "too long"));
    told_idle(&mut worker).await;
    assert_eq!(status(updates).await, (rpc::Code::DeadlineExceeded, "too long".to_owned()));
}

/// The file whose name begins with that, below a folder.
fn find_file(folder: &Path, name: &str) -> Option<PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| {
        let is_it = path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(name));
        match path.is_dir() {
            true => find_file(&path, name),
            false => is_it.then_some(path),
        }
    })
}

#[tokio::test]
async fn storage_down() {
    // Nothing of it is in memory, and on its place is what can't be read.
    let server = server_with("storage: { embedded: { small_blob_cache: '0B' } }").await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let folder = find_file(server._folder.path(), &digest.hash).unwrap().parent().unwrap().to_owned();
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&folder, "no folder any more").unwrap();
    let status = client.execute(&digest).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
}

#[tokio::test]
async fn storage_unreachable() {
    let wire = Relay::start("127.0.0.1:1".to_owned()).await.unwrap();
    wire.down();
    let remote = format!("address: 'grpc://{}', patience: '200ms'", wire.address());
    let server = server_with(&format!("storage: {{ remote: {{ {remote} }} }}")).await;
    let status = server.client().await.execute(&digest_of(b"an action")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(&wire.address()), "{status}");
}

#[tokio::test]
async fn shutting_down() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    within(updates.until(Stage::Queued)).await.unwrap();
    let ((), status) = within(async { tokio::join!(server.server.stop(), updates.next_operation()) }).await;
    assert_eq!(status.unwrap_err().code(), Code::Unavailable);
}

#[tokio::test]
async fn bad_request() {
    let server = server().await;
    let client = server.client().await;
    let too_long = ActionSpec { timeout: Some(Duration::from_secs(7200)), ..action("1") };
    assert_eq!(refused(&client, &too_long).await.code(), Code::InvalidArgument);
    let short = Digest { hash: "abc".to_owned(), size_bytes: 1 };
    assert_eq!(client.execute(&short).await.unwrap_err().code(), Code::InvalidArgument);
}

/// Whether the response names that blob in the one way that clients recover from.
fn names_missing(response: &ExecuteResponse, digest: &Digest) -> bool {
    let status = response.status.as_ref().unwrap();
    let details: PreconditionFailure = unpack(&status.details[0]).unwrap();
    let violation = &details.violations[0];
    status.code == i32::from(rpc::Code::FailedPrecondition)
        && violation.r#type == "MISSING"
        && violation.subject == format!("blobs/{}/{}", digest.hash, digest.size_bytes)
}

#[tokio::test]
async fn missing_action() {
    let server = server().await;
    let client = server.client().await;
    let [_, _, missing] = action("1").blobs();
    let digest = digest_of(&missing);
    let response = response(client.execute(&digest).await.unwrap()).await;
    assert!(names_missing(&response, &digest), "{response:?}");
}

#[tokio::test]
async fn missing_inputs() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let missing = digest_of(b"an input");
    let violation = rpc::precondition_failure::Violation {
        r#type: "MISSING".to_owned(),
        subject: format!("blobs/{}/{}", missing.hash, missing.size_bytes),
        ..Default::default()
    };
    let details = PreconditionFailure { violations: vec![violation] };
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    let mut found = failed(rpc::Code::FailedPrecondition.into(), "an input is missing");
    found.status.as_mut().unwrap().details.push(pointsman_proto::pack(&details));
    worker.complete(found);
    told_idle(&mut worker).await;
    assert!(names_missing(&response(updates).await, &missing));
}
