use std::sync::Arc;

use pointsman_scheduler::route::{Property, Route};
use serde_json::{Value, json};

use super::*;
use crate::decision::{Answer, Code, Rejection};
use crate::hooks::{HostExclusive, Next};

const EMPTY_MODULE: &[u8] = b"\0asm\x01\0\0\0";
const EMPTY_COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

fn case(mut content: Value) -> Case {
    content["name"] = "n".into();
    let file = pack(EMPTY_MODULE, json!({ "cases": [content] }).to_string().as_bytes()).unwrap();
    cases(&file).unwrap().remove(0)
}

#[track_caller]
fn assert_unreadable(content: &Value, text: &str) {
    let error = pack(EMPTY_COMPONENT, content.to_string().as_bytes()).unwrap_err().to_string();
    assert!(error.contains(text), "{error}");
}

/// What differs from `expect` after `answer`, as `field: expected | found`.
#[track_caller]
fn differences(hook: &str, expect: Value, answer: &Answer) -> Vec<String> {
    let attempt = json!({ "outcome": "failed" });
    let candidates = json!([{ "worker": "a" }, { "worker": "b" }]);
    let case = case(json!({ "hook": hook, "attempt": attempt, "candidates": candidates, "expect": expect }));
    let stored = |key: &str| (key == "known").then(|| b"1".to_vec());
    let found = case.expect.mismatches(&case.name, &case.candidates, answer, stored);
    assert!(found.iter().all(|mismatch| mismatch.case == "n"));
    found.into_iter().map(|m| format!("{}: {} | {}", m.field, m.expected, m.found)).collect()
}

fn routed(route: Route) -> Answer {
    Answer::Route(Arc::new(route))
}

fn rejection() -> Rejection {
    Rejection { code: Code::PermissionDenied, reason: "no".into(), help: None }
}

#[test]
fn sections_add_up_at_any_depth() {
    let one = |name: &str| json!({ "cases": [{ "name": name }] }).to_string();
    let inner = pack(EMPTY_MODULE, one("inner").as_bytes()).unwrap();
    // A component in a component, with a module in it.
    let mut middle = EMPTY_COMPONENT.to_vec();
    wasm_encoder::RawSection { id: 1, data: &inner }.append_to(&mut middle);
    let middle = pack(&middle, one("middle").as_bytes()).unwrap();
    let mut outer = EMPTY_COMPONENT.to_vec();
    wasm_encoder::RawSection { id: 4, data: &middle }.append_to(&mut outer);
    let outer = pack(&pack(&outer, one("a").as_bytes()).unwrap(), one("b").as_bytes()).unwrap();
    let names: Vec<String> = cases(&outer).unwrap().into_iter().map(|case| case.name).collect();
    assert_eq!(names, ["inner", "middle", "a", "b"]);
    assert!(cases(EMPTY_COMPONENT).unwrap().is_empty());
    assert!(matches!(cases(&outer[..outer.len() - 1]), Err(GoldenError::NotWasm(_))));
    assert!(matches!(pack(&outer, one("inner").as_bytes()), Err(GoldenError::Senseless { .. })));
}

#[test]
fn mistakes_are_told_with_their_place() {
    let file = pack(EMPTY_COMPONENT, b"{\"cases\": []}").unwrap();
    let error = pack(&file, b"{").unwrap_err().to_string();
    let at = file.len() + 3 + SECTION.len();
    assert!(
        error.starts_with(&format!("the golden cases at byte {at} of the file can't be read: ")),
        "{error}"
    );
    assert_unreadable(&json!({}), "missing field `cases`");
    assert_unreadable(&json!({ "cases": [{}] }), "cases[0]: missing field `name`");
    let with = |key: &str, value: Value| json!({ "cases": [{ "name": "n", key: value }] });
    assert_unreadable(&with("hook", "on-acton".into()), "cases[0].hook: unknown variant `on-acton`");
    assert_unreadable(&with("facts", json!({ "mnemonik": "" })), "cases[0].facts.mnemonik: unknown field");
    let expect = |key: &str, value: Value| with("expect", json!({ key: value }));
    assert_unreadable(
        &expect("route", json!({ "pol": "" })),
        "cases[0].expect.route: pol: unknown field `pol`",
    );
    assert_unreadable(
        &expect("rejection", json!({ "code": "nope" })),
        "cases[0].expect.rejection.code: unknown variant",
    );
    assert_unreadable(&expect("order", json!([])), "it expects `order`, which on-action does not give");
    assert_unreadable(&with("hook", "on-result".into()), "it calls on-result and needs an `attempt`");
    assert_unreadable(&with("hook", "on-assignment".into()), "needs `candidates`");
    assert_unreadable(&json!({ "cases": [{ "name": "" }] }), "it has no name");
    assert_unreadable(
        &json!({ "cases": [{ "name": "n" }, { "name": "n" }] }),
        "another case has the same name",
    );
}

