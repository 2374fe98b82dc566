//! Workers that crash, vanish and change.

use std::time::Duration;

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rpc::Code;
use pointsman_tests::fake_worker::exited;

use crate::steps::{execute, given, response, status, told_idle, until};
use crate::support::{action, host, server, server_with, started, within};

#[tokio::test]
async fn crash_after_crash_goes_to_other_hosts_and_then_fails_with_each_attempt() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut watched = execute(&client, &action("1")).await;
    let mut given_to = Vec::new();
    for name in ["one", "two", "three"] {
        let mut worker = server.worker(&host(name)).await;
        let fresh = worker.clone();
        given(&mut worker).await;
        worker.report(ExecutionState::Running(()));
        within(worker.synchronize()).await.unwrap();
        // It crashes, comes back with the same id, and remembers nothing.
        let mut back = fresh;
        tokio::spawn(async move { back.synchronize().await });
        if given_to.len() < 2 {
            within(watched.until(Stage::Queued)).await.unwrap();
        }
        given_to.push(name);
    }
    let (code, text) = status(updates).await;
    // Not INTERNAL, which Bazel tries again.
    assert_eq!(code, Code::FailedPrecondition);
    assert!(text.contains("tried 3 times"), "{text}");
    for name in given_to {
        assert!(text.contains(&format!("{{\"hostname\":\"{name}\"}}: the worker had begun")), "{text}");
    }
}

#[tokio::test]
async fn silence_is_loss_and_another_host_gets_the_task() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut silent = server.worker(&host("silent")).await;
    let work = given(&mut silent).await;
    let mut other = server.eager_worker(&host("other")).await;
    assert_eq!(response(updates).await.status, None);
    started(&mut other).await;
    // What the lost one says when it is back changes nothing.
    silent.complete(exited(&work, 7));
    told_idle(&mut silent).await;
}

#[tokio::test]
async fn silence_shorter_than_expiry_is_not_loss() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    // 800 ms are allowed here: heartbeat and `worker_expiry`.
    tokio::time::sleep(Duration::from_millis(500)).await;
    worker.complete(exited(&work, 7));
    told_idle(&mut worker).await;
    assert_eq!(response(updates).await.result.unwrap().exit_code, 7);
}

#[tokio::test]
async fn same_id_other_platform_is_another_worker() {
    let server = server_with("supported_platform_properties: { os: 'exact' }").await;
    let client = server.client().await;
    let updates = execute(&client, &action("1").with_property("os", "old")).await;
    given(&mut server.worker(&host("h").with_property("os", "old")).await).await;
    // The host comes back as something else, and is given nothing of the old one's.
    let mut new = server.worker(&host("h").with_property("os", "new")).await;
    told_idle(&mut new).await;
    assert_eq!(server.server.driver.counts().workers, 2);
    // The old one is lost, and its task waits for one of its kind.
    until(|| server.server.driver.counts().queued > 0).await;
    let _again = server.eager_worker(&host("h2").with_property("os", "old")).await;
    assert_eq!(response(updates).await.status, None);
}

#[tokio::test]
async fn no_queue_young_or_old_waits() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    within(updates.until(Stage::Queued)).await.unwrap();
    let _worker = server.eager_worker(&host("late")).await;
    assert_eq!(response(updates).await.status, None);
}

#[tokio::test]
async fn queue_removed_while_queued_waits_for_the_next_worker() {
    let server = server().await;
    let client = server.client().await;
    let mut busy = server.worker(&host("only")).await;
    let first = execute(&client, &action("1")).await;
    given(&mut busy).await;
    let mut second = execute(&client, &action("2")).await;
    within(second.until(Stage::Queued)).await.unwrap();
    // The last worker of its kind goes; both wait.
    until(|| server.server.driver.counts().workers == 0).await;
    assert_eq!(server.server.driver.counts().queued, 2);
    let _next = server.eager_worker(&host("next")).await;
    assert_eq!((response(first).await.status, response(second).await.status), (None, None));
}
