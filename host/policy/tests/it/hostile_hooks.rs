//! What each hook can do wrong: the caller is served, the operator is told, and the version stays in force.

use std::sync::Arc;
use std::time::Duration;

use pointsman_policy::{Attempt, Candidate, FailureKind, Hook, Next, Outcome, Runtime, Terms, WorkerFacts};
use pointsman_scheduler::route::Route;

use crate::guests::{ACCEPT, Guest};
use crate::support::{facts, first, properties, runtime, wishes};

/// Zeros of which the first many can be a string that is too long.
const PAGES: u32 = 4;
const ZEROS: u32 = 65_536;

/// A guest with just this hook, which does this.
fn guest(hook: Hook, body: &str) -> Guest {
    let (function, parameters) = match hook {
        Hook::OnAction => ("route-action", ""),
        Hook::OnWorker => ("admit", ""),
        Hook::OnResult => {
            ("completed", "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 f64 i32 i32)")
        }
        Hook::OnAssignment => ("rank", "(param i32 i32)"),
    };
    let world = "import p:host@; import p:action@; import p:route@; import p:worker@; import p:terms@; export p:lifecycle@;";
    Guest {
        world: format!("{world} export p:{hook}@;"),
        pages: PAGES,
        // `Guest` itself writes `route-action`.
        route: body.into(),
        more: match hook {
            Hook::OnAction => String::new(),
            _ => format!(
                "(func (export \"pointsman:policy/{hook}@0.1.0#{function}\") {parameters} (result i32) {body})"
            ),
        },
        ..Guest::default()
    }
}

fn terms() -> Terms {
    Terms { platform: properties(&[("OSFamily", "linux")]), size_class: 3, ..Terms::default() }
}

fn attempt() -> Attempt {
    Attempt {
        outcome: Outcome::Failed,
        exit_code: 1,
        signal: None,
        size_class: 0,
        worker: "w".into(),
        strategy: None,
        wall: Duration::from_secs(1),
        cores: None,
        peak_memory_mib: None,
    }
}

/// Calls the hook, checks that all goes on as if the policy had not been asked, and gives what went wrong.
fn ask(runtime: &Runtime, hook: Hook) -> Vec<String> {
    let facts = Arc::new(facts());
    match hook {
        Hook::OnAction => {
            let decision = runtime.route(&facts, wishes(&facts));
            assert_eq!((&*decision.policy.name, decision.rejection), ("default", None));
            assert_eq!(decision.route.platform, facts.platform.clone().unwrap());
            decision.fallback.into_iter().collect()
        }
        Hook::OnWorker => {
            let admission = runtime.admit(&Arc::new(WorkerFacts::default()), terms());
            assert_eq!((admission.terms, admission.rejection), (terms(), None));
            admission.failures
        }
        Hook::OnResult => {
            let completion = runtime.completed(&facts, &attempt(), Route::default());
            assert_eq!((completion.next, completion.by), (Next::Accept, None));
            completion.failures
        }
        Hook::OnAssignment => {
            let candidate = |name: &str| Candidate {
                worker: name.into(),
                pool: "p".into(),
                executing: 0,
                affine: false,
                idle: Duration::ZERO,
            };
            let ranking = runtime.rank(&facts, &[candidate("a"), candidate("b")]);
            assert_eq!((ranking.order, ranking.by), (vec![], None));
            ranking.failures
        }
    }
}

/// The hook fails in this way, and nothing comes of it but that it is told.
#[track_caller]
fn assert_harmless(hook: Hook, guest: &Guest, kind: FailureKind, text: &str) {
    let runtime = runtime();
    let installed = runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    let failures = ask(&runtime, hook);
    assert!(failures.first().is_some_and(|told| told.contains(text)), "{hook}: {failures:?}");
    assert!(failures[0].contains("policy guest 1.2.3 (sha256 "), "{hook}: {failures:?}");
    let tally = first(&installed).tally();
    assert_eq!(tally.calls.iter().filter(|(_, calls)| *calls > 0).collect::<Vec<_>>(), [&(hook, 1)]);
    assert_eq!(tally.failures.iter().filter(|(_, count)| *count > 0).collect::<Vec<_>>(), [&(kind, 1)]);
    assert_eq!(runtime.counters().failures_of(kind), 1);
    assert_eq!(runtime.in_force().number(), installed.number());
    assert_eq!(&*first(&runtime.in_force()).policy().name, "guest", "it is still in force");
}

fn in_each_hook(body: &str, kind: FailureKind, text: &str) {
    for hook in Hook::ALL {
        assert_harmless(hook, &guest(hook, body), kind, text);
    }
}

#[test]
fn traps() {
    in_each_hook("unreachable", FailureKind::Trap, "it panicked or aborted");
}

