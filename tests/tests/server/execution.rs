//! Execute, WaitExecution and Operations.

use std::time::Duration;

use pointsman_proto::longrunning::{CancelOperationRequest, GetOperationRequest, ListOperationsRequest};
use pointsman_proto::rev2::{
    ActionResult, ExecuteRequest, RequestMetadata, UpdateActionResultRequest, execution_stage::Value as Stage,
};
use pointsman_proto::{rpc, unpack, v1};
use pointsman_tests::fake_worker::{Event, exited};
use tonic::Code;

use crate::support::{action, host, server, started, within};

#[tokio::test]
async fn an_action_runs_and_its_operation_names_the_policy() {
    let server = server().await;
    let client = server.client().await.with_request_metadata(&RequestMetadata {
        tool_invocation_id: "an-invocation".to_owned(),
        correlated_invocations_id: "a-build".to_owned(),
        ..Default::default()
    });
    let digest = client.upload_action(&action("a").with_property("OSFamily", "linux")).await.unwrap();
    let mut worker = server.eager_worker(&host("h").with_property("OSFamily", "")).await;
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert_eq!(finished.response.status, None);
    assert!(!finished.updates[0].name.is_empty());
    let last = finished.updates.last().unwrap();
    assert_eq!(last.metadata.stage(), Stage::Completed);
    let partial = last.metadata.partial_execution_metadata.as_ref().unwrap();
    let decision: v1::RoutingDecision = unpack(&partial.auxiliary_metadata[0]).unwrap();
    assert_eq!(decision.policy_name, "default");
    assert_eq!(decision.policy_digest.len(), 64);
    assert_eq!(decision.invocation_keys.len(), 2);
    assert_eq!(decision.fallback_reason, "");

    // The worker got the client's metadata first, as Buildbarn sends it, and the decision after it.
    let work = started(&mut worker).await;
    let sent: RequestMetadata = unpack(&work.auxiliary_metadata[0]).unwrap();
    assert_eq!(sent.tool_invocation_id, "an-invocation");
    let sent: v1::RoutingDecision = unpack(&work.auxiliary_metadata[1]).unwrap();
    assert_eq!(sent, decision);
    assert_eq!(work.action_digest, Some(digest));
    // And a timeout, although the client named none.
    assert_eq!(work.action.unwrap().timeout.unwrap().seconds, 1800);
}

#[tokio::test]
async fn an_action_waits_for_a_worker_and_says_so() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let mut updates = client.execute(&digest).await.unwrap();
    let first = within(updates.next()).await.unwrap().unwrap();
    assert_eq!(first.metadata.stage(), Stage::Queued);
    let _worker = server.eager_worker(&host("h")).await;
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn a_failing_command_is_a_result() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let worker = server.worker(&host("h")).await;
    let _worker = worker.start(|work| async move { exited(&work, 3) });
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert_eq!(finished.response.status, None);
    assert_eq!(finished.response.result.unwrap().exit_code, 3);
}

#[tokio::test]
async fn the_properties_of_an_old_clients_command_count() {
    let server = server().await;
    let client = server.client().await;
    let mut spec = action("a").with_property("cpu_count", "4");
    spec.platform_in_command_only = true;
    let digest = client.upload_action(&spec).await.unwrap();
    let mut updates = client.execute(&digest).await.unwrap();
    let _small = server.eager_worker(&host("small").with_property("cpu_count", "2")).await;
    within(updates.until(Stage::Queued)).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), updates.next()).await.is_err());
    let mut large = server.eager_worker(&host("large").with_property("cpu_count", "4")).await;
    within(updates.finish()).await.unwrap();
    let work = started(&mut large).await;
    assert_eq!(work.action.unwrap().platform.unwrap().properties[0].value, "4");
}

