//! Hooks other than the one that routes, with a policy that has them all (`guests/hooks`).

use std::path::PathBuf;
use std::time::Duration;

use pointsman_policy::Hook;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{
    ActionResult, ExecuteResponse, GetActionResultRequest, UpdateActionResultRequest,
};
use pointsman_proto::v1::ListWorkersRequest;
use pointsman_proto::v1::list_workers_response::{Refused, Worker};
use pointsman_proto::{rpc, v1};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Finished, Updates};
use pointsman_tests::fake_worker::{Event, Instruction, RunningWorker, WorkerSpec, exited};
use pointsman_tests::harness::build_policy;
use tonic::Code;

use crate::support::{TestServer, action, admin, host, server_with, started, why, within};

async fn policy() -> Option<PathBuf> {
    build_policy("hooks of policies", "tests/guests/hooks/build.sh").await.unwrap()
}

/// A server with the policy, and these keys besides; `None`: it can't be built here.
async fn hooked(keys: &str) -> Option<TestServer> {
    let file = policy().await?;
    Some(server_with(&format!("policy: {{ file: '{}' }}, {keys}", file.display())).await)
}

/// A worker with one more entry in its id.
fn saying(name: &str, key: &str, value: &str) -> WorkerSpec {
    let mut spec = host(name);
    spec.id.insert(key.to_owned(), value.to_owned());
    spec
}

/// A worker whose actions all end with this exit code.
async fn ending(server: &TestServer, spec: &WorkerSpec, exit_code: i32) -> RunningWorker {
    server.worker(spec).await.start(move |work| async move { exited(&work, exit_code) })
}

async fn execute(client: &FakeClient, spec: &ActionSpec) -> Updates {
    client.execute(&client.upload_action(spec).await.unwrap()).await.unwrap()
}

async fn run(client: &FakeClient, spec: &ActionSpec) -> Finished {
    within(execute(client, spec).await.finish()).await.unwrap()
}

fn exit_code(finished: &Finished) -> i32 {
    finished.response.result.as_ref().unwrap().exit_code
}

async fn workers(server: &TestServer) -> (Vec<Worker>, Vec<Refused>) {
    let answer = admin(server).await.list_workers(ListWorkersRequest {}).await.unwrap().into_inner();
    (answer.workers, answer.refused)
}

