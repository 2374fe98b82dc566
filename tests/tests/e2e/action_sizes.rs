//! Small workers for almost everything and a big one for what is heavy, for clients that say of an action neither target nor
//! mnemonic and have its platform in the Command only, as Buck2 does. What is heavy stands in a file. Where each action ran is
//! in its result.

use anyhow::{Context, ensure};
use pointsman_tests::fake_client::{ActionSpec, FakeClient};
use pointsman_tests::harness::{
    BazelVersion, Clients, Observed, Running, Server, ServerOptions, finished_operations, replace,
    start_worker,
};
use tempfile::TempDir;

const SMALL: &str = "1";
const BIG: &str = "4";

/// Sizes by a property of the client's, or else by the file.
async fn serve(clients: &Clients, heavy: &str) -> anyhow::Result<(Server, [Running; 2], TempDir)> {
    let (folder, inside) = clients.folder()?;
    replace(&folder.path().join("heavy.json5"), heavy.as_bytes())?;
    let config = format!(
        "{{ unknown_property: 'ignore', timers: {{ completed_retention: '10m' }},
            policy: {{
              config: {{ size_classes: {{
                classes: {{ small: {SMALL}, big: {BIG} }}, property: 'size', otherwise: 'small',
              }} }},
              config_files: {{ '/size_classes/table': '{inside}/heavy.json5' }},
            }} }}"
    );
    let server = Server::start_in(clients, &ServerOptions { config, ..ServerOptions::default() }).await?;
    let workers = [
        start_worker(clients, &server, "small", &["--size-class", SMALL])?,
        start_worker(clients, &server, "big", &["--size-class", BIG])?,
    ];
    Ok((server, workers, folder))
}

/// What was executed, by what it made and whether the big worker did so.
async fn places(server: &Server) -> anyhow::Result<Vec<(Observed, bool)>> {
    let all = finished_operations(server.channel()?).await?;
    let place = |of: Observed| {
        let is_big = match (of.worker.contains("\"big\""), of.worker.contains("\"small\"")) {
            (true, false) => true,
            (false, true) => false,
            _ => anyhow::bail!("it ran on {}", of.worker),
        };
        Ok((of, is_big))
    };
    all.into_iter().filter(|of| !of.cached).map(place).collect()
}

fn makes(of: &Observed, name: &str) -> bool {
    of.outputs.iter().any(|path| path.ends_with(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_heavy_by_a_list_runs_on_the_big_worker() -> anyhow::Result<()> {
    let Some(clients) = Clients::take("e2e with Bazel 2", &["bazel2"]).await? else { return Ok(()) };
    let list = |output: &str| format!("[\n  {{ size: 'big', output: '*/{output}' }},\n]\n");
    let (mut server, _workers, folder) = serve(&clients, &list("hello")).await?;
    let bazel = clients.bazel(BazelVersion::Two).await?;
    let words = ["build", "//:hello", "//:link3", "--noremote_accept_cached"];
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    bazel.expect_spawns("remote")?;

    let first = places(&server).await?;
    let heavy: Vec<_> = first.iter().filter(|(of, _)| makes(of, "/hello")).collect();
    ensure!(heavy.len() == 1 && heavy[0].1, "the heavy one is not on the big worker: {first:#?}");
    let others = first.iter().filter(|(of, _)| !makes(of, "/hello"));
    ensure!(others.clone().count() >= 6 && others.clone().all(|(_, big)| !big), "others are: {first:#?}");

    // Another list, in force without a restart.
    replace(&folder.path().join("heavy.json5"), list("link3.txt").as_bytes())?;
    server
        .wait_for_log("configuration of policies: link 'main' has", std::time::Duration::from_secs(60))
        .await?;
    bazel.run(&["clean"]).await?.expect_code(0)?;
    bazel.remote(&server.address(), &words).await?.expect_code(0)?;
    let known: Vec<&str> = first.iter().map(|(of, _)| of.name.as_str()).collect();
    let second = places(&server).await?;
    let second: Vec<_> = second.iter().filter(|(of, _)| !known.contains(&of.name.as_str())).collect();
    ensure!(
        second.iter().all(|(of, big)| *big == makes(of, "link3.txt")) && second.iter().any(|(_, big)| *big),
        "{second:#?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_size_in_the_platform_of_the_command_reaches_the_worker() -> anyhow::Result<()> {
    let Some(clients) = Clients::take("e2e with Bazel 2", &["bazel2"]).await? else { return Ok(()) };
    let (server, _workers, _folder) = serve(&clients, "[]").await?;
    let client = FakeClient::connect(server.address().parse()?).await?;
    for (size, place) in [(Some("big"), "\"big\""), (Some("small"), "\"small\""), (None, "\"small\"")] {
        let mut spec = ActionSpec::new(["/bin/sh", "-c", "exit $POINTSMAN_SIZE_CLASS"]);
        spec.platform = vec![("OSFamily".into(), "linux".into())];
        spec.platform.extend(size.map(|size| ("size".into(), size.into())));
        (spec.platform_in_command_only, spec.do_not_cache) = (true, true);
        let digest = client.upload_action(&spec).await?;
        let response = client.execute(&digest).await?.finish().await?.response;
        let result = response.result.with_context(|| format!("{size:?} ended with {:?}", response.status))?;
        let worker = &result.execution_metadata.as_ref().context("no execution metadata")?.worker;
        ensure!(worker.contains(place), "{size:?} ran on {worker}: {result:?}");
        let told = if place == "\"big\"" { BIG } else { SMALL };
        ensure!(result.exit_code.to_string() == told, "{size:?} was told {}", result.exit_code);
    }
    // It is no property of workers, and is not asked of them.
    let asked = finished_operations(server.channel()?).await?;
    let asked = asked.iter().flat_map(|of| &of.decision.platform).any(|p| p.name == "size");
    ensure!(!asked, "the size is still asked of workers");
    Ok(())
}
