//! What an operator does at 3 a.m.: asks a running server with the command line, tells it something, reads its log.

use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::fake_worker::{FakeWorker, RunningWorker, WorkerSpec};
use pointsman_tests::harness::{Finished, Server, ServerOptions, ask, ask_json, cli};
use serde_json::Value;

const SCHEMA: &str =
    "supported_platform_properties: { gpu: 'exact', cpu_count: 'minimum', OSFamily: 'priority' },";

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

async fn server(more: &str) -> anyhow::Result<Server> {
    let config = format!("{{ {SCHEMA} {more} }}");
    Server::start(&ServerOptions { config, ..ServerOptions::default() }).await
}

fn has(run: &Finished, wanted: &[&str]) -> anyhow::Result<()> {
    let missing: Vec<_> = wanted.iter().filter(|part| !run.text.contains(**part)).collect();
    ensure!(missing.is_empty(), "{missing:?} missing in:\n{}", run.text);
    Ok(())
}

/// Queues an action; its operation's name, and its client's stream, without which it would not wait for long.
async fn queued(server: &Server, spec: ActionSpec) -> anyhow::Result<(String, Updates)> {
    let client = FakeClient::connect(server.address().parse()?).await?;
    let mut updates = client.execute(&client.upload_action(&spec).await?).await?;
    // Not `until(Queued)`: a worker that waits takes it before anybody has read that.
    let first = tokio::time::timeout(PATIENCE, updates.next()).await.context("no answer to Execute")??;
    Ok((first.context("the stream of Execute ends at once")?.name, updates))
}

/// A worker that never finishes anything, once the server knows it.
async fn worker(server: &Server, spec: &WorkerSpec) -> anyhow::Result<RunningWorker> {
    let running = FakeWorker::new(server.channel()?, spec).start(|_| std::future::pending());
    let known = async {
        loop {
            let workers = ask_json(server, &["workers"]).await?;
            let ids = workers["workers"].as_array().into_iter().flatten().map(|w| &w["id"]["hostname"]);
            if ids.into_iter().any(|name| name.as_str() == spec.id.get("hostname").map(String::as_str)) {
                return anyhow::Ok(());
            }
        }
    };
    tokio::time::timeout(PATIENCE, known).await.context("the worker does not appear")??;
    Ok(running)
}

fn gpu() -> ActionSpec {
    ActionSpec::new(["true"]).with_property("gpu", "a100")
}

#[tokio::test]
async fn an_action_that_nobody_can_run_is_found_explained_and_cancelled() -> anyhow::Result<()> {
    let server = server("").await?;
    let (name, updates) = queued(&server, gpu()).await?;

    let why = ask(&server, &["why", &name]).await?.expect_code(0)?;
    has(
        &why,
        &["queued for ", "(no-worker-registered): no worker is connected; to unblock it: start a worker"],
    )?;
    let facts = ask_json(&server, &["why", &name]).await?;
    ensure!(facts["reason"] == "no-worker-registered" && facts["operation_name"] == *name, "{facts}");

    let queue = ask(&server, &["queue"]).await?.expect_code(0)?;
    has(&queue, &["1 action with {gpu=a100} of instance name ''\n", &name, "\n1 action queued, 0 running"])?;
    let facts = ask_json(&server, &["queue", "--limit", "1"]).await?;
    ensure!(facts["queued"] == 1 && facts["classes"][0]["operation_names"][0] == *name, "{facts}");
    has(&ask(&server, &["workers"]).await?.expect_code(0)?, &["no worker is known: start one with"])?;

    let cancelled = ask(&server, &["cancel", "--operation", &name]).await?.expect_code(0)?;
    has(&cancelled, &["cancelled 1 operation\n", &name])?;
    let response = updates.finish().await?.response;
    ensure!(
        response.status.as_ref().is_some_and(|status| status.code == 9),
        "clients try again: {response:?}"
    );
    has(&ask(&server, &["queue"]).await?.expect_code(0)?, &["0 actions queued, 0 running"])?;
    let over = ask(&server, &["why", &name]).await?.expect_code(1)?;
    has(&over, &["is over"])
}

