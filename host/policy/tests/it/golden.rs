//! Golden cases inside a component: a policy that fails one does not come into force.

use pointsman_policy::{LoadError, Runtime, golden};
use serde_json::{Value, json};

use crate::guests::{ACCEPT, Guest, import};
use crate::support::{first, runtime};

/// Routes everything to the pool that is named like the policy, and counts under a key of that name too.
fn guest() -> Guest {
    let imports = import("route", "set-pool", "i32 i32 i32", "")
        + &import("host", "set", "i32 i32 i32 i32 i32", "")
        + &import("host", "get", "i32 i32 i32", "");
    // The value becomes "guest" when there was none, and stays otherwise.
    let route = "(call $route.set-pool (i32.const 1) (i32.const 128) (i32.const 5))
        (call $host.get (i32.const 128) (i32.const 5) (i32.const 2048))
        (if (i32.eqz (i32.load8_u (i32.const 2048))) (then
            (call $host.set (i32.const 128) (i32.const 5) (i32.const 128) (i32.const 5) (i32.const 1000))))";
    Guest::routing(&imports, &format!("{route} {ACCEPT}"))
}

fn load(runtime: &Runtime, guest: &Guest, cases: &Value) -> Result<(), String> {
    let file = golden::pack(&guest.build(), cases.to_string().as_bytes()).unwrap();
    runtime.load(&file, "{}").map(drop).map_err(|error| match error {
        LoadError::Golden(error) => error.to_string(),
        other => panic!("{other}"),
    })
}

#[test]
fn cases_that_hold_let_it_in() {
    let cases = json!({ "cases": [
        { "name": "all", "expect": { "route": { "pool": "guest" }, "stored": { "guest": "guest" } } },
        // Each case has its own store, whatever those before have left.
        { "name": "fresh", "expect": { "stored": { "guest": "guest" } } },
        {
            "name": "stored before",
            "host": { "now": 1000, "stored": { "guest": "before" } },
            "expect": { "stored": { "guest": "before" } },
        },
        {
            "name": "wishes",
            "facts": { "priority": 3, "platform": [{ "name": "b", "value": "2" }, { "name": "a", "value": "1" }] },
            "expect": { "route": {
                "priority": 3, "platform": [{ "name": "a", "value": "1" }, { "name": "b", "value": "2" }],
            } },
        },
        { "name": "given", "route": { "priority": 4 }, "expect": { "route": { "priority": 4 } } },
    ] });
    load(&runtime(), &guest(), &cases).unwrap();
}

#[test]
fn a_case_that_does_not_hold_keeps_it_out() {
    let runtime = runtime();
    let cases = json!({ "cases": [
        { "name": "fits", "expect": { "route": { "pool": "guest" } } },
        { "name": "other pool", "expect": { "route": { "pool": "big" } } },
        { "name": "refused", "expect": { "rejection": {} } },
    ] });
    let error = load(&runtime, &guest(), &cases).unwrap_err();
    let expected = "it decides otherwise than its golden cases say: case \"other pool\": route.pool was to be \"big\", \
                    but is \"guest\"; case \"refused\": rejection was to be one, but is none: the action was routed";
    assert_eq!(error, expected);
    assert_eq!(runtime.counters().refused_loads, 1);
    assert_eq!(&*first(&runtime.in_force()).policy().name, "default");
}

#[test]
fn a_failing_call_is_told_with_its_case() {
    let runtime = runtime();
    let trap = Guest::routing("", "unreachable");
    let error = load(&runtime, &trap, &json!({ "cases": [{ "name": "any" }] })).unwrap_err();
    assert!(
        error
            .contains("case \"any\": the answer of on-action was to be given, but is none, as it failed: it"),
        "{error}"
    );
    let endless = Guest::routing("", "(loop $again (br $again)) unreachable");
    let error = load(&runtime, &endless, &json!({ "cases": [{ "name": "any" }] })).unwrap_err();
    assert!(error.contains("it used up its fuel"), "{error}");
    let worker = json!({ "cases": [{ "name": "any", "hook": "on-worker" }] });
    let error = load(&runtime, &guest(), &worker).unwrap_err();
    assert!(error.contains("the policy does not export on-worker"), "{error}");
}

#[test]
fn cases_have_configurations() {
    // At 4096 result<_, list<config-error>>: the error case, with no errors in it.
    let mut guest = guest();
    guest.configure =
        "(select (i32.const 64) (i32.const 4096) (i32.eq (local.get $length) (i32.const 2)))".into();
    guest.more = r#"(data (i32.const 4096) "\01")"#.into();
    let runtime = runtime();
    load(&runtime, &guest, &json!({ "cases": [{ "name": "a", "config": {} }] })).unwrap();
    let error =
        load(&runtime, &guest, &json!({ "cases": [{ "name": "a", "config": { "b": 1 } }] })).unwrap_err();
    assert!(error.contains("it refuses the configuration"), "{error}");
}
