//! The load generator measures what it says.
#![allow(clippy::unwrap_used)]
use pointsman_tests::load::{Row, Server, Settings, json, measure};
use std::{path::Path, process::Command, time::Duration};

const LOADGEN: &str = env!("CARGO_BIN_EXE_loadgen");

fn settings() -> Settings {
    Settings {
        hosts: 2,
        threads: 2,
        clients: 8,
        connections: 2,
        window: Duration::from_millis(600),
        warm_up: Duration::from_millis(200),
        actions: 20,
        platform: vec![("OSFamily".into(), "linux".into())],
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn echo_under_load() {
    for (updates, per_action) in [("all", 3..=3), ("current", 2..=3)] {
        let server = Server::echo(Path::new(LOADGEN), &["--updates".into(), updates.into()]).await.unwrap();
        let measured = measure(&server, &settings()).await.unwrap();
        server.kill().await.unwrap();
        let actions = measured.actions();
        assert!(actions >= 8, "only {actions} actions");
        assert!(per_action.contains(&measured.updates.div_ceil(actions)), "{} updates", measured.updates);
        assert!(measured.server_cpu > Duration::ZERO && measured.window >= settings().window);
        let value = json(&settings(), &[Row { server: "echo".into(), measurement: measured }]);
        assert!(value["servers"][0]["actions_per_second"].as_f64().unwrap() > 10.0, "{value}");
    }
}

#[tokio::test]
async fn too_few_actions_for_the_clients_are_refused() {
    let server = Server::echo(Path::new(LOADGEN), &[]).await.unwrap();
    let error = measure(&server, &Settings { actions: 7, ..settings() }).await.unwrap_err();
    assert!(format!("{error:#}").contains("7 actions for 8 clients"), "{error:#}");
}

#[test]
fn one_command_prints_a_table_and_writes_figures() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let arguments =
        ["--echo-only", "--seconds", "0.3", "--warmup", "0.1", "--one", "--workers", "1", "--json"];
    let out = Command::new(LOADGEN).args(arguments).arg(&file).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("server CPU us/action") && text.contains("\necho "), "{text}");
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(figures["clients"], 1);
    assert!(figures["servers"][0]["latency_p50_ms"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn a_missing_server_is_named() {
    let out = Command::new(LOADGEN).args(["--server", "/nowhere/pointsman"]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && text.contains("no server at /nowhere/pointsman"), "{text}");
}
