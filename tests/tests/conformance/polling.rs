//! Calls and their answers.

use std::time::{Duration, SystemTime};

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient;
use pointsman_proto::remoteworker::{SynchronizeResponse, desired_state::WorkerState};
use pointsman_tests::fake_client::connect;
use pointsman_tests::fake_worker::{FakeWorker, Instruction, exited};
use tonic::Code;

use crate::steps::{calling, execute, given, response, told_idle, told_to_go_on};
use crate::support::{TestServer, action, host, server, server_with, within};

/// The answer to a worker's next call as it is on the wire; the worker doesn't learn of it.
async fn raw(server: &TestServer, worker: &FakeWorker) -> SynchronizeResponse {
    let mut client = OperationQueueClient::new(connect(server.address).await.unwrap());
    within(client.synchronize(worker.request().clone())).await.unwrap().into_inner()
}

/// How far away the next call is to be, in milliseconds.
fn next_in(answer: &SynchronizeResponse) -> u128 {
    let at = SystemTime::try_from(answer.next_synchronization_at.unwrap()).unwrap();
    at.duration_since(SystemTime::now()).unwrap_or_default().as_millis()
}

#[tokio::test]
async fn idle_poll_blocks_then_idle_after_the_interval() {
    let server = server().await;
    let worker = server.worker(&host("h")).await;
    let began = std::time::Instant::now();
    let answer = raw(&server, &worker).await;
    // `idle_poll` is 400 ms here, jittered downwards by half at most.
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
    assert_eq!(next_in(&answer), 0);
    assert!(matches!(answer.desired_state.unwrap().worker_state, Some(WorkerState::Idle(()))));
}

#[tokio::test]
async fn execute_wakes_a_blocked_poll() {
    let server = server_with("limits: { heartbeats_per_second: 1000 }").await;
    let client = server.client().await;
    let call = calling(server.worker(&host("h")).await).await;
    let began = std::time::Instant::now();
    let _updates = execute(&client, &action("1")).await;
    let (_, told) = within(call).await.unwrap();
    assert!(matches!(told.unwrap(), Instruction::Execute(_)));
    assert!(began.elapsed() < Duration::from_millis(150), "{:?}", began.elapsed());
}

#[tokio::test]
async fn completed_and_next_task_in_one_reply() {
    let server = server().await;
    let client = server.client().await;
    let (one, two) = (execute(&client, &action("1")).await, execute(&client, &action("2")).await);
    let mut worker = server.worker(&host("h")).await;
    let first = given(&mut worker).await;
    worker.complete(exited(&first, 0));
    let second = given(&mut worker).await;
    assert_ne!(first.action_digest, second.action_digest);
    assert_eq!(response(one).await.result.unwrap().exit_code, 0);
    worker.complete(exited(&second, 3));
    told_idle(&mut worker).await;
    assert_eq!(response(two).await.result.unwrap().exit_code, 3);
}

#[tokio::test]
async fn lost_reply_then_completed_sent_again() {
    let server = server().await;
    let client = server.client().await;
    let (one, two) = (execute(&client, &action("1")).await, execute(&client, &action("2")).await);
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    worker.complete(exited(&work, 0));
    // The answer has the second action, and is lost.
    let mut lost = worker.clone();
    let second = given(&mut lost).await;
    assert_eq!(given(&mut worker).await.action_digest, second.action_digest);
    assert_eq!(response(one).await.result.unwrap().exit_code, 0);
    worker.complete(exited(&second, 0));
    told_idle(&mut worker).await;
    response(two).await;
}

#[tokio::test]
async fn lost_reply_then_idle_is_given_it_again() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    let mut lost = worker.clone();
    let sent = given(&mut lost).await;
    assert_eq!(given(&mut worker).await, sent, "the same in all fields");
    worker.complete(exited(&sent, 0));
    told_idle(&mut worker).await;
    response(updates).await;
}

#[tokio::test]
async fn heartbeat_has_no_state_and_never_blocks() {
    let server = server().await;
    let client = server.client().await;
    let _updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    for state in [
        ExecutionState::Started(()),
        ExecutionState::FetchingInputs(()),
        ExecutionState::Running(()),
        ExecutionState::UploadingOutputs(()),
    ] {
        worker.report(state);
        let began = std::time::Instant::now();
        let answer = raw(&server, &worker).await;
        assert_eq!(answer.desired_state, None);
        assert!((1..=100).contains(&next_in(&answer)), "{answer:?}");
        assert!(began.elapsed() < Duration::from_millis(190), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn heartbeats_are_further_apart_the_more_execute() {
    let server =
        server_with("limits: { heartbeats_per_second: 1 }, action_cache: { look_again_after: '0s' }").await;
    let client = server.client().await;
    let (mut workers, mut streams) = (Vec::new(), Vec::new());
    for n in ["1", "2", "3"] {
        streams.push(execute(&client, &action(n)).await);
        let mut worker = server.worker(&host(n)).await;
        given(&mut worker).await;
        workers.push(worker);
    }
    let three = next_in(&raw(&server, &workers[0]).await);
    assert!((2500..=3000).contains(&three), "{three}");
    // Who was told 3 s is not lost before, though `worker_expiry` is 700 ms.
    tokio::time::sleep(Duration::from_millis(1500)).await;
    told_to_go_on(&mut workers[0]).await;
    assert_eq!(server.server.driver.counts().running, 3);
}

#[tokio::test]
async fn same_id_double_poll_supersedes_the_older() {
    let server = server().await;
    let client = server.client().await;
    let worker = server.worker(&host("h")).await;
    let older = calling(worker.clone()).await;
    let newer = calling(worker).await;
    let (_, told) = within(older).await.unwrap();
    let status = told.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("worker_id"), "{status}");
    let _updates = execute(&client, &action("1")).await;
    let (_, told) = within(newer).await.unwrap();
    assert!(matches!(told.unwrap(), Instruction::Execute(_)), "the newer call counts");
}
