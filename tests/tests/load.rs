//! The load generator measures what it says.
#![allow(clippy::unwrap_used)]
use pointsman_tests::load::{Group, Row, Server, Settings, json, measure};
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
        ..Settings::default()
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
        let row = Row { name: "echo".into(), settings: settings(), measurement: measured, aims: vec![] };
        let value = json(&[Group { title: String::new(), rows: vec![row] }]);
        let row = &value["groups"][0]["rows"][0];
        assert!(row["actions_per_second"].as_f64().unwrap() > 10.0, "{value}");
        let (assigned, ended) = (&row["assigned_p50_ms"], &row["latency_p50_ms"]);
        assert!(assigned.as_f64().unwrap() > 0.0 && assigned.as_f64() < ended.as_f64(), "{value}");
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
    assert!(text.contains("server CPU us/action") && text.contains("\n  echo "), "{text}");
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let row = &figures["groups"][0]["rows"][0];
    assert_eq!(row["clients"], 1);
    assert!(row["latency_p50_ms"].as_f64().unwrap() > 0.0, "{figures}");
}

#[test]
fn a_missing_server_is_named() {
    let out = Command::new(LOADGEN).args(["--server", "/nowhere/pointsman"]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && text.contains("no server at /nowhere/pointsman"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_wait_cost_memory_and_slots_are_used() {
    let server = Server::echo(Path::new(LOADGEN), &[]).await.unwrap();
    let waiting = Settings { hosts: 0, clients: 0, unmatched: 500, unmatched_classes: 3, ..settings() };
    let measured = measure(&server, &waiting).await.unwrap();
    assert_eq!(measured.actions(), 0);
    assert!(measured.bytes_per_waiting > 100.0, "{} bytes", measured.bytes_per_waiting);
    server.kill().await.unwrap();

    let server = Server::echo(Path::new(LOADGEN), &[]).await.unwrap();
    let busy = Settings { action_time: Duration::from_millis(50), ..settings() };
    let measured = measure(&server, &busy).await.unwrap();
    server.kill().await.unwrap();
    // Four slots for 600 ms: 48 actions of 50 ms, and none sooner than it can be.
    assert!((4..=60).contains(&measured.actions()), "{} actions", measured.actions());
    assert!(measured.latency.min() >= 50_000_000, "{} ns", measured.latency.min());
}

#[test]
fn a_group_that_is_not_there_is_refused_with_those_that_are() {
    let out = Command::new(LOADGEN).args(["suite", "--only", "speed"]).output().unwrap();
    let text = String::from_utf8(out.stderr).unwrap();
    assert!(!out.status.success() && text.contains("no group \"speed\": there are throughput, "), "{text}");
}

/// The router beside a server that echoes: all calls succeed by its policies, and both figures are there. How good they are
/// is not for a test on a busy machine to say.
#[test]
fn a_router_is_compared_with_its_echo() {
    let server = Path::new(LOADGEN).with_file_name("pointsman");
    assert!(server.is_file(), "build it first: cargo build --profile ci --bin pointsman");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("figures.json");
    let arguments =
        ["route", "--seconds", "0.5", "--warmup", "0.1", "--repeat", "1", "--commands", "20", "--json"];
    let out = Command::new(LOADGEN).args(arguments).arg(&file).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(text.contains("  1 router "), "{text}");
    let figures: serde_json::Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    for (which, figure) in [("closed", "calls_per_second"), ("open", "p99_us")] {
        for server in ["echo", "router"] {
            assert!(figures[0][server][which][figure].as_f64().unwrap() > 0.0, "{figures}");
        }
    }
    let open = figures[0]["router"]["open"]["calls_per_second"].as_f64().unwrap();
    assert!((500.0..=1100.0).contains(&open), "{figures}");
}