/// Waits until so many workers are known.
async fn known(server: &TestServer, n: usize) -> Vec<Worker> {
    within(async {
        loop {
            let (workers, _) = workers(server).await;
            if workers.len() == n && workers.iter().all(|w| w.state == "waiting") {
                return workers;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
}

// === on-result ===

#[tokio::test]
async fn a_result_that_is_not_taken_is_run_again_by_the_new_route() {
    let Some(server) = hooked("action_cache: { write_results: true }").await else { return };
    let client = server.client().await;
    let _small = ending(&server, &host("small"), 42).await;
    let mut updates = execute(&client, &action("1")).await;
    // It is queued a second time: no worker is of the pool yet.
    within(updates.until(Stage::Executing)).await.unwrap();
    let waits = within(updates.until(Stage::Queued)).await.unwrap();
    let decision = waits.routing().unwrap();
    assert_eq!((&*decision.pool, &*decision.policy_name), ("big", "hooks"));
    assert_eq!(decision.notes, ["once more, on large machines"]);
    let [again] = &decision.run_again[..] else { panic!("{decision:?}") };
    assert_eq!((again.attempt, &*again.outcome, again.exit_code), (1, "failed", 42));
    assert_eq!((&*again.host, &*again.policy_name), (r#"{"hostname":"small"}"#, "hooks"));
    let found = why(&mut admin(&server).await, &waits.name).await;
    assert!(found.text.contains("is run again: it ended with exit code 42, and policy hooks"), "{found:?}");
    assert_eq!(found.attempts.len(), 1);

    let mut large = ending(&server, &saying("large", "pool", "big"), 0).await;
    let work = started(&mut large).await;
    let finished = within(updates.finish()).await.unwrap();
    assert_eq!((exit_code(&finished), finished.response.status.clone()), (0, None));
    assert_eq!(finished.routing().unwrap().run_again.len(), 1);
    // Workers are told too, so the result says where it comes from.
    let told: v1::RoutingDecision = pointsman_proto::unpack(work.auxiliary_metadata.last().unwrap()).unwrap();
    assert_eq!(told.run_again.len(), 1);
}

#[tokio::test]
async fn the_last_result_that_is_allowed_is_the_answer() {
    let Some(server) = hooked("max_attempts: 2").await else { return };
    let client = server.client().await;
    // Exit code 44 is asked to run again as often as may be.
    let _worker = ending(&server, &host("h"), 44).await;
    let finished = run(&client, &action("1")).await;
    assert_eq!(exit_code(&finished), 44);
    let message = &finished.response.message;
    assert!(message.contains("asked for another attempt; this was the last of 2"), "{message}");
    assert_eq!(finished.routing().unwrap().run_again.len(), 1);
}

#[tokio::test]
async fn a_success_that_is_not_taken_is_neither_written_nor_found_again() {
    let Some(server) = hooked("action_cache: { write_results: true }").await else { return };
    let client = server.client().await;
    let digest = client.upload_action(&action("1").with_property("hooks-distrust", "")).await.unwrap();
    let mut updates = client.execute(&digest).await.unwrap();
    let _small = ending(&server, &host("small"), 0).await;
    within(updates.until(Stage::Executing)).await.unwrap();
    within(updates.until(Stage::Queued)).await.unwrap();
    let stored = async || {
        let request = GetActionResultRequest { action_digest: Some(digest.clone()), ..Default::default() };
        client.action_cache().get_action_result(request).await.map(|found| found.into_inner().exit_code)
    };
    assert_eq!(stored().await.unwrap_err().code(), Code::NotFound);

    // As a worker that writes by itself has done.
    let written = ActionResult { exit_code: 0, stdout_raw: "first".into(), ..ActionResult::default() };
    let request = UpdateActionResultRequest {
        action_digest: Some(digest.clone()),
        action_result: Some(written),
        ..UpdateActionResultRequest::default()
    };
    client.action_cache().update_action_result(request).await.unwrap();
    let mut large = server.eager_worker(&saying("large", "pool", "big")).await;
    started(&mut large).await;
    let finished = within(updates.finish()).await.unwrap();
    assert!(!finished.response.cached_result && finished.response.result.unwrap().stdout_raw.is_empty());
    assert_eq!(stored().await.unwrap(), 0, "the second is written");
}

#[tokio::test]
async fn a_policy_may_end_an_action_whatever_its_result() {
    let Some(server) = hooked("action_cache: { write_results: true }").await else { return };
    let client = server.client().await;
    let mut worker = ending(&server, &host("h"), 43).await;
    let finished = run(&client, &action("1")).await;
    let status = finished.response.status.unwrap();
    assert_eq!(status.code, i32::from(rpc::Code::ResourceExhausted));
    assert!(status.message.starts_with("rejected by policy hooks"), "{}", status.message);
    let said =
        r#"after attempt 1 on {"hostname":"h"} (it ended with exit code 43): failed after 0; ask the test"#;
    assert!(status.message.contains(said), "{}", status.message);
    assert_eq!(finished.response.result, None);
    // Its worker has done nothing wrong, and does on.
    started(&mut worker).await;
    run(&client, &action("2")).await;
    started(&mut worker).await;
}

#[tokio::test]
async fn a_policy_that_fails_at_a_result_or_wants_what_cannot_be_leaves_it_as_it_is() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    for code in [45, 46] {
        let worker = ending(&server, &host("h"), code).await;
        assert_eq!(exit_code(&run(&client, &action(&code.to_string())).await), code);
        worker.stopped().await;
    }
}

#[tokio::test]
async fn all_who_wait_for_it_get_the_second_result() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    let (one, two) = (execute(&client, &action("1")).await, execute(&client, &action("1")).await);
    let _small = ending(&server, &host("small"), 42).await;
    let _large = ending(&server, &saying("large", "pool", "big"), 7).await;
    let (one, two) = within(async { tokio::join!(one.finish(), two.finish()) }).await;
    assert_eq!((exit_code(&one.unwrap()), exit_code(&two.unwrap())), (7, 7));
}

// === on-action again ===

#[tokio::test]
async fn an_attempt_that_fails_is_told_of_and_the_action_routed_anew() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    let broken = server.worker(&host("broken")).await.start(|_| async {
        let (code, message) = (rpc::Code::Internal.into(), "no disk".to_owned());
        let status = rpc::Status { code, message, ..rpc::Status::default() };
        ExecuteResponse { status: Some(status), ..ExecuteResponse::default() }
    });
    let mut updates = execute(&client, &action("1").with_property("hooks-retry-pool", "spare")).await;
    let name = within(updates.until(Stage::Executing)).await.unwrap().name;
    let mut admin = admin(&server).await;
    within(async {
        while why(&mut admin, &name).await.decision.unwrap().pool != "spare" {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    broken.stopped().await;
    let _other = server.eager_worker(&saying("other", "pool", "other")).await;
    let _spare = server.eager_worker(&saying("spare", "pool", "spare")).await;
    let decision = within(updates.finish()).await.unwrap().routing().unwrap();
    assert_eq!(decision.notes, [r#"infrastructure error on {"hostname":"broken"}"#]);
}

// === on-worker ===

#[tokio::test]
async fn a_worker_joins_on_the_terms_of_the_policy() {
    let Some(server) = hooked("supported_platform_properties: { tier: 'exact' }").await else { return };
    let client = server.client().await;
    let mut spec = saying("h", "pool", "fast");
    for (key, value) in
        [("set", "tier=gold"), ("inflight", "3"), ("strategies", "a,b"), ("exclusive", "60000")]
    {
        spec.id.insert(key.to_owned(), value.to_owned());
    }
    let _worker = server.eager_worker(&spec).await;
    let [worker] = &known(&server, 1).await[..] else { panic!() };
    assert_eq!((&*worker.pool, worker.inflight_max), ("fast", 3));
    assert_eq!((&*worker.platform[0].name, &*worker.platform[0].value), ("tier", "gold"));
    assert_eq!(
        (worker.has_strategies, &worker.strategies[..]),
        (true, &["a".to_owned(), "b".to_owned()][..])
    );
    assert_eq!((&*worker.exclusive, worker.exclusive_interval_ms), ("not-more-often-than", 60_000));
    assert_eq!((worker.exclusive_below, &worker.notes[..]), (Some(7), &["of size class 0".to_owned()][..]));
    assert!(worker.admitted_by.starts_with("hooks "), "{worker:?}");
    run(&client, &action("1").with_property("tier", "gold")).await;
}

#[tokio::test]
async fn a_worker_that_is_turned_away_is_told_by_whom_and_listed() {
    let Some(server) = hooked("").await else { return };
    let mut worker = server.worker(&saying("h", "refuse", "not one of ours")).await;
    for _ in 0..3 {
        let status = within(worker.synchronize()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition);
        assert!(status.message().starts_with("rejected by policy hooks"), "{status}");
        assert!(status.message().ends_with(": not one of ours; ask the test"), "{status}");
    }
    let (known, refused) = workers(&server).await;
    assert_eq!((known.len(), refused[0].calls), (0, 3));
    assert!(refused[0].reason.contains("not one of ours"), "{refused:?}");
    let tally = server.server.policies.in_force().first("").unwrap().tally();
    assert!(tally.calls.contains(&(Hook::OnWorker, 1)), "it was asked once: {tally:?}");
}

#[tokio::test]
async fn terms_that_cannot_be_typed_turn_a_worker_away() {
    let Some(server) = hooked("").await else { return };
    let mut worker = server.worker(&saying("h", "set", "colour=blue")).await;
    let status = within(worker.synchronize()).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("Bad Property: unknown platform property 'colour'"), "{status}");
    assert!(status.message().contains("among the terms set by policy hooks"), "{status}");
}

#[tokio::test]
async fn a_policy_that_fails_at_a_worker_leaves_it_as_it_is() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    let _worker = server.eager_worker(&saying("h", "trap", "now")).await;
    assert_eq!(exit_code(&run(&client, &action("1")).await), 0);
}

#[tokio::test]
async fn other_policies_other_terms() {
    let Some(file) = policy().await else { return };
    let (server, bytes) = (server_with("").await, std::fs::read(file).unwrap());
    let client = server.client().await;
    let policies = &server.server.policies;
    let _idle = server.eager_worker(&host("idle")).await;
    assert_eq!(&*known(&server, 1).await[0].pool, "default");
    // That takes longer than a worker may be silent here.
    let [one, two] =
        ["one", "two"].map(|pool| policies.load(&bytes, &format!("{{ \"pool\": \"{pool}\" }}")).unwrap());
    policies.install(one);
    let pool = async |name: &str| {
        within(async {
            while workers(&server).await.0.iter().any(|w| w.pool != name) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
    };
    pool("one").await;

    // One that executes stays what it is until it has a result.
    let mut busy = server.worker(&host("busy")).await;
    let waits = tokio::time::timeout(Duration::from_millis(100), busy.synchronize()).await;
    assert!(waits.is_err(), "{waits:?}");
    let updates = execute(&client, &action("1")).await;
    let Ok(Instruction::Execute(work)) = within(busy.synchronize()).await else { return };
    policies.install(two);
    let of_busy = async || {
        let all = workers(&server).await.0;
        all.into_iter().find(|w| w.id["hostname"] == "busy").map(|w| w.pool)
    };
    within(busy.synchronize()).await.unwrap();
    assert_eq!(of_busy().await.as_deref(), Some("one"));
    busy.complete(exited(&work, 0));
    let (finished, _) = within(async { tokio::join!(updates.finish(), busy.synchronize()) }).await;
    finished.unwrap();
    assert_eq!(of_busy().await.as_deref(), Some("two"));
    pool("two").await;
}

#[tokio::test]
async fn a_worker_that_new_policies_turn_away_ends_what_it_has() {
    let Some(file) = policy().await else { return };
    let (server, bytes) = (server_with("").await, std::fs::read(file).unwrap());
    let client = server.client().await;
    let policies = &server.server.policies;
    // That takes longer than a worker may be silent here.
    let next = policies.load(&bytes, r#"{ "refuse": "they have had their time" }"#).unwrap();
    let updates = execute(&client, &action("1")).await;
    let mut worker = server.worker(&host("h")).await;
    let Ok(Instruction::Execute(work)) = within(worker.synchronize()).await else { panic!("no work") };
    policies.install(next);
    assert_eq!(within(worker.synchronize()).await.unwrap(), Instruction::Continue);
    assert!(workers(&server).await.1.is_empty());
    let _waits = execute(&client, &action("2")).await;
    worker.complete(exited(&work, 0));
    assert_eq!(within(worker.synchronize()).await.unwrap(), Instruction::Idle, "nothing more");
    assert_eq!(exit_code(&within(updates.finish()).await.unwrap()), 0);
    let status = within(worker.synchronize()).await.unwrap_err();
    assert!(status.message().contains("they have had their time"), "{status}");
    assert_eq!(workers(&server).await.1[0].calls, 1);
}

// === on-assignment ===

#[tokio::test]
async fn a_policy_puts_hosts_in_order_where_its_route_says_so() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    let mut all = Vec::new();
    for name in ["a", "b", "c"] {
        all.push((name, server.stuck_worker(&host(name)).await));
        known(&server, all.len()).await;
    }
    let mut ranked = execute(&client, &action("1").with_property("hooks-rank", "2")).await;
    let running = within(ranked.until(Stage::Executing)).await.unwrap();
    let decision = running.routing().unwrap();
    assert!(decision.ranked_by.starts_with("hooks "), "{decision:?}");
    let order: Vec<_> = decision.ranked.iter().map(|r| (&*r.host, &*r.reason)).collect();
    assert_eq!(
        order,
        [
            (r#"{"hostname":"b"}"#, r#"{"hostname":"b"} of 2 comes late"#),
            (r#"{"hostname":"a"}"#, r#"{"hostname":"a"} of 2 comes late"#)
        ]
    );
    assert_eq!(running.metadata.partial_execution_metadata.unwrap().worker, r#"{"hostname":"b"}"#);

    let mut plain = execute(&client, &action("2")).await;
    let running = within(plain.until(Stage::Executing)).await.unwrap();
    assert_eq!(running.routing().unwrap().ranked_by, "", "its route does not say so");
    assert_eq!(running.metadata.partial_execution_metadata.unwrap().worker, r#"{"hostname":"a"}"#);

    let mut last = execute(&client, &action("3").with_property("hooks-rank", "9")).await;
    let running = within(last.until(Stage::Executing)).await.unwrap();
    assert_eq!(running.routing().unwrap().ranked_by, "", "there is only one");
    for (name, worker) in &mut all {
        let Some(Event::Started(_)) = within(worker.next_event()).await else { panic!("{name} has nothing") };
    }
}
