//! The policies in the box: what was built behaves as its source does, on the same fixtures.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pointsman_policy::{Hook, LoadError, Options, Policy, Runtime, golden};
use pointsman_scheduler::route::SizeClass;
use serde_json::Value;

use crate::support::{facts, wishes};

const TARGET: &str = "wasm32-unknown-unknown";

/// Name, hooks, and fixtures.
const SMALL: [(&str, &[Hook], &str); 6] = [
    (
        "command-platform",
        &[Hook::OnAction],
        include_str!("../../../../policies/command-platform/fixtures.json"),
    ),
    ("property-rules", &[Hook::OnAction], include_str!("../../../../policies/property-rules/fixtures.json")),
    (
        "exclusive",
        &[Hook::OnAction, Hook::OnWorker],
        include_str!("../../../../policies/exclusive/fixtures.json"),
    ),
    (
        "size-classes",
        &[Hook::OnAction, Hook::OnResult],
        include_str!("../../../../policies/size-classes/fixtures.json"),
    ),
    ("affinity", &[Hook::OnAction], include_str!("../../../../policies/affinity/fixtures.json")),
    ("tenant-fair", &[Hook::OnAction], include_str!("../../../../policies/tenant-fair/fixtures.json")),
];

/// Tries all fixtures of a policy.
fn try_fixtures(runtime: &Runtime, name: &str, file: &[u8], fixtures: &str) -> Policy {
    let mut fixtures: Value = serde_json::from_str(fixtures).unwrap();
    // Golden cases are of configurations that a policy takes; the others are tried here.
    let refused = fixtures.as_object_mut().unwrap().remove("refused").unwrap();
    let config = fixtures["cases"][0]["config"].to_string();
    let packed = golden::pack(file, fixtures.to_string().as_bytes()).unwrap();
    let policy = runtime.load(&packed, &config).unwrap_or_else(|error| panic!("{name}: {error}"));
    for case in refused.as_array().unwrap() {
        match runtime.load(file, &case["config"].to_string()) {
            Err(LoadError::Config { problems }) => {
                let paths: Vec<&str> = problems.iter().map(|problem| &*problem.path).collect();
                assert_eq!(
                    serde_json::to_value(paths).unwrap(),
                    case["paths"],
                    "{name}: {case}: {problems:?}"
                );
            }
            Err(error) => panic!("{name}: {case}: {error}"),
            Ok(_) => panic!("{name}: {case} was not refused"),
        }
    }
    policy
}

/// Keeps compiled code: each policy is loaded some ten times.
fn runtime(state_dir: &Path) -> Runtime {
    Runtime::new(Options { state_dir: Some(state_dir.to_owned()), ..Options::default() }).unwrap()
}

#[test]
fn the_embedded_default() {
    let state = tempfile::tempdir().unwrap();
    let default = include_bytes!("../../../../policies/prebuilt/default.wasm");
    try_fixtures(
        &runtime(&state.path().join("policies")),
        "default",
        default,
        include_str!("../../../../policies/default/fixtures.json"),
    );
}

/// Tables are data, and data grows: reading one has to fit into the fuel of one call, as it is configured.
#[test]
fn a_table_of_two_thousand_targets() {
    let targets: Vec<String> = (0..2_000).map(|n| format!("//third_party/package{n}:all")).collect();
    let config = serde_json::json!({ "size_classes": {
        "classes": { "small": 1, "big": 2 }, "otherwise": "small",
        "table": [{ "size": "big", "target": targets }],
    } });
    let runtime = Runtime::new(Options { default_config: config.to_string(), ..Options::default() }).unwrap();
    let fuel = |target: &str, size| {
        let mut facts = facts();
        facts.target_id = target.into();
        let facts = Arc::new(facts);
        let decision = runtime.route(&facts, wishes(&facts));
        assert_eq!((decision.fallback, decision.route.size), (None, SizeClass::Exactly(size)), "{target}");
        decision.fuel
    };
    let (known, unknown) = (fuel("//third_party/package1999:all", 2), fuel("//other:all", 1));
    assert!(known < 20_000 && unknown < 20_000, "words are looked up, not tried: {known}, {unknown}");
}

#[test]
fn the_small_ones() {
    let folder = tempfile::tempdir().unwrap();
    if !built(folder.path()) {
        return;
    }
    let runtime = runtime(&folder.path().join("state"));
    for (name, hooks, fixtures) in SMALL {
        let file = std::fs::read(folder.path().join(format!("{name}.wasm"))).unwrap();
        let policy = try_fixtures(&runtime, name, &file, fixtures);
        assert_eq!(&*policy.policy().name, name);
        assert_eq!(policy.hooks(), hooks, "{name}");
        let schema: Value = serde_json::from_str(policy.config_schema().unwrap()).unwrap();
        assert_eq!(schema["$defs"]["../config.schema.json"]["additionalProperties"], false, "{name}");
    }
}

/// Builds them all as an operator does; `false` after a line that says so when this machine's Rust lacks the target.
fn built(into: &Path) -> bool {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().unwrap();
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).unwrap().trim());
    if !sysroot.join("lib/rustlib").join(TARGET).is_dir() {
        let text =
            format!("the policies in the box: {TARGET} is absent; rustup target add {TARGET} installs it");
        assert!(std::env::var_os("POINTSMAN_REQUIRE_CLIENTS").is_none(), "{text}");
        eprintln!("not run: {text}");
        return false;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../policies/build.sh");
    let mut command = Command::new(script);
    command.arg("--all").arg(into);
    // What cargo tells this test about its own profile is not meant for the cargo that it starts.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    true
}