#[tokio::test]
async fn plan_tells_now_from_later_from_never() -> anyhow::Result<()> {
    let server = server("").await?;
    let plan =
        async |words: &[&str], code| ask(&server, &[&["plan"], words].concat()).await?.expect_code(code);
    has(&plan(&["--platform", "cpu_count=2"], 2).await?, &["(no-worker-registered)"])?;

    let _worker = worker(&server, &WorkerSpec::new("h").with_property("cpu_count", "4")).await?;
    has(&plan(&["--platform", "cpu_count=2"], 0).await?, &["would run now"])?;
    let never = plan(&["--platform", "cpu_count=9", "-o", "json"], 2).await?;
    let facts: Value = serde_json::from_str(&never.text)?;
    ensure!(facts["reason"] == "never-fits" && facts["shortages"][0]["most_total"] == 4, "{facts}");
    has(&plan(&["--platform", "gpu=a100"], 2).await?, &["(no-property-match)"])?;
    // Neither exists in the schema: such an action would not even wait.
    has(
        &plan(&["--platform", "cpu_cuont=2"], 2).await?,
        &["would be refused: ", "did you mean 'cpu_count'?"],
    )?;

    let (name, _updates) = queued(&server, ActionSpec::new(["true"]).with_property("cpu_count", "1")).await?;
    let runs = async || anyhow::Ok(ask_json(&server, &["queue"]).await?["running"] == 1);
    while !runs().await? {}
    has(&plan(&["--platform", "cpu_count=2"], 1).await?, &["would wait (all-busy)"])?;
    let workers = ask(&server, &["workers"]).await?.expect_code(0)?;
    has(&workers, &["hostname=h  executing  cpu_count 3/4  ", &name, "\n1 worker\n"])?;
    has(&ask(&server, &["why", &name]).await?.expect_code(0)?, &["running on "])
}

#[tokio::test]
async fn workers_are_drained_paused_and_released() -> anyhow::Result<()> {
    let server = server("").await?;
    let _worker = worker(&server, &WorkerSpec::new("h").with_property("OSFamily", "linux")).await?;
    let plan = ["plan", "--platform", "OSFamily=linux"];
    for (act, held, reason) in [("drain", "drained", "(drained)"), ("pause", "paused", "(paused)")] {
        let nothing = format!("nothing is {held}");
        has(&ask(&server, &[act, "--list"]).await?.expect_code(0)?, &[&nothing])?;
        let added = ask(&server, &[act, "hostname=h"]).await?.expect_code(0)?;
        has(&added, &["added; workers that match: 1"])?;
        // What is written wrongly matches nobody, and says so.
        has(
            &ask(&server, &[act, "hostname=other"]).await?.expect_code(0)?,
            &["no worker that is known now matches"],
        )?;
        let list = ask(&server, &[act, "--list"]).await?.expect_code(0)?;
        has(&list, &["hostname=h      for ", "hostname=other  for ", "matches 1 worker   0 run something"])?;
        let facts = ask_json(&server, &[act, "--list"]).await?;
        ensure!(facts["holds"].as_array().is_some_and(|holds| holds.len() == 2), "{facts}");
        has(&ask(&server, &["workers"]).await?.expect_code(0)?, &[held])?;
        has(&ask(&server, &plan).await?.expect_code(1)?, &[reason])?;

        let slip = ask(&server, &[act, "hostname=H", "--remove"]).await?.expect_code(0)?;
        has(&slip, &["no such pattern is in force"])?;
        for name in ["hostname=h", "hostname=other"] {
            has(&ask(&server, &[act, name, "--remove"]).await?.expect_code(0)?, &["removed"])?;
        }
        ask(&server, &plan).await?.expect_code(0)?;
    }
    ask(&server, &["drain"]).await?.expect_code(64)?;
    has(&ask(&server, &["pause", "--all"]).await?.expect_code(0)?, &["added; workers that match: 1"])?;
    has(&ask(&server, &["pause", "--list"]).await?.expect_code(0)?, &["all workers  for "])?;
    Ok(())
}

#[tokio::test]
async fn what_is_not_there_says_what_to_do() -> anyhow::Result<()> {
    let server = server("").await?;
    for words in
        [&["why", "no-such"][..], &["cancel", "--operation", "no-such"], &["cancel", "--like", "no-such"]]
    {
        let run = ask(&server, words).await?.expect_code(1)?;
        has(&run, &["there is no operation 'no-such'", "`pointsman queue`"])?;
    }
    let nobody = ask(&server, &["cancel", "--invocation", "no-such"]).await?.expect_code(0)?;
    has(&nobody, &["cancelled 0 operations"])?;
    let address = server.address();
    server.stop().await?;
    for words in [&["queue"][..], &["plan"], &["why", "x"], &["drain", "--list"]] {
        let run = cli(&[words, &["--server", &address]].concat()).await?.expect_code(69)?;
        let text = format!("no scheduler answers at {address}: ");
        has(&run, &[&text, "onnection refused", "start one with `pointsman serve`", "POINTSMAN_SERVER"])?;
    }
    let run = cli(&["queue", "--server", "ftp://x y"]).await?.expect_code(64)?;
    has(&run, &["give HOST:PORT"])
}

