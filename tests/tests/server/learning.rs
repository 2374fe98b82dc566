//! What earlier runs of an action say about the next, with a policy that gives learning keys (`guests/steer`).

use std::time::Duration;

use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::v1::list_sizes_response::Key;
use pointsman_proto::v1::sizes_client::SizesClient;
use pointsman_proto::v1::{ListSizesRequest, ListSizesResponse};
use pointsman_proto::{rpc, v1};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, connect};
use pointsman_tests::fake_worker::{RunningWorker, Work, WorkerSpec, exited, took};
use pointsman_tests::harness::build_policy;
use tonic::{Code, Status};

use crate::support::{TestServer, action, host, server_in, started, within};

/// Two sizes, of one core and of six.
const SIZES: &str = "learning: { min_attempts: 3, class_cores: { '1': 1, '4': 6 } }";

/// A server with the policy, and these keys besides; `None`: it can't be built here.
async fn steered(folder: tempfile::TempDir, keys: &str) -> Option<TestServer> {
    let file = build_policy("what is learned", "tests/guests/steer/build.sh").await.unwrap()?;
    let keys = format!(
        "unknown_property: 'ignore', policy: {{ file: '{}' }}, action_cache: {{ write_results: true }}, {keys}",
        file.display()
    );
    Some(server_in(folder, &keys).await)
}

fn sized(name: &str, size_class: u32) -> WorkerSpec {
    WorkerSpec { size_class, ..host(name) }
}

/// A worker that answers with what a function makes of its work.
async fn answering(
    server: &TestServer,
    spec: &WorkerSpec,
    answer: impl Fn(&Work) -> ExecuteResponse + Clone + Send + Sync + 'static,
) -> RunningWorker {
    server.worker(spec).await.start(move |work| {
        let answer = answer.clone();
        async move { answer(&work) }
    })
}

fn learning(argument: &str, key: &str) -> ActionSpec {
    action(argument).with_property("steer-ask", key).with_property("steer-learn", key)
}

/// Notes of the decision about an action that has run.
async fn notes(client: &FakeClient, spec: &ActionSpec) -> Vec<String> {
    let digest = client.upload_action(spec).await.unwrap();
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    finished.routing().map(|decision| decision.notes).unwrap_or_default()
}

async fn sizes(server: &TestServer, key: &str) -> Result<ListSizesResponse, Status> {
    let mut client = SizesClient::new(connect(server.address).await.unwrap());
    let request = ListSizesRequest { key: key.to_owned(), limit: 0 };
    Ok(within(client.list_sizes(request)).await?.into_inner())
}

