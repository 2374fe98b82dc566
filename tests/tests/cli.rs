//! The command line as a user meets it.

use std::io::Write;

use anyhow::ensure;
use pointsman_tests::harness::cli;
use tempfile::NamedTempFile;

fn file(text: &str) -> anyhow::Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

#[tokio::test]
async fn wrong_usage_ends_with_64() -> anyhow::Result<()> {
    for words in [
        &["serve", "--no-such-flag"][..],
        &["serve", "--listen", "everywhere"],
        &["serve", "--worker-platform", "novalue"],
        &["serve", "--worker-platform", "unheard=of"],
        &["serve", "--policy-config", "/no/such/file"],
        &["serve", "--config", "/no/such/file"],
        &["config", "check", "/no/such/file"],
        &[],
    ] {
        let run = cli(words).await?.expect_code(64)?;
        ensure!(!run.text.is_empty(), "{words:?} is refused without a word");
    }
    cli(&["--help"]).await?.expect_code(0)?;
    cli(&["--version"]).await?.expect_code(0)?;
    Ok(())
}

#[tokio::test]
async fn a_wrong_configuration_opens_no_socket() -> anyhow::Result<()> {
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let config = file("{\n  timers: { heartbeat: '70s', worker_expiri: '60s' },\n}")?;
    let name = config.path().to_string_lossy().into_owned();
    // On a port that is taken, so that a server which got as far as that would say so.
    let address = taken.local_addr()?.to_string();
    let run = cli(&["serve", "--config", &name, "--listen", &address]).await?.expect_code(64)?;
    let place = format!(
        "{name}:2:31: timers.worker_expiri: unknown key \"worker_expiri\"; did you mean \"worker_expiry\"?"
    );
    ensure!(run.text.contains(&place), "{}", run.text);
    ensure!(!run.text.contains("in use"), "{}", run.text);
    Ok(())
}

#[tokio::test]
async fn the_printed_configuration_is_one() -> anyhow::Result<()> {
    let printed = cli(&["config", "print"]).await?.expect_code(0)?;
    let config = file(&printed.text)?;
    let name = config.path().to_string_lossy().into_owned();
    let checked = cli(&["config", "check", &name]).await?.expect_code(0)?;
    ensure!(checked.text == format!("{name}: ok\n"), "{}", checked.text);
    let again = cli(&["config", "print", &name]).await?.expect_code(0)?;
    ensure!(again.text == printed.text, "{}\n{}", again.text, printed.text);
    Ok(())
}

#[tokio::test]
async fn problems_can_be_had_as_json() -> anyhow::Result<()> {
    let config = file("{ limits: { queued_actions: 0 } }")?;
    let name = config.path().to_string_lossy().into_owned();
    let run = cli(&["config", "check", "--output", "json", &name]).await?.expect_code(64)?;
    let mut values = serde_json::Deserializer::from_str(&run.text).into_iter::<serde_json::Value>();
    let Some(report) = values.next().transpose()? else { anyhow::bail!("nothing is printed") };
    ensure!(report["ok"] == false && report["problems"][0]["key"] == "limits.queued_actions", "{report}");
    ensure!(report["problems"][0]["column"] == 29, "{report}");
    Ok(())
}

#[tokio::test]
async fn the_built_in_policy_is_configured_too() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().to_string_lossy().into_owned();
    let words = [
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--state-dir",
        &state,
        "--policy-config",
        "{ invocation_key: [] }",
    ];
    let run = cli(&words).await?.expect_code(1)?;
    ensure!(run.text.contains("invocation_key"), "{}", run.text);
    Ok(())
}

#[tokio::test]
async fn policies_are_checked_before_they_are_used() -> anyhow::Result<()> {
    let policy = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/prebuilt/default.wasm");
    let checked = cli(&["policy", "check", policy, "--output", "json"]).await?.expect_code(0)?;
    let report: serde_json::Value = serde_json::from_str(&checked.text)?;
    ensure!(report["name"] == "default" && report["hooks"][0] == "on-action", "{report}");

    let refused =
        cli(&["policy", "check", policy, "--config", "{ invocation_key: [] }"]).await?.expect_code(1)?;
    ensure!(refused.text.contains("did you mean"), "{}", refused.text);
    let other = file("nothing of the sort")?;
    cli(&["policy", "check", &other.path().to_string_lossy()]).await?.expect_code(1)?;
    cli(&["policy", "check", "/no/such/file"]).await?.expect_code(64)?;
    Ok(())
}
