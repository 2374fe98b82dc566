//! The worked example of the guide to platform properties: a few machines have a GPU, and only what asks for one is
//! sent there.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use pointsman_proto::rev2::platform::Property;
use pointsman_tests::harness::{
    BazelVersion, Clients, Observed, Running, Server, ServerOptions, Signal, cli, finished_operations,
    start_worker,
};

use super::with_bazel;

/// The example's schema; `pool` is asked for by another target of the workspace.
const CONFIG: &str = r#"{
    supported_platform_properties: {
        cpu_count: "minimum",
        OSFamily: "priority",
        gpu: "exact",
    },
    unknown_property: "ignore",
    worker_match_logging_interval_s: 1,
}"#;

/// A worker of the pool that has this GPU.
fn worker(clients: &Clients, server: &Server, gpu: &str) -> anyhow::Result<Running> {
    let property = format!("gpu={gpu}");
    let platform = [
        "--only-given-platform",
        "--platform-query",
        "cpu_count=nproc",
        "--platform",
        "OSFamily=",
        "--platform",
        &property,
    ];
    start_worker(clients, server, gpu, &platform)
}

/// Which GPU each action that is done asked for, if any, and which its worker has.
async fn ran_on(server: &Server) -> anyhow::Result<Vec<(String, String)>> {
    let finished = finished_operations(server.channel()?).await?;
    let pool = |worker: &str| ["none", "a100"].into_iter().find(|gpu| worker.contains(gpu));
    let asked = |properties: &[Property]| {
        let gpu = properties.iter().find(|property| property.name == "gpu");
        gpu.map_or_else(String::new, |property| property.value.clone())
    };
    let one = |operation: &Observed| {
        let on = pool(&operation.worker).with_context(|| format!("unknown worker {}", operation.worker))?;
        Ok((asked(&operation.decision.platform), on.to_owned()))
    };
    finished.iter().map(one).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_asks_for_a_gpu_is_sent_to_the_gpu_pool() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let options = ServerOptions { config: CONFIG.to_owned(), ..ServerOptions::default() };
    let server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let _workers = [worker(&clients, &server, "none")?, worker(&clients, &server, "a100")?];

    // `kernel_test` asks for it, the rest says nothing of it.
    let system = "--remote_default_exec_properties=OSFamily=linux";
    let words = ["test", "//...", "//:kernel_test", "--test_output=all", system];
    let test = bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    let told = test.text.lines().find(|line| line.starts_with("kernel_test ran in "));
    ensure!(told.is_some_and(|line| line.contains("/a100/")), "{told:?} in:\n{}", test.text);
    let ran = ran_on(&server).await?;
    let on = |gpu: &str| ran.iter().filter(|(asked, _)| asked == gpu).map(|(_, on)| on.as_str()).collect();
    let (with, without): (BTreeSet<&str>, BTreeSet<&str>) = (on("a100"), on(""));
    ensure!(with == BTreeSet::from(["a100"]), "{ran:?}");
    ensure!(without == BTreeSet::from(["a100", "none"]), "the others don't run anywhere: {ran:?}");

    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gpu_that_nobody_has_waits_and_why_tells_those_there_are() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let options = ServerOptions { config: CONFIG.to_owned(), ..ServerOptions::default() };
    let mut server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let _workers = [worker(&clients, &server, "none")?, worker(&clients, &server, "a100")?];

    let build = bazel.start(&server.address(), &["build", "//:render"])?;
    let line = concat!(
        "No candidate workers due to a lack of matching 'gpu' = Exact(\"h100\"). ",
        "Workers have: [Exact(\"a100\"), Exact(\"none\")]"
    );
    server.wait_for_log(line, std::time::Duration::from_secs(60)).await?;

    let address = server.address();
    let queue = cli(&["queue", "--server", &address, "--output", "json"]).await?.expect_code(0)?;
    let queue: serde_json::Value = serde_json::from_str(&queue.text)?;
    let name = queue["classes"][0]["operation_names"][0].as_str().context("nothing waits")?;
    let why = cli(&["why", name, "--server", &address]).await?.expect_code(0)?;
    for part in [
        "(no-property-match)",
        r#"gpu must be "h100", which 4 workers don't offer (offered: "a100" on 2, "none" on 2)"#,
        "to unblock it: start a worker with gpu=h100",
    ] {
        ensure!(why.text.contains(part), "{part:?} is not in:\n{}", why.text);
    }
    cli(&["plan", "--platform", "gpu=h100", "--server", &address]).await?.expect_code(2)?;
    cli(&["plan", "--platform", "gpu=a100", "--server", &address]).await?.expect_code(0)?;

    build.signal(Signal::INT)?;
    // 8: Bazel was interrupted.
    build.finish().await?.expect_code(8)?;
    Ok(())
}
