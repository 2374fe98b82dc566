use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::{Affinity, Exclusivity, Property, Route, Scope, SizeClass};
use serde_json::json;

use super::*;
use crate::asked::{Asked, HostAnswer};
use crate::decision::{Code, Hook, PolicyId, Rejection};
use crate::facts::{ActionFacts, Attempt, CommandFacts, Outcome, Pool, Summary, Trigger};
use crate::hooks::{Candidate, HostExclusive, Next, Terms, WorkerFacts};

/// `value` has this JSON, and is what comes back from it, by way of text too.
#[track_caller]
fn assert_form<T: Json + Debug>(value: T, expected: Value) {
    assert_eq!(to_value(&value), expected);
    let read: T = from_value(&expected).unwrap();
    assert_eq!(format!("{read:?}"), format!("{value:?}"));
    let text = serde_json::to_string(&Form(&value)).unwrap();
    let read: T = from_slice(text.as_bytes()).unwrap();
    assert_eq!(format!("{read:?}"), format!("{value:?}"));
    assert_eq!(serde_json::to_string(&Form(&read)).unwrap(), text, "the order is stable");
}

#[track_caller]
fn assert_error<T: Json + Debug>(text: &str, path: &str, problem: &str) {
    let error = from_slice::<T>(text.as_bytes()).unwrap_err();
    assert_eq!(error.path, path, "{error}");
    assert!(error.problem.contains(problem), "{error}");
}

fn names(list: &[&str]) -> Vec<Arc<str>> {
    list.iter().map(|name| Arc::from(*name)).collect()
}

fn attempt() -> Attempt {
    Attempt {
        outcome: Outcome::TimedOut,
        exit_code: -9,
        signal: Some("KILL".into()),
        size_class: 2,
        worker: "w1/0".into(),
        strategy: Some("local".into()),
        wall: Duration::from_millis(1500),
        cores: Some(1.5),
        peak_memory_mib: Some(300),
    }
}

/// A route in which nothing has its default.
fn route() -> Route {
    Route {
        platform: vec![Property::new("OSFamily", "linux"), Property::new("empty", "")],
        pool: Some("big".into()),
        size: SizeClass::Exactly(8),
        exclusivity: Exclusivity::Group { name: "license".into(), scope: Scope::Cluster, at_most: 3 },
        strategies: Some(names(&["remote", "local"])),
        invocation_keys: names(&["build", "invocation"]),
        priority: -5,
        timeout: Some(Duration::from_secs(60)),
        shared: false,
        affinity: Some(Affinity { key: "//a".into(), wait: Duration::from_millis(250) }),
        learning_key: Some("CppCompile".into()),
        environment: vec![("JOBS".into(), "4".into())],
        rank_candidates: 4,
        notes: names(&["a note"]),
    }
}

fn route_json() -> Value {
    json!({
        "platform": [{ "name": "OSFamily", "value": "linux" }, { "name": "empty", "value": "" }],
        "pool": "big",
        "size": { "exactly": 8 },
        "exclusivity": { "group": { "name": "license", "scope": "cluster", "at_most": 3 } },
        "strategies": ["remote", "local"],
        "invocation_keys": ["build", "invocation"],
        "priority": -5,
        "timeout_ms": 60000,
        "shared": false,
        "affinity": { "key": "//a", "wait_ms": 250 },
        "learning_key": "CppCompile",
        "environment": [{ "name": "JOBS", "value": "4" }],
        "rank_candidates": 4,
        "notes": ["a note"],
    })
}