#[tokio::test]
async fn a_cached_result_is_the_answer_unless_the_client_says_no() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let request = UpdateActionResultRequest {
        action_digest: Some(digest.clone()),
        action_result: Some(ActionResult { stdout_raw: "from the cache".into(), ..Default::default() }),
        ..Default::default()
    };
    client.action_cache().update_action_result(request).await.unwrap();
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert!(finished.response.cached_result);
    assert_eq!(finished.response.result.unwrap().stdout_raw, "from the cache");

    let _worker = server.eager_worker(&host("h")).await;
    let request =
        ExecuteRequest { action_digest: Some(digest), skip_cache_lookup: true, ..Default::default() };
    let finished = within(client.execute_request(request).await.unwrap().finish()).await.unwrap();
    assert!(!finished.response.cached_result);
}

#[tokio::test]
async fn equal_actions_share_an_execution_unless_they_may_not_be_cached() {
    let server = server().await;
    let client = server.client().await;
    for (do_not_cache, executions) in [(false, 1), (true, 2)] {
        let mut spec = action("a");
        spec.do_not_cache = do_not_cache;
        let digest = client.upload_action(&spec).await.unwrap();
        let one = client.execute(&digest).await.unwrap();
        let two = client.execute(&digest).await.unwrap();
        let mut worker = server.eager_worker(&host("h")).await;
        let (one, two) = within(async { (one.finish().await.unwrap(), two.finish().await.unwrap()) }).await;
        assert_ne!(one.updates[0].name, two.updates[0].name);
        worker.stop();
        let mut count = 0;
        while let Some(event) = within(worker.next_event()).await {
            count += usize::from(matches!(event, Event::Started(_)));
        }
        assert_eq!(count, executions);
    }
}

#[tokio::test]
async fn an_operation_can_be_followed_by_name_also_after_its_end() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let mut updates = client.execute(&digest).await.unwrap();
    let name = within(updates.next()).await.unwrap().unwrap().name;
    drop(updates);
    let again = client.wait_execution(&name).await.unwrap();
    let _worker = server.eager_worker(&host("h")).await;
    let finished = within(again.finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0);

    let late = within(client.wait_execution(&name).await.unwrap().finish()).await.unwrap();
    assert_eq!(late.updates.len(), 1);
    let got = client
        .operations()
        .get_operation(GetOperationRequest { name: name.clone() })
        .await
        .unwrap()
        .into_inner();
    assert!(got.done);
    let listed =
        client.operations().list_operations(ListOperationsRequest::default()).await.unwrap().into_inner();
    assert_eq!(listed.operations.iter().map(|o| &o.name).collect::<Vec<_>>(), [&name]);

    let unknown = client.wait_execution("no-such").await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_cancelled_operation_ends_and_its_worker_is_told() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let mut worker = server.stuck_worker(&host("h")).await;
    let mut updates = client.execute(&digest).await.unwrap();
    let name = within(updates.until(Stage::Executing)).await.unwrap().name;
    started(&mut worker).await;
    client.operations().cancel_operation(CancelOperationRequest { name }).await.unwrap();
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.status.unwrap().code(), rpc::Code::Cancelled);
    assert!(matches!(within(worker.next_event()).await, Some(Event::Cancelled(d)) if d == digest));
}

#[tokio::test]
async fn what_no_client_waits_for_is_dropped_in_time() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let mut worker = server.stuck_worker(&host("h")).await;
    let mut updates = client.execute(&digest).await.unwrap();
    let name = within(updates.until(Stage::Executing)).await.unwrap().name;
    started(&mut worker).await;
    drop(updates);
    // Not at once: the client may have lost its connection only.
    assert!(server.server.driver.operation(&name).is_some());
    assert!(matches!(within(worker.next_event()).await, Some(Event::Cancelled(d)) if d == digest));
    assert!(server.server.driver.operation(&name).is_none());
}

trait CodeOf {
    fn code(&self) -> rpc::Code;
}

impl CodeOf for rpc::Status {
    fn code(&self) -> rpc::Code {
        rpc::Code::try_from(self.code).unwrap()
    }
}
