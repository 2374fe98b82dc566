//! `pointsman sizes` against a real server, which is killed in between.

use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_tests::fake_client::{ActionSpec, FakeClient};
use pointsman_tests::fake_worker::{FakeWorker, RunningWorker, WorkerSpec, exited, took};
use pointsman_tests::harness::{Server, ServerOptions, Signal, ask, ask_json, build_policy};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// A worker on which actions take 20 s of 5.6 cores, by its own word.
fn worker(server: &Server) -> anyhow::Result<RunningWorker> {
    let spec = WorkerSpec { size_class: 4, ..WorkerSpec::new("w") };
    let answer = |work| async move { took(exited(&work, 0), Duration::from_secs(20), 5.6, 900) };
    Ok(FakeWorker::new(server.channel()?, &spec).start(answer))
}

async fn run(server: &Server, argument: &str, key: &str) -> anyhow::Result<()> {
    let client = FakeClient::connect(server.address().parse()?).await?;
    let spec = ActionSpec::new(["echo", argument]).with_property("steer-learn", key);
    let updates = client.execute(&client.upload_action(&spec).await?).await?;
    tokio::time::timeout(PATIENCE, updates.finish()).await.context("it does not end")??;
    Ok(())
}

#[tokio::test]
async fn what_is_learned_is_shown_and_outlives_a_kill() -> anyhow::Result<()> {
    let Some(file) = build_policy("sizes", "tests/guests/steer/build.sh").await? else { return Ok(()) };
    let config = format!(
        "{{ policy: {{ file: '{}' }}, unknown_property: 'ignore',
            learning: {{ flush_every: '100ms', min_attempts: 2, class_cores: {{ '1': 1, '4': 6 }} }} }}",
        file.display()
    );
    let mut server = Server::start(&ServerOptions { config, ..ServerOptions::default() }).await?;
    let nothing = ask(&server, &["sizes", "list"]).await?.expect_code(0)?;
    ensure!(nothing.text.contains("nothing is learned yet"), "{}", nothing.text);

    let gcc = "mnemonic=GccStage target=//gcc:final";
    let working = worker(&server)?;
    for argument in ["1", "2", "3"] {
        run(&server, argument, gcc).await?;
    }
    run(&server, "4", "other").await?;
    // It is on disk a tenth of a second later, whatever becomes of the server then.
    let statistics = server.file("state/learning/statistics");
    let written = async {
        loop {
            let text = std::fs::read_to_string(&statistics).unwrap_or_default();
            let last = text.lines().rfind(|line| line.contains("gcc:final")).unwrap_or_default();
            if last.contains("\"runs\":3") && text.contains("other") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.context("nothing is written")?;
    drop(working);
    server.end(Signal::KILL).await?;
    server.start_again().await?;

    let list = ask(&server, &["sizes", "list"]).await?.expect_code(0)?;
    ensure!(list.text.contains("RUNS") && list.text.contains(gcc), "{}", list.text);
    let list = ask(&server, &["sizes", "list", "--limit", "1"]).await?.expect_code(0)?;
    ensure!(list.text.contains("1 more keys"), "{}", list.text);

    let show = ask(&server, &["sizes", "show", gcc]).await?.expect_code(0)?;
    for part in
        ["3 succeeded, 0 failed", "p95 5.7", "on size 4", "belongs on size 4: p95 of 5.7 cores in 3 runs"]
    {
        ensure!(show.text.contains(part), "{part} missing in {}", show.text);
    }
    let unknown = ask(&server, &["sizes", "show", "nobody"]).await?.expect_code(1)?;
    ensure!(unknown.text.contains("nothing is known under the learning key 'nobody'"), "{}", unknown.text);

    let suggest = ask(&server, &["sizes", "suggest"]).await?.expect_code(0)?;
    for part in ["size 4", "75.0% of runs", "75.0% of running time", "sizes: 1 (1.0 cores), 4 (6.0 cores)"] {
        ensure!(suggest.text.contains(part), "{part} missing in {}", suggest.text);
    }
    let facts = ask_json(&server, &["sizes", "suggest"]).await?;
    ensure!(facts["keys"][0]["key"] == gcc && facts["keys"][0]["suggested"] == 4, "{facts}");
    ensure!(facts["keys"][1]["suggested"].is_null() && facts["known"] == 2, "{facts}");

    let table = ask(&server, &["sizes", "suggest", "--table"]).await?.expect_code(0)?;
    let table: serde_json::Value = serde_json::from_str(&table.text)?;
    ensure!(table == json!([{ "mnemonic": "GccStage", "target": "//gcc:final", "size": 4 }]), "{table}");
    Ok(())
}
