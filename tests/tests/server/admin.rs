//! What operators ask and tell.

use std::collections::HashMap;

use pointsman_proto::longrunning::GetOperationRequest;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{ExecuteOperationMetadata, RequestMetadata, platform::Property};
use pointsman_proto::v1::cancel_request::Which;
use pointsman_proto::v1::{
    AddHoldRequest, CancelRequest, ExplainRequest, Explanation, Hold, ListHoldsRequest, ListQueueRequest,
    ListWorkersRequest, PlanRequest, RemoveHoldRequest, hold,
};
use pointsman_proto::{rpc, unpack};
use tonic::Code;

use crate::support::{action, admin, host, server, server_with, started, why, within};

const SCHEMA: &str =
    "supported_platform_properties: { gpu: 'exact', cpu_count: 'minimum', OSFamily: 'priority' }";

#[tokio::test]
async fn a_queued_action_says_why() {
    let server = server_with(SCHEMA).await;
    let (client, mut admin) = (server.client().await, admin(&server).await);
    let spec = action("a").with_property("gpu", "A100").with_property("cpu_count", "2");
    let mut updates = client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap();
    let name = within(updates.until(Stage::Queued)).await.unwrap().name;

    let found = why(&mut admin, &name).await;
    assert_eq!(found.reason, "no-worker-registered");
    assert_eq!(found.decision.unwrap().policy_name, "default");

    let _other = server
        .stuck_worker(&host("other").with_property("gpu", "a100").with_property("cpu_count", "8"))
        .await;
    let found = within(async {
        loop {
            let found = why(&mut admin, &name).await;
            if found.workers == 1 {
                return found;
            }
        }
    })
    .await;
    assert_eq!((&*found.reason, found.never), ("no-property-match", true));
    let mismatch = &found.mismatches[0];
    assert_eq!((&*mismatch.key, &*mismatch.asked, &*mismatch.nearly), ("gpu", "A100", "a100"));
    assert!(found.text.contains("differs only in case"), "{}", found.text);
    assert!(found.remedy.contains("gpu"), "{}", found.remedy);

    // Clients that look an operation up find the same there.
    let got = client
        .operations()
        .get_operation(GetOperationRequest { name: name.clone() })
        .await
        .unwrap()
        .into_inner();
    let metadata: ExecuteOperationMetadata = unpack(&got.metadata.unwrap()).unwrap();
    let told = metadata.partial_execution_metadata.unwrap().auxiliary_metadata;
    assert_eq!(unpack::<Explanation>(&told[1]).unwrap().reason, "no-property-match");

    let queue = admin.list_queue(ListQueueRequest::default()).await.unwrap().into_inner();
    assert_eq!((queue.queued, queue.running, queue.classes.len()), (1, 0, 1));
    assert_eq!(queue.classes[0].operation_names, [name]);
    assert_eq!(queue.classes[0].platform.len(), 2);

    let unknown = admin.explain(ExplainRequest { operation_name: "no-such".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_plan_tells_now_later_and_never() {
    let server = server_with(SCHEMA).await;
    let mut admin = admin(&server).await;
    let _worker = server.stuck_worker(&host("h").with_property("cpu_count", "4")).await;
    let plan = |cpus: &str| PlanRequest {
        platform: vec![Property { name: "cpu_count".to_owned(), value: cpus.to_owned() }],
        ..Default::default()
    };
    within(async { while admin.plan(plan("4")).await.unwrap().into_inner().reason != "next" {} }).await;
    let never = admin.plan(plan("5")).await.unwrap().into_inner();
    assert_eq!((&*never.reason, never.never), ("never-fits", true));
    assert_eq!((never.shortages[0].asked, never.shortages[0].most_total), (5, 4));
    let refused = admin.plan(plan("many")).await.unwrap_err();
    assert!(refused.message().contains("'many'"), "{refused}");

    let client = server.client().await;
    let spec = action("a").with_property("cpu_count", "4");
    let mut running = client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap();
    within(running.until(Stage::Executing)).await.unwrap();
    let later = admin.plan(plan("4")).await.unwrap().into_inner();
    assert_eq!((&*later.reason, later.never), ("all-busy", false));
}

#[tokio::test]
async fn a_drained_worker_gets_nothing_until_it_is_let_go() {
    let server = server().await;
    let (client, mut admin) = (server.client().await, admin(&server).await);
    let mut worker = server.eager_worker(&host("h")).await;
    let pattern = HashMap::from([("hostname".to_owned(), "h".to_owned())]);
    let hold =
        Some(Hold { kind: hold::Kind::Drain.into(), worker_id_pattern: pattern, ..Default::default() });
    admin.add_hold(AddHoldRequest { hold: hold.clone() }).await.unwrap();
    let listed = admin.list_holds(ListHoldsRequest {}).await.unwrap().into_inner().holds;
    assert_eq!(listed[0].kind(), hold::Kind::Drain);
    within(async {
        while admin.list_workers(ListWorkersRequest {}).await.unwrap().into_inner().workers.is_empty() {}
    })
    .await;
    let workers = admin.list_workers(ListWorkersRequest {}).await.unwrap().into_inner().workers;
    assert!(workers[0].drained);
    assert_eq!(workers[0].id["hostname"], "h");

    let mut updates = client.execute(&client.upload_action(&action("a")).await.unwrap()).await.unwrap();
    let name = within(updates.until(Stage::Queued)).await.unwrap().name;
    assert_eq!(why(&mut admin, &name).await.reason, "drained");
    admin.remove_hold(RemoveHoldRequest { hold }).await.unwrap();
    within(updates.finish()).await.unwrap();
    started(&mut worker).await;
    let over = admin.explain(ExplainRequest { operation_name: name }).await.unwrap_err();
    assert_eq!(over.code(), Code::FailedPrecondition);
}

#[tokio::test]
async fn operations_are_cancelled_by_invocation() {
    let server = server().await;
    let mut admin = admin(&server).await;
    let mut streams = Vec::new();
    for invocation in ["one", "one", "two"] {
        let metadata = RequestMetadata { tool_invocation_id: invocation.to_owned(), ..Default::default() };
        let client = server.client().await.with_request_metadata(&metadata);
        let spec = action(&streams.len().to_string());
        let mut updates = client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap();
        within(updates.until(Stage::Queued)).await.unwrap();
        streams.push(updates);
    }
    let which = Some(Which::InvocationKey("one".to_owned()));
    let cancelled = admin.cancel(CancelRequest { which }).await.unwrap().into_inner().operation_names;
    assert_eq!(cancelled.len(), 2);
    let last = streams.pop().unwrap();
    for updates in streams {
        let status = within(updates.finish()).await.unwrap().response.status.unwrap();
        assert_eq!(status.code, i32::from(rpc::Code::FailedPrecondition));
    }
    let _worker = server.eager_worker(&host("h")).await;
    within(last.finish()).await.unwrap();
    let none = admin.cancel(CancelRequest { which: Some(Which::OperationName("no-such".to_owned())) }).await;
    assert_eq!(none.unwrap_err().code(), Code::NotFound);
}
