//! Buildbarn's view of what is queued: what its web interfaces read, and what stops its workers.

use std::collections::HashMap;

use pointsman_proto::buildqueuestate::build_queue_state_client::BuildQueueStateClient;
use pointsman_proto::buildqueuestate::kill_operations_request::{Filter as KillFilter, filter::Type as Kill};
use pointsman_proto::buildqueuestate::list_invocation_children_request::Filter as Children;
use pointsman_proto::buildqueuestate::list_operations_request;
use pointsman_proto::buildqueuestate::list_queued_operations_request;
use pointsman_proto::buildqueuestate::list_workers_request::{self, Filter, filter::Type as Workers};
use pointsman_proto::buildqueuestate::operation_state::Stage;
use pointsman_proto::buildqueuestate::*;
use pointsman_proto::pack;
use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::rev2::execution_stage::Value as StageName;
use pointsman_proto::rev2::{ExecuteRequest, ExecutionPolicy, Platform, RequestMetadata, platform::Property};
use pointsman_proto::rpc;
use pointsman_proto::v1::{ListHoldsRequest, ListWorkersRequest as OwnListWorkersRequest};
use pointsman_tests::fake_client::{FakeClient, Updates, connect};
use pointsman_tests::fake_worker::{WorkerSpec, exited};
use prost_types::Any;
use tonic::Code;
use tonic::transport::Channel;

use crate::steps::{calling, execute, given, name, response, status, told_idle, told_to_go_on, until};
use crate::support::{TestServer, action, admin, host, server, server_with, within};

async fn state(server: &TestServer) -> BuildQueueStateClient<Channel> {
    BuildQueueStateClient::new(connect(server.address).await.unwrap())
}

/// A client that says for which build, of which group of builds, it asks.
async fn client_of(server: &TestServer, group: &str, build: &str) -> FakeClient {
    server.client().await.with_request_metadata(&RequestMetadata {
        tool_invocation_id: build.to_owned(),
        correlated_invocations_id: group.to_owned(),
        target_id: "//a:b".to_owned(),
        ..Default::default()
    })
}

fn platform(properties: &[(&str, &str)]) -> Platform {
    let property = |(name, value): &(&str, &str)| Property { name: (*name).into(), value: (*value).into() };
    Platform { properties: properties.iter().map(property).collect() }
}

fn queue_of(prefix: &str, properties: &[(&str, &str)], size_class: u32) -> SizeClassQueueName {
    let platform = Some(platform(properties));
    SizeClassQueueName {
        platform_queue_name: Some(PlatformQueueName { instance_name_prefix: prefix.to_owned(), platform }),
        size_class,
    }
}

/// The queue of workers that say nothing of themselves.
fn plain() -> SizeClassQueueName {
    queue_of("", &[], 0)
}

fn build_id(build: &str) -> Any {
    pack(&RequestMetadata { tool_invocation_id: build.to_owned(), ..Default::default() })
}

fn group_id(group: &str) -> Any {
    pack(&RequestMetadata { correlated_invocations_id: group.to_owned(), ..Default::default() })
}

fn invocation(queue: SizeClassQueueName, ids: Vec<Any>) -> Option<InvocationName> {
    Some(InvocationName { size_class_queue_name: Some(queue), ids })
}

async fn queues(state: &mut BuildQueueStateClient<Channel>) -> Vec<PlatformQueueState> {
    state.list_platform_queues(()).await.unwrap().into_inner().platform_queues
}

