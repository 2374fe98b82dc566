//! What an operator has of a router: health, metrics, reflection, records, signals.

use std::time::Duration;

use pointsman_tests::harness::{Signal, cli, sample};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::{ServerReflectionRequest, server_reflection_response::MessageResponse};

use crate::support::{Cas, action_of, bazel, buck2, config, owned, router, scheduler, within};

#[tokio::test]
async fn it_says_how_it_is() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let channel = router.channel().await.unwrap();
    let health = HealthClient::new(channel.clone()).check(HealthCheckRequest::default()).await.unwrap();
    assert_eq!(health.into_inner().status, 1, "it serves");

    let ask = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::FileContainingSymbol(
            "buildbarn.remoteactionrouter.ActionRouter".to_owned(),
        )),
    };
    let mut answers = ServerReflectionClient::new(channel)
        .server_reflection_info(futures_util::stream::iter([ask]))
        .await
        .unwrap()
        .into_inner();
    let answer = answers.message().await.unwrap().unwrap().message_response;
    assert!(matches!(answer, Some(MessageResponse::FileDescriptorResponse(_))), "{answer:?}");

    for (path, wanted) in [("/healthz", "alive\n"), ("/readyz", "ready\n")] {
        assert_eq!(router.page(path).await.unwrap().body, wanted);
    }
}

#[tokio::test]
async fn it_counts_what_it_does() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let asks = scheduler(&router).await;
    let action = cas.action(&buck2("a", &[("a", "1")])).await;
    for _ in 0..3 {
        asks.execute(&action).await.unwrap();
    }
    asks.execute(&action_of(&buck2("nowhere", &[]))).await.unwrap_err();
    let scrape = router.page("/metrics").await.unwrap().body;
    for (series, wanted) in [
        ("pointsman_router_calls_total{outcome=\"routed\"}", 3.0),
        ("pointsman_router_calls_total{outcome=\"refused\"}", 1.0),
        ("pointsman_router_calls_total{outcome=\"unavailable\"}", 0.0),
        ("pointsman_router_commands_total{became=\"fetched\"}", 1.0),
        ("pointsman_router_commands_total{became=\"kept\"}", 2.0),
        ("pointsman_router_commands_total{became=\"missing\"}", 1.0),
        ("pointsman_router_latency_seconds_count", 4.0),
        ("pointsman_router_known_routes", 1.0),
        ("pointsman_policy_generation", 2.0),
        ("pointsman_ready", 1.0),
    ] {
        assert_eq!(sample(&scrape, series), Some(wanted), "{series}\n{scrape}");
    }
    assert!(!scrape.contains("pointsman_actions_queued"), "it has no queue");
    // All that the page says about routers is there.
    let page = pointsman::metrics::document();
    for row in page.lines().filter(|line| line.starts_with("| `pointsman_router_")) {
        let [_, name, kind, ..] = row.split('|').map(str::trim).collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let family = name.trim_matches('`').trim_end_matches("_total");
        assert!(scrape.contains(&format!("# TYPE {family} {kind}\n")), "{row}\n{scrape}");
    }
}

#[tokio::test]
async fn policies_are_looked_at_and_records_read_as_of_a_scheduler() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let action = bazel("a", &[("a", "1")]);
    scheduler(&router).await.of_invocation("i").execute(&action).await.unwrap();
    let address = router.address.to_string();
    let ask = |words: &'static [&'static str]| {
        let words: Vec<String> =
            words.iter().map(|word| (*word).to_owned()).chain(["--server".into(), address.clone()]).collect();
        async move { cli(&words.iter().map(|word| &**word).collect::<Vec<_>>()).await.unwrap() }
    };
    let status = ask(&["policy", "status"]).await.expect_code(0).unwrap().text;
    assert!(status.contains("default"), "{status}");
    let log = ask(&["policy", "log", "--output", "json"]).await.expect_code(0).unwrap().text;
    // The digest that the client's build tool knows the action by.
    let digest = pointsman_tests::fake_client::digest_of(&prost::Message::encode_to_vec(&action));
    assert!(log.contains(&digest.hash) && log.contains("\"invocation_id\":"), "{log}");
    let workers = ask(&["workers"]).await.expect_code(69).unwrap().text;
    assert!(workers.contains("it is a router"), "{workers}");
}

#[tokio::test]
async fn a_changed_configuration_comes_into_force_by_itself_and_by_signal() {
    let cas = Cas::start().await;
    let mut router = cas.router("").await;
    let action = cas.action(&buck2("a", &[("a", "1")])).await;
    let asks = scheduler(&router).await;
    assert_eq!(asks.execute(&action).await.unwrap().platform, owned(&[("a", "1")]));
    let add = "policy: { config: { property_rules: { rules: [{ add: { b: '2' } }] } } }";
    std::fs::write(router.file(), config(cas.address, add)).unwrap();
    router.signal(Signal::HUP).unwrap();
    let changed = async {
        while asks.execute(&action).await.unwrap().platform != owned(&[("a", "1"), ("b", "2")]) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(Duration::from_secs(30), changed).await;
    // One that a router can't have changes nothing.
    std::fs::write(router.file(), config(cas.address, "policy: { config: { exclusive: {} } }")).unwrap();
    router.wait_for_log("a router can't hand on exclusive actions").await.unwrap();
    assert_eq!(asks.execute(&action).await.unwrap().platform.len(), 2);
}

#[tokio::test]
async fn a_call_that_is_under_way_is_answered_before_the_end() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let router = router(listener.local_addr().unwrap(), "router: { deadline: '1s' }").await;
    let asks = scheduler(&router).await;
    let call = tokio::spawn(async move { asks.execute(&action_of(&buck2("a", &[("a", "1")]))).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    let finished = router.stop().await.unwrap().expect_code(0).unwrap();
    let refused = within(Duration::from_secs(5), call).await.unwrap().unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("can't be routed"), "it was cut off: {refused}");
    assert!(finished.text.contains("SIGTERM received"), "{}", finished.text);
}