#[test]
fn there_are_not_too_many() {
    let list = |count: usize| {
        let cases: Vec<Value> = (0..count).map(|number| json!({ "name": number.to_string() })).collect();
        json!({ "cases": cases })
    };
    assert!(pack(EMPTY_MODULE, list(CASES_MAX).to_string().as_bytes()).is_ok());
    assert_unreadable(&list(CASES_MAX + 1), "it has 1001 golden cases, allowed are 1000");
    let long = json!({ "cases": [{ "name": "x".repeat(BYTES_MAX) }] });
    assert_unreadable(&long, "allowed are 1048576");
}

#[test]
fn only_named_fields_of_a_route_are_compared() {
    let route = Route {
        platform: vec![Property::new("b", "2"), Property::new("a", "1")],
        pool: Some("big".into()),
        shared: true,
        notes: vec!["a".into()],
        ..Route::default()
    };
    let differ = |expect: Value| differences("on-action", expect, &routed(route.clone()));
    let none: [String; 0] = [];
    assert_eq!(differ(json!({})), none);
    let same = json!({
        "route": {
            "platform": [{ "name": "a", "value": "1" }, { "name": "b", "value": "2" }],
            "pool": "big", "priority": 0, "shared": true, "affinity": null,
        },
        "notes": ["a"],
        "stored": { "known": "1", "unknown": null },
    });
    assert_eq!(differ(same), none);
    let other = json!({
        "route": { "platform": [], "pool": null, "priority": 5, "size": { "exactly": 3 } },
        "notes": [],
        "rejection": {},
        "stored": { "known": null, "unknown": "2" },
    });
    let expected = [
        "rejection: one | none: the action was routed",
        "route.platform: the default | [{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"b\",\"value\":\"2\"}]",
        "route.pool: the default | \"big\"",
        "route.priority: 5 | the default",
        "route.size: {\"exactly\":3} | the default",
        "notes: [] | [\"a\"]",
        "stored.known: nothing | \"1\"",
        "stored.unknown: \"2\" | nothing",
    ];
    assert_eq!(differ(other), expected);
}

#[test]
fn rejections_must_be_named() {
    let answer = Answer::Rejected(rejection());
    let differ = |expect: Value| differences("on-action", expect, &answer);
    let none: [String; 0] = [];
    assert_eq!(differ(json!({ "rejection": {} })), none);
    assert_eq!(differ(json!({ "rejection": { "code": "permission_denied", "reason": "no" } })), none);
    let found = differ(json!({ "rejection": { "code": "unavailable", "reason": "yes", "help": "do" } }));
    let expected = [
        "rejection.code: \"unavailable\" | \"permission_denied\"",
        "rejection.reason: \"yes\" | \"no\"",
        "rejection.help: \"do\" | null",
    ];
    assert_eq!(found, expected);
    assert_eq!(differ(json!({})), ["rejection: none | {\"code\":\"permission_denied\",\"reason\":\"no\"}"]);
}

#[test]
fn answers_of_the_other_hooks() {
    let none: [String; 0] = [];
    let terms = Answer::Terms(Arc::new(Terms { exclusive: HostExclusive::Never, ..Terms::default() }));
    assert_eq!(differences("on-worker", json!({ "terms": { "exclusive": "never" } }), &terms), none);
    let found = differences("on-worker", json!({ "terms": { "size_class": 1 }, "rejection": {} }), &terms);
    assert_eq!(found, ["rejection: one | none: the worker was let in", "terms.size_class: 1 | the default"]);

    let order = Answer::Order(vec![(1, "warm".into()), (0, String::new())]);
    assert_eq!(differences("on-assignment", json!({ "order": ["b", "a"] }), &order), none);
    let found = differences("on-assignment", json!({ "order": ["a", "b"] }), &order);
    assert_eq!(found, ["order: [\"a\",\"b\"] | [\"b\",\"a\"]"]);

    let next = |next: Next, expect: Value| differences("on-result", expect, &Answer::Next(next));
    let again = || Next::Again(Route { pool: Some("big".into()), ..Route::default() });
    assert_eq!(next(Next::Accept, json!({ "next": "accept" })), none);
    assert_eq!(next(again(), json!({ "next": "again", "route": { "pool": "big" } })), none);
    assert_eq!(next(again(), json!({ "route": { "pool": "small" } })), ["route.pool: \"small\" | \"big\""]);
    assert_eq!(next(again(), json!({ "next": "accept" })), ["next: accept | again"]);
    assert_eq!(next(Next::Fail(rejection()), json!({ "next": "fail" })), none);
    assert_eq!(next(Next::Fail(rejection()), json!({})).len(), 1, "a rejection must be named");
    let found = next(Next::Fail(rejection()), json!({ "next": "fail", "rejection": { "reason": "x" } }));
    assert_eq!(found, ["rejection.reason: \"x\" | \"no\""]);
}

#[test]
fn long_reports_are_cut() {
    let mismatch = Mismatch {
        case: "c".into(),
        field: "route.pool".into(),
        expected: "\"a\"".into(),
        found: "\"b\"".into(),
    };
    let text = GoldenError::Failed(vec![mismatch; 12]).to_string();
    assert!(
        text.starts_with(
            "it decides otherwise than its golden cases say: case \"c\": route.pool was to be \"a\", but is \"b\"; case"
        ),
        "{text}"
    );
    assert!(text.ends_with("; and 2 more"), "{text}");
}