async fn workers(state: &mut BuildQueueStateClient<Channel>, which: Workers) -> Vec<WorkerState> {
    let filter = Some(Filter { r#type: Some(which) });
    state
        .list_workers(ListWorkersRequest { filter, page_size: 100, start_after: None })
        .await
        .unwrap()
        .into_inner()
        .workers
}

async fn count_operations(
    state: &mut BuildQueueStateClient<Channel>,
    stage: StageName,
    of: Option<Any>,
) -> u32 {
    let request =
        ListOperationsRequest { filter_stage: stage.into(), filter_invocation_id: of, ..Default::default() };
    let listed = state.list_operations(request).await.unwrap().into_inner();
    assert!(listed.operations.is_empty(), "a page of 0 has {:?}", listed.operations);
    listed.pagination_info.unwrap().total_entries
}

fn counts(state: &InvocationState) -> (u32, u32, u32, u32, u32) {
    let queued = state.queued_operations_count.as_ref().unwrap();
    let (executing, idle) = (state.executing_workers_count, state.idle_workers_count);
    (queued.direct, queued.indirect, executing, idle, state.idle_synchronizing_workers_count)
}

fn unavailable() -> Option<rpc::Status> {
    let message = "Operation was killed through the web interface".to_owned();
    Some(rpc::Status { code: Code::Unavailable.into(), message, details: Vec::new() })
}

async fn kill(
    state: &mut BuildQueueStateClient<Channel>,
    which: Option<Kill>,
    status: Option<rpc::Status>,
) -> Result<(), tonic::Status> {
    let filter = which.map(|which| KillFilter { r#type: Some(which) });
    state.kill_operations(KillOperationsRequest { filter, status }).await.map(|_| ())
}

async fn execute_with_priority(client: &FakeClient, argument: &str, priority: i32) -> Updates {
    let digest = client.upload_action(&action(argument)).await.unwrap();
    let request = ExecuteRequest {
        action_digest: Some(digest),
        execution_policy: Some(ExecutionPolicy { priority }),
        ..Default::default()
    };
    client.execute_request(request).await.unwrap()
}

#[tokio::test]
async fn a_portal_sees_what_is_queued_and_what_executes() {
    let server = server().await;
    let mut state = state(&server).await;
    let (alice, bob) =
        (client_of(&server, "nightly", "alice").await, client_of(&server, "nightly", "bob").await);
    let mut worker = server.worker(&host("h1").thread(0)).await;
    let mut runs = execute(&alice, &action("1")).await;
    let work = given(&mut worker).await;
    worker.report(ExecutionState::Running(()));
    told_to_go_on(&mut worker).await;
    let (mut waits, _also) = (execute(&alice, &action("2")).await, execute(&bob, &action("3")).await);
    let (runs_name, waits_name) = (name(&mut runs).await, name(&mut waits).await);

    let listed = queues(&mut state).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].name, plain().platform_queue_name);
    let [size_class] = &listed[0].size_class_queues[..] else { panic!("{listed:?}") };
    assert_eq!((size_class.size_class, size_class.workers_count, size_class.drains_count), (0, 1, 0));
    assert_eq!(size_class.timeout, None);
    let root = size_class.root_invocation.as_ref().unwrap();
    assert_eq!(counts(root), (0, 2, 1, 0, 0));
    assert_eq!((root.children_count, root.active_children_count, root.queued_children_count), (1, 1, 1));

    for (stage, all, of_alice) in [
        (StageName::Unknown, 3, 2),
        (StageName::Queued, 2, 1),
        (StageName::Executing, 1, 1),
        (StageName::Completed, 0, 0),
    ] {
        assert_eq!(count_operations(&mut state, stage, None).await, all, "{stage:?}");
        assert_eq!(count_operations(&mut state, stage, Some(build_id("alice"))).await, of_alice, "{stage:?}");
        assert_eq!(count_operations(&mut state, stage, Some(group_id("nightly"))).await, all, "{stage:?}");
    }
    let operation = state.get_operation(GetOperationRequest { operation_name: runs_name.clone() }).await;
    let operation = operation.unwrap().into_inner().operation.unwrap();
    assert_eq!(operation.name, "");
    assert_eq!(operation.stage, Some(Stage::Executing(())));
    assert_eq!(operation.action_digest, work.action_digest);
    assert_eq!(operation.queued_timestamp, work.queued_timestamp);
    assert_eq!((operation.target_id.as_str(), operation.instance_name_suffix.as_str()), ("//a:b", ""));
    assert_eq!(operation.digest_function, work.digest_function);
    let of = operation.invocation_name.unwrap();
    assert_eq!((of.size_class_queue_name, of.ids.len()), (Some(plain()), 2));

    let there = workers(&mut state, Workers::All(plain())).await;
    assert_eq!(there.len(), 1);
    assert_eq!(
        there[0].id,
        HashMap::from([("hostname".into(), "h1".into()), ("thread".into(), "000".into())])
    );
    let current = there[0].current_operation.as_ref().unwrap();
    assert_eq!(
        (current.name.as_str(), &current.invocation_name, &current.stage),
        (runs_name.as_str(), &None, &None)
    );
    assert!(there[0].timeout.is_some() && !there[0].drained);

    kill(&mut state, Some(Kill::OperationName(waits_name.clone())), unavailable()).await.unwrap();
    let (code, text) = status(waits).await;
    assert_eq!(
        (code, text.as_str()),
        (rpc::Code::Unavailable, "Operation was killed through the web interface")
    );
    assert_eq!(count_operations(&mut state, StageName::Queued, None).await, 1);
    worker.complete(exited(&work, 0));
    given(&mut worker).await;
    response(runs).await;
    let over = state.get_operation(GetOperationRequest { operation_name: runs_name }).await;
    let over = over.unwrap().into_inner().operation.unwrap();
    let Some(Stage::Completed(response)) = over.stage else { panic!("{over:?}") };
    assert_eq!(response.result.unwrap().exit_code, 0);
    let of = over.invocation_name.unwrap();
    assert_eq!((of.size_class_queue_name, of.ids.len()), (Some(plain()), 2));
    assert!(over.timeout.is_some());
    assert_eq!(count_operations(&mut state, StageName::Completed, Some(build_id("alice"))).await, 2);
}

#[tokio::test]
async fn operations_are_listed_by_name_page_by_page() {
    let server = server().await;
    let (client, mut state) = (server.client().await, state(&server).await);
    let mut streams = Vec::new();
    for i in 0..7 {
        streams.push(execute(&client, &action(&i.to_string())).await);
    }
    let (mut names, mut start_after) = (Vec::new(), None);
    loop {
        let request = ListOperationsRequest { page_size: 3, start_after, ..Default::default() };
        let page = state.list_operations(request).await.unwrap().into_inner();
        let info = page.pagination_info.unwrap();
        assert_eq!((info.start_index as usize, info.total_entries), (names.len(), 7));
        let Some(last) = page.operations.last() else { break };
        start_after = Some(list_operations_request::StartAfter { operation_name: last.name.clone() });
        names.extend(page.operations.into_iter().map(|o| o.name));
    }
    assert!(names.is_sorted() && names.len() == 7, "{names:?}");
}

#[tokio::test]
async fn invocations_and_what_waits_for_them_come_in_the_order_in_which_they_are_next() {
    let server = server().await;
    let mut state = state(&server).await;
    let (alice, bob) = (client_of(&server, "", "alice").await, client_of(&server, "", "bob").await);
    let mut worker = server.worker(&host("h")).await;
    let _runs = execute(&alice, &action("0")).await;
    given(&mut worker).await;
    let mut names = Vec::new();
    let mut streams = Vec::new();
    for (argument, priority) in [("1", 0), ("2", 0), ("3", -1), ("4", 5), ("5", 0)] {
        let mut updates = execute_with_priority(&alice, argument, priority).await;
        names.push(name(&mut updates).await);
        streams.push(updates);
    }
    streams.push(execute(&bob, &action("6")).await);

    let children = async |state: &mut BuildQueueStateClient<Channel>, filter: Children| {
        let request = ListInvocationChildrenRequest {
            invocation_name: invocation(plain(), Vec::new()),
            filter: filter.into(),
        };
        let children = state.list_invocation_children(request).await.unwrap().into_inner().children;
        let child = |c: InvocationChildState| (c.id.unwrap(), counts(&c.state.unwrap()));
        children.into_iter().map(child).collect::<Vec<_>>()
    };
    let value = |text: &str| {
        let value = prost_types::Value { kind: Some(prost_types::value::Kind::StringValue(text.to_owned())) };
        let value = prost::Message::encode_to_vec(&value);
        Any { type_url: "type.googleapis.com/google.protobuf.Value".to_owned(), value }
    };
    let (of_alice, of_bob) = ((value("alice"), (5, 0, 1, 0, 0)), (value("bob"), (1, 0, 0, 0, 0)));
    for filter in [Children::All, Children::Active] {
        assert_eq!(children(&mut state, filter).await, [of_alice.clone(), of_bob.clone()]);
    }
    // Alice has a worker already.
    assert_eq!(children(&mut state, Children::Queued).await, [of_bob, of_alice]);

    let (mut listed, mut start_after) = (Vec::new(), None);
    loop {
        let request = ListQueuedOperationsRequest {
            invocation_name: invocation(plain(), vec![build_id("alice")]),
            page_size: 2,
            start_after,
        };
        let page = state.list_queued_operations(request).await.unwrap().into_inner();
        let info = page.pagination_info.unwrap();
        assert_eq!((info.start_index as usize, info.total_entries), (listed.len(), 5));
        let Some(last) = page.queued_operations.last() else { break };
        start_after = Some(list_queued_operations_request::StartAfter {
            priority: last.priority,
            queued_timestamp: last.queued_timestamp,
            expected_duration: last.expected_duration,
        });
        assert!(
            page.queued_operations
                .iter()
                .all(|o| o.invocation_name.is_none() && o.stage == Some(Stage::Queued(())))
        );
        listed.extend(page.queued_operations.into_iter().map(|o| o.name));
    }
    let in_order: Vec<_> = [2, 0, 1, 4, 3].iter().map(|i| names[*i].clone()).collect();
    assert_eq!(listed, in_order);

    let executing = |ids| Workers::Executing(invocation(plain(), ids).unwrap());
    assert_eq!(workers(&mut state, executing(vec![build_id("alice")])).await.len(), 1);
    assert_eq!(workers(&mut state, executing(vec![build_id("bob")])).await.len(), 0);
    assert_eq!(workers(&mut state, executing(Vec::new())).await.len(), 1);
    let waiting = calling(server.worker(&host("idle").thread(1)).await).await;
    // It takes the next; the one after has to wait.
    let (_worker, told) = within(waiting).await.unwrap();
    told.unwrap();
    let idle = Workers::IdleSynchronizing(invocation(plain(), Vec::new()).unwrap());
    assert_eq!(workers(&mut state, idle).await.len(), 0);
}

#[tokio::test]
async fn workers_are_listed_by_id_page_by_page() {
    let server = server().await;
    let mut state = state(&server).await;
    let mut running = Vec::new();
    for name in ["c", "a", "b"] {
        running.push(server.stuck_worker(&host(name)).await);
    }
    let idle = || Workers::IdleSynchronizing(invocation(plain(), Vec::new()).unwrap());
    within(async { while workers(&mut state, idle()).await.len() < 3 {} }).await;
    let waits = workers(&mut state, idle()).await;
    assert!(waits.iter().all(|w| w.timeout.is_none() && w.current_operation.is_none()), "{waits:?}");
    let page = async |state: &mut BuildQueueStateClient<Channel>, after: Option<&str>| {
        let start_after = after.map(|name| list_workers_request::StartAfter {
            worker_id: HashMap::from([("hostname".to_owned(), name.to_owned())]),
        });
        let filter = Some(Filter { r#type: Some(Workers::All(plain())) });
        let request = ListWorkersRequest { filter, page_size: 2, start_after };
        let page = state.list_workers(request).await.unwrap().into_inner();
        let info = page.pagination_info.unwrap();
        let names = page.workers.into_iter().map(|w| w.id["hostname"].clone()).collect::<Vec<_>>();
        (names.concat(), info.start_index, info.total_entries)
    };
    assert_eq!(page(&mut state, None).await, ("ab".to_owned(), 0, 3));
    assert_eq!(page(&mut state, Some("b")).await, ("c".to_owned(), 2, 3));
    assert_eq!(page(&mut state, Some("bb")).await, ("c".to_owned(), 2, 3));
    assert_eq!(page(&mut state, Some("c")).await, (String::new(), 3, 3));
}

#[tokio::test]
async fn what_several_queues_could_run_is_counted_in_one() {
    let server = server_with("supported_platform_properties: { tag: 'exact' }").await;
    let mut state = state(&server).await;
    let mut holds = admin(&server).await;
    let drain = pointsman_proto::v1::Hold { kind: 1, ..Default::default() };
    holds.add_hold(pointsman_proto::v1::AddHoldRequest { hold: Some(drain) }).await.unwrap();
    let spec = |name: &str, size_class| WorkerSpec { size_class, ..host(name).with_property("tag", "x") };
    let _workers = [
        server.stuck_worker(&spec("large", 8)).await,
        server.stuck_worker(&spec("small", 2)).await,
        server.stuck_worker(&host("other")).await,
    ];
    until(|| server.server.driver.counts().workers >= 3).await;
    let client = server.client().await;
    let _waits = [
        execute(&client, &action("1").with_property("tag", "x")).await,
        execute(&client, &action("2")).await,
        execute(&client, &action("3").with_property("tag", "nowhere")).await,
    ];
    let queued: Vec<_> = queues(&mut state)
        .await
        .into_iter()
        .flat_map(|queue| {
            let name =
                queue.name.unwrap().platform.unwrap().properties.pop().map(|p| p.value).unwrap_or_default();
            let of = move |s: SizeClassQueueState| {
                let root = s.root_invocation.unwrap();
                let (direct, indirect, ..) = counts(&root);
                (name.clone(), s.size_class, s.workers_count, s.drains_count, direct + indirect)
            };
            queue.size_class_queues.into_iter().map(of).collect::<Vec<_>>()
        })
        .collect();
    // The plain one could run on any worker, and is with those of the smallest size class.
    let expected = [
        ("nowhere".to_owned(), 0, 0, 1, 1),
        ("x".to_owned(), 2, 1, 1, 1),
        ("x".to_owned(), 8, 1, 1, 0),
        (String::new(), 0, 1, 1, 1),
    ];
    assert_eq!(queued, expected);
}

#[tokio::test]
async fn a_declared_pool_without_workers_is_a_queue() {
    let server = server_with(
        "pools: [{ name: 'gpu', platform: { Pool: 'gpu' }, size_class: 4, instance_name_prefix: 'main' }]",
    )
    .await;
    let mut state = state(&server).await;
    let client = client_of(&server, "", "b").await.with_instance_name("main/x");
    let waits = execute(&client, &action("1").with_property("Pool", "gpu")).await;
    let gpu = queue_of("main", &[("Pool", "gpu")], 4);
    let listed = queues(&mut state).await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].name, gpu.platform_queue_name);
    let size_class = &listed[0].size_class_queues[0];
    assert_eq!((size_class.size_class, size_class.workers_count), (4, 0));
    assert_eq!(counts(size_class.root_invocation.as_ref().unwrap()), (0, 1, 0, 0, 0));
    assert!(workers(&mut state, Workers::All(gpu.clone())).await.is_empty());
    let invocation_name = invocation(gpu.clone(), vec![build_id("b")]);
    let request = ListQueuedOperationsRequest { invocation_name, page_size: 9, start_after: None };
    let queued = state.list_queued_operations(request).await.unwrap().into_inner().queued_operations;
    assert_eq!((queued.len(), queued[0].instance_name_suffix.as_str()), (1, "x"));
    // An autoscaler knows that it can have no such machines.
    kill(&mut state, Some(Kill::SizeClassQueueWithoutWorkers(gpu)), unavailable()).await.unwrap();
    assert_eq!(status(waits).await.0, rpc::Code::Unavailable);
}

#[tokio::test]
async fn kill_ends_an_operation_for_all_who_share_it() {
    let server = server().await;
    let (client, mut state) = (server.client().await, state(&server).await);
    let mut worker = server.worker(&host("h")).await;
    let mut first = execute(&client, &action("1")).await;
    let work = given(&mut worker).await;
    let other = execute(&server.client().await, &action("1")).await;
    let killed = name(&mut first).await;
    kill(&mut state, Some(Kill::OperationName(killed.clone())), unavailable()).await.unwrap();
    for updates in [first, other] {
        assert_eq!(status(updates).await.0, rpc::Code::Unavailable);
    }
    // Its next heartbeat tells the worker.
    worker.report(ExecutionState::Running(()));
    told_idle(&mut worker).await;
    assert_eq!(server.server.driver.counts().running, 0);
    drop(work);
    // What is over stays as it is, and what never was is not found.
    kill(&mut state, Some(Kill::OperationName(killed)), unavailable()).await.unwrap();
    let unknown =
        kill(&mut state, Some(Kill::OperationName("no-such".into())), unavailable()).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn kill_of_a_queue_with_workers_and_kill_without_a_status_are_refused() {
    let server = server().await;
    let mut state = state(&server).await;
    let _worker = server.stuck_worker(&host("h")).await;
    until(|| server.server.driver.counts().workers > 0).await;
    let queue = |queue| Some(Kill::SizeClassQueueWithoutWorkers(queue));
    let ok = Some(rpc::Status::default());
    for (which, status, code, text) in [
        (queue(plain()), unavailable(), Code::FailedPrecondition, "has workers"),
        (
            queue(queue_of("", &[("a", "b")], 0)),
            unavailable(),
            Code::NotFound,
            "there is no queue of instance name prefix ''",
        ),
        (None, unavailable(), Code::InvalidArgument, "filter is not set"),
        (Some(Kill::OperationName("x".into())), ok, Code::InvalidArgument, "absent or OK"),
        (Some(Kill::OperationName("x".into())), None, Code::InvalidArgument, "absent or OK"),
    ] {
        let refused = kill(&mut state, which, status).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(text), "{refused}");
    }
}

#[tokio::test]
async fn terminate_workers_blocks_until_their_actions_end() {
    let server = server().await;
    let (client, mut state) = (server.client().await, state(&server).await);
    let mut worker = server.worker(&host("goes")).await;
    let runs = execute(&client, &action("1")).await;
    let work = given(&mut worker).await;
    let pattern = HashMap::from([("hostname".to_owned(), "goes".to_owned())]);
    let request = TerminateWorkersRequest { worker_id_pattern: pattern.clone() };
    let mut blocks = tokio::spawn({
        let (mut state, request) = (state.clone(), request.clone());
        async move { state.terminate_workers(request).await }
    });
    within(async { while !workers(&mut state, Workers::All(plain())).await[0].drained {} }).await;
    worker.report(ExecutionState::Running(()));
    told_to_go_on(&mut worker).await;
    assert!(tokio::time::timeout(std::time::Duration::from_millis(300), &mut blocks).await.is_err());
    let own = admin(&server).await.list_workers(OwnListWorkersRequest {}).await.unwrap().into_inner();
    assert!(own.workers[0].terminating && !own.workers[0].drained, "{own:?}");

    let next = execute(&client, &action("2")).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(runs).await;
    within(blocks).await.unwrap().unwrap();
    // With nothing to wait for the answer comes at once, and another worker gets what waits.
    within(state.terminate_workers(request)).await.unwrap();
    told_idle(&mut worker).await;
    let _stays = server.eager_worker(&host("stays")).await;
    response(next).await;
    // Who comes back when it is forgotten is another.
    until(|| server.server.driver.counts().workers == 1).await;
    let runs = execute(&client, &action("3")).await;
    let _again = server.eager_worker(&host("goes")).await;
    response(runs).await;
}

#[tokio::test]
async fn add_and_remove_drain_during_a_poll() {
    let server = server().await;
    let (client, mut state) = (server.client().await, state(&server).await);
    let call = calling(server.worker(&host("h")).await).await;
    let _elsewhere = server.stuck_worker(&host("h").with_property("Pool", "x")).await;
    until(|| server.server.driver.counts().workers >= 2).await;
    let request = AddOrRemoveDrainRequest {
        size_class_queue_name: Some(plain()),
        worker_id_pattern: HashMap::from([("hostname".to_owned(), "h".to_owned())]),
    };
    for _ in 0..2 {
        state.add_drain(request.clone()).await.unwrap();
    }
    let drains = async |state: &mut BuildQueueStateClient<Channel>, queue| {
        let request = ListDrainsRequest { size_class_queue_name: Some(queue) };
        state.list_drains(request).await.unwrap().into_inner().drains
    };
    let listed = drains(&mut state, plain()).await;
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].worker_id_pattern, request.worker_id_pattern);
    assert!(listed[0].created_timestamp.is_some());
    let x = queue_of("", &[("Pool", "x")], 0);
    assert!(
        drains(&mut state, x.clone()).await.is_empty(),
        "the worker of the same name in another queue is free"
    );
    assert!(workers(&mut state, Workers::All(plain())).await[0].drained);
    assert!(!workers(&mut state, Workers::All(x)).await[0].drained);
    // The other interface for operators shows it too, and says in which queue it is.
    let own = admin(&server).await.list_holds(ListHoldsRequest {}).await.unwrap().into_inner().holds;
    assert_eq!((own.len(), own[0].workers, own[0].queue.as_ref().unwrap().size_class), (1, 1, 0));

    // It stays in its call and is no candidate.
    let spec = action("1").with_property("Pool", "");
    let updates = execute(&client, &spec).await;
    drop(updates);
    let updates = {
        // Only the drained worker's queue could run it: the other one is busy.
        let first = execute(&client, &action("2")).await;
        let second = execute(&client, &action("3")).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        assert!(server.server.driver.counts().queued >= 1);
        (first, second)
    };
    for _ in 0..2 {
        state.remove_drain(request.clone()).await.unwrap();
    }
    let (mut worker, told) = within(call).await.unwrap();
    let work = match told.unwrap() {
        pointsman_tests::fake_worker::Instruction::Execute(work) => work,
        // The call was over before the drain; the next one gets it.
        _ => given(&mut worker).await,
    };
    worker.complete(exited(&work, 0));
    drop(updates);
    assert!(drains(&mut state, plain()).await.is_empty());
}

