//! Results that show a machine to be too small (`sizes.rerun`), and those that don't.

use std::path::PathBuf;
use std::time::Duration;

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{ExecuteResponse, GetActionResultRequest};
use pointsman_proto::v1::{AddHoldRequest, Hold, ListWorkersRequest, hold};
use pointsman_proto::{rpc, v1};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Finished, Updates};
use pointsman_tests::fake_worker::{Event, FakeWorker, Instruction, RunningWorker, Work, WorkerSpec, exited};
use pointsman_tests::harness::build_policy;
use tonic::Code;

use crate::policies::{replace, version};
use crate::support::{TestServer, action, admin, host, server, server_with, started, why, within};

fn sized(name: &str, size_class: u32) -> WorkerSpec {
    WorkerSpec { size_class, ..host(name) }
}

async fn execute(client: &FakeClient, spec: &ActionSpec) -> Updates {
    client.execute(&client.upload_action(spec).await.unwrap()).await.unwrap()
}

async fn finished(updates: Updates) -> Finished {
    within(updates.finish()).await.unwrap()
}

fn exit_code(finished: &Finished) -> i32 {
    finished.response.result.as_ref().unwrap().exit_code
}

async fn finished_decision(updates: Updates) -> v1::RoutingDecision {
    finished(updates).await.routing().unwrap()
}

/// So many attempts were not the last.
fn reruns(finished: &Finished) -> usize {
    finished.routing().unwrap().run_again.len()
}

fn killed(work: &Work) -> ExecuteResponse {
    exited(work, 137)
}

fn timed_out(work: &Work) -> ExecuteResponse {
    let (code, message) = (rpc::Code::DeadlineExceeded.into(), "killed after 3 s".to_owned());
    let status = rpc::Status { code, message, ..rpc::Status::default() };
    ExecuteResponse { status: Some(status), ..exited(work, 137) }
}

/// A worker that has been given the only action there is.
struct Busy {
    worker: FakeWorker,
    work: Box<Work>,
}

impl Busy {
    async fn with(server: &TestServer, spec: &WorkerSpec) -> Self {
        Self::waiting(server.worker(spec).await).await
    }

    /// The same, however long that takes.
    async fn waiting(mut worker: FakeWorker) -> Self {
        loop {
            if let Instruction::Execute(work) = within(worker.synchronize()).await.unwrap() {
                return Self { worker, work };
            }
        }
    }

    /// Ends the action so, and takes no other.
    async fn ends(&mut self, how: impl FnOnce(&Work) -> ExecuteResponse) {
        self.worker.complete(how(&self.work));
        self.worker.prefer_being_idle(true);
        assert_eq!(within(self.worker.synchronize()).await.unwrap(), Instruction::Idle);
    }
}

