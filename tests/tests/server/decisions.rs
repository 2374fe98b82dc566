//! Records of decisions: asked for, followed, and in a file.

use std::path::Path;

use pointsman::decisions;
use pointsman_proto::v1::policies_client::PoliciesClient;
use pointsman_proto::v1::{LogRequest, LogResponse};
use pointsman_tests::fake_client::{FakeClient, connect};
use serde_json::Value;
use tonic::Code;
use tonic::codec::Streaming;
use tonic::transport::Channel;

use crate::support::{TestServer, action, server, server_in, server_with, within};

async fn policies(server: &TestServer) -> PoliciesClient<Channel> {
    PoliciesClient::new(connect(server.address).await.unwrap())
}

async fn log(server: &TestServer, request: LogRequest) -> Streaming<LogResponse> {
    within(policies(server).await.log(request)).await.unwrap().into_inner()
}

async fn next(records: &mut Streaming<LogResponse>) -> Option<Value> {
    let answer = within(records.message()).await.unwrap()?;
    assert_eq!(answer.left_out, 0);
    Some(serde_json::from_str(&answer.record).unwrap())
}

async fn all(server: &TestServer, request: LogRequest) -> Vec<Value> {
    let mut records = log(server, request).await;
    let mut found = Vec::new();
    while let Some(record) = next(&mut records).await {
        found.push(record);
    }
    found
}

/// Queues an action for a worker that isn't there; its digest.
async fn queue(client: &FakeClient, name: &str) -> String {
    let spec = action(name).with_property("Pool", name);
    let digest = client.upload_action(&spec).await.unwrap();
    client.execute(&digest).await.unwrap().next().await.unwrap();
    format!("{}/{}", digest.hash, digest.size_bytes)
}

fn lines(file: &Path) -> Vec<Value> {
    let mut found = Vec::new();
    let damages = decisions::read(&std::fs::read(file).unwrap(), |line| {
        found.push(serde_json::from_str(line).unwrap())
    });
    assert_eq!(damages, []);
    found
}

#[tokio::test]
async fn a_record_says_what_was_asked_and_what_came_of_it() {
    let server = server().await;
    let client = server.client().await;
    let (one, two) = (queue(&client, "one").await, queue(&client, "two").await);
    let found = all(&server, LogRequest::default()).await;
    assert_eq!(found.len(), 2);
    assert_eq!([&found[0]["facts"]["digest"], &found[1]["facts"]["digest"]], [&*one, &*two]);
    let record = &found[0];
    assert_eq!(
        (&record["hook"], &record["generation"]),
        (&"on-action".into(), &server.server.policies.in_force().number().into())
    );
    assert_eq!(record["before"]["platform"][0]["value"], "one");
    let step = &record["steps"][0];
    assert_eq!(step["policy"]["name"], "default");
    assert!(step["fuel"].as_u64() > Some(0), "{step}");
    assert!(!step["asked"].as_array().unwrap().is_empty(), "{step}");

    let only = LogRequest { action: two[..10].to_owned(), ..LogRequest::default() };
    assert_eq!(all(&server, only).await, [found[1].clone()]);
    let latest = LogRequest { limit: 1, ..LogRequest::default() };
    assert_eq!(all(&server, latest).await, [found[1].clone()]);
    let failed = LogRequest { failed: true, ..LogRequest::default() };
    assert!(all(&server, failed).await.is_empty());
}

#[tokio::test]
async fn who_follows_hears_of_each_once_and_is_let_go_in_the_end() {
    let server = server().await;
    let client = server.client().await;
    let one = queue(&client, "one").await;
    let mut records = log(&server, LogRequest { follow: true, ..LogRequest::default() }).await;
    assert_eq!(next(&mut records).await.unwrap()["facts"]["digest"], *one);
    let two = queue(&client, "two").await;
    assert_eq!(next(&mut records).await.unwrap()["facts"]["digest"], *two);
    let ((), end) = within(async { tokio::join!(server.server.stop(), records.message()) }).await;
    assert!(matches!(end, Ok(None)), "{end:?}");
}

#[tokio::test]
async fn a_file_has_all_of_them_masked_also_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("log/decisions.zst");
    let keys =
        format!("decision_log: {{ memory_records: 1, file: '{}', mask: ['property:Pool'] }}", file.display());
    let server = server_in(folder, &keys).await;
    let client = server.client().await;
    let one = queue(&client, "masked").await;
    let two = queue(&client, "as well").await;
    let kept = all(&server, LogRequest::default()).await;
    assert_eq!(kept.len(), 1, "memory is bounded");
    assert_eq!(kept[0]["before"]["platform"][0]["value"], "***");
    let TestServer { server, _folder: folder, .. } = server;
    within(server.stop()).await;
    let written = lines(&file);
    assert_eq!([&written[0]["facts"]["digest"], &written[1]["facts"]["digest"]], [&*one, &*two]);
    assert!(!written[0].to_string().contains("masked"), "{}", written[0]);

    // Killed while it wrote: half a frame.
    let half = std::fs::read(&file).unwrap();
    std::fs::write(&file, [&half[..], &half[..half.len() / 2]].concat()).unwrap();
    let server = server_in(folder, &keys).await;
    queue(&server.client().await, "after").await;
    within(server.server.stop()).await;
    let mut count = 0;
    let damages = decisions::read(&std::fs::read(&file).unwrap(), |_| count += 1);
    assert_eq!((count, damages.len()), (3, 1), "{damages:?}");
}

#[tokio::test]
async fn a_server_that_records_nothing_says_so() {
    let server = server_with("decision_log: { memory_records: 0 }").await;
    let status = within(policies(&server).await.log(LogRequest::default())).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("decision_log.memory_records is 0"), "{status}");
}