#[test]
fn actions() {
    assert_form(ActionFacts::default(), json!({}));
    assert_form(
        ActionFacts { platform: Some(Vec::new()), ..ActionFacts::default() },
        json!({ "platform": [] }),
    );
    let command = CommandFacts {
        arguments: names(&["cc", "-c"]),
        environment: vec![("PATH".into(), "/bin".into())],
        platform: vec![Property::new("a", "b")],
        output_paths: names(&["out"]),
        working_directory: "work".into(),
    };
    let facts = ActionFacts {
        instance_name: "main".into(),
        digest: "abc/1".into(),
        platform: Some(vec![Property::new("b", "2"), Property::new("a", "1")]),
        priority: 7,
        timeout: Some(Duration::from_millis(1)),
        do_not_cache: true,
        skip_cache_lookup: true,
        tool_name: "bazel".into(),
        tool_version: "7".into(),
        invocation_id: "i".into(),
        correlated_invocations_id: "c".into(),
        mnemonic: "m".into(),
        target_id: "t".into(),
        configuration_id: "f".into(),
        principal: "p".into(),
        attempts: vec![attempt(), Attempt { outcome: Outcome::WorkerLost, ..plain_attempt() }],
        trigger: Trigger::Rerouted,
        command: Some(command.into()),
        now_unix_seconds: 0.0,
    };
    let expected = json!({
        "instance_name": "main",
        "digest": "abc/1",
        "platform": [{ "name": "b", "value": "2" }, { "name": "a", "value": "1" }],
        "priority": 7,
        "timeout_ms": 1,
        "do_not_cache": true,
        "skip_cache_lookup": true,
        "tool_name": "bazel",
        "tool_version": "7",
        "invocation_id": "i",
        "correlated_invocations_id": "c",
        "mnemonic": "m",
        "target_id": "t",
        "configuration_id": "f",
        "principal": "p",
        "attempts": [
            {
                "outcome": "timed_out", "exit_code": -9, "signal": "KILL", "size_class": 2, "worker": "w1/0",
                "strategy": "local", "wall_ms": 1500, "cores": 1.5, "peak_memory_mib": 300,
            },
            { "outcome": "worker_lost" },
        ],
        "cause": "rerouted",
        "command": {
            "arguments": ["cc", "-c"],
            "environment": [{ "name": "PATH", "value": "/bin" }],
            "platform": [{ "name": "a", "value": "b" }],
            "output_paths": ["out"],
            "working_directory": "work",
        },
    });
    assert_form(facts, expected);
}

fn plain_attempt() -> Attempt {
    from_value(&json!({ "outcome": "succeeded" })).unwrap()
}

#[test]
fn the_time_is_the_hosts_to_tell() {
    let facts = ActionFacts { now_unix_seconds: 1e9, ..ActionFacts::default() };
    assert_eq!(to_value(&facts), json!({}));
}

#[test]
fn routes() {
    assert_form(route(), route_json());
    assert_form(Route { shared: true, ..Route::default() }, json!({}));
    assert_form(
        Route { shared: true, strategies: Some(Vec::new()), ..Route::default() },
        json!({ "strategies": [] }),
    );
    assert_form(SizeClass::Smallest, json!("smallest"));
    assert_form(Exclusivity::Host, json!("host"));
}

#[test]
fn decisions() {
    let rejection =
        Rejection { code: Code::FailedPrecondition, reason: "no".into(), help: Some("ask".into()) };
    let expected = json!({ "code": "failed_precondition", "reason": "no", "help": "ask" });
    assert_form(rejection.clone(), expected.clone());
    assert_form(Next::Accept, json!("accept"));
    assert_form(Next::Fail(rejection), json!({ "fail": expected }));
    assert_form(Next::Again(route()), json!({ "again": route_json() }));
    assert_form(Hook::ALL.to_vec(), json!(["on-action", "on-worker", "on-result", "on-assignment"]));
    for hook in Hook::ALL {
        assert_eq!(to_value(&hook), hook.name());
    }
    let policy = PolicyId { name: "n".into(), version: "1".into(), digest_hex: "ab".into() };
    assert_form(policy, json!({ "name": "n", "version": "1", "sha256": "ab" }));
}

#[test]
fn workers() {
    assert_form(WorkerFacts::default(), json!({}));
    let facts = WorkerFacts {
        id: vec![("host".into(), "w1".into())],
        instance_name_prefix: "main".into(),
        platform: vec![Property::new("a", "b")],
        size_class: 1,
        principal: "p".into(),
        now_unix_seconds: 0.0,
    };
    let expected = json!({
        "id": [{ "name": "host", "value": "w1" }],
        "instance_name_prefix": "main",
        "platform": [{ "name": "a", "value": "b" }],
        "size_class": 1,
        "principal": "p",
    });
    assert_form(facts, expected);
    assert_form(Terms::default(), json!({}));
    let terms = Terms {
        platform: vec![Property::new("a", "b")],
        pool: Some("p".into()),
        size_class: 1,
        strategies: Some(names(&["s"])),
        max_inflight: Some(3),
        exclusive: HostExclusive::NotMoreOftenThan(Duration::from_secs(2)),
        exclusive_below: Some(9),
        notes: names(&["n"]),
    };
    let expected = json!({
        "platform": [{ "name": "a", "value": "b" }],
        "pool": "p",
        "size_class": 1,
        "strategies": ["s"],
        "max_inflight": 3,
        "exclusive": { "not_more_often_than_ms": 2000 },
        "exclusive_below": 9,
        "notes": ["n"],
    });
    assert_form(terms, expected);
    assert_form(HostExclusive::Never, json!("never"));
    let candidate = Candidate {
        worker: "w".into(),
        pool: "p".into(),
        executing: 1,
        affine: true,
        idle: Duration::from_millis(5),
    };
    let expected = json!({ "worker": "w", "pool": "p", "executing": 1, "affine": true, "idle_ms": 5 });
    assert_form(candidate, expected);
}

