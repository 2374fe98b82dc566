//! Guests that do harm at other times than in a hook, or only after a while.

use std::sync::Arc;

use pointsman_policy::{FailureKind, Isolation, LoadError, Options, Runtime};

use crate::guests::{ACCEPT, Guest, MANIFEST, import};
use crate::support::{facts, first, runtime, wishes};

/// Such a guest never comes into force, and what was in force stays.
#[track_caller]
fn assert_never_starts(guest: &Guest, kind: FailureKind, text: &str) {
    let runtime = runtime();
    let error = runtime.load(&guest.build(), "{}").unwrap_err();
    let LoadError::Failed(failure) = &error else { panic!("{error}") };
    assert_eq!(failure.kind, kind, "{failure}");
    assert!(error.to_string().contains(text), "{error}");
    assert!(error.to_string().starts_with("it failed while it was configured: "), "{error}");
    assert_eq!(runtime.counters().refused_loads, 1);
    assert_eq!((runtime.in_force().number(), &*first(&runtime.in_force()).policy().name), (1, "default"));
    let facts = Arc::new(facts());
    assert_eq!(runtime.route(&facts, wishes(&facts)).fallback, None);
}

/// A guest that does this in its start function, before it can be asked for anything.
fn starting(imports: &str, body: &str) -> Guest {
    Guest { imports: imports.into(), more: format!("(start $s) (func $s {body})"), ..Guest::default() }
}

fn configuring(imports: &str, body: &str) -> Guest {
    Guest { imports: imports.into(), configure: format!("{body} {MANIFEST}"), ..Guest::default() }
}

const LOOP: &str = "(loop $again (br $again))";
const EAT: &str =
    "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";

#[test]
fn harm_in_the_start_function() {
    assert_never_starts(&starting("", "unreachable"), FailureKind::Trap, "it panicked");
    assert_never_starts(&starting("", LOOP), FailureKind::OutOfFuel, "it used up its fuel");
    assert_never_starts(&starting("", EAT), FailureKind::OutOfMemory, "allowed are 67108864");
    assert_never_starts(&starting("", "(call $s)"), FailureKind::StackOverflow, "its call stack overflowed");
}

#[test]
fn harm_in_configure() {
    assert_never_starts(&configuring("", EAT), FailureKind::OutOfMemory, "allowed are 67108864");
    let mut deep = configuring("", "(call $deep)");
    deep.more = "(func $deep (call $deep))".into();
    assert_never_starts(&deep, FailureKind::StackOverflow, "its call stack overflowed");
    // The name at 1000 is no text; the one at 65536 is too long to be taken out.
    let named = |address: u32, length: u32| {
        let body = format!(
            "(i32.store (i32.const 68) (i32.const {address})) (i32.store (i32.const 72) (i32.const {length}))"
        );
        Guest { pages: 200, more: r#"(data (i32.const 1000) "\ff\fe")"#.into(), ..configuring("", &body) }
    };
    assert_never_starts(&named(1000, 2), FailureKind::BadAnswer, "unreadable answer");
    assert_never_starts(&named(65_536, 9_000_000), FailureKind::BadAnswer, "unreadable answer");
    let error = runtime().load(&named(65_536, 100_000).build(), "{}").unwrap_err().to_string();
    assert!(error.contains("is not 1 to 100 printable ASCII characters"), "{error:.200}");
    assert!(error.len() < 500, "an error that is read: {} bytes", error.len());
}

#[test]
fn a_flood_of_configuration_errors_is_cut() {
    // 1,000 errors, each of two long texts of zeros.
    let body = "(local $i i32)
        (loop $again
            (i32.store (i32.add (i32.const 4096) (i32.mul (local.get $i) (i32.const 16))) (i32.const 65536))
            (i32.store (i32.add (i32.const 4100) (i32.mul (local.get $i) (i32.const 16))) (i32.const 2000))
            (i32.store (i32.add (i32.const 4104) (i32.mul (local.get $i) (i32.const 16))) (i32.const 65536))
            (i32.store (i32.add (i32.const 4108) (i32.mul (local.get $i) (i32.const 16))) (i32.const 2000))
            (br_if $again (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000))))
        (i32.store (i32.const 1024) (i32.const 1)) (i32.store (i32.const 1028) (i32.const 4096))
        (i32.store (i32.const 1032) (i32.const 1000)) i32.const 1024";
    let guest = Guest { pages: 4, configure: body.into(), ..Guest::default() };
    let error = runtime().load(&guest.build(), "{}").unwrap_err();
    let LoadError::Config { problems } = &error else { panic!("{error}") };
    assert_eq!(problems.len(), 1000);
    let text = error.to_string();
    assert!(text.ends_with("; and 990 more"), "{text:.300}");
    assert!(text.len() < 20_000, "{} bytes", text.len());
}

#[test]
fn calls_before_there_is_anything_to_speak_of() {
    let priority = import("action", "priority", "", "i32");
    let misplaced = "action.priority was called in configure, it speaks of an action";
    for guest in [
        starting(&priority, "(drop (call $action.priority))"),
        configuring(&priority, "(drop (call $action.priority))"),
    ] {
        assert_never_starts(&guest, FailureKind::Misplaced, misplaced);
    }
    let edit = import("route", "set-priority", "i32", "");
    let guest = configuring(&edit, "(call $route.set-priority (i32.const 1))");
    assert_never_starts(&guest, FailureKind::Misplaced, "route.set-priority was called in configure");
    // Memory is asked for while the configuration is handed over.
    let guest = Guest {
        imports: priority.clone(),
        realloc: "(drop (call $action.priority))".into(),
        ..Guest::default()
    };
    assert_never_starts(&guest, FailureKind::Trap, "it trapped: ");
}

