//! The action cache: looked at once more before a worker gets an action, and written for workers that don't.

use std::time::Duration;

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{
    ActionResult, Digest, ExecuteRequest, GetActionResultRequest, UpdateActionResultRequest,
};
use pointsman_proto::rpc::Code;
use pointsman_tests::fake_client::{FakeClient, Updates};
use pointsman_tests::fake_worker::{Instruction, exited};

use crate::steps::{calling, execute, failed, given, response, told_idle, until};
use crate::support::{action, host, server, server_with, within};

const ALWAYS: &str = "action_cache: { look_again_after: '0s' }";
const WRITING: &str = "action_cache: { write_results: true }";

/// What another client, or a lost worker, leaves in the cache.
async fn store(client: &FakeClient, action_digest: &Digest, text: &'static str) {
    let request = UpdateActionResultRequest {
        instance_name: client.instance_name().to_owned(),
        action_digest: Some(action_digest.clone()),
        action_result: Some(ActionResult { stdout_raw: text.into(), ..Default::default() }),
        ..Default::default()
    };
    client.action_cache().update_action_result(request).await.unwrap();
}

/// What the cache has.
async fn stored(client: &FakeClient, action_digest: &Digest) -> Option<ActionResult> {
    let request = GetActionResultRequest {
        instance_name: client.instance_name().to_owned(),
        action_digest: Some(action_digest.clone()),
        ..Default::default()
    };
    client.action_cache().get_action_result(request).await.ok().map(tonic::Response::into_inner)
}

async fn for_sure(client: &FakeClient, digest: &Digest) -> Updates {
    let request =
        ExecuteRequest { action_digest: Some(digest.clone()), skip_cache_lookup: true, ..Default::default() };
    client.execute_request(request).await.unwrap()
}

#[tokio::test]
async fn looked_at_again_before_dispatch() {
    let server = server_with(ALWAYS).await;
    let client = server.client().await.with_instance_name("a/b");
    let digest = client.upload_action(&action("1")).await.unwrap();
    let cached = client.execute(&digest).await.unwrap();
    let other = execute(&client, &action("2")).await;
    store(&client, &digest, "from the cache").await;
    // The worker never hears of the first, and gets the second in the same call.
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    assert_ne!(work.action_digest.as_ref(), Some(&digest));
    let found = response(cached).await;
    assert!(found.cached_result);
    assert_eq!(found.result.unwrap().stdout_raw, "from the cache");
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    assert!(!response(other).await.cached_result);
}

#[tokio::test]
async fn looked_at_again_ends_a_blocked_poll_with_nothing() {
    let server = server_with(ALWAYS).await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let call = calling(server.worker(&host("h")).await).await;
    // The client did not ask the cache, but another did and joined.
    store(&client, &digest, "from the cache").await;
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert!(finished.response.cached_result);
    let (_, told) = within(call).await.unwrap();
    assert!(matches!(told.unwrap(), Instruction::Idle));
}

#[tokio::test]
async fn looked_at_again_before_a_retry_whatever_the_wait() {
    let server = server_with("action_cache: { look_again_after: '1h' }").await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let updates = client.execute(&digest).await.unwrap();
    // It runs, is written to the cache, and the worker vanishes before it has said so.
    given(&mut server.worker(&host("lost")).await).await;
    store(&client, &digest, "of the lost worker").await;
    until(|| server.server.driver.counts().workers == 0).await;
    told_idle(&mut server.worker(&host("other")).await).await;
    let found = response(updates).await;
    assert_eq!((found.cached_result, found.result.unwrap().stdout_raw), (true, "of the lost worker".into()));
}

#[tokio::test]
async fn not_looked_at_again_at_once() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let _updates = client.execute(&digest).await.unwrap();
    store(&client, &digest, "too new").await;
    // `look_again_after` is a second.
    given(&mut server.worker(&host("h")).await).await;
}

