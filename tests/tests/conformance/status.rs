//! The table of what workers report, row by row and end to end.

use pointsman::workers::status_table::{Meaning, STATUS_TABLE};
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::rpc::Code;
use pointsman_tests::fake_worker::exited;

use crate::steps::{execute, failed, given, response, told_idle};
use crate::support::{action, host, server, server_with, started, within};

const TEXT: &str = "as the worker says";

#[tokio::test]
async fn every_status_that_workers_report_is_an_answer_or_an_attempt() {
    let server = server().await;
    let client = server.client().await;
    for (code, meaning) in STATUS_TABLE.iter().filter(|(code, _)| *code != Code::Ok) {
        let name = code.as_str_name();
        let updates = execute(&client, &action(name)).await;
        let mut first = server.worker(&host(&format!("{name} first"))).await;
        given(&mut first).await;
        first.complete(failed((*code).into(), TEXT));
        // As workers do after a failure.
        first.prefer_being_idle(true);
        told_idle(&mut first).await;
        if *meaning == Meaning::Answer {
            let status = response(updates).await.status.unwrap();
            assert_eq!((status.code, &*status.message), (i32::from(*code), TEXT), "{name}");
            continue;
        }
        let mut second = server.eager_worker(&host(&format!("{name} second"))).await;
        let got = response(updates).await;
        assert_eq!((got.status, got.result.unwrap().exit_code), (None, 0), "{name}");
        started(&mut second).await;
        second.stopped().await;
    }
}

#[tokio::test]
async fn ok_is_an_answer_with_a_result_and_an_attempt_without() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut liar = server.worker(&host("liar")).await;
    let work = given(&mut liar).await;
    liar.complete(ExecuteResponse::default());
    told_idle(&mut liar).await;
    let mut other = server.worker(&host("other")).await;
    given(&mut other).await;
    other.complete(exited(&work, 4));
    told_idle(&mut other).await;
    assert_eq!(response(updates).await.result.unwrap().exit_code, 4);
}

#[tokio::test]
async fn a_code_that_nobody_knows_is_an_attempt() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut first = server.worker(&host("first")).await;
    given(&mut first).await;
    first.complete(failed(99, TEXT));
    first.prefer_being_idle(true);
    told_idle(&mut first).await;
    let _second = server.eager_worker(&host("second")).await;
    assert_eq!(response(updates).await.status, None);
}

/// Lets workers report that code one after the other until the client has its answer; how many it took.
async fn tries(code: Code, attempts: &str) -> usize {
    let timers = "quarantine_after: 0";
    let server = server_with(&format!("max_attempts: 9, {timers}, attempts: {attempts}")).await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let end = tokio::spawn(response(updates));
    for n in 0.. {
        if end.is_finished() {
            let status = end.await.unwrap().status.unwrap();
            assert_eq!(status.code, i32::from(Code::FailedPrecondition));
            assert!(status.message.contains(TEXT), "{}", status.message);
            return n;
        }
        let mut worker = server.worker(&host(&n.to_string())).await;
        within(async {
            loop {
                match worker.synchronize().await.unwrap() {
                    pointsman_tests::fake_worker::Instruction::Execute(_) => return,
                    _ => assert!(!end.is_finished(), "over before it was tried"),
                }
            }
        })
        .await;
        worker.complete(failed(code.into(), TEXT));
        worker.prefer_being_idle(true);
        told_idle(&mut worker).await;
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    unreachable!()
}

#[tokio::test]
async fn each_kind_of_failure_has_its_budget() {
    assert_eq!(tries(Code::Internal, "{ reported: 2 }").await, 2);
    assert_eq!(tries(Code::Unavailable, "{ reported: 4 }").await, 4);
    // Three times for nothing, then twice as a failure of the worker.
    assert_eq!(tries(Code::ResourceExhausted, "{ reported: 2, exhausted_forgiven: 3 }").await, 5);
}
