//! Clients that leave, come back and want the same.

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::rev2::RequestMetadata;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rpc::Code;
use pointsman_tests::fake_client::FakeClient;
use pointsman_tests::fake_worker::exited;
use tonic::Code as Grpc;

use crate::steps::{cancel, execute, given, name, response, status, told_idle, told_to_go_on, until};
use crate::support::{TestServer, action, host, server, within};

async fn of_invocation(server: &TestServer, id: &str) -> FakeClient {
    let metadata = RequestMetadata { tool_invocation_id: id.to_owned(), ..Default::default() };
    server.client().await.with_request_metadata(&metadata)
}

#[tokio::test]
async fn kill_while_executing_next_heartbeat_idle_then_another_task() {
    let server = server().await;
    let client = server.client().await;
    let mut killed = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    let waits = execute(&client, &action("2")).await;
    cancel(&client, &name(&mut killed).await).await;
    assert_eq!(status(killed).await.0, Code::Cancelled);
    // First it is to stop; what waits comes with the next call, when what it ran is dead.
    worker.report(ExecutionState::Running(()));
    told_idle(&mut worker).await;
    let work = given(&mut worker).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(waits).await;
}

#[tokio::test]
async fn client_gone_is_cancelled_and_the_heartbeat_says_idle() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let name = name(&mut updates).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    drop(updates);
    worker.report(ExecutionState::Running(()));
    // `abandoned` is 600 ms here: until then it goes on.
    told_to_go_on(&mut worker).await;
    until(|| server.server.driver.counts().running == 0).await;
    told_idle(&mut worker).await;
    assert_eq!(client.wait_execution(&name).await.unwrap_err().code(), Grpc::NotFound);
}

#[tokio::test]
async fn reattach_by_wait_execution_keeps_it() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let name = name(&mut updates).await;
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    drop(updates);
    let again = client.wait_execution(&name).await.unwrap();
    // Longer than an abandoned operation lives.
    for _ in 0..8 {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        worker.report(ExecutionState::Running(()));
        told_to_go_on(&mut worker).await;
    }
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    assert_eq!(response(again).await.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn dedup_same_and_other_invocation() {
    let server = server().await;
    for (n, other) in [("1", "a build"), ("2", "another")] {
        let (one, two) = (of_invocation(&server, "a build").await, of_invocation(&server, other).await);
        let (mut first, mut second) = (execute(&one, &action(n)).await, execute(&two, &action(n)).await);
        // Each has an operation of its own, even of one invocation.
        assert_ne!(name(&mut first).await, name(&mut second).await);
        assert_eq!(server.server.driver.counts().queued, 1);
        let mut worker = server.worker(&host("h")).await;
        let work = given(&mut worker).await;
        worker.complete(exited(&work, 5));
        told_idle(&mut worker).await;
        for updates in [first, second] {
            assert_eq!(response(updates).await.result.unwrap().exit_code, 5);
        }
    }
}

#[tokio::test]
async fn dedup_one_client_leaving_ends_nothing() {
    let server = server().await;
    let (one, two) = (of_invocation(&server, "one").await, of_invocation(&server, "two").await);
    let (mut first, mut second) = (execute(&one, &action("1")).await, execute(&two, &action("1")).await);
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    within(second.until(Stage::Executing)).await.unwrap();
    cancel(&one, &name(&mut first).await).await;
    assert_eq!(status(first).await.0, Code::Cancelled);
    worker.report(ExecutionState::Running(()));
    told_to_go_on(&mut worker).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    assert_eq!(response(second).await.status, None);
}

#[tokio::test]
async fn do_not_cache_is_not_shared() {
    let server = server().await;
    let client = server.client().await;
    let mut spec = action("1");
    spec.do_not_cache = true;
    let (one, two) = (execute(&client, &spec).await, execute(&client, &spec).await);
    assert_eq!(server.server.driver.counts().queued, 2);
    // Not on one host at a time: its two runs would meet in one build directory.
    let mut threads = [server.worker(&host("h").thread(0)).await, server.worker(&host("h").thread(1)).await];
    let work = given(&mut threads[0]).await;
    assert!(work.action.as_ref().unwrap().do_not_cache);
    told_idle(&mut threads[1]).await;
    threads[0].complete(exited(&work, 0));
    let work = given(&mut threads[0]).await;
    threads[0].complete(exited(&work, 0));
    told_idle(&mut threads[0]).await;
    assert_eq!((response(one).await.status, response(two).await.status), (None, None));
}