#[tokio::test]
async fn our_own_drains_are_shown_and_theirs_are_removed_by_our_command() {
    let server = server().await;
    let (mut state, mut own) = (state(&server).await, admin(&server).await);
    let _worker = server.stuck_worker(&host("h")).await;
    until(|| server.server.driver.counts().workers >= 1).await;
    let pattern = HashMap::from([("hostname".to_owned(), "h".to_owned())]);
    let hold =
        pointsman_proto::v1::Hold { kind: 1, worker_id_pattern: pattern.clone(), ..Default::default() };
    let hold = Some(hold);
    own.add_hold(pointsman_proto::v1::AddHoldRequest { hold: hold.clone() }).await.unwrap();
    let theirs = AddOrRemoveDrainRequest { size_class_queue_name: Some(plain()), worker_id_pattern: pattern };
    state.add_drain(theirs).await.unwrap();
    let request = ListDrainsRequest { size_class_queue_name: Some(plain()) };
    assert_eq!(state.list_drains(request.clone()).await.unwrap().into_inner().drains.len(), 2);
    let removed =
        own.remove_hold(pointsman_proto::v1::RemoveHoldRequest { hold }).await.unwrap().into_inner();
    assert!(removed.text.starts_with("removed"), "{removed:?}");
    assert!(state.list_drains(request).await.unwrap().into_inner().drains.is_empty());
}

