//! The time limit that workers are told.

use std::time::Duration;

use pointsman_tests::fake_client::ActionSpec;
use pointsman_tests::fake_worker::Work;
use tonic::Code;

use crate::steps::{execute, given};
use crate::support::{TestServer, action, host, server};

/// The action as a worker gets it when its client names this limit.
async fn work(server: &TestServer, name: &str, timeout: Option<Duration>) -> Box<Work> {
    let client = server.client().await;
    let _updates = execute(&client, &ActionSpec { timeout, ..action(name) }).await;
    given(&mut server.worker(&host(name)).await).await
}

#[tokio::test]
async fn timeout_default_and_maximum() {
    let server = server().await;
    let second = Duration::from_secs;
    let cases = [("none", None, 1800), ("own", Some(second(7)), 7), ("most", Some(second(3600)), 3600)];
    for (name, asked, told) in cases {
        let work = work(&server, name, asked).await;
        assert_eq!(work.action.unwrap().timeout.unwrap().seconds, told, "{name}");
    }
}

#[tokio::test]
async fn timeout_of_zero_names_none() {
    let server = server().await;
    let work = work(&server, "zero", Some(Duration::ZERO)).await;
    assert_eq!(work.action.unwrap().timeout.unwrap().seconds, 1800);
}

#[tokio::test]
async fn timeout_over_the_maximum_is_refused() {
    let server = server().await;
    let client = server.client().await;
    let spec = ActionSpec { timeout: Some(Duration::from_millis(3_600_001)), ..action("1") };
    let status = client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("maximum_action_timeout"), "{status}");
}
