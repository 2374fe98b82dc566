//! How streams and calls end when the server does.

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_tests::fake_worker::Instruction;
use tonic::Code;

use crate::support::{action, host, server, within};

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
