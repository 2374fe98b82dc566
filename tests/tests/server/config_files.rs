//! An operator edits a table of a policy under the running program: `config_files`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_tests::fake_client::{ActionSpec, FakeClient};
use pointsman_tests::fake_worker::{FakeWorker, RunningWorker, WorkerSpec, exited};
use pointsman_tests::harness::{Server, ServerOptions};

use crate::policies::replace;
use crate::support::{host, within};

const PATIENCE: Duration = Duration::from_secs(30);

const SMALL: u32 = 1;
const BIG: u32 = 2;

/// What Buck2 sends: nothing but a Command tells what the action is.
fn package(name: &str, salt: &str) -> ActionSpec {
    let mut spec = ActionSpec::new(["make", "-C", &format!("buck-out/{salt}/{name}")]);
    spec.environment = vec![("BR2_PACKAGE".into(), name.into())];
    spec
}

fn worker(server: &Server, name: &str, size_class: u32) -> anyhow::Result<RunningWorker> {
    let worker = FakeWorker::new(server.channel()?, &WorkerSpec { size_class, ..host(name) });
    let name = name.to_owned();
    Ok(worker.start(move |work| {
        let mut response = exited(&work, 0);
        if let Some(metadata) = response.result.as_mut().and_then(|r| r.execution_metadata.as_mut()) {
            metadata.worker.clone_from(&name);
        }
        async move { response }
    }))
}

/// The size that a new action was given.
async fn size(server: &Server, spec: &ActionSpec) -> anyhow::Result<u32> {
    let client = FakeClient::connect(server.address().parse()?).await?;
    let digest = client.upload_action(spec).await?;
    let finished = within(client.execute(&digest).await?.finish()).await?;
    let status = finished.response.status.clone().unwrap_or_default();
    ensure!(status.code == 0, "the action ended with {status:?}");
    let result = finished.response.result.context("no result")?;
    let metadata = result.execution_metadata.context("no metadata")?;
    match &*metadata.worker {
        "small" => Ok(SMALL),
        "big" => Ok(BIG),
        other => anyhow::bail!("it ran on {other:?}"),
    }
}

/// As an editor that writes in place does.
fn save(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
}

#[tokio::test]
async fn a_table_is_edited_under_a_running_server() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let table = folder.path().join("heavy.json5");
    save(&table, "[\n  { size: 'big', environment: { BR2_PACKAGE: ['glibc'] } },\n]\n");
    let config = format!(
        "{{ policy: {{
            config: {{ size_classes: {{ classes: {{ small: {SMALL}, big: {BIG} }}, otherwise: 'small' }} }},
            config_files: {{ '/size_classes/table': '{}' }},
        }} }}",
        table.display()
    );
    let mut server = Server::start(&ServerOptions { config, ..ServerOptions::default() }).await?;
    let _workers = [worker(&server, "small", SMALL)?, worker(&server, "big", BIG)?];
    assert_eq!(size(&server, &package("glibc", "1")).await?, BIG);
    assert_eq!(size(&server, &package("linux", "1")).await?, SMALL);

    save(&table, "[\n  { size: 'big', environment: { BR2_PACKAGE: ['glibc', 'linux'] } },\n]\n");
    server.wait_for_log("configuration of policies: link 'main' has", PATIENCE).await?;
    assert_eq!(size(&server, &package("linux", "2")).await?, BIG);

    // No JSON5: the place is that of the parser. The old table stays.
    save(&table, "[\n  { size: 'big', environment: },\n]\n");
    server.wait_for_log("heavy.json5:2:", PATIENCE).await?;
    assert_eq!(size(&server, &package("linux", "3")).await?, BIG);

    // Something that the policy does not know: the place is that of the key in the table.
    save(&table, "[\n  { size: 'big',\n    environmnt: { BR2_PACKAGE: 'glibc' } },\n]\n");
    server.wait_for_log("heavy.json5:3:5: /size_classes/table/0/environmnt", PATIENCE).await?;
    let log = server.log();
    assert!(
        log.contains("did you mean \\\"environment\\\"?") || log.contains("did you mean \"environment\"?"),
        "{log}"
    );
    assert_eq!(size(&server, &package("linux", "4")).await?, BIG);

    // Replaced by a rename, as most editors do.
    replace(&table, b"[{ size: 'big', environment: { BR2_PACKAGE: 'host-gcc-*' } }]");
    let renewed = async {
        // Each try is another action, as the result of the last one is kept.
        for salt in 5.. {
            if size(&server, &package("linux", &salt.to_string())).await? == SMALL {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(PATIENCE, renewed).await.context("the renewed table is not in force")??;
    assert_eq!(size(&server, &package("host-gcc-final", "5")).await?, BIG);
    server.stop().await?;
    Ok(())
}

/// A file that is new in the configuration, and not there or not right yet, need only be mended itself.
#[tokio::test]
async fn a_new_file_that_is_mended_comes_into_force_by_itself() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let table = folder.path().join("heavy.json5");
    let config = |files: &str| {
        format!(
            "{{ policy: {{
                config: {{ size_classes: {{ classes: {{ small: {SMALL}, big: {BIG} }}, otherwise: 'small' }} }},
                config_files: {{ {files} }},
            }} }}"
        )
    };
    let mut server = Server::start(&ServerOptions::default().config(&config(""))).await?;
    let file = server.file("pointsman.json5");
    let _workers = [worker(&server, "small", SMALL)?, worker(&server, "big", BIG)?];
    assert_eq!(size(&server, &package("glibc", "1")).await?, SMALL);

    // It is not there.
    save(&file, &config(&format!("'/size_classes/table': '{}'", table.display())));
    server.wait_for_log("heavy.json5: can't be read", PATIENCE).await?;
    // It is no JSON5.
    save(&table, "[\n  { size: 'big', environment: },\n]\n");
    server.wait_for_log("heavy.json5:2:", PATIENCE).await?;
    save(&table, "[{ size: 'big', environment: { BR2_PACKAGE: 'glibc' } }]");
    server.wait_for_log("configuration of policies: link 'main' has", PATIENCE).await?;
    assert_eq!(size(&server, &package("glibc", "2")).await?, BIG);
    server.stop().await?;
    Ok(())
}
