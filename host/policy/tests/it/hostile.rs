//! Guests that do harm: the default decides, and why is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pointsman_policy::{ActionFacts, Decision, FailureKind, Limits, Options, Runtime};

use crate::guests::{ACCEPT, Guest, import};
use crate::support::{facts, runtime, strings, wishes};

/// Routes one action twice by the guest: each call meets the same end, as each gets a fresh instance.
fn decide_by(runtime: &Runtime, guest: &Guest) -> Decision {
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    let facts = Arc::new(facts());
    let first = runtime.route(&facts, wishes(&facts));
    let second = runtime.route(&facts, wishes(&facts));
    assert_eq!(first.fallback, second.fallback);
    second
}

#[track_caller]
fn assert_fails(guest: &Guest, kind: FailureKind, text: &str) {
    let runtime = runtime();
    let decision = decide_by(&runtime, guest);
    let why = decision.fallback.expect("the guest was to fail");
    assert!(why.contains(text), "{why}");
    assert!(why.contains("policy guest 1.2.3 (sha256 "), "{why}");
    assert_eq!(&*decision.policy.name, "default", "the default decided");
    assert_eq!(decision.rejection, None);
    assert_eq!(strings(&decision.route.invocation_keys), ["build", "invocation"], "as the default does");
    assert_eq!(decision.route.platform, facts().platform.unwrap());
    assert_eq!(decision.route.notes, [], "edits of the failed call are dropped");
    assert_eq!(decision.generation, 2, "the guest is still what is in force");
    let counters = runtime.counters();
    assert_eq!((counters.calls, counters.fallbacks, counters.rejections), (2, 2, 0));
    assert_eq!(counters.failures_of(kind), 2, "{:?}", counters.failures);
    assert_eq!(counters.failures.iter().map(|(_, count)| count).sum::<u64>(), 2);
}

#[test]
fn endless_loop() {
    let started = Instant::now();
    let guest = Guest::routing("", "(loop $again (br $again)) unreachable");
    assert_fails(&guest, FailureKind::OutOfFuel, "it used up its fuel of 50000000 per call");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn slow_beyond_fuel() {
    let limits =
        Limits { fuel_per_call: u64::MAX / 2, deadline: Duration::from_millis(300), ..Limits::default() };
    let runtime = Runtime::new(Options { limits, ..Options::default() }).unwrap();
    let decision = decide_by(&runtime, &Guest::routing("", "(loop $again (br $again)) unreachable"));
    assert!(decision.fallback.unwrap().contains("longer than the wall-time net"));
    assert_eq!(runtime.counters().failures_of(FailureKind::Deadline), 2);
}

#[test]
fn panic() {
    assert_fails(&Guest::routing("", "unreachable"), FailureKind::Trap, "it panicked or aborted");
    let divide = Guest::routing("", "(i32.div_u (i32.const 1) (i32.const 0))");
    assert_fails(&divide, FailureKind::Trap, "it trapped: wasm trap: integer divide by zero");
}

#[test]
fn memory_eater() {
    let eat = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    assert_fails(&Guest::routing("", eat), FailureKind::OutOfMemory, "allowed are 67108864 bytes in all");
}

#[test]
fn memory_eater_that_lives_with_a_refusal_is_no_failure() {
    let runtime = runtime();
    let eat = format!("(drop (memory.grow (i32.const 60000))) {ACCEPT}");
    let decision = decide_by(&runtime, &Guest::routing("", &eat));
    assert_eq!(decision.fallback, None);
    assert_eq!(&*decision.policy.name, "guest");
}

#[test]
fn memory_eater_from_the_start() {
    let runtime = runtime();
    let guest = Guest { pages: 2000, ..Guest::default() };
    let error = runtime.load(&guest.build(), "{}").unwrap_err().to_string();
    assert!(error.contains("131072000 bytes of memory"), "{error}");
}

#[test]
fn deep_recursion() {
    let mut guest = Guest::routing("", &format!("(drop (call $deep (i32.const 1))) {ACCEPT}"));
    guest.more = "(func $deep (param i32) (result i32)
        (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (local.get 0)))"
        .into();
    assert_fails(&guest, FailureKind::StackOverflow, "its call stack overflowed");
}