#[tokio::test]
async fn what_is_not_there_or_makes_no_sense_is_said() {
    let server = server().await;
    let mut state = state(&server).await;
    let nowhere = || queue_of("", &[("no", "such")], 3);
    let unsorted = queue_of("", &[("b", "1"), ("a", "1")], 0);
    let unknown = "there is no queue of instance name prefix '', platform {\"properties\":[{\"name\":\"no\",\"value\":\"such\"}]} and size class 3";
    let list = |filter| ListWorkersRequest { filter, page_size: 1, start_after: None };
    let all = |queue| Some(Filter { r#type: Some(Workers::All(queue)) });
    let cases = [
        (state.list_workers(list(all(nowhere()))).await.err(), Code::NotFound, unknown),
        (state.list_workers(list(all(unsorted))).await.err(), Code::InvalidArgument, "must be sorted"),
        (state.list_workers(list(None)).await.err(), Code::InvalidArgument, "filter is not set"),
        (
            state.list_workers(list(all(queue_of("a//b", &[], 0)))).await.err(),
            Code::InvalidArgument,
            "instance name \"a//b\"",
        ),
        (
            state.list_drains(ListDrainsRequest { size_class_queue_name: Some(nowhere()) }).await.err(),
            Code::NotFound,
            unknown,
        ),
        (
            state
                .add_drain(AddOrRemoveDrainRequest {
                    size_class_queue_name: Some(nowhere()),
                    ..Default::default()
                })
                .await
                .err(),
            Code::NotFound,
            unknown,
        ),
        (
            state.remove_drain(AddOrRemoveDrainRequest::default()).await.err(),
            Code::InvalidArgument,
            "size_class_queue_name is not set",
        ),
        (
            state.get_operation(GetOperationRequest { operation_name: "x".to_owned() }).await.err(),
            Code::NotFound,
            "there is no operation 'x'",
        ),
        (
            state.list_invocation_children(ListInvocationChildrenRequest::default()).await.err(),
            Code::InvalidArgument,
            "invocation_name is not set",
        ),
        (
            state
                .list_operations(ListOperationsRequest {
                    filter_invocation_id: Some(Any { type_url: "a/b.C".to_owned(), value: Vec::new() }),
                    ..Default::default()
                })
                .await
                .err(),
            Code::InvalidArgument,
            "a \"b.C\": give a google.protobuf.Value",
        ),
    ];
    for (error, code, text) in cases {
        let error = error.unwrap();
        assert_eq!(error.code(), code, "{error}");
        assert!(error.message().contains(text), "{error}");
    }
    let _worker = server.stuck_worker(&host("h")).await;
    until(|| server.server.driver.counts().workers >= 1).await;
    let request = ListInvocationChildrenRequest {
        invocation_name: invocation(plain(), vec![build_id("nobody")]),
        ..Default::default()
    };
    let error = state.list_invocation_children(request).await.unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().contains("for the invocation [\"nobody\"]"), "{error}");
}
