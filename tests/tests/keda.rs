//! The queries of `examples/keda` say what there is to do for each size of machine.
#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "shared with the tests of the server, which need other parts of it")]
#[path = "server/support.rs"]
mod support;

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use pointsman::config::Config;
use pointsman::serve::Server;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::fake_worker::WorkerSpec;
use pointsman_tests::harness::{Running, Signal, has_client, http, prometheus};
use support::{TestServer, host, started, within};

fn example(name: &str) -> String {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/keda").join(name);
    std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// The query of a `ScaledObject`: the only key of that name, on a line of its own.
fn query(file: &str) -> String {
    let text = example(file);
    let mut found = text.lines().filter_map(|line| line.trim().strip_prefix("query: '")?.strip_suffix('\''));
    let query = found.next().unwrap_or_else(|| panic!("{file} has no query"));
    assert_eq!(found.next(), None, "{file} has two queries");
    query.to_owned()
}

/// What waits in a size class, by Buildbarn's counters.
fn waiting(size_class: u32) -> String {
    let family = "buildbarn_builder_in_memory_build_queue_tasks";
    let which = format!("size_class=\"{size_class}\"");
    format!(
        "sum({family}_scheduled_total{{{which}}}) - sum({family}_queued_duration_seconds_count{{{which}}})"
    )
}

/// The two forms of query there are: a sum of series with certain labels, and one such sum less another. Nothing, as in
/// Prometheus, where one of them has no series.
fn evaluate(query: &str, scrape: &str) -> Option<f64> {
    let mut sums = query.split(" - ").map(|part| {
        let selector = part.strip_prefix("sum(").and_then(|rest| rest.strip_suffix(')')).expect(query);
        let (name, labels) = selector.split_once('{').expect(query);
        let labels: Vec<&str> = labels.trim_end_matches('}').split(',').collect();
        let series = scrape.lines().filter_map(|line| {
            let (own, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
            let own = format!(",{own},");
            labels
                .iter()
                .all(|label| own.contains(&format!(",{label},")))
                .then(|| value.parse::<f64>().unwrap())
        });
        series.reduce(|a, b| a + b)
    });
    let first = sums.next().expect(query)?;
    sums.try_fold(first, |all, sum| Some(all - sum?))
}

/// A server with the configuration of the example.
async fn server() -> TestServer {
    let folder = tempfile::tempdir().unwrap();
    let text = example("pointsman.json5")
        .replace("0.0.0.0:8980", "127.0.0.1:0")
        .replace("0.0.0.0:8981", "127.0.0.1:0")
        .replacen('{', &format!("{{ state_dir: '{}',", folder.path().display()), 1);
    let config = Config::parse(&text, "pointsman.json5").unwrap_or_else(|e| panic!("{e}"));
    let server = Server::start(&config).await.unwrap();
    TestServer { address: server.address, server, _folder: folder }
}

fn machine(name: &str, cores: &str, size_class: u32) -> WorkerSpec {
    let spec = host(name).with_property("OSFamily", "linux").with_property("cpu_count", cores);
    WorkerSpec { size_class, ..spec }
}

async fn execute(client: &FakeClient, name: &str, cores: &str) -> Updates {
    let spec = ActionSpec::new([name]).with_property("OSFamily", "linux").with_property("cpu_count", cores);
    client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap()
}

/// What each query is to say: load of small and big by our gauge, by Buildbarn's counters, and what waits.
fn wanted(load: [f64; 2], waits: [f64; 2]) -> BTreeMap<String, f64> {
    [
        (query("small.yaml"), load[0]),
        (query("big.yaml"), load[1]),
        (query("small-buildbarn.yaml"), load[0]),
        (query("big-buildbarn.yaml"), load[1]),
        (waiting(1), waits[0]),
        (waiting(4), waits[1]),
    ]
    .into()
}

/// A look at the queries' answers, whoever works them out.
enum Eyes {
    Scrape(SocketAddr),
    Prometheus(SocketAddr),
}

impl Eyes {
    async fn value(&self, query: &str) -> Option<f64> {
        match self {
            Self::Scrape(address) => evaluate(query, &http(*address, "GET", "/metrics").await.unwrap().body),
            Self::Prometheus(address) => {
                let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
                // It may not listen yet.
                let answer = http(*address, "GET", &format!("/api/v1/query?query={encoded}")).await.ok()?;
                let answer: serde_json::Value = serde_json::from_str(&answer.body).ok()?;
                answer["data"]["result"][0]["value"][1].as_str()?.parse().ok()
            }
        }
    }

    /// Waits until all queries say what they are to say.
    async fn see(&self, wanted: &BTreeMap<String, f64>) {
        let mut found = BTreeMap::new();
        for _ in 0..400 {
            found.clear();
            for query in wanted.keys() {
                found.extend(self.value(query).await.map(|value| (query.clone(), value)));
            }
            if found == *wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("found {found:#?}, wanted {wanted:#?}");
    }
}

/// Builds come, machines come, builds go; the queries say so.
async fn a_day(server: &TestServer, eyes: &Eyes) {
    let client = server.client().await;
    eyes.see(&wanted([0.0, 0.0], [0.0, 0.0])).await;
    // Machines of neither size are there: what could run on either is for the small ones.
    let mut streams = Vec::new();
    for name in ["a", "b", "c"] {
        streams.push(execute(&client, name, "2").await);
    }
    for name in ["d", "e"] {
        streams.push(execute(&client, name, "8").await);
    }
    eyes.see(&wanted([3.0, 2.0], [3.0, 2.0])).await;
    let mut small = server.stuck_worker(&machine("s", "4", 1)).await;
    started(&mut small).await;
    eyes.see(&wanted([3.0, 2.0], [2.0, 2.0])).await;
    // The big machine takes the oldest, which was counted as one for the small ones.
    let mut big = server.stuck_worker(&machine("b", "16", 4)).await;
    started(&mut big).await;
    eyes.see(&wanted([2.0, 3.0], [1.0, 2.0])).await;
    for stream in &mut streams {
        let name = within(stream.next()).await.unwrap().unwrap().name;
        server.server.driver.cancel(&name);
    }
    eyes.see(&wanted([0.0, 0.0], [0.0, 0.0])).await;
}

#[tokio::test]
async fn the_queries_say_what_there_is_to_do_for_each_size() {
    let server = server().await;
    let eyes = Eyes::Scrape(server.server.http_address.unwrap());
    a_day(&server, &eyes).await;
}

#[tokio::test]
async fn prometheus_reads_and_answers_the_same() {
    if !has_client("keda", "prometheus").await.unwrap() {
        return;
    }
    let server = server().await;
    let folder = tempfile::tempdir().unwrap();
    let target = server.server.http_address.unwrap();
    let config = format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms }}\n\
         scrape_configs: [{{ job_name: pointsman, static_configs: [{{ targets: ['{target}'] }}] }}]\n"
    );
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, config).unwrap();
    // Free until somebody else takes it in between, which the test would show.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut running = Running::start(prometheus(&[
        &format!("--config.file={}", file.display()),
        &format!("--storage.tsdb.path={}", folder.path().join("data").display()),
        &format!("--web.listen-address={address}"),
    ]))
    .unwrap();
    a_day(&server, &Eyes::Prometheus(address)).await;
    assert!(running.is_running(), "{}", running.text());
    running.signal(Signal::TERM).unwrap();
    running.finish().await.unwrap();
}
