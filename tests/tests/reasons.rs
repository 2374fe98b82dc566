//! One live queue with everything that an action may wait for, and what `why`, `plan` and `queue` say of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_proto::rev2::{ExecuteRequest, ExecuteResponse};
use pointsman_proto::rpc;
use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::fake_worker::{Event, FakeWorker, RunningWorker, Work, WorkerSpec, exited};
use pointsman_tests::harness::{Server, ServerOptions, ask, ask_json, build_policy};
use serde_json::Value;

/// How long things may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// Nothing that rests gets better while the test looks at it.
const CONFIG: &str = "
    supported_platform_properties: { tag: 'exact', gpu: 'exact', cpu_count: 'minimum', OSFamily: 'priority' },
    unknown_property: 'queue',
    quarantine_after: 2,
    pools: [
        { name: 'gone', platform: { tag: 'gone' }, instance_name_prefix: 'x', size_class: 0 },
        { name: 'capped', platform: { tag: 'capped' }, instance_name_prefix: 'x', size_class: 0, max_inflight_tasks: 1 },
    ],
    timers: {
        retry_backoff: '1h', retry_backoff_max: '1h', quarantine: '1h', quarantine_max: '1h', worker_expiry: '1h',
    },";

/// What a fake worker does with an action.
#[derive(Clone, Copy)]
enum Does {
    /// Never finishes it.
    Hangs,
    /// Fails by its own fault.
    Fails,
    /// Finishes the first one, and hangs.
    FinishesOne,
}

/// A server, what is submitted to it, and its workers.
struct Queue {
    server: Server,
    client: FakeClient,
    workers: BTreeMap<String, RunningWorker>,
    /// Streams of what waits: without them it would not wait for long.
    streams: Vec<Updates>,
    known: usize,
}

impl Queue {
    async fn new(policy: &std::path::Path) -> anyhow::Result<Self> {
        let config = format!("{{ {CONFIG} policy: {{ file: '{}' }} }}", policy.display());
        let server = Server::start(&ServerOptions { config, ..ServerOptions::default() }).await?;
        let client = FakeClient::connect(server.address().parse()?).await?.with_instance_name("x");
        Ok(Self { server, client, workers: BTreeMap::new(), streams: Vec::new(), known: 0 })
    }

    /// `host` or `host/thread`, which has 4 cores and its host's name as its tag, unless another is given.
    fn spec(name: &str, tag: Option<&str>) -> WorkerSpec {
        let (host, thread) = name.split_once('/').unwrap_or((name, ""));
        let spec =
            WorkerSpec::new(host).with_property("tag", tag.unwrap_or(host)).with_property("cpu_count", "4");
        let spec = match host {
            "never" | "seldom" => spec.with_property(&format!("steer-{host}"), "1"),
            _ => spec,
        };
        let mut spec = match thread.parse() {
            Ok(index) => spec.thread(index),
            Err(_) => spec,
        };
        spec.instance_name_prefix = "x".to_owned();
        spec
    }

    /// Starts a worker, and waits until the scheduler knows it.
    async fn worker(&mut self, name: &str, tag: Option<&str>, does: Does) -> anyhow::Result<()> {
        let worker = FakeWorker::new(self.server.channel()?, &Self::spec(name, tag));
        let begun = AtomicUsize::new(0);
        let running = worker.start(move |work| act(work, does, begun.fetch_add(1, Ordering::Relaxed)));
        self.workers.insert(name.to_owned(), running);
        self.appears("waiting").await
    }

    /// One that has called once and does not call again.
    async fn mute_worker(&mut self) -> anyhow::Result<()> {
        let mut worker = FakeWorker::new(self.server.channel()?, &Self::spec("mute", None));
        let call = tokio::time::timeout(Duration::from_millis(300), worker.synchronize()).await;
        ensure!(call.is_err(), "a call was answered at once: {call:?}");
        self.appears("not-calling").await
    }

    /// One more worker is known, which is in this state.
    async fn appears(&mut self, state: &str) -> anyhow::Result<()> {
        self.known += 1;
        self.wait_for("a worker appears", async |queue| {
            let list = ask_json(&queue.server, &["workers"]).await?;
            let workers = list["workers"].as_array().map_or(&[][..], Vec::as_slice);
            Ok(workers.len() == queue.known && workers.iter().any(|worker| worker["state"] == state))
        })
        .await
    }

