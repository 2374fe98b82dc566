//! The HTTP side port: what monitoring and load balancers ask.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use pointsman::config::Config;
use pointsman::serve::Server;
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_tests::harness::{HttpAnswer, http, sample};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::support::{TestServer, action, host, server_with, started, within};

const SIDE_PORT: &str = "http: { listen: '127.0.0.1:0' }";

fn address(server: &TestServer) -> SocketAddr {
    server.server.http_address.expect("the side port is open")
}

async fn get(address: SocketAddr, path: &str) -> HttpAnswer {
    within(http(address, "GET", path)).await.unwrap()
}

/// Scrapes until a sample has a value.
async fn until(address: SocketAddr, series: &str, wanted: f64) -> String {
    within(async {
        loop {
            let text = get(address, "/metrics").await.body;
            if sample(&text, series) == Some(wanted) {
                return text;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

#[tokio::test]
async fn paths_say_what_they_are_for() {
    let server = server_with(SIDE_PORT).await;
    let address = address(&server);
    assert_eq!(get(address, "/healthz").await.status, 200);
    let ready = get(address, "/readyz?verbose").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "ready\n"));
    let nothing = get(address, "/metric").await;
    assert_eq!(nothing.status, 404);
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert!(nothing.body.contains(path), "{}", nothing.body);
    }
    let head = within(http(address, "HEAD", "/metrics")).await.unwrap();
    assert_eq!((head.status, head.body.as_str()), (200, ""));
    assert!(
        head.headers.contains("content-type: application/openmetrics-text; version=1.0.0"),
        "{}",
        head.headers
    );
    let post = within(http(address, "POST", "/metrics")).await.unwrap();
    assert_eq!(post.status, 405);
    assert!(post.headers.contains("allow: get, head"), "{}", post.headers);
}

#[tokio::test]
async fn a_scrape_counts_what_happens() {
    let server =
        server_with(&format!("{SIDE_PORT}, pools: [{{ name: 'gpu', platform: {{ Pool: 'gpu' }} }}]")).await;
    let address = address(&server);
    let client = server.client().await;
    let mut worker = server.stuck_worker(&host("h")).await;
    let running = client.upload_action(&action("1")).await.unwrap();
    let mut updates = client.execute(&running).await.unwrap();
    started(&mut worker).await;
    let mut same = client.execute(&running).await.unwrap();
    within(same.until(Stage::Executing)).await.unwrap();
    let waiting = client.upload_action(&action("2").with_property("Pool", "gpu")).await.unwrap();
    let mut waits = client.execute(&waiting).await.unwrap();
    within(waits.until(Stage::Queued)).await.unwrap();

    let text = until(address, "pointsman_actions_queued", 1.0).await;
    for (series, wanted) in [
        ("pointsman_actions_running", 1.0),
        ("pointsman_actions_queued_unserved", 1.0),
        ("pointsman_pool_actions_queued{pool=\"default\"}", 0.0),
        ("pointsman_pool_actions_queued{pool=\"gpu\"}", 0.0),
        ("pointsman_workers{pool=\"default\",state=\"executing\"}", 1.0),
        ("pointsman_workers{pool=\"gpu\",state=\"idle\"}", 0.0),
        ("pointsman_assignments_total{pool=\"default\"}", 1.0),
        ("pointsman_actions_accepted_total{how=\"new\"}", 2.0),
        ("pointsman_actions_accepted_total{how=\"joined\"}", 1.0),
        ("pointsman_queue_wait_seconds_count{pool=\"default\"}", 1.0),
        ("pointsman_queue_wait_seconds_bucket{le=\"+Inf\",pool=\"default\"}", 1.0),
        ("pointsman_lanes", 2.0),
        ("pointsman_hosts", 1.0),
        ("pointsman_policy_generation", server.server.policies.in_force().number() as f64),
        ("pointsman_policy_last_reload_success{link=\"main\"}", 1.0),
        ("pointsman_decision_records_total{became=\"recorded\"}", 3.0),
        ("pointsman_ready", 1.0),
    ] {
        assert_eq!(sample(&text, series), Some(wanted), "{series}\n{text}");
    }
    let calls = text.lines().find(|line| {
        line.starts_with("pointsman_policy_calls_total{link=\"main\",policy=\"default\",digest=\"")
            && line.contains("state=\"active\",hook=\"on-action\"")
    });
    assert!(calls.is_some_and(|line| line.ends_with(" 3")), "{text}");
    worker.crash();
    drop((updates.next_operation().await, waits));
    let text = until(address, "pointsman_action_retries_total{cause=\"lost\"}", 1.0).await;
    assert!(sample(&text, "pointsman_oldest_queued_action_age_seconds") > Some(0.3), "{text}");
    let _worker = server.eager_worker(&host("h2")).await;
    let text = until(address, "pointsman_actions_ended_total{end=\"reported\"}", 1.0).await;
    assert_eq!(sample(&text, "pointsman_execution_seconds_count{pool=\"default\"}"), Some(1.0));
}

#[tokio::test]
async fn calls_that_are_not_queued_are_counted_by_what_became_of_them() {
    let keys = "limits: { properties_per_action: 1 }, action_cache: { write_results: true }";
    let server = server_with(&format!("{SIDE_PORT}, {keys}")).await;
    let client = server.client().await;
    let _worker = server.eager_worker(&host("h")).await;
    let cached = client.upload_action(&action("1")).await.unwrap();
    within(async {
        // The result is written beside its way to the client.
        while !client.execute(&cached).await.unwrap().finish().await.unwrap().response.cached_result {}
    })
    .await;
    let many = action("2").with_property("a", "1").with_property("b", "2");
    let many = client.upload_action(&many).await.unwrap();
    client.execute(&many).await.unwrap_err();
    let text =
        until(address(&server), "pointsman_execute_errors_total{code=\"INVALID_ARGUMENT\"}", 1.0).await;
    assert_eq!(sample(&text, "pointsman_actions_cached_on_arrival_total"), Some(1.0));
}

/// What any scraper may rely on, and the page of metrics names all there is.
#[tokio::test]
async fn a_scrape_is_open_metrics_and_has_what_the_page_says() {
    let server = server_with(SIDE_PORT).await;
    let client = server.client().await;
    let _worker = server.eager_worker(&host("h")).await;
    let done = client.upload_action(&action("1")).await.unwrap();
    within(client.execute(&done).await.unwrap().finish()).await.unwrap();
    let text = get(address(&server), "/metrics").await.body;
    assert!(text.ends_with("# EOF\n"));
    let mut families: BTreeSet<(&str, &str)> = BTreeSet::new();
    let mut series: BTreeSet<&str> = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert!(families.insert(rest.split_once(' ').unwrap()), "twice: {line}");
        } else if !line.starts_with('#') {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(series.insert(name), "twice: {line}");
            assert!(value.parse::<f64>().is_ok(), "{line}");
            let plain = name.split('{').next().unwrap();
            let suffixes = ["", "_total", "_sum", "_count", "_bucket"];
            let is_known = |suffix: &&str| {
                plain.strip_suffix(*suffix).is_some_and(|p| families.iter().any(|(f, _)| *f == p))
            };
            assert!(suffixes.iter().any(is_known), "{line}");
        }
    }
    let named = |(family, kind): &(&str, &str)| match *kind {
        "counter" => format!("| `{family}_total` | {kind} |"),
        _ => format!("| `{family}` | {kind} |"),
    };
    let page = pointsman::metrics::document();
    let shown: BTreeSet<String> = families.iter().map(named).collect();
    assert!(shown.iter().all(|row| page.contains(row)), "{shown:?}");
    // What is about routers is in a router's scrape.
    let of_servers = |line: &&str| line.starts_with("| `") && !line.starts_with("| `pointsman_router_");
    assert_eq!(page.lines().filter(of_servers).count(), shown.len(), "the page has more");
}