/// Routes `calls` actions, and gives for each whether the guest decided, and the route's priority.
fn route(runtime: &Runtime, calls: usize) -> Vec<(bool, i32)> {
    let facts = Arc::new(facts());
    let call = |_| {
        let decision = runtime.route(&facts, wishes(&facts));
        assert_eq!(decision.rejection, None, "whatever happens, the client is served");
        (&*decision.policy.name == "guest", decision.route.priority)
    };
    (0..calls).map(call).collect()
}

fn install(runtime: &Runtime, guest: &Guest) {
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
}

#[test]
fn calls_while_the_host_hands_something_over() {
    let imports = import("action", "mnemonic", "i32", "") + &import("action", "priority", "", "i32");
    let mut guest = Guest::routing(
        &imports,
        &format!("(global.set $armed (i32.const 1)) (call $action.mnemonic (i32.const 2048)) {ACCEPT}"),
    );
    guest.realloc = "(if (global.get $armed) (then (drop (call $action.priority))))".into();
    guest.more = "(global $armed (mut i32) (i32.const 0))".into();
    let runtime = runtime();
    install(&runtime, &guest);
    assert_eq!(route(&runtime, 2), [(false, 0); 2]);
    assert_eq!(runtime.counters().failures_of(FailureKind::Trap), 2);
}

#[test]
fn calls_after_the_answer() {
    let imports = import("route", "set-priority", "i32", "");
    let mut guest = Guest::routing(&imports, &format!("(call $route.set-priority (i32.const 5)) {ACCEPT}"));
    guest.more = "(func (export \"cabi_post_pointsman:policy/on-action@0.1.0#route-action\") (param i32)
        (call $route.set-priority (i32.const 6)))"
        .into();
    let runtime = runtime();
    install(&runtime, &guest);
    assert_eq!(route(&runtime, 2), [(false, 0); 2], "it is not an edit, and the call has failed");
    assert_eq!(runtime.counters().failures_of(FailureKind::Trap), 2);
}

/// Counts its calls in its memory, and makes the count the priority. At so many it traps.
fn counting(trap_at: u32) -> Guest {
    let mut guest = Guest::routing(
        &import("route", "set-priority", "i32", ""),
        &format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (if (i32.gt_u (global.get $calls) (i32.const {trap_at})) (then unreachable))
            (call $route.set-priority (global.get $calls)) {ACCEPT}"
        ),
    );
    guest.more = "(global $calls (mut i32) (i32.const 0))".into();
    guest
}

#[test]
fn another_answer_each_time() {
    let runtime = Runtime::new(Options { instances: 1, ..Options::default() }).unwrap();
    install(&runtime, &counting(1000));
    assert_eq!(
        route(&runtime, 3),
        [(true, 1), (true, 2), (true, 3)],
        "it may remember, if the operator allows"
    );
    let isolated = runtime.load_isolated(&counting(1000).build(), "{}", Isolation::Call).unwrap();
    runtime.install(isolated);
    assert_eq!(route(&runtime, 3), [(true, 1); 3], "here it can't");
    let facts = Arc::new(facts());
    let fuel = || runtime.route(&facts, wishes(&facts)).fuel;
    assert_eq!(fuel(), fuel());
}

#[test]
fn a_thousand_good_calls_and_then_a_trap() {
    let runtime = Runtime::new(Options { instances: 1, ..Options::default() }).unwrap();
    install(&runtime, &counting(1000));
    for round in 1..=3 {
        let answers = route(&runtime, 1001);
        let good = (1..=1000).map(|calls| (true, calls));
        assert!(answers[..1000].iter().copied().eq(good), "an instance begins anew after each failure");
        assert_eq!(answers[1000], (false, 0), "the default decides once");
        assert_eq!(runtime.counters().failures_of(FailureKind::Trap), round);
        // The instance that failed is replaced beside the calls; here nothing else is left to answer meanwhile.
    }
    let tally = first(&runtime.in_force()).tally();
    assert_eq!((tally.total(), tally.failed()), (3003, 3));
    assert!(!first(&runtime.in_force()).is_circuit_open(), "one failure in a thousand does not open it");
}

#[test]
fn one_that_always_fails_is_left_alone_for_a_while() {
    let runtime = runtime();
    install(&runtime, &Guest::routing("", &format!("{LOOP} unreachable")));
    assert_eq!(route(&runtime, 8), [(false, 0); 8]);
    assert_eq!(runtime.counters().failures_of(FailureKind::OutOfFuel), 5, "then no more fuel is burnt on it");
    assert!(first(&runtime.in_force()).is_circuit_open());
    let facts = Arc::new(facts());
    let why = runtime.route(&facts, wishes(&facts)).fallback.unwrap();
    assert!(why.contains("as it failed too often in a row"), "{why}");
}

#[test]
fn an_instance_that_hoards_memory_is_replaced_beside_the_calls() {
    let runtime = runtime();
    // A mebibyte more with each call: 64 are allowed, and it would fail at the 64th.
    let hoard = format!("(drop (memory.grow (i32.const 16))) {ACCEPT}");
    runtime.install(runtime.load(&Guest::routing("", &hoard).build(), "{}").unwrap());
    let facts = Arc::new(facts());
    for _ in 0..300 {
        assert_eq!(runtime.route(&facts, wishes(&facts)).fallback, None);
    }
    assert!(runtime.counters().instances > 5, "{}", runtime.counters().instances);
}
