//! `prefer_being_idle` with each state.

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_tests::fake_worker::exited;
use std::time::{Duration, Instant};

use crate::steps::{cancel, execute, failed, given, name, response, status, told_idle, told_to_go_on};
use crate::support::{action, host, server, within};

#[tokio::test]
async fn idle_with_nothing_bound_is_answered_at_once() {
    let server = server().await;
    let client = server.client().await;
    let _queued = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    worker.prefer_being_idle(true);
    let began = Instant::now();
    told_idle(&mut worker).await;
    assert!(began.elapsed() < Duration::from_millis(190), "{:?}", began.elapsed());
    worker.prefer_being_idle(false);
    given(&mut worker).await;
}

#[tokio::test]
async fn idle_with_a_bound_task_gives_it_to_another_at_no_cost() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut leaving = server.worker(&host("leaving")).await;
    // The answer is lost, and the worker shuts down.
    given(&mut leaving.clone()).await;
    leaving.prefer_being_idle(true);
    told_idle(&mut leaving).await;
    let mut other = server.worker(&host("other")).await;
    let work = given(&mut other).await;
    other.complete(exited(&work, 0));
    told_idle(&mut other).await;
    assert_eq!(response(updates).await.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn executing_goes_on() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    worker.prefer_being_idle(true);
    for state in [ExecutionState::Running(()), ExecutionState::UploadingOutputs(())] {
        worker.report(state);
        told_to_go_on(&mut worker).await;
    }
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(updates).await;
}

#[tokio::test]
async fn executing_what_is_cancelled_is_told_idle() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    given(&mut worker).await;
    cancel(&client, &name(&mut updates).await).await;
    worker.prefer_being_idle(true);
    worker.report(ExecutionState::Running(()));
    told_idle(&mut worker).await;
}

#[tokio::test]
async fn completed_is_taken_and_nothing_more_is_given() {
    let server = server().await;
    let client = server.client().await;
    let (one, two) = (execute(&client, &action("1")).await, execute(&client, &action("2")).await);
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    worker.complete(exited(&work, 0));
    worker.prefer_being_idle(true);
    let began = Instant::now();
    told_idle(&mut worker).await;
    assert!(began.elapsed() < Duration::from_millis(190), "{:?}", began.elapsed());
    response(one).await;
    // It is well again, and serves the next.
    worker.prefer_being_idle(false);
    let work = given(&mut worker).await;
    worker.complete(exited(&work, 0));
    told_idle(&mut worker).await;
    response(two).await;
}

#[tokio::test]
async fn completed_of_something_else_is_ignored() {
    let server = server().await;
    let client = server.client().await;
    let mut one = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    let work = given(&mut worker).await;
    cancel(&client, &name(&mut one).await).await;
    worker.complete(exited(&work, 0));
    worker.prefer_being_idle(true);
    told_idle(&mut worker).await;
    assert_eq!(status(one).await.0, pointsman_proto::rpc::Code::Cancelled);
}

#[tokio::test]
async fn bb_noop_worker_answers_with_a_text_and_prefers_being_idle() {
    let server = server().await;
    let client = server.client().await;
    let worker = server.worker(&host("noop")).await;
    // As bb_noop_worker does: no execution, a status that is not OK, and therefore the wish to be idle.
    let text = "Action has been uploaded, but will not be executed.";
    let code = pointsman_proto::rpc::Code::InvalidArgument;
    let _noop = worker.start(move |_| async move { failed(code.into(), text) });
    for n in ["1", "2"] {
        let updates = execute(&client, &action(n)).await;
        assert_eq!(within(status(updates)).await, (code, text.to_owned()));
    }
}
