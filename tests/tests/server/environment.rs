//! What policies, and workers of ours, tell an action through its environment.

use std::path::PathBuf;

use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::rev2::{ExecuteRequest, RequestMetadata};
use pointsman_proto::{unpack, v1};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Finished};
use pointsman_tests::fake_worker::Event;
use pointsman_tests::harness::build_policy;

use crate::support::{TestServer, action, host, server_with, started, within};

/// A server whose policy offers an action its mnemonic, as the variable that it names; `None`: there can't be one here.
async fn offering(keys: &str) -> Option<TestServer> {
    let file: PathBuf =
        build_policy("variables of policies", "tests/guests/hooks/build.sh").await.unwrap()?;
    Some(server_with(&format!("policy: {{ file: '{}' }}, {keys}", file.display())).await)
}

async fn client(server: &TestServer, mnemonic: &str) -> FakeClient {
    let metadata = RequestMetadata { action_mnemonic: mnemonic.to_owned(), ..RequestMetadata::default() };
    server.client().await.with_request_metadata(&metadata)
}

fn script(text: &str) -> ActionSpec {
    ActionSpec::new(["/bin/sh", "-c", text]).with_property("hooks-environment", "JOBS")
}

/// What came of it, and what it wrote.
async fn run(client: &FakeClient, spec: &ActionSpec) -> (Finished, String) {
    let action_digest = Some(client.upload_action(spec).await.unwrap());
    let request = ExecuteRequest { action_digest, inline_stdout: true, ..ExecuteRequest::default() };
    let finished = within(client.execute_request(request).await.unwrap().finish()).await.unwrap();
    let text = String::from_utf8(finished.response.result.as_ref().unwrap().stdout_raw.to_vec()).unwrap();
    (finished, text)
}

fn variables(offer: &v1::ActionEnvironment) -> Vec<(&str, &str)> {
    offer.variables.iter().map(|v| (&*v.name, &*v.value)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_reads_what_its_policy_offers_and_its_result_serves_all() {
    let Some(server) = offering("worker: { enabled: true, concurrency: 1 }").await else { return };
    let spec = script("echo $JOBS jobs on size class $POINTSMAN_SIZE_CLASS");
    let (finished, text) = run(&client(&server, "4").await, &spec).await;
    assert_eq!(text, "4 jobs on size class 0\n");
    let decision = finished.routing().unwrap();
    assert_eq!((&*decision.environment[0].name, &*decision.environment[0].value), ("JOBS", "4"));
    let (finished, text) = run(&client(&server, "8").await, &spec).await;
    assert!(finished.response.cached_result, "{finished:?}");
    assert_eq!(text, "4 jobs on size class 0\n", "the variable is no part of the key");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_command_sets_stays() {
    let Some(server) = offering("worker: { enabled: true, concurrency: 1 }").await else { return };
    let mut spec = script("echo $JOBS $POINTSMAN_SIZE_CLASS");
    spec.environment = vec![("JOBS".to_owned(), "own".to_owned())];
    assert_eq!(run(&client(&server, "4").await, &spec).await.1, "own 0\n");
}

#[tokio::test]
async fn workers_are_told_after_all_else_and_of_their_size_only_if_a_policy_changed_it() {
    let Some(server) = offering("").await else { return };
    let mut spec = host("h");
    spec.id.insert("size-class".to_owned(), "5".to_owned());
    let mut resized = server.eager_worker(&spec).await;
    run(&client(&server, "4").await, &script("1")).await;
    let told = started(&mut resized).await.auxiliary_metadata;
    assert!(unpack::<v1::RoutingDecision>(&told[1]).is_ok());
    let offers = [2, 3].map(|i| unpack::<v1::ActionEnvironment>(&told[i]).unwrap());
    assert_eq!(offers.each_ref().map(variables), [vec![("POINTSMAN_SIZE_CLASS", "5")], vec![("JOBS", "4")]]);
    resized.stopped().await;
    let mut plain = server.eager_worker(&host("plain")).await;
    run(&client(&server, "4").await, &action("2")).await;
    assert_eq!(started(&mut plain).await.auxiliary_metadata.len(), 2);
}

#[tokio::test]
async fn actions_that_are_offered_different_values_share_one_execution() {
    let Some(server) = offering("").await else { return };
    let mut waiting = Vec::new();
    for mnemonic in ["4", "8"] {
        let client = client(&server, mnemonic).await;
        let digest = client.upload_action(&script("1")).await.unwrap();
        let mut updates = client.execute(&digest).await.unwrap();
        within(updates.until(Stage::Queued)).await.unwrap();
        waiting.push(updates);
    }
    let mut worker = server.eager_worker(&host("h")).await;
    for updates in waiting {
        assert_eq!(within(updates.finish()).await.unwrap().exit_code(), Some(0));
    }
    worker.stop();
    let mut given = 0;
    while let Some(event) = worker.next_event().await {
        given += usize::from(matches!(event, Event::Started(_)));
    }
    assert_eq!(given, 1);
}