    /// Submits an action; its operation's name.
    async fn submit(&mut self, name: &str, properties: &[(&str, &str)]) -> anyhow::Result<String> {
        let mut spec = ActionSpec::new(["echo", name]);
        for (key, value) in properties {
            spec = spec.with_property(key, value);
        }
        let client = self.client.clone();
        self.submit_by(&client, &spec).await
    }

    async fn submit_by(&mut self, client: &FakeClient, spec: &ActionSpec) -> anyhow::Result<String> {
        let digest = client.upload_action(spec).await?;
        let request = ExecuteRequest { action_digest: Some(digest), ..ExecuteRequest::default() };
        let mut updates = client.execute_request(request).await?;
        let first =
            tokio::time::timeout(PATIENCE, updates.next()).await.context("no answer to Execute")??;
        self.streams.push(updates);
        Ok(first.context("the stream of Execute ends at once")?.name)
    }

    /// The same, once that worker has it.
    async fn given(
        &mut self,
        worker: &str,
        name: &str,
        properties: &[(&str, &str)],
    ) -> anyhow::Result<String> {
        let operation = self.submit(name, properties).await?;
        let events = self.workers.get_mut(worker).context("no such worker")?;
        let started = async { while !matches!(events.next_event().await, Some(Event::Started(_)) | None) {} };
        tokio::time::timeout(PATIENCE, started)
            .await
            .with_context(|| format!("{worker} does not get {name}"))?;
        Ok(operation)
    }