#[test]
fn answers_of_the_host() {
    let pool = Pool {
        name: "p".into(),
        workers: 1,
        idle_workers: 2,
        executing: 3,
        queued: 4,
        oldest_queued: Duration::from_millis(5),
    };
    let answers = HostAnswers {
        now: 1000.5,
        stored: BTreeMap::from([
            ("bytes".into(), Some(vec![0xff, 0])),
            ("nothing".into(), None),
            ("text".into(), Some(b"1".to_vec())),
        ]),
        pools: vec![pool],
        statistics: BTreeMap::from([
            (
                "known".into(),
                Some(Summary { attempts: 2, p50_wall: Duration::from_millis(10), ..Summary::default() }),
            ),
            ("unknown".into(), None),
        ]),
    };
    let expected = json!({
        "now": 1000.5,
        "stored": { "bytes": { "base64": "/wA=" }, "nothing": null, "text": "1" },
        "pools": [{
            "name": "p", "workers": 1, "idle_workers": 2, "executing": 3, "queued": 4, "oldest_queued_ms": 5,
        }],
        "statistics": {
            "known": { "attempts": 2, "p50_wall_ms": 10 },
            "unknown": null,
        },
    });
    assert_eq!(serde_json::to_value(&answers).unwrap(), expected);
    let text = serde_json::to_vec(&answers).unwrap();
    assert_eq!(read_slice::<HostAnswers>(&text).unwrap(), answers);
    let error = read_slice::<HostAnswers>(br#"{"stored": {"a": 1}}"#).unwrap_err();
    assert!(error.to_string().starts_with("stored.a: a stored value is a string or {"), "{error}");
    let error = read_slice::<HostAnswers>(br#"{"stored": {"a": {"base64": "!"}}}"#).unwrap_err();
    assert!(error.to_string().starts_with("stored.a: it is not base64"), "{error}");
}

#[test]
fn answers_are_gathered_from_questions() {
    let asked = |argument: &str, answer| Asked {
        function: "host.any",
        argument: Some(argument.into()),
        answer: Some(answer),
    };
    let answers = HostAnswers::to(&[
        asked("", HostAnswer::Now(5.0)),
        asked("a", HostAnswer::Stored(None)),
        asked("a", HostAnswer::Stored(Some(b"set meanwhile".to_vec()))),
        asked("k", HostAnswer::Statistics(Some(Summary { attempts: 3, ..Summary::default() }))),
        Asked { function: "action.mnemonic", argument: None, answer: None },
    ]);
    let expected = json!({ "now": 5.0, "stored": { "a": null }, "statistics": { "k": { "attempts": 3 } } });
    assert_eq!(serde_json::to_value(answers).unwrap(), expected);
}

#[test]
fn errors_say_where() {
    assert_error::<ActionFacts>(
        r#"{"mnemonik": "a"}"#,
        "mnemonik",
        "unknown field `mnemonik`, expected one of",
    );
    assert_error::<ActionFacts>(
        r#"{"platform": [{"name": "a", "value": 1}]}"#,
        "platform[0].value",
        "string",
    );
    assert_error::<ActionFacts>(
        r#"{"attempts": [{"outcome": "lost"}]}"#,
        "attempts[0].outcome",
        "worker_lost",
    );
    assert_error::<ActionFacts>(r#"{"command": {"argv": []}}"#, "command.argv", "unknown field `argv`");
    assert_error::<Route>(r#"{"timeout_ms": -1}"#, "timeout_ms", "-1");
    assert_error::<Route>(r#"{"exclusivity": {"group": {"name": "a"}}}"#, "exclusivity.group", "scope");
    assert_error::<Route>(
        r#"{"exclusivity": {"group": {"name": "a", "scope": "host", "at_most": 1, "max": 1}}}"#,
        "exclusivity.group.max",
        "unknown field `max`",
    );
    assert_error::<Route>(r#"{"priority": 1, "priority": 2}"#, "", "duplicate field `priority`");
    assert_error::<Route>("{", "", "EOF");
    assert_error::<Route>("{} {}", "", "trailing");
    assert_error::<Property>(r#"{"name": "a"}"#, "", "missing field `value`");
}