#[test]
fn edits_before_the_end_are_dropped() {
    let imports = import("route", "note", "i32 i32", "") + &import("route", "set-priority", "i32", "");
    let route = "(call $route.note (i32.const 128) (i32.const 5)) (call $route.set-priority (i32.const 7)) unreachable";
    let guest = Guest::routing(&imports, route);
    assert_fails(&guest, FailureKind::Trap, "it panicked");
}

#[test]
fn requests_outside_of_configure() {
    let imports = import("command", "request", "i32", "");
    let guest = Guest::routing(&imports, &format!("(call $command.request (i32.const 1)) {ACCEPT}"));
    let text = "command.request was called in route-action, only configure can call it";
    assert_fails(&guest, FailureKind::Misplaced, text);
}

#[test]
fn calls_that_speak_of_a_worker() {
    let mut guest = Guest::routing(
        &import("terms", "set-pool", "i32 i32", ""),
        &format!("(call $terms.set-pool (i32.const 128) (i32.const 5)) {ACCEPT}"),
    );
    guest.world.push_str("import p:terms@;");
    assert_fails(&guest, FailureKind::Misplaced, "terms.set-pool was called in route-action");
}

/// One bad call of a function of `route`.
#[track_caller]
fn assert_bad(function: &str, parameters: &str, arguments: &str, text: &str) {
    let imports = import("route", function, parameters, "");
    let guest = Guest::routing(&imports, &format!("(call $route.{function} {arguments}) {ACCEPT}"));
    assert_fails(&guest, FailureKind::BadAnswer, text);
}

#[test]
fn nonsense() {
    assert_bad("set-timeout-ms", "i32", "(i32.const 0)", "no action ends in no time");
    assert_bad(
        "set-pool",
        "i32 i32 i32",
        "(i32.const 1) (i32.const 0) (i32.const 0)",
        "the name of a pool is empty",
    );
    let empty = "(i32.const 0) (i32.const 0) (i32.const 128) (i32.const 1)";
    assert_bad("set-property", "i32 i32 i32 i32", empty, "the name of a property is empty");
    let four = "i32 i32 i32 i32";
    assert_bad("set-environment", four, empty, "the name of a variable is empty");
    let nul = "(i32.const 128) (i32.const 5) (i32.const 160) (i32.const 3)";
    assert_bad("set-environment", four, nul, "the value of the variable guest has a NUL");
    let digit = "(i32.const 144) (i32.const 5) (i32.const 128) (i32.const 5)";
    assert_bad("set-environment", four, digit, "\"1.2.3\" is not named by letters, digits and _ alone");
    let huge = "(memory.fill (i32.const 2048) (i32.const 97) (i32.const 5000))
        (call $route.set-environment (i32.const 128) (i32.const 5) (i32.const 2048) (i32.const 5000)) i32.const 0";
    let guest = Guest::routing(&import("route", "set-environment", four, ""), huge);
    assert_fails(
        &guest,
        FailureKind::BadAnswer,
        "it 1 variables of 5005 bytes, allowed are 32 of 4096 bytes",
    );
    let group = "(i32.const 2) (i32.const 128) (i32.const 5) (i32.const 0) (i32.const 0)";
    assert_bad("set-exclusive", "i32 i32 i32 i32 i32", group, "allows 0 actions");
    assert_bad(
        "set-exclusive",
        "i32 i32 i32 i32 i32",
        &group.replace("const 2", "const 9"),
        "unreadable answer",
    );
    // One key, the empty string, which lies at 0.
    assert_bad(
        "set-invocation-keys",
        "i32 i32",
        "(i32.const 0) (i32.const 1)",
        "set-invocation-keys is empty",
    );
}