#[tokio::test]
async fn the_log_is_silent_while_nothing_waits_or_when_switched_off() -> anyhow::Result<()> {
    let quiet = server("worker_match_logging_interval_s: 1,").await?;
    let off = server("worker_match_logging_interval_s: 0,").await?;
    let (_, _updates) = queued(&off, gpu()).await?;
    tokio::time::sleep(Duration::from_millis(2500)).await;
    for server in [&quiet, &off] {
        ensure!(!server.log().contains("Oldest actions in state"), "{}", server.log());
    }
    Ok(())
}

#[tokio::test]
async fn a_command_tells_what_the_bundled_worker_offers() -> anyhow::Result<()> {
    let worker = r#"worker: { enabled: true, concurrency: 1, platform: {
        gpu: { query_cmd: "printf 'a100\\nh100'" }, OSFamily: { values: [""] }, cpu_count: "3" } }"#;
    let server = server(worker).await?;
    let offered = async {
        loop {
            let workers = ask_json(&server, &["workers"]).await?;
            if let Some(platform) = workers["workers"][0]["platform"].as_array() {
                let pair = |p: &Value| format!("{}={}", p["name"], p["value"]).replace('"', "");
                return anyhow::Ok(platform.iter().map(pair).collect::<Vec<_>>());
            }
        }
    };
    let offered = tokio::time::timeout(PATIENCE, offered).await??;
    ensure!(offered == ["OSFamily=", "cpu_count=3", "gpu=a100", "gpu=h100"], "{offered:?}");
    let (_, updates) = queued(&server, ActionSpec::new(["true"]).with_property("gpu", "h100")).await?;
    let response = updates.finish().await?.response;
    ensure!(response.result.as_ref().is_some_and(|result| result.exit_code == 0), "{response:?}");
    Ok(())
}

#[tokio::test]
async fn a_worker_whose_command_fails_says_which_and_ends() -> anyhow::Result<()> {
    let command = "sh -c 'echo no driver >&2; exit 9'";
    let told = [
        "platform property \"gpu\"",
        command,
        "it ended with exit status: 9 and said \"no driver\"",
        "`env -i COMMAND` tries that",
    ];
    let folder = tempfile::tempdir()?;
    let dir = folder.path().to_string_lossy().into_owned();
    let query = format!("gpu={command}");
    let words = ["worker", "--scheduler", "127.0.0.1:1", "--work-dir", &dir, "--platform-query", &query];
    has(&cli(&words).await?.expect_code(1)?, &told)?;
    let slow = ["--platform-query", "gpu=sleep 60", "--query-timeout", "300ms"];
    has(
        &cli(&[&words[..5], &slow].concat()).await?.expect_code(1)?,
        &["had not ended after 300ms and was killed"],
    )?;
    has(
        &cli(&[&words[..5], &["--platform-query", "gpu='"]].concat()).await?.expect_code(64)?,
        &["a quote is not closed"],
    )?;

    let config = format!("worker: {{ enabled: true, platform: {{ gpu: {{ query_cmd: \"{command}\" }} }} }}");
    let mut server = server(&config).await?;
    server.wait_for_log("the bundled worker ended; the scheduler goes on without it", PATIENCE).await?;
    ensure!(told.iter().all(|part| server.log().contains(part)), "{}", server.log());
    Ok(())
}

/// `matching: exact_set`: no schema, and the bundled worker offers what the file says and nothing else.
#[tokio::test]
async fn whole_property_lists_can_be_compared() -> anyhow::Result<()> {
    let config =
        r#"{ matching: "exact_set", worker: { enabled: true, concurrency: 1, platform: { any: "x" } } }"#;
    let server =
        Server::start(&ServerOptions { config: config.to_owned(), ..ServerOptions::default() }).await?;
    let (_, updates) = queued(&server, ActionSpec::new(["true"]).with_property("any", "x")).await?;
    let response = updates.finish().await?.response;
    ensure!(response.result.as_ref().is_some_and(|result| result.exit_code == 0), "{response:?}");
    let more = ["plan", "--platform", "any=x", "--platform", "other=y"];
    has(&ask(&server, &more).await?.expect_code(2)?, &["would never run"])
}