#[tokio::test]
async fn never_looked_at_for_those_who_want_it_executed() {
    let server = server_with(ALWAYS).await;
    let client = server.client().await;
    let sure = client.upload_action(&action("sure")).await.unwrap();
    let mut spec = action("uncached");
    spec.do_not_cache = true;
    let uncached = client.upload_action(&spec).await.unwrap();
    for (n, digest) in [sure, uncached].iter().enumerate() {
        let updates =
            if n == 0 { for_sure(&client, digest).await } else { client.execute(digest).await.unwrap() };
        store(&client, digest, "unwanted").await;
        let mut worker = server.worker(&host(&n.to_string())).await;
        let work = given(&mut worker).await;
        assert_eq!(work.action_digest.as_ref(), Some(digest));
        worker.complete(exited(&work, 0));
        told_idle(&mut worker).await;
        assert!(!response(updates).await.cached_result);
    }
}

#[tokio::test]
async fn never_looked_at_when_one_who_wants_it_executed_has_joined() {
    let server = server_with(ALWAYS).await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let (one, two) = (client.execute(&digest).await.unwrap(), for_sure(&client, &digest).await);
    store(&client, &digest, "unwanted by the second").await;
    assert_eq!(server.server.driver.counts().queued, 1);
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    for updates in [one, two] {
        assert!(!response(updates).await.cached_result);
    }
}

#[tokio::test]
async fn a_failed_result_in_the_cache_is_no_answer() {
    let server = server_with(ALWAYS).await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let _updates = client.execute(&digest).await.unwrap();
    let request = UpdateActionResultRequest {
        action_digest: Some(digest.clone()),
        action_result: Some(ActionResult { exit_code: 1, ..Default::default() }),
        ..Default::default()
    };
    client.action_cache().update_action_result(request).await.unwrap();
    given(&mut server.worker(&host("h")).await).await;
}

#[tokio::test]
async fn results_are_written_by_us_only_when_told_so() {
    for (config, written) in [("", false), (WRITING, true)] {
        let server = server_with(config).await;
        let client = server.client().await.with_instance_name("a/b");
        let digest = client.upload_action(&action("1")).await.unwrap();
        let mut updates = client.execute(&digest).await.unwrap();
        let _worker = server.eager_worker(&host("h")).await;
        let last = loop {
            let update = within(updates.next()).await.unwrap().unwrap();
            if update.metadata.stage() == Stage::Completed {
                break update.response.unwrap();
            }
        };
        // Before the client hears of it.
        let found = stored(&client, &digest).await;
        assert_eq!(found.is_some(), written);
        assert!(found.is_none_or(|found| found == last.result.unwrap()));
        assert!(stored(&server.client().await, &digest).await.is_none(), "another instance name");
    }
}

#[tokio::test]
async fn failed_and_uncacheable_results_are_never_written() {
    let server = server_with(WRITING).await;
    let client = server.client().await;
    let mut uncacheable = action("uncacheable");
    uncacheable.do_not_cache = true;
    for (name, spec) in [("exit", action("exit")), ("status", action("status")), ("cache", uncacheable)] {
        let digest = client.upload_action(&spec).await.unwrap();
        let updates = client.execute(&digest).await.unwrap();
        let mut worker = server.worker(&host(name)).await;
        let work = given(&mut worker).await;
        worker.complete(match name {
            "exit" => exited(&work, 1),
            "status" => {
                let status = failed(Code::DeadlineExceeded.into(), "too long").status;
                pointsman_proto::rev2::ExecuteResponse { status, ..exited(&work, 0) }
            }
            _ => exited(&work, 0),
        });
        told_idle(&mut worker).await;
        response(updates).await;
        assert!(stored(&client, &digest).await.is_none(), "{name}");
    }
}

#[tokio::test]
async fn results_of_workers_that_were_not_given_it_are_never_written() {
    let server = server_with(WRITING).await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let updates = client.execute(&digest).await.unwrap();
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    // Another claims to have run it.
    let other = execute(&client, &action("2")).await;
    let mut liar = server.worker(&host("liar")).await;
    given(&mut liar).await;
    let mut claim = worker.clone();
    claim.complete(exited(&work, 0));
    let state = claim.request().current_state.clone();
    let mut request = liar.request().clone();
    request.current_state = state;
    let mut queue = pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient::new(
        pointsman_tests::fake_client::connect(server.address).await.unwrap(),
    );
    within(queue.synchronize(request)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(stored(&client, &digest).await.is_none());
    drop((updates, other));
}