#[test]
fn too_much() {
    assert_bad("note", "i32 i32", "(i32.const 0) (i32.const 65537)", "unreadable answer");
    let imports = import("route", "note", "i32 i32", "");
    let grow = "(drop (memory.grow (i32.const 200)))";
    let long = Guest::routing(
        &imports,
        &format!("{grow} (call $route.note (i32.const 131072) (i32.const 65537)) {ACCEPT}"),
    );
    assert_fails(&long, FailureKind::BadAnswer, "a note has 65537 bytes, allowed are 65536");
    let huge = Guest::routing(
        &imports,
        &format!("{grow} (call $route.note (i32.const 131072) (i32.const 9000000)) {ACCEPT}"),
    );
    assert_fails(&huge, FailureKind::BadAnswer, "unreadable answer");
    let many = Guest::routing(
        &imports,
        "(loop $again (call $route.note (i32.const 128) (i32.const 5)) (br $again)) unreachable",
    );
    assert_fails(&many, FailureKind::BadAnswer, "it made more than 32 notes in one call");
    // 1001 properties of empty strings.
    let imports = import("route", "set-platform", "i32 i32", "");
    let list = format!("(call $route.set-platform (i32.const 1024) (i32.const 1001)) {ACCEPT}");
    assert_fails(
        &Guest::routing(&imports, &list),
        FailureKind::BadAnswer,
        "1001 properties, allowed are 1000",
    );
}

#[test]
fn text_that_is_none() {
    let mut guest = Guest::routing(
        &import("route", "note", "i32 i32", ""),
        &format!("(call $route.note (i32.const 1024) (i32.const 2)) {ACCEPT}"),
    );
    guest.more = r#"(data (i32.const 1024) "\ff\fe")"#.into();
    assert_fails(&guest, FailureKind::BadAnswer, "unreadable answer");
}

#[test]
fn result_outside_of_memory() {
    assert_fails(&Guest::routing("", "i32.const 0x7fff0000"), FailureKind::BadAnswer, "unreadable answer");
}

#[test]
fn log_flood_is_cut_and_is_no_failure() {
    let runtime = runtime();
    let mut guest = Guest::routing(
        &import("host", "log", "i32 i32 i32", ""),
        &format!(
            "(local $i i32)
            (loop $again
                (call $host.log (i32.const 1) (i32.const 128) (i32.const 5))
                (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000))))
            {ACCEPT}"
        ),
    );
    guest.name = "flood".into();
    assert_eq!(decide_by(&runtime, &guest).fallback, None);
}

#[test]
fn instances_that_change_their_mind() {
    // Once a value is stored, calls trap, and new instances refuse the configuration that the first one accepted.
    let mut guest = Guest::routing(
        &(import("host", "set", "i32 i32 i32 i32 i32", "") + &import("host", "get", "i32 i32 i32", "")),
        &format!(
            "(if (call $stored) (then unreachable))
            (call $host.set (i32.const 128) (i32.const 5) (i32.const 128) (i32.const 5) (i32.const -1))
            {ACCEPT}"
        ),
    );
    guest.configure = "(if (result i32) (call $stored) (then (i32.const 4096)) (else (i32.const 64)))".into();
    // At 4096 result<_, list<config-error>>: the error case, with no errors in it.
    guest.more = r#"(data (i32.const 4096) "\01")
        (func $stored (result i32)
            (call $host.get (i32.const 128) (i32.const 5) (i32.const 2048))
            (i32.load8_u (i32.const 2048)))"#
        .into();
    let runtime = Runtime::new(Options { instances: 1, ..Options::default() }).unwrap();
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    // The store lives by the wall clock of `configure` here.
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let facts = Arc::new(ActionFacts { now_unix_seconds: now.as_secs_f64(), ..facts() });
    assert_eq!(runtime.route(&facts, wishes(&facts)).fallback, None);
    assert!(runtime.route(&facts, wishes(&facts)).fallback.unwrap().contains("it panicked"));
    let why = runtime.route(&facts, wishes(&facts)).fallback.unwrap();
    assert!(why.contains("a new instance refuses the configuration that the first one accepted"), "{why}");
    assert_eq!(runtime.counters().failures_of(FailureKind::Start), 1);
}
