//! What the guide to platform properties states, where it takes a server: who is refused, the lines of the log, the
//! snippets of configuration. The rest is in the core's `scenarios/platform_properties.rs`.

use std::process::Command;
use std::time::Duration;

use pointsman::config::{Config, PlatformValues, PropertyType};
use pointsman_proto::rev2::execution_stage::Value as Stage;
use pointsman_proto::v1::ListWorkersRequest;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::fake_worker::{FakeWorker, RunningWorker, WorkerSpec};
use pointsman_tests::harness::{Binary, Running, Server, ServerOptions};
use tonic::Code;

use crate::support::{action, admin, host, server, server_with, why, within};

/// As it stands there.
const SCHEDULERS: &str = r#"
schedulers: [
  {
    name: "MAIN_SCHEDULER",
    simple: {
      supported_platform_properties: {
        cpu_count: "minimum",
        OSFamily: "priority",
        "container-image": "priority",
      },
      // Seconds between full match-attempt dumps. -1 or 0 disables.
      worker_match_logging_interval_s: 10,
    },
  },
],"#;

/// Likewise.
const GPU_SCHEMA: &str = r#"
supported_platform_properties: {
  cpu_count: "minimum",
  OSFamily: "priority",
  gpu: "exact",
},"#;

/// Likewise.
const GPU_WORKER: &str = r#"
platform_properties: {
  cpu_count: { query_cmd: "nproc" },
  OSFamily: { values: [""] },
  gpu: { values: ["a100"] },
}"#;

// === Configuration ===

#[test]
fn the_schedulers_snippet_parses_as_it_stands() {
    let config = Config::parse(&format!("{{ {SCHEDULERS} }}"), "guide.json5").unwrap();
    let kinds: Vec<_> = config.platform_properties.iter().map(|(k, kind)| (k.as_str(), *kind)).collect();
    assert_eq!(
        kinds,
        [
            ("OSFamily", PropertyType::Priority),
            ("container-image", PropertyType::Priority),
            ("cpu_count", PropertyType::Minimum)
        ]
    );
    assert_eq!(config.worker_match_logging_interval, Some(Duration::from_secs(10)));
}

#[test]
fn the_log_is_on_every_ten_seconds_unless_minus_1_or_0_disables_it() {
    assert_eq!(Config::default().worker_match_logging_interval, Some(Duration::from_secs(10)));
    for off in ["-1", "0"] {
        let text = format!("{{ {} }}", SCHEDULERS.replace("interval_s: 10", &format!("interval_s: {off}")));
        assert_eq!(Config::parse(&text, "guide.json5").unwrap().worker_match_logging_interval, None);
    }
}

#[test]
fn the_gpu_snippets_parse_as_they_stand() {
    let text = format!("{{ {GPU_SCHEMA} worker: {{ {GPU_WORKER} }} }}");
    let config = Config::parse(&text, "guide.json5").unwrap();
    assert_eq!(config.platform_properties["gpu"], PropertyType::Exact);
    let platform = &config.worker.platform;
    assert_eq!(platform["OSFamily"], PlatformValues::Listed(vec![String::new()]));
    assert_eq!(platform["gpu"], PlatformValues::Listed(vec!["a100".to_owned()]));
    let PlatformValues::Queried(query) = &platform["cpu_count"] else { panic!("{platform:?}") };
    assert_eq!(query.command(), "nproc");
}