/// Waits until a worker of that host waits for work.
async fn known(server: &TestServer, hostname: &str) {
    let mut admin = admin(server).await;
    within(async {
        loop {
            let all = admin.list_workers(ListWorkersRequest {}).await.unwrap().into_inner().workers;
            if all.iter().any(|w| w.id["hostname"] == hostname && w.state == "waiting") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// A worker that waits for work, and whose actions all end with exit code 0.
async fn waiting(server: &TestServer, spec: &WorkerSpec) -> RunningWorker {
    let worker = server.eager_worker(spec).await;
    known(server, &spec.id["hostname"]).await;
    worker
}

/// An action that ends so on a worker of size class 0 while one of class 1 waits.
async fn on_small(
    server: &TestServer,
    spec: &ActionSpec,
    how: impl FnOnce(&Work) -> ExecuteResponse,
) -> Finished {
    let client = server.client().await;
    let updates = execute(&client, spec).await;
    let mut small = Busy::with(server, &sized("small", 0)).await;
    let _large = waiting(server, &sized("large", 1)).await;
    small.ends(how).await;
    finished(updates).await
}

async fn hooked(keys: &str) -> Option<TestServer> {
    let file: PathBuf = build_policy("reruns and policies", "tests/guests/hooks/build.sh").await.unwrap()?;
    Some(server_with(&format!("policy: {{ file: '{}' }}, {keys}", file.display())).await)
}

// === What runs again ===

#[tokio::test]
async fn what_was_killed_or_timed_out_runs_again_on_a_larger_class() {
    let server = server().await;
    for how in [killed, timed_out, |work: &Work| exited(work, 137)] {
        let finished = on_small(&server, &action(&uuid::Uuid::new_v4().to_string()), how).await;
        assert_eq!((exit_code(&finished), finished.response.status.clone()), (0, None));
        assert_eq!(finished.response.message, "");
        let decision = finished.routing().unwrap();
        assert_eq!(decision.policy_name, "default", "the route is still its");
        let [again] = &decision.run_again[..] else { panic!("{decision:?}") };
        assert_eq!((again.attempt, again.exit_code, again.size_class), (1, 137, 0));
        assert_eq!((&*again.host, &*again.policy_name), ("{\"hostname\":\"small\"}", ""));
    }
}

#[tokio::test]
async fn it_waits_for_a_declared_pool_and_its_first_result_is_nowhere() {
    let keys = "pools: [{ name: 'big', size_class: 1 }], action_cache: { write_results: true }";
    let server = server_with(keys).await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1")).await.unwrap();
    let stored = async || {
        let request = GetActionResultRequest { action_digest: Some(digest.clone()), ..Default::default() };
        client.action_cache().get_action_result(request).await.map(|found| found.into_inner().exit_code)
    };
    let mut updates = client.execute(&digest).await.unwrap();
    let mut small = Busy::with(&server, &sized("small", 0)).await;
    within(updates.until(Stage::Executing)).await.unwrap();
    small.ends(killed).await;
    let waits = within(updates.until(Stage::Queued)).await.unwrap();
    let found = why(&mut admin(&server).await, &waits.name).await;
    let attempt =
        "attempt 1 on {\"hostname\":\"small\"} is run again: it ended with exit code 137 on size class 0";
    assert!(found.text.contains(attempt), "{found:?}");
    assert_eq!((found.attempts.len(), &*found.declared_pool), (1, "big"), "{found:?}");
    // The small one has nothing to do, and is no help.
    let mut small = server.eager_worker(&sized("small", 0)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(stored().await.unwrap_err().code(), Code::NotFound);

    let mut large = server.eager_worker(&sized("large", 1)).await;
    let work = started(&mut large).await;
    assert_eq!(exit_code(&finished(updates).await), 0);
    assert_eq!(stored().await.unwrap(), 0);
    let told: v1::RoutingDecision = pointsman_proto::unpack(work.auxiliary_metadata.last().unwrap()).unwrap();
    assert_eq!((told.run_again.len(), &*told.run_again[0].outcome), (1, "killed"));
    small.stop();
    while let Some(event) = small.next_event().await {
        assert!(!matches!(event, Event::Started(_)), "{event:?}");
    }
}

#[tokio::test]
async fn its_time_limit_on_the_larger_class_is_its_own_or_the_longer_one_of_its_policy() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    for (own_s, of_policy_ms, then_s) in
        [(None, 2_000, 30 * 60), (Some(60), 2_000, 60), (Some(2), 60_000, 60)]
    {
        let mut spec =
            action(&of_policy_ms.to_string()).with_property("hooks-timeout-ms", &of_policy_ms.to_string());
        spec.timeout = own_s.map(Duration::from_secs);
        let updates = execute(&client, &spec).await;
        let mut small = Busy::with(&server, &sized("small", 0)).await;
        let seconds = |work: &Work| work.action.as_ref().unwrap().timeout.unwrap().seconds;
        assert_eq!(seconds(&small.work), of_policy_ms / 1000);
        let mut large = waiting(&server, &sized("large", 1)).await;
        small.ends(timed_out).await;
        assert_eq!(seconds(&*started(&mut large).await), then_s);
        assert_eq!(exit_code(&finished(updates).await), 0);
        large.stopped().await;
    }
}

#[tokio::test]
async fn it_climbs_until_there_is_nothing_larger_and_then_its_result_says_where_it_was() {
    let server = server_with("max_attempts: 9").await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut last = Busy::with(&server, &sized("h0", 0)).await;
    for size in 1..=2 {
        let next = tokio::spawn(Busy::waiting(server.worker(&sized(&format!("h{size}"), size)).await));
        known(&server, &format!("h{size}")).await;
        last.ends(killed).await;
        last = within(next).await.unwrap();
    }
    last.ends(killed).await;
    let finished = finished(updates).await;
    assert_eq!((exit_code(&finished), reruns(&finished)), (137, 2));
    let message = &finished.response.message;
    assert!(
        message.starts_with("it ended with exit code 137 on size class 2, and there is no larger one"),
        "{message}"
    );
    assert!(
        message
            .contains("; attempt 1 on {\"hostname\":\"h0\"}: it ended with exit code 137 on size class 0,"),
        "{message}"
    );
    assert!(message.contains("; attempt 2 on {\"hostname\":\"h1\"}: "), "{message}");
}

#[tokio::test]
async fn max_attempts_bounds_it_and_the_client_is_told() {
    let server = server_with("max_attempts: 1").await;
    let finished = on_small(&server, &action("1"), killed).await;
    assert_eq!((exit_code(&finished), reruns(&finished)), (137, 0));
    let message = &finished.response.message;
    assert!(
        message.ends_with("there is a larger one, but this was the last of 1 that max_attempts allows"),
        "{message}"
    );
}

#[tokio::test]
async fn small_workers_that_are_free_do_not_get_it_again() {
    let Some(server) = hooked("").await else { return };
    let client = server.client().await;
    let mut small = server.worker(&sized("small", 0)).await.start(|work| async move { killed(&work) });
    known(&server, "small").await;
    let _large = waiting(&server, &sized("large", 1)).await;
    for n in 1..=5 {
        let spec = action(&n.to_string()).with_property("hooks-size", "smallest");
        let finished = finished(execute(&client, &spec).await).await;
        assert_eq!((exit_code(&finished), reruns(&finished)), (0, 1));
    }
    small.stop();
    let mut given = 0;
    while let Some(event) = small.next_event().await {
        given += usize::from(matches!(event, Event::Started(_)));
    }
    assert_eq!(given, 5, "each once");
}

// === What does not ===

#[tokio::test]
async fn what_fails_by_itself_fails_once() {
    let server = server().await;
    for code in [1, 2, 134, 139, 143] {
        let finished = on_small(&server, &action(&code.to_string()), |work| exited(work, code)).await;
        assert_eq!((exit_code(&finished), reruns(&finished)), (code, 0));
        assert_eq!(finished.response.message, "");
    }
}

#[tokio::test]
async fn a_larger_class_that_cannot_run_it_is_none() {
    let server = server_with("supported_platform_properties: { tier: 'exact', cpu_count: 'minimum' }").await;
    let client = server.client().await;
    let spec = |class| sized("small", class).with_property("tier", "a").with_property("cpu_count", "4");
    let other = sized("other", 1).with_property("tier", "b").with_property("cpu_count", "4");
    let weak = sized("weak", 1).with_property("tier", "a").with_property("cpu_count", "1");
    let _others = [waiting(&server, &other).await, waiting(&server, &weak).await];
    let wanted = action("1").with_property("tier", "a").with_property("cpu_count", "2");
    let updates = execute(&client, &wanted).await;
    let mut small = Busy::with(&server, &spec(0)).await;
    small.ends(killed).await;
    let finished = finished(updates).await;
    assert_eq!((exit_code(&finished), reruns(&finished), &*finished.response.message), (137, 0, ""));
}

#[tokio::test]
async fn workers_that_take_nothing_are_none() {
    let server = server().await;
    let client = server.client().await;
    let updates = execute(&client, &action("1")).await;
    let mut small = Busy::with(&server, &sized("small", 0)).await;
    let _large = waiting(&server, &sized("large", 1)).await;
    let pattern = [("hostname".to_owned(), "large".to_owned())].into();
    let hold = Some(Hold { kind: hold::Kind::Drain.into(), worker_id_pattern: pattern, ..Hold::default() });
    admin(&server).await.add_hold(AddHoldRequest { hold }).await.unwrap();
    small.ends(killed).await;
    let finished = finished(updates).await;
    assert_eq!((exit_code(&finished), reruns(&finished)), (137, 0));
}

#[tokio::test]
async fn an_operator_may_switch_it_off() {
    for (keys, of_killed, of_timed_out) in [
        ("sizes: { rerun: [] }", 0, 0),
        ("sizes: { rerun: ['killed'] }", 1, 0),
        ("sizes: { rerun: ['timed_out'] }", 0, 1),
        ("sizes: { rerun: ['timed-out'] }", 0, 1),
    ] {
        let server = server_with(keys).await;
        assert_eq!(reruns(&on_small(&server, &action("1"), killed).await), of_killed, "{keys}");
        assert_eq!(reruns(&on_small(&server, &action("2"), timed_out).await), of_timed_out, "{keys}");
    }
}

// === Policies ===

#[tokio::test]
async fn a_class_that_is_named_is_the_one_to_begin_with_and_the_largest_stays() {
    let Some(server) = hooked("").await else { return };
    for (size, then) in [("0", 1), ("largest", 0)] {
        let spec = action(size).with_property("hooks-size", size);
        assert_eq!(reruns(&on_small(&server, &spec, killed).await), then, "{size}");
    }
}

/// As the README of the policy `size-classes` says: nobody need configure anything for it.
#[tokio::test]
async fn what_a_table_names_a_size_for_runs_again_on_a_larger_one() {
    let config = "size_classes: { classes: { small: 0, big: 1 }, otherwise: 'small', \
                  table: [{ size: 'small', mnemonic: 'CppLink' }] }";
    let server = server_with(&format!("policy: {{ config: {{ {config} }} }}")).await;
    for how in [killed, timed_out] {
        let finished = on_small(&server, &action(&uuid::Uuid::new_v4().to_string()), how).await;
        assert_eq!((exit_code(&finished), reruns(&finished)), (0, 1));
    }
}

#[tokio::test]
async fn what_a_policy_says_of_a_result_stands() {
    let Some(server) = hooked("").await else { return };
    // It accepts and has edited nothing: the rule applies.
    let finished = on_small(&server, &action("1"), killed).await;
    assert_eq!((exit_code(&finished), reruns(&finished)), (0, 1));
    // It accepts, with a note.
    let finished = on_small(&server, &action("2").with_property("hooks-accept", ""), killed).await;
    assert_eq!((exit_code(&finished), reruns(&finished)), (137, 0));

    // It wants another pool, and that is where it goes.
    let client = server.client().await;
    let updates = execute(&client, &action("3").with_property("hooks-distrust", "")).await;
    let mut small = Busy::with(&server, &sized("small", 0)).await;
    let _large = waiting(&server, &sized("large", 1)).await;
    let mut spec = sized("of the pool", 0);
    spec.id.insert("pool".to_owned(), "big".to_owned());
    let mut of_the_pool = waiting(&server, &spec).await;
    small.ends(killed).await;
    started(&mut of_the_pool).await;
    let decision = finished_decision(updates).await;
    assert_eq!((&*decision.pool, &*decision.run_again[0].policy_name), ("big", "hooks"));
}

#[tokio::test]
async fn policies_that_come_meanwhile_do_not_send_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.wasm");
    replace(&file, &version("one"));
    let keys = format!("policy: {{ file: '{}' }}, pools: [{{ name: 'big', size_class: 1 }}]", file.display());
    let server = server_with(&keys).await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    let mut small = Busy::with(&server, &sized("small", 0)).await;
    within(updates.until(Stage::Executing)).await.unwrap();
    small.ends(killed).await;
    let name = within(updates.until(Stage::Queued)).await.unwrap().name;
    let mut admin = admin(&server).await;
    let decision = async |admin: &mut _| why(admin, &name).await.decision.unwrap();
    let before = decision(&mut admin).await;
    replace(&file, &version("two"));
    within(async {
        while decision(&mut admin).await.policy_digest == before.policy_digest {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let mut small = server.eager_worker(&sized("small", 0)).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut large = server.eager_worker(&sized("large", 1)).await;
    started(&mut large).await;
    assert_eq!(reruns(&finished(updates).await), 1);
    small.stop();
    while let Some(event) = small.next_event().await {
        assert!(!matches!(event, Event::Started(_)), "{event:?}");
    }
}
