//! Workers that come, go, repeat themselves and lie.

use std::time::Duration;

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::remoteworker::current_state::{Executing, WorkerState};
use pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient;
use pointsman_proto::remoteworker::{CurrentState, SynchronizeRequest, SynchronizeResponse, desired_state};
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{ExecuteResponse, Platform, platform::Property};
use pointsman_proto::rpc;
use pointsman_tests::fake_client::connect;
use pointsman_tests::fake_worker::{Event, FakeWorker, Instruction, Work, exited};
use tonic::Code;

use crate::support::{action, host, server, started, within};

#[tokio::test]
async fn an_idle_poll_waits_and_is_then_told_so() {
    let server = server().await;
    let mut worker = server.worker(&host("h")).await;
    let began = tokio::time::Instant::now();
    let instruction = within(worker.synchronize()).await.unwrap();
    assert!(matches!(instruction, Instruction::Idle));
    // `idle_poll` is 400 ms, jittered downwards by half at most.
    assert!(began.elapsed() >= Duration::from_millis(190), "{:?}", began.elapsed());
}

#[tokio::test]
async fn the_result_and_the_next_action_go_in_one_call() {
    let server = server().await;
    let client = server.client().await;
    let one = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let two = client.execute(&client.upload_action(&action("2")).await.unwrap()).await.unwrap();
    let mut worker = server.worker(&host("h")).await;
    let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() else { panic!("no work") };
    worker.complete(exited(&work, 0));
    let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() else { panic!("no work") };
    within(one.finish()).await.unwrap();
    worker.complete(exited(&work, 0));
    let (done, _) = within(async { tokio::join!(two.finish(), worker.synchronize()) }).await;
    done.unwrap();
}

#[tokio::test]
async fn a_result_sent_twice_is_taken_once() {
    let server = server().await;
    let client = server.client().await;
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut worker = server.worker(&host("h")).await;
    let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() else { panic!("no work") };
    worker.complete(exited(&work, 0));
    // The answer to the first is lost, so the worker says it again.
    let mut lost = worker.clone();
    let _lost = tokio::time::timeout(Duration::from_millis(100), lost.synchronize()).await;
    assert!(matches!(within(worker.synchronize()).await.unwrap(), Instruction::Idle));
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn an_answer_lost_on_its_way_is_sent_again() {
    let server = server().await;
    let client = server.client().await;
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut worker = server.worker(&host("h")).await;
    let mut lost = worker.clone();
    assert!(matches!(within(lost.synchronize()).await.unwrap(), Instruction::Execute(_)));
    let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() else { panic!("no work") };
    worker.complete(exited(&work, 0));
    let (_, finished) = within(async { tokio::join!(worker.synchronize(), updates.finish()) }).await;
    finished.unwrap();
}

#[tokio::test]
async fn the_action_of_a_vanished_worker_goes_to_another_host() {
    let server = server().await;
    let client = server.client().await;
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut first = server.stuck_worker(&host("first")).await;
    started(&mut first).await;
    let mut second = server.eager_worker(&host("second")).await;
    first.crash();
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.status, None);
    started(&mut second).await;
}

#[tokio::test]
async fn an_action_that_nobody_can_do_fails_with_every_attempt_named() {
    let server = server().await;
    let client = server.client().await;
    let mut workers = Vec::new();
    for name in ["one", "two", "three", "four"] {
        let worker = server.worker(&host(name)).await;
        workers.push(worker.start(move |_| async move {
            let status = rpc::Status {
                code: rpc::Code::Internal.into(),
                message: format!("{name} is broken"),
                ..Default::default()
            };
            ExecuteResponse { status: Some(status), ..Default::default() }
        }));
    }
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let status = within(updates.finish()).await.unwrap().response.status.unwrap();
    // Not one that clients retry: it was.
    assert_eq!(status.code, i32::from(rpc::Code::FailedPrecondition));
    assert!(status.message.contains("tried 3 times"), "{}", status.message);
    assert_eq!(status.message.matches("is broken").count(), 3, "{}", status.message);
}