#[test]
fn endless_loops() {
    in_each_hook("(loop $again (br $again)) unreachable", FailureKind::OutOfFuel, "it used up its fuel");
}

#[test]
fn memory_bombs() {
    let eat = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    in_each_hook(eat, FailureKind::OutOfMemory, "allowed are 67108864 bytes in all");
}

#[test]
fn endless_recursion() {
    for hook in Hook::ALL {
        let mut guest = guest(hook, &format!("(drop (call $deep (i32.const 1))) {ACCEPT}"));
        guest.more += "(func $deep (param i32) (result i32)
            (i32.add (call $deep (i32.add (local.get 0) (i32.const 1))) (local.get 0)))";
        assert_harmless(hook, &guest, FailureKind::StackOverflow, "its call stack overflowed");
    }
}

#[test]
fn results_outside_of_memory() {
    in_each_hook("i32.const 0x7fff0000", FailureKind::BadAnswer, "unreadable answer");
}

/// An answer with a text in it: a rejection, or the reason for a choice.
fn saying(hook: Hook, address: u32, length: u32) -> Guest {
    let store = |at: u32, value: u32| format!("(i32.store (i32.const {at}) (i32.const {value}))");
    let body = match hook {
        // result<_, rejection>: the case, the code, the reason; `next` likewise.
        Hook::OnAction | Hook::OnWorker => store(4096, 1) + &store(4104, address) + &store(4108, length),
        Hook::OnResult => store(4096, 2) + &store(4104, address) + &store(4108, length),
        // list<choice>: where it is and how long, the index, the reason.
        Hook::OnAssignment => {
            store(4096, 4112) + &store(4100, 1) + &store(4116, address) + &store(4120, length)
        }
    };
    let mut guest = guest(hook, &format!("{body} i32.const 4096"));
    guest.more += r#"(data (i32.const 5000) "\ff\fe")"#;
    guest
}

#[test]
fn giant_texts() {
    for hook in Hook::ALL {
        let guest = saying(hook, ZEROS, 65_537);
        assert_harmless(hook, &guest, FailureKind::BadAnswer, "has 65537 bytes, allowed are 65536");
        let beyond = saying(hook, ZEROS, 9_000_000);
        assert_harmless(hook, &beyond, FailureKind::BadAnswer, "unreadable answer");
    }
}

#[test]
fn texts_that_are_none() {
    for hook in Hook::ALL {
        assert_harmless(hook, &saying(hook, 5000, 2), FailureKind::BadAnswer, "unreadable answer");
    }
}

#[test]
fn empty_reasons() {
    for hook in [Hook::OnAction, Hook::OnWorker, Hook::OnResult] {
        assert_harmless(
            hook,
            &saying(hook, 5000, 0),
            FailureKind::BadAnswer,
            "the reason of a rejection is empty",
        );
    }
}

#[test]
fn giant_rankings() {
    // Zeros as choices: always the first candidate.
    let zeros = |count: u32| {
        let body = format!(
            "(i32.store (i32.const 4096) (i32.const {ZEROS})) (i32.store (i32.const 4100) (i32.const {count}))
             i32.const 4096"
        );
        guest(Hook::OnAssignment, &body)
    };
    let hook = Hook::OnAssignment;
    assert_harmless(hook, &zeros(2), FailureKind::BadAnswer, "rank named candidate 0 twice");
    assert_harmless(hook, &zeros(10_000), FailureKind::BadAnswer, "rank named candidate 0 twice");
    assert_harmless(hook, &zeros(u32::MAX / 16), FailureKind::BadAnswer, "unreadable answer");
    let other = "(i32.store (i32.const 4096) (i32.const 4112)) (i32.store (i32.const 4100) (i32.const 1))
                 (i32.store (i32.const 4112) (i32.const 7)) i32.const 4096";
    assert_harmless(
        hook,
        &guest(hook, other),
        FailureKind::BadAnswer,
        "rank named candidate 7, there were 2",
    );
}

#[test]
fn functions_of_other_hooks() {
    let call = |interface: &str, function: &str, hook: Hook| {
        let import = format!(
            "(import \"pointsman:policy/{interface}@0.1.0\" \"{function}\" (func $call (param i32)))"
        );
        let mut guest = guest(hook, &format!("(call $call (i32.const 7)) {ACCEPT}"));
        guest.imports = import;
        guest
    };
    for hook in [Hook::OnWorker, Hook::OnAssignment] {
        let guest = call("route", "set-priority", hook);
        assert_harmless(hook, &guest, FailureKind::Misplaced, "route.set-priority was called in");
    }
    for hook in [Hook::OnAction, Hook::OnResult, Hook::OnAssignment] {
        let guest = call("terms", "set-size-class", hook);
        assert_harmless(hook, &guest, FailureKind::Misplaced, "terms.set-size-class was called in");
    }
}