    async fn wait_for(
        &self,
        what: &str,
        holds: impl AsyncFn(&Self) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let all = async {
            while !holds(self).await? {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, all).await.with_context(|| format!("not yet: {what}"))?
    }

    /// What `why` says, as text and as JSON, whose counts add up to all workers.
    async fn why(&self, operation: &str, code: &str) -> anyhow::Result<(String, Value)> {
        self.wait_for(code, async |queue| {
            Ok(ask_json(&queue.server, &["why", operation]).await?["reason"] == code)
        })
        .await
        .with_context(|| self.server.log())?;
        let facts = ask_json(&self.server, &["why", operation]).await?;
        let text = ask(&self.server, &["why", operation]).await?.expect_code(0)?.text;
        self.adds_up(&facts)?;
        ensure!(facts["operation_name"] == *operation, "{facts}");
        ensure!(facts["decision"]["policy_name"] == "steer", "{facts}");
        Ok((text, facts))
    }

    /// What `plan` says, likewise.
    async fn plan(&self, words: &[&str], exit_code: i32) -> anyhow::Result<(String, Value)> {
        let words = [&["plan"], words].concat();
        let text = ask(&self.server, &words).await?.expect_code(exit_code)?.text;
        let facts = ask(&self.server, &[&words[..], &["--output", "json"]].concat()).await?;
        let facts = serde_json::from_str(&facts.expect_code(exit_code)?.text)?;
        self.adds_up(&facts)?;
        Ok((text, facts))
    }

    fn adds_up(&self, facts: &Value) -> anyhow::Result<()> {
        let counts = facts["counts"].as_array().into_iter().flatten();
        let counted: u64 = counts.filter_map(|count| count["workers"].as_u64()).sum();
        ensure!(facts["workers"] == counted && counted == self.known as u64, "not {}: {facts}", self.known);
        Ok(())
    }
}

async fn act(work: Work, does: Does, before: usize) -> ExecuteResponse {
    match does {
        Does::FinishesOne if before == 0 => exited(&work, 0),
        Does::Hangs | Does::FinishesOne => std::future::pending().await,
        Does::Fails => {
            let message = "disk full".to_owned();
            let status = rpc::Status { code: rpc::Code::Internal.into(), message, ..Default::default() };
            ExecuteResponse { status: Some(status), ..Default::default() }
        }
    }
}

fn obstacles(facts: &Value) -> impl Iterator<Item = String> {
    let counts = facts["counts"].as_array().into_iter().flatten();
    counts.filter_map(|count| count["obstacle"].as_str()).map(str::to_owned).collect::<Vec<_>>().into_iter()
}

/// An action that waits, and what is said of it.
struct Waits {
    operation: String,
    code: Reason,
    /// Words of the answer.
    says: &'static str,
    /// Something that keeps a worker from it.
    by: Obstacle,
}

/// Brings about each reason, and leaves it in the queue.
async fn everything(queue: &mut Queue) -> anyhow::Result<Vec<Waits>> {
    let mut all = Vec::new();
    let mut waits = |operation: String, code, by, says| all.push(Waits { operation, code, says, by });

    for (name, tag, does) in [
        ("drained", None, Does::Hangs),
        ("paused", None, Does::Hangs),
        ("sick", None, Does::Fails),
        ("weak", None, Does::Fails),
        ("pair2", Some("pair"), Does::Hangs),
        ("busy", None, Does::Hangs),
        ("capped/0", None, Does::Hangs),
        ("capped/1", None, Does::Hangs),
        ("two/0", None, Does::Hangs),
        ("two/1", None, Does::Hangs),
        ("last", Some("kin"), Does::FinishesOne),
        ("kept/0", None, Does::Hangs),
        ("kept/1", None, Does::Hangs),
        ("alone/0", None, Does::Hangs),
        ("alone/1", None, Does::Hangs),
        ("never", None, Does::Hangs),
        ("seldom", None, Does::FinishesOne),
        ("group/0", None, Does::Hangs),
        ("group/1", None, Does::Hangs),
    ] {
        queue.worker(name, tag, does).await?;
    }
    for (act, host) in [("drain", "hostname=drained"), ("pause", "hostname=paused")] {
        ask(&queue.server, &[act, host]).await?.expect_code(0)?;
    }

    // What no worker can do.
    let name = queue.submit("1", &[("typo", "1")]).await?;
    waits(
        name,
        Reason::UnknownProperty,
        Obstacle::PropertyMismatch,
        "'typo' is not in supported_platform_properties",
    );
    let elsewhere = FakeClient::connect(queue.server.address().parse()?).await?;
    let name = queue.submit_by(&elsewhere, &ActionSpec::new(["echo", "2"])).await?;
    waits(
        name,
        Reason::NoInstanceMatch,
        Obstacle::OtherInstance,
        "to unblock it: start a worker whose instance name",
    );
    let name = queue.submit("3", &[("steer-pool", "p")]).await?;
    waits(name, Reason::NoPool, Obstacle::OtherPool, "to unblock it: start a worker of that pool");
    let name = queue.submit("4", &[("steer-size", "7")]).await?;
    waits(
        name,
        Reason::NoSizeClass,
        Obstacle::OtherSizeClass,
        "to unblock it: start a worker of that size class",
    );
    let name = queue.submit("5", &[("gpu", "a100")]).await?;
    waits(
        name,
        Reason::NoPropertyMatch,
        Obstacle::PropertyMismatch,
        "to unblock it: start a worker with gpu=a100",
    );
    let name = queue.submit("6", &[("cpu_count", "5")]).await?;
    waits(name, Reason::NeverFits, Obstacle::NeverFits, "cpu_count 5 is asked for, the most that a host has");

    let name = queue.submit("21", &[("tag", "gone")]).await?;
    waits(name, Reason::PoolEmpty, Obstacle::PropertyMismatch, "start a worker of the pool gone, or see why");

    // What operators and hosts hold back.
    let name = queue.submit("7", &[("tag", "drained")]).await?;
    waits(name, Reason::Drained, Obstacle::Drained, "to unblock it: remove the drain");
    let name = queue.submit("8", &[("tag", "paused")]).await?;
    waits(name, Reason::Paused, Obstacle::Paused, "to unblock it: remove the pause");
    queue.given("sick", "9", &[("tag", "sick")]).await?;
    let name = queue.given("sick", "10", &[("tag", "sick")]).await?;
    waits(name, Reason::Quarantined, Obstacle::Quarantined, "to unblock it: repair the hosts in quarantine");
    let name = queue.given("weak", "11", &[("tag", "weak")]).await?;
    waits(
        name,
        Reason::BackingOff,
        Obstacle::BackingOff,
        "attempt 1 on {\"hostname\":\"weak\"} failed: INTERNAL: disk full",
    );

    // What is busy, each in its way; `busy` has what was there before it.
    let name = queue.submit("13", &[("tag", "busy")]).await?;
    waits(name, Reason::AllBusy, Obstacle::Busy, "every worker that could run it is busy");
    queue.given("pair2", "pair", &[("tag", "pair")]).await?;
    queue.worker("pair1", Some("pair"), Does::Fails).await?;
    let name = queue.given("pair1", "14", &[("tag", "pair")]).await?;
    waits(name, Reason::AllBusy, Obstacle::FailedThere, "is on a host where it failed");
    let mut twin =
        ActionSpec::new(["echo", "twin"]).with_property("tag", "two").with_property("cpu_count", "3");
    twin.do_not_cache = true;
    let client = queue.client.clone();
    queue.submit_by(&client, &twin).await?;
    let name = queue.submit_by(&client, &twin).await?;
    waits(name, Reason::AllBusy, Obstacle::SameActionThere, "1 is on a host that runs the same action");
    let name = queue.submit("15", &[("tag", "two"), ("cpu_count", "2")]).await?;
    waits(name, Reason::AllBusy, Obstacle::NotEnoughFree, "the most that a host has left is 1 of 4");
    queue.submit("capped", &[("tag", "capped")]).await?;
    let name = queue.submit("20", &[("tag", "capped")]).await?;
    waits(name, Reason::AllBusy, Obstacle::MaxInflight, "1 is on a host at its max_inflight_tasks");
    queue.mute_worker().await?;
    let name = queue.submit("16", &[("tag", "mute")]).await?;
    waits(name, Reason::AllBusy, Obstacle::NotCalling, "1 has not called since its last answer");

    // What has to be alone, or is one of too many.
    queue.submit("22", &[("tag", "kept")]).await?;
    let name = queue.submit("23", &[("tag", "kept"), ("steer-alone", "")]).await?;
    waits(name, Reason::Reserved, Obstacle::OthersThere, "(reserved): a host is kept free for it, and what");
    let name = queue.submit("24", &[("tag", "kept")]).await?;
    waits(name, Reason::AllBusy, Obstacle::Reserved, "2 are on a host that is kept free for another action");
    queue.submit("25", &[("tag", "alone"), ("steer-alone", "")]).await?;
    let name = queue.submit("26", &[("tag", "alone")]).await?;
    waits(
        name,
        Reason::AllBusy,
        Obstacle::ExclusiveThere,
        "1 is on a host where an exclusive action executes",
    );
    let name = queue.submit("27", &[("tag", "never"), ("steer-alone", "")]).await?;
    waits(
        name,
        Reason::NoExclusive,
        Obstacle::NoExclusive,
        "to unblock it: start a worker whose host admits exclusive actions",
    );
    queue.given("seldom", "28", &[("tag", "seldom"), ("steer-alone", "")]).await?;
    let name = queue.submit("29", &[("tag", "seldom"), ("steer-alone", "")]).await?;
    waits(
        name,
        Reason::Exclusive,
        Obstacle::NotAdmitted,
        "1 is on a host that admits an exclusive action only",
    );
    queue.submit("30", &[("tag", "group"), ("steer-group", "g")]).await?;
    let name = queue.submit("31", &[("tag", "group"), ("steer-group", "g")]).await?;
    waits(name, Reason::GroupFull, Obstacle::GroupFull, "1 has to wait for others of its group to end");

    // `last` has run the key and is busy now; `next` is free, and not what it waits for.
    let kin = [("tag", "kin"), ("steer-affinity", "k")];
    queue.given("last", "17", &kin).await?;
    queue.given("last", "18", &[("tag", "kin")]).await?;
    queue.worker("next", Some("kin"), Does::Hangs).await?;
    let name = queue.submit("19", &kin).await?;
    waits(
        name,
        Reason::Affinity,
        Obstacle::Affinity,
        "it waits a while for the host that last ran its affinity key",
    );
    Ok(all)
}

#[tokio::test(flavor = "multi_thread")]
async fn why_plan_and_queue_on_a_queue_with_every_reason() -> anyhow::Result<()> {
    let suite = "all reasons on one live queue";
    let Some(policy) = build_policy(suite, "tests/guests/steer/build.sh").await? else { return Ok(()) };
    let mut queue = Queue::new(&policy).await?;
    let (mut reasons, mut seen) = (BTreeSet::new(), BTreeSet::new());

    // The one reason that the others leave no room for.
    let first = queue.submit("first", &[("tag", "busy")]).await?;
    let (text, _) = queue.why(&first, Reason::NoWorkerRegistered.code()).await?;
    ensure!(
        text.contains("(no-worker-registered): no worker is connected; to unblock it: start a worker"),
        "{text}"
    );
    let (text, _) = queue.plan(&["--platform", "tag=busy"], 2).await?;
    ensure!(
        text.starts_with("would never run with the workers that are known (no-worker-registered): "),
        "{text}"
    );
    reasons.insert(Reason::NoWorkerRegistered.code());

    let waiting = everything(&mut queue).await?;
    for Waits { operation, code, says, by } in &waiting {
        let (text, facts) = queue.why(operation, code.code()).await?;
        ensure!(text.contains(&format!(" ({}): ", code.code())) && text.contains(says), "{says:?}: {text}");
        ensure!(facts["text"] == text.trim_end(), "{facts}");
        ensure!(facts["never"] == code.is_never(), "{facts}");
        ensure!(obstacles(&facts).any(|obstacle| obstacle == by.code()), "{}: {facts}", by.code());
        seen.extend(obstacles(&facts));
        reasons.insert(code.code());
    }
    let (text, facts) = queue.why(&first, Reason::Running.code()).await?;
    ensure!(text.starts_with("running on {\"hostname\":\"busy\"}, "), "{text}");
    ensure!(facts["host"] == "{\"hostname\":\"busy\"}", "{facts}");
    reasons.insert(Reason::Running.code());

    for (words, exit_code, code) in PLANS {
        let words: Vec<&str> = words.split(' ').collect();
        let (text, facts) = queue.plan(&words, *exit_code).await?;
        let verdict = ["would run now ", "would wait ", "would never run "][*exit_code as usize];
        ensure!(
            text.starts_with(verdict) && text.contains(&format!("({}): ", code.code())),
            "{words:?}: {text}"
        );
        ensure!(facts["reason"] == code.code() && facts["text"] == text.trim_end(), "{words:?}: {facts}");
        seen.extend(obstacles(&facts));
        reasons.insert(code.code());
    }

    let all: BTreeSet<_> = Reason::ALL.iter().map(|reason| reason.code()).collect();
    ensure!(reasons == all, "reasons that are not shown: {:?}", all.difference(&reasons).collect::<Vec<_>>());
    let all = Obstacle::ALL.iter().map(|obstacle| obstacle.code().to_owned()).collect::<BTreeSet<_>>();
    let missing: Vec<_> = all.difference(&seen).collect();
    ensure!(missing.is_empty(), "obstacles that are not counted: {missing:?}");

    let listed = ask_json(&queue.server, &["queue"]).await?;
    let classes = listed["classes"].as_array().context("no classes")?;
    let shown: BTreeSet<_> = classes.iter().filter_map(|c| c["explanation"]["reason"].as_str()).collect();
    ensure!(shown == waiting.iter().map(|w| w.code.code()).collect(), "{shown:?}");
    let actions: u64 = classes.iter().filter_map(|class| class["actions"].as_u64()).sum();
    ensure!(listed["queued"] == actions, "{actions} of {}", listed["queued"]);
    for class in classes {
        queue.adds_up(&class["explanation"])?;
    }
    let text = ask(&queue.server, &["queue"]).await?.expect_code(0)?.text;
    for Waits { code, .. } in &waiting {
        ensure!(text.contains(&format!(" ({}): ", code.code())), "{} is not in:\n{text}", code.code());
    }
    Ok(())
}

/// What is asked, how `plan` ends, and why. What is not submitted has failed nowhere, waits for no host, and does not run.
const PLANS: &[(&str, i32, Reason)] = &[
    ("--instance-name x --platform typo=1", 2, Reason::UnknownProperty),
    ("--instance-name y", 2, Reason::NoInstanceMatch),
    ("--instance-name x --pool p", 2, Reason::NoPool),
    ("--instance-name x --size-class 7", 2, Reason::NoSizeClass),
    ("--instance-name x --platform gpu=a100", 2, Reason::NoPropertyMatch),
    ("--instance-name x --platform cpu_count=5", 2, Reason::NeverFits),
    ("--instance-name x --platform tag=gone", 1, Reason::PoolEmpty),
    ("--instance-name x --platform tag=drained", 1, Reason::Drained),
    ("--instance-name x --platform tag=paused", 1, Reason::Paused),
    ("--instance-name x --platform tag=sick", 1, Reason::Quarantined),
    ("--instance-name x --platform tag=busy", 1, Reason::AllBusy),
    ("--instance-name x --platform tag=weak", 0, Reason::Next),
    ("--instance-name x/y --platform tag=kin --platform cpu_count=4", 0, Reason::Next),
];