#[tokio::test]
async fn a_server_that_stops_is_alive_and_not_ready() {
    let server = server_with(&format!("{SIDE_PORT}, worker: {{ enabled: true, concurrency: 1 }}")).await;
    let address = address(&server);
    let client = server.client().await;
    let slow = pointsman_tests::fake_client::ActionSpec::new(["sleep", "1"]);
    let slow = client.upload_action(&slow).await.unwrap();
    let mut running = client.execute(&slow).await.unwrap();
    within(running.until(Stage::Executing)).await.unwrap();
    let asked = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        (get(address, "/healthz").await, get(address, "/readyz").await)
    };
    let ((), (alive, ready)) = within(async { tokio::join!(server.server.stop(), asked) }).await;
    assert_eq!(alive.status, 200);
    assert_eq!(ready.status, 503);
    assert!(ready.body.starts_with("stopping: "), "{}", ready.body);
    assert!(TcpStream::connect(address).await.is_err(), "it is closed in the end");
}

#[tokio::test]
async fn silent_clients_do_not_keep_others_out() {
    let server = server_with(SIDE_PORT).await;
    let address = address(&server);
    let mut silent = Vec::new();
    for _ in 0..200 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert_eq!(get(address, "/healthz").await.status, 200);
    // The first ones made room.
    let mut byte = [0];
    let ended = within(silent[0].read(&mut byte)).await;
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_port_that_is_taken_stops_a_server_only_if_somebody_asked_for_it() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let with = |http: &str| {
        let text = format!(
            "{{ listen: '127.0.0.1:0', state_dir: '{}', http: {{ listen: '{http}' }} }}",
            folder.path().display()
        );
        Config::parse(&text, "test.json5").unwrap()
    };
    let port = taken.local_addr().unwrap();
    let refused = format!("{:#}", Server::start(&with(&port.to_string())).await.unwrap_err());
    assert!(refused.contains(&format!("can't listen on {port} for HTTP (http.listen)")), "{refused}");

    // Whoever has the usual port now, be it another test's server.
    let _taken = TcpListener::bind("127.0.0.1:8981").await;
    let server = Server::start(&with("auto")).await.unwrap();
    assert_eq!(server.http_address, None);
    server.stop().await;
    let server = Server::start(&with("off")).await.unwrap();
    assert_eq!(server.http_address, None);
    server.stop().await;
}