#[tokio::test]
async fn query_cmd_is_asked_when_the_worker_starts() {
    let server =
        server_with(&format!("{GPU_SCHEMA} worker: {{ enabled: true, concurrency: 1, {GPU_WORKER} }}")).await;
    let mut admin = admin(&server).await;
    let workers = within(async {
        loop {
            let workers = admin.list_workers(ListWorkersRequest {}).await.unwrap().into_inner().workers;
            if !workers.is_empty() {
                return workers;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let told = Command::new("nproc").env_clear().output().unwrap().stdout;
    let told = String::from_utf8(told).unwrap();
    let offered: Vec<_> = workers[0].platform.iter().map(|p| (&*p.name, &*p.value)).collect();
    assert_eq!(offered, [("OSFamily", ""), ("cpu_count", told.trim_end()), ("gpu", "a100")]);
}

// === An unknown key on a worker ===

#[tokio::test]
async fn an_unknown_key_on_a_worker_is_bad_property_at_registration() {
    let server = server().await;
    let mut worker = server.worker(&host("h").with_property("cpu-count", "4")).await;
    let status = within(worker.synchronize()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    for part in [
        "Bad Property: unknown platform property 'cpu-count'",
        "did you mean 'cpu_count'?",
        "supported_platform_properties",
    ] {
        assert!(status.message().contains(part), "{part} is not in: {}", status.message());
    }
    assert_eq!(server.server.driver.counts().workers, 0, "it never joins");
    // Where a fleet looks smaller than it was ordered, the list says so.
    let listed = admin(&server).await.list_workers(ListWorkersRequest {}).await.unwrap().into_inner();
    assert!(listed.workers.is_empty());
    assert_eq!((&*listed.refused[0].id["hostname"], listed.refused[0].calls), ("h", 1));
    assert_eq!(listed.refused[0].reason, status.message());
    // Once it is corrected it is one like any other.
    let mut mended = server.worker(&host("h").with_property("cpu_count", "4")).await;
    within(mended.synchronize()).await.unwrap();
    let listed = admin(&server).await.list_workers(ListWorkersRequest {}).await.unwrap().into_inner();
    assert_eq!((listed.workers.len(), listed.refused.len()), (1, 0));
}

/// An operator sees it at either end: in the worker's log, and in the scheduler's.
#[tokio::test]
async fn bad_property_is_in_the_log_of_the_worker_and_of_the_scheduler() -> anyhow::Result<()> {
    let mut server =
        Server::start(&ServerOptions { config: "{}".to_owned(), ..ServerOptions::default() }).await?;
    let mut command = tokio::process::Command::new(Binary::find()?.path());
    let folder = tempfile::tempdir()?;
    command.args(["worker", "--platform", "gpus=4", "--scheduler", &server.address(), "--work-dir"]);
    command.arg(folder.path());
    let mut worker = Running::start(command)?;
    let wanted = "Bad Property: unknown platform property 'gpus'";
    worker.wait_for(wanted, PATIENCE).await?;
    server.wait_for_log("refused a worker: Bad Property", PATIENCE).await
}

// === An unknown key on an action ===

#[tokio::test]
async fn an_unknown_key_on_an_action_is_refused_with_the_nearest_and_the_way_out() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a").with_property("cpu-count", "2")).await.unwrap();
    let status = client.execute(&digest).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    for part in
        ["'cpu-count'", "did you mean 'cpu_count'?", "supported_platform_properties", "unknown_property"]
    {
        assert!(status.message().contains(part), "{part} is not in: {}", status.message());
    }
}

#[tokio::test]
async fn an_unknown_key_on_an_action_is_ignored_if_the_operator_says_so() {
    let server = server_with("unknown_property: 'ignore'").await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a").with_property("cpu-count", "2")).await.unwrap();
    let _worker = server.eager_worker(&host("h")).await;
    within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
}

#[tokio::test]
async fn an_unknown_key_on_an_action_waits_if_the_operator_says_so_while_others_run() {
    let server = server_with("unknown_property: 'queue'").await;
    let (client, mut admin) = (server.client().await, admin(&server).await);
    let digest = client.upload_action(&action("a").with_property("cpu-count", "2")).await.unwrap();
    let mut waits = client.execute(&digest).await.unwrap();
    let name = within(waits.until(Stage::Queued)).await.unwrap().name;
    let _worker = server.eager_worker(&host("h")).await;
    let other = client.execute(&client.upload_action(&action("b")).await.unwrap()).await.unwrap();
    within(other.finish()).await.unwrap();
    let found = why(&mut admin, &name).await;
    assert_eq!((&*found.reason, found.never), ("unknown-property", true));
    assert!(found.text.contains("'cpu-count' is not in supported_platform_properties"), "{}", found.text);
}

// === The lines of the log ===

const PATIENCE: Duration = Duration::from_secs(30);

/// A server whose log says every second why actions wait, and what waits there.
struct Logged {
    server: Server,
    client: FakeClient,
    _workers: Vec<RunningWorker>,
    waiting: Vec<Updates>,
}

impl Logged {
    async fn new() -> anyhow::Result<Self> {
        let config = "{
            supported_platform_properties: {
                cpu_count: 'minimum', OSFamily: 'priority', 'container-image': 'priority', gpu: 'exact',
            },
            unknown_property: 'queue',
            worker_match_logging_interval_s: 1,
        }";
        let options = ServerOptions { config: config.to_owned(), ..ServerOptions::default() };
        let server = Server::start(&options).await?;
        let client = FakeClient::connect(server.address().parse()?).await?;
        Ok(Self { server, client, _workers: Vec::new(), waiting: Vec::new() })
    }

    /// Threads that never finish what they are given.
    fn host(&mut self, spec: &WorkerSpec, threads: usize) -> anyhow::Result<()> {
        for thread in 0..threads {
            let worker = FakeWorker::new(self.server.channel()?, &spec.thread(thread));
            self._workers.push(worker.start(|_| std::future::pending()));
        }
        Ok(())
    }

    async fn submit(&mut self, properties: &[(&str, &str)]) -> anyhow::Result<()> {
        let mut spec = ActionSpec::new(["echo", &self.waiting.len().to_string()]);
        for (key, value) in properties {
            spec = spec.with_property(key, value);
        }
        self.waiting.push(self.client.execute(&self.client.upload_action(&spec).await?).await?);
        Ok(())
    }

    /// Waits until a line of the log ends like that.
    async fn line(&self, wanted: &str) -> anyhow::Result<String> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let log = self.server.log();
            if let Some(line) = log.lines().find(|line| line.ends_with(wanted)) {
                return Ok(line.to_owned());
            }
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "no line {wanted:?} in:\n{log}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test]
async fn each_line_of_the_log_word_for_word() -> anyhow::Result<()> {
    let mut logged = Logged::new().await?;
    logged.submit(&[("cpu_count", "24")]).await?;
    logged.host(&host("cpu").with_property("cpu_count", "32").with_property("gpu", "none"), 2)?;
    for _ in 0..4 {
        logged.submit(&[("OSFamily", "linux")]).await?;
    }
    logged.host(&host("os").with_property("OSFamily", ""), 4)?;
    for properties in [
        &[("container-image", "")][..],
        &[("gpu", "a100")],
        &[("gpu", "none"), ("OSFamily", "")],
        &[("cpu_count", "32")],
        &[("OSFamily", "linux")],
        &[("gpus", "1")],
    ] {
        logged.submit(properties).await?;
    }
    for line in [
        r#" No candidate workers due to a lack of key 'container-image'. Job asked for Priority("")"#,
        r#" No candidate workers due to a lack of matching 'gpu' = Exact("a100"). Workers have: [Exact("none")]"#,
        " No workers in capability index match required properties",
        " Property mismatch on worker property cpu_count. Minimum(8) < Minimum(32)",
        r#" Worker {"hostname":"os"} cannot accept work: is_paused=false, is_draining=false, inflight=4/4"#,
        " All workers are fully allocated or cannot accept work",
        " Error while running do_try_match",
        " Unknown platform property 'gpus'",
    ] {
        logged.line(line).await?;
    }
    Ok(())
}

#[tokio::test]
async fn the_oldest_five_actions_in_each_state_are_logged() -> anyhow::Result<()> {
    let mut logged = Logged::new().await?;
    for _ in 0..7 {
        logged.submit(&[("gpu", "a100")]).await?;
    }
    let mut names = Vec::new();
    for updates in &mut logged.waiting {
        names.push(updates.until(Stage::Queued).await?.name);
    }
    logged.server.wait_for_log("Oldest actions in state", PATIENCE).await?;
    let log = logged.server.log();
    let line = log
        .lines()
        .rfind(|line| line.contains("Oldest actions in state") && line.contains("queued"))
        .unwrap_or_default();
    let named: Vec<_> = names.iter().map(|name| line.contains(name.as_str())).collect();
    assert_eq!(named, [true, true, true, true, true, false, false], "{line}");
    Ok(())
}