#[tokio::test]
async fn a_time_out_and_missing_inputs_go_to_the_client() {
    let server = server().await;
    let client = server.client().await;
    for code in [rpc::Code::DeadlineExceeded, rpc::Code::FailedPrecondition, rpc::Code::InvalidArgument] {
        let worker = server.worker(&host("h")).await;
        let worker = worker.start(move |work| async move {
            let status = rpc::Status {
                code: code.into(),
                message: "as the worker says".to_owned(),
                ..Default::default()
            };
            ExecuteResponse { status: Some(status), ..exited(&work, 1) }
        });
        let updates =
            client.execute(&client.upload_action(&action(code.as_str_name())).await.unwrap()).await.unwrap();
        let status = within(updates.finish()).await.unwrap().response.status.unwrap();
        assert_eq!((status.code, &*status.message), (code.into(), "as the worker says"));
        worker.stopped().await;
    }
}

#[tokio::test]
async fn a_worker_that_lies_about_success_is_not_believed() {
    let server = server().await;
    let client = server.client().await;
    let worker = server.worker(&host("liar")).await;
    let _liar = worker.start(|_| async { ExecuteResponse::default() });
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let status = within(updates.finish()).await.unwrap().response.status.unwrap();
    assert!(status.message.contains("success without a result"), "{}", status.message);
}

/// What a worker says when it executes something.
fn executing(worker: &FakeWorker, work: &Work, state: ExecutionState) -> SynchronizeRequest {
    let executing = Executing { action_digest: work.action_digest.clone(), execution_state: Some(state) };
    let state = CurrentState { worker_state: Some(WorkerState::Executing(executing)) };
    SynchronizeRequest { current_state: Some(state), ..worker.request().clone() }
}

fn is_told_to_stop(answer: &SynchronizeResponse) -> bool {
    let desired = answer.desired_state.as_ref().and_then(|state| state.worker_state.as_ref());
    matches!(desired, Some(desired_state::WorkerState::Idle(())))
}

#[tokio::test]
async fn a_report_of_what_it_was_not_given_changes_nothing() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut honest = server.worker(&host("honest")).await;
    let Instruction::Execute(work) = within(honest.synchronize()).await.unwrap() else { panic!("no work") };
    within(updates.until(Stage::Executing)).await.unwrap();

    let liar = server.worker(&host("liar")).await;
    let mut calls = OperationQueueClient::new(connect(server.address).await.unwrap());
    for lie in [ExecutionState::Completed(exited(&work, 7)), ExecutionState::Running(())] {
        let answer = within(calls.synchronize(executing(&liar, &work, lie))).await.unwrap().into_inner();
        assert!(is_told_to_stop(&answer), "{answer:?}");
    }
    let counts = server.server.driver.counts();
    assert_eq!((counts.running, counts.workers), (1, 2));

    honest.complete(exited(&work, 0));
    let (_, finished) = within(async { tokio::join!(honest.synchronize(), updates.finish()) }).await;
    assert_eq!(finished.unwrap().response.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn reports_in_the_wrong_order_end_an_action_once() {
    let server = server().await;
    let client = server.client().await;
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut worker = server.worker(&host("h")).await;
    let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() else { panic!("no work") };
    let mut calls = OperationQueueClient::new(connect(server.address).await.unwrap());
    for (state, stops) in [
        (ExecutionState::UploadingOutputs(()), false),
        (ExecutionState::Started(()), false),
        (ExecutionState::Completed(exited(&work, 0)), true),
        (ExecutionState::Running(()), true),
        (ExecutionState::Completed(exited(&work, 7)), true),
    ] {
        let request = executing(&worker, &work, state.clone());
        let answer = within(calls.synchronize(request)).await.unwrap().into_inner();
        assert_eq!(is_told_to_stop(&answer), stops, "{state:?}: {answer:?}");
    }
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0, "the first word counts");
    let next = client.execute(&client.upload_action(&action("2")).await.unwrap()).await.unwrap();
    let _worker = server.eager_worker(&host("h")).await;
    within(next.finish()).await.unwrap();
}