/// What is known of a key, once that has so many runs: an answer may come before it was learned from.
async fn known(server: &TestServer, key: &str, runs: u32) -> Key {
    within(async {
        loop {
            match sizes(server, key).await {
                Ok(answer) if answer.keys[0].runs >= runs => return answer.keys[0].clone(),
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    })
    .await
}

#[tokio::test]
async fn after_some_runs_a_size_is_chosen_and_the_policy_knows_too() {
    let Some(server) = steered(tempfile::tempdir().unwrap(), SIZES).await else { return };
    let client = server.client().await;
    let _large = answering(&server, &sized("large", 4), |work| {
        took(exited(work, 0), Duration::from_secs(20), 5.6, 900)
    })
    .await;
    for run in 0..3 {
        let notes = notes(&client, &learning(&format!("{run}"), "gcc")).await;
        let before = match run {
            0 => "nothing is known".to_owned(),
            n => format!("{n} attempts, 0 failures, 5.6 cores"),
        };
        assert_eq!(notes, [before]);
        known(&server, "gcc", run + 1).await;
    }
    let chosen = "size at least 4: p95 of 5.7 cores in 3 runs under key gcc";
    assert_eq!(notes(&client, &learning("3", "gcc")).await, ["3 attempts, 0 failures, 5.6 cores", chosen]);
    let key = known(&server, "gcc", 4).await;
    assert_eq!(
        (key.runs, key.failed, key.suggested, key.why.as_str()),
        (4, 0, Some(4), "p95 of 5.7 cores in 4 runs")
    );
    assert_eq!((key.classes[0].size_class, key.classes[0].runs), (4, 4));
    assert!((800..=1000).contains(&key.max_memory_mib) && key.p50_wall_ms.abs_diff(20_000) < 2000, "{key:?}");
    // Another key knows nothing of it, and an action without one is not looked at.
    assert_eq!(notes(&client, &learning("4", "other")).await, ["nothing is known"]);
    assert!(notes(&client, &action("5")).await.is_empty());
    assert_eq!(sizes(&server, "nobody").await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn a_kill_counts_at_once_and_a_failure_never() {
    let Some(server) = steered(tempfile::tempdir().unwrap(), SIZES).await else { return };
    let client = server.client().await;
    let _small = answering(&server, &sized("small", 1), |work| {
        let exit_code = work.action.as_ref().map_or(0, |action| action.salt.first().copied().unwrap_or(0));
        took(exited(work, exit_code.into()), Duration::from_secs(1), 0.5, 100)
    })
    .await;
    let ending = |argument: &str, exit_code: u8| ActionSpec {
        salt: vec![exit_code].into(),
        ..learning(argument, if exit_code == 137 { "big" } else { "bad" })
    };
    for run in 0..4 {
        notes(&client, &ending(&format!("{run}"), 1)).await;
    }
    let bad = known(&server, "bad", 4).await;
    assert_eq!((bad.failed, bad.killed, bad.suggested), (4, 0, None), "{bad:?}");

    notes(&client, &ending("9", 137)).await;
    let big = known(&server, "big", 1).await;
    assert_eq!((big.failed, big.killed, big.suggested), (0, 1, Some(4)), "{big:?}");
    let _large = answering(&server, &sized("large", 4), |work| exited(work, 0)).await;
    let notes = notes(&client, &ActionSpec { salt: vec![0].into(), ..learning("10", "big") }).await;
    assert_eq!(notes[1], "size at least 4: killed once on size 1 under key big");
}

#[tokio::test]
async fn each_execution_counts_once() {
    let Some(server) = steered(tempfile::tempdir().unwrap(), SIZES).await else { return };
    let (client, other) = (server.client().await, server.client().await);
    let spec = learning("same", "k");
    let digest = client.upload_action(&spec).await.unwrap();
    // Both wait for one execution.
    let first = client.execute(&digest).await.unwrap();
    let second = other.execute(&digest).await.unwrap();
    let worker =
        answering(&server, &sized("w", 1), |work| took(exited(work, 0), Duration::from_secs(1), 1.0, 9))
            .await;
    let (first, second) = tokio::join!(within(first.finish()), within(second.finish()));
    assert!(first.unwrap().exit_code() == Some(0) && second.unwrap().exit_code() == Some(0));
    known(&server, "k", 1).await;
    // From the action cache.
    let cached = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert!(cached.response.cached_result);
    drop(worker);
    // A worker that could not run it is nobody's size; the next one can.
    let _broken = answering(&server, &sized("broken", 1), |_| failing(rpc::Code::Unavailable)).await;
    let next = client.upload_action(&learning("next", "k")).await.unwrap();
    let updates = client.execute(&next).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    let _well =
        answering(&server, &sized("well", 4), |work| took(exited(work, 0), Duration::from_secs(1), 1.0, 9))
            .await;
    within(updates.finish()).await.unwrap();
    let key = known(&server, "k", 2).await;
    assert_eq!((key.runs, key.failed + key.killed + key.timed_out), (2, 0), "{key:?}");
    assert_eq!(sizes(&server, "").await.unwrap().shares.iter().map(|s| s.runs).sum::<u64>(), 2);
}

fn failing(code: rpc::Code) -> ExecuteResponse {
    let status = rpc::Status { code: code.into(), message: "no".to_owned(), details: Vec::new() };
    ExecuteResponse { status: Some(status), ..ExecuteResponse::default() }
}

#[tokio::test]
async fn what_was_learned_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let never = "learning: { flush_every: '1h', min_attempts: 1, class_cores: { '1': 1, '4': 6 } }";
    let Some(server) = steered(folder, never).await else { return };
    let client = server.client().await;
    let worker =
        answering(&server, &sized("w", 4), |work| took(exited(work, 0), Duration::from_secs(1), 3.0, 9))
            .await;
    notes(&client, &learning("1", "k")).await;
    known(&server, "k", 1).await;
    drop((client, worker));
    let TestServer { server, _folder: folder, .. } = server;
    server.stop().await;
    let Some(server) = steered(folder, never).await else { return };
    let key = sizes(&server, "k").await.unwrap().keys.remove(0);
    assert_eq!((key.runs, key.suggested), (1, Some(4)));
    let client = server.client().await;
    let mut worker = server.stuck_worker(&sized("w", 4)).await;
    let digest = client.upload_action(&learning("2", "k")).await.unwrap();
    let _updates = client.execute(&digest).await.unwrap();
    let work = started(&mut worker).await;
    let notes = work
        .auxiliary_metadata
        .iter()
        .find_map(|any| pointsman_proto::unpack::<v1::RoutingDecision>(any).ok());
    assert_eq!(notes.unwrap().notes[1], "size at least 4: p95 of 2.8 cores in 1 runs under key k");
}

#[tokio::test]
async fn what_was_learned_decides_the_place() {
    // How many cores a size has is what its workers say.
    let keys = "learning: { min_attempts: 3 }";
    let Some(server) = steered(tempfile::tempdir().unwrap(), keys).await else { return };
    let client = server.client().await;
    let mut workers = Vec::new();
    for (name, size_class, cpu_count) in [("small", 1, "1"), ("large", 4, "6")] {
        let cores = |work: &Work| {
            let salt = work.action.as_ref().and_then(|action| action.salt.first().copied());
            f64::from(salt.unwrap_or(1)) / 2.0
        };
        let answer = move |work: &Work| took(exited(work, 0), Duration::from_secs(9), cores(work), 100);
        let spec = sized(name, size_class).with_property("cpu_count", cpu_count);
        workers.push(answering(&server, &spec, answer).await);
    }
    let sizes_are_known = async || sizes(&server, "").await.unwrap().classes.len() == 2;
    within(async {
        while !sizes_are_known().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    for (key, halves, size_class) in [("light", 1, 1), ("heavy", 10, 4)] {
        let spec = |run: u32| ActionSpec { salt: vec![halves].into(), ..learning(&run.to_string(), key) };
        for run in 0..3 {
            notes(&client, &spec(run)).await;
            known(&server, key, run + 1).await;
        }
        let on =
            |known: &Key| known.classes.iter().find(|c| c.size_class == size_class).map_or(0, |c| c.runs);
        let before = on(&known(&server, key, 3).await);
        for run in 3..9 {
            notes(&client, &spec(run)).await;
        }
        assert_eq!(on(&known(&server, key, 9).await) - before, 6, "{key}");
    }
}

#[tokio::test]
async fn a_host_takes_what_it_has_room_for_by_measurement() {
    let keys = "learning: { min_attempts: 3 }, packing: { by: 'measured' }";
    let Some(server) = steered(tempfile::tempdir().unwrap(), keys).await else { return };
    let client = server.client().await;
    let four = host("h").with_property("cpu_count", "4");
    let asking = |argument: &str| learning(argument, "k").with_property("cpu_count", "4");
    let first =
        answering(&server, &four, |work| took(exited(work, 0), Duration::from_secs(9), 1.0, 100)).await;
    for run in 0..3 {
        notes(&client, &asking(&run.to_string())).await;
        known(&server, "k", run + 1).await;
    }
    drop(first);
    let mut threads =
        [server.stuck_worker(&four.thread(1)).await, server.stuck_worker(&four.thread(2)).await];
    let mut running = Vec::new();
    for argument in ["a", "b"] {
        let digest = client.upload_action(&asking(argument)).await.unwrap();
        running.push(client.execute(&digest).await.unwrap());
    }
    // Each asks for all four cores, and is known to use one.
    for thread in &mut threads {
        started(thread).await;
    }
}