#[tokio::test]
async fn a_declared_pool_may_be_empty_and_bounds_its_hosts() -> anyhow::Result<()> {
    let pools = "pools: [{ name: 'gpu', platform: { gpu: 'a100', cpu_count: '8' }, max_inflight_tasks: 1 }], \
                 timers: { unschedulable_timeout: '1s' },";
    let server = server(pools).await?;
    let (name, first) = queued(&server, gpu()).await?;
    let (other, nowhere) = queued(&server, ActionSpec::new(["true"]).with_property("gpu", "h100")).await?;
    // The one that no pool could run ends; the other waits for its pool.
    let end = tokio::time::timeout(PATIENCE, nowhere.finish()).await.context("it waits on")??;
    ensure!(end.response.status.is_some_and(|s| s.message.contains("no worker")), "{other} did not say why");
    has(
        &ask(&server, &["why", &name]).await?.expect_code(0)?,
        &["(pool-empty)", "start a worker of the pool gpu"],
    )?;
    has(
        &ask(&server, &["plan", "--platform", "gpu=a100"]).await?.expect_code(1)?,
        &["would wait (pool-empty)"],
    )?;

    let spec = WorkerSpec::new("g").with_property("gpu", "a100").with_property("cpu_count", "8");
    let _workers = [worker(&server, &spec.thread(0)).await?, worker(&server, &spec.thread(1)).await?];
    let second = queued(&server, ActionSpec::new(["false"]).with_property("gpu", "a100")).await?;
    let facts = ask_json(&server, &["why", &second.0]).await?;
    let counts = facts["counts"].to_string();
    ensure!(counts.contains("max-inflight") && facts["reason"] == "all-busy", "{facts}");
    let facts = ask_json(&server, &["workers"]).await?;
    ensure!(facts["workers"][0]["pool"] == "gpu" && facts["workers"][0]["inflight_max"] == 1, "{facts}");
    drop(first);
    Ok(())
}

/// The default policy with a remark at its end: it does the same, and has a digest of its own.
fn version(remark: u8) -> anyhow::Result<Vec<u8>> {
    let default = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/prebuilt/default.wasm"))?;
    // Section 0 (custom), its size, the length of its name, its name.
    Ok([&default[..], &[0, 2, 1, remark]].concat())
}

#[tokio::test]
async fn policies_are_looked_at_pushed_tried_out_promoted_and_rolled_back() -> anyhow::Result<()> {
    let server = server("").await?;
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("policy.wasm");
    let file = file.to_str().context("a folder whose name is no text")?;
    let status = ask(&server, &["policy", "status"]).await?.expect_code(0)?;
    has(
        &status,
        &["main (on_error last_good)", "in force     default ", " from built-in, since ", "0 failed"],
    )?;
    let none = ask(&server, &["policy", "rollback"]).await?.expect_code(1)?;
    has(&none, &["the policy link 'main' has no version before default "])?;
    let unknown = ask(&server, &["policy", "promote", "mian"]).await?.expect_code(1)?;
    has(&unknown, &["there is no policy link 'mian'; known are main"])?;

    std::fs::write(file, "not Wasm")?;
    let refused = ask(&server, &["policy", "push", file]).await?.expect_code(1)?;
    has(&refused, &["it is not a WebAssembly component"])?;
    let status = ask(&server, &["policy", "status", "main"]).await?.expect_code(0)?;
    has(&status, &["last version REFUSED", "it is not a WebAssembly component", "in force     default "])?;

    std::fs::write(file, version(b'a')?)?;
    let tried = ask(&server, &["policy", "push", file, "--canary=0.5"]).await?.expect_code(0)?;
    has(&tried, &["is tried out as canary for 50 % of invocations"])?;
    let status = ask(&server, &["policy", "status"]).await?.expect_code(0)?;
    has(&status, &["on trial     default ", " from push, since ", "canary for 50 % of invocations"])?;
    let promoted = ask(&server, &["policy", "promote"]).await?.expect_code(0)?;
    has(&promoted, &["is in force, on probation for 600s"])?;
    let back = ask(&server, &["policy", "rollback"]).await?.expect_code(0)?;
    has(&back, &["is in force again in place of default "])?;
    let again = ask(&server, &["policy", "push", file]).await?.expect_code(1)?;
    has(&again, &["that version was rolled back before (by an operator); --again lets it in"])?;
    ask(&server, &["policy", "push", file, "--again"]).await?.expect_code(0)?;
    let history = ask(&server, &["policy", "history"]).await?.expect_code(0)?;
    has(&history, &["refused ", "trial ", "promoted ", "rolled-back ", "in-force "])
}