/// The protocol has no word for it: it is a new worker of the same host, and the old one is missed after a while.
#[tokio::test]
async fn a_worker_that_changes_its_platform_under_the_same_id_loses_nothing() {
    let server = server().await;
    let client = server.client().await;
    let spec = action("1").with_property("cpu_count", "2");
    let updates = client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap();
    let mut before = server.worker(&host("h").with_property("cpu_count", "2")).await;
    let Instruction::Execute(_) = within(before.synchronize()).await.unwrap() else { panic!("no work") };
    let _after = server.eager_worker(&host("h").with_property("cpu_count", "4")).await;
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0);
    let counts = server.server.driver.counts();
    assert_eq!((counts.hosts, counts.workers, counts.queued), (1, 1, 0));
}

#[tokio::test]
async fn a_worker_that_leaves_gives_its_place_up_at_no_cost() {
    let server = server().await;
    let mut worker = server.eager_worker(&host("h")).await;
    let client = server.client().await;
    within(client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap().finish())
        .await
        .unwrap();
    worker.stop();
    while within(worker.next_event()).await.is_some() {}
}

#[tokio::test]
async fn a_second_call_of_one_worker_takes_the_place_of_the_first() {
    let server = server().await;
    let worker = server.worker(&host("h")).await;
    let mut older = worker.clone();
    let older = tokio::spawn(async move { older.synchronize().await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut newer = worker;
    let newer = tokio::spawn(async move { newer.synchronize().await });
    let status = within(older).await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("worker_id"), "{status}");
    assert!(matches!(within(newer).await.unwrap().unwrap(), Instruction::Idle));
}

#[tokio::test]
async fn malformed_calls_are_refused() {
    let server = server().await;
    let mut client = OperationQueueClient::new(connect(server.address).await.unwrap());
    let good = server.worker(&host("h")).await.request().clone();
    let property = |name: &str| Property { name: name.into(), value: String::new() };
    let unsorted = Platform { properties: vec![property("b"), property("a")] };
    let long = [("hostname".to_owned(), "x".repeat(100_000))].into();
    let cases = [
        (SynchronizeRequest { current_state: None, ..good.clone() }, "current_state"),
        (SynchronizeRequest { worker_id: Default::default(), ..good.clone() }, "worker_id"),
        (SynchronizeRequest { worker_id: long, ..good.clone() }, "bytes"),
        (SynchronizeRequest { instance_name_prefix: "a//b".into(), ..good.clone() }, "instance_name_prefix"),
        (SynchronizeRequest { platform: Some(unsorted), ..good }, "sorted"),
    ];
    for (request, part) in cases {
        let status = within(client.synchronize(request)).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        assert!(status.message().contains(part), "{part} is not in: {status}");
    }
}

#[tokio::test]
async fn threads_of_a_host_share_its_processors() {
    let server = server().await;
    let client = server.client().await;
    let spec = host("h").with_property("cpu_count", "2");
    let mut threads = Vec::new();
    for index in 0..3 {
        threads.push(server.stuck_worker(&spec.thread(index)).await);
    }
    let mut running = Vec::new();
    for name in ["1", "2", "3"] {
        let spec = action(name).with_property("cpu_count", "1");
        running.push(client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap());
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let counts = server.server.driver.counts();
    assert_eq!((counts.running, counts.queued, counts.hosts, counts.workers), (2, 1, 1, 3));
    let mut busy = 0;
    for thread in &mut threads {
        while let Ok(Some(event)) = tokio::time::timeout(Duration::from_millis(50), thread.next_event()).await
        {
            busy += usize::from(matches!(event, Event::Started(_)));
        }
    }
    assert_eq!(busy, 2);
}

#[tokio::test]
async fn an_instance_name_reaches_the_worker_as_a_suffix() {
    let server = server().await;
    let client = server.client().await.with_instance_name("a/b/c");
    let mut spec = host("h");
    spec.instance_name_prefix = "a".to_owned();
    let updates = client.execute(&client.upload_action(&action("1")).await.unwrap()).await.unwrap();
    let mut worker = server.eager_worker(&spec).await;
    within(updates.finish()).await.unwrap();
    assert_eq!(started(&mut worker).await.instance_name_suffix, "b/c");
}
