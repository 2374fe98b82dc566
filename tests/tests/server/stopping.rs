//! How streams and calls end when the server does.

use std::time::{Duration, Instant};

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_tests::fake_client::ActionSpec;
use pointsman_tests::fake_worker::Instruction;
use tonic::Code;

use crate::support::{action, host, server, server_with, within};

#[tokio::test]
async fn streams_end_with_unavailable_never_with_ok() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    within(updates.until(Stage::Queued)).await.unwrap();
    let mut worker = server.worker(&host("h").with_property("Pool", "x")).await;
    let stop = server.server.stop();
    let (status, ()) = within(async { tokio::join!(updates.next_operation(), stop) }).await;
    let status = status.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("WaitExecution"), "{status}");
    assert!(worker.synchronize().await.is_err());
}

#[tokio::test]
async fn waiting_workers_are_let_go() {
    let server = server().await;
    let mut worker = server.worker(&host("h")).await;
    let call = tokio::spawn(async move { worker.synchronize().await });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    within(server.server.stop()).await;
    assert!(matches!(within(call).await.unwrap(), Ok(Instruction::Idle)));
}

#[tokio::test]
async fn running_actions_end_and_what_comes_meanwhile_is_sent_away_in_the_end() {
    let server = server_with("worker: { enabled: true, concurrency: 1 }").await;
    let client = server.client().await;
    let slow = client.upload_action(&ActionSpec::new(["sleep", "2"])).await.unwrap();
    let late = client.upload_action(&ActionSpec::new(["true"])).await.unwrap();
    let mut running = client.execute(&slow).await.unwrap();
    within(running.until(Stage::Executing)).await.unwrap();
    let drained = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let mut waiting = client.execute(&late).await.unwrap();
        loop {
            match waiting.next_operation().await {
                Ok(_) => {}
                Err(status) => return status,
            }
        }
    };
    let begun = Instant::now();
    let ((), response, status) =
        within(async { tokio::join!(server.server.stop(), running.finish(), drained) }).await;
    assert_eq!(response.unwrap().exit_code(), Some(0));
    assert_eq!(status.code(), Code::Unavailable);
    assert!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
}
