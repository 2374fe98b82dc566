//! Files that are no policy: refused before they are in force, with all that is wrong.

use pointsman_policy::{FailureKind, LoadError, Runtime};

use crate::guests::{ACCEPT, Guest, WIT, import};
use crate::support::{first, runtime};

/// Loading must fail and change nothing.
#[track_caller]
fn refusal(runtime: &Runtime, bytes: &[u8]) -> LoadError {
    let before = runtime.counters();
    let error = runtime.load(bytes, "{}").expect_err("it was to be refused");
    assert_eq!(runtime.counters().refused_loads, before.refused_loads + 1);
    assert_eq!(&*first(&runtime.in_force()).policy().name, "default");
    error
}

#[track_caller]
fn differences(runtime: &Runtime, guest: &Guest) -> Vec<String> {
    match refusal(runtime, &guest.build()) {
        LoadError::Interface { differences } => differences,
        other => panic!("{other}"),
    }
}

#[test]
fn no_component() {
    let runtime = runtime();
    for bytes in [&b""[..], b"\0asm", b"#!/bin/sh\n", b"\0asm\x0d\0\x01\0rubbish"] {
        let error = refusal(&runtime, bytes).to_string();
        assert!(error.starts_with("it is not a WebAssembly component: "), "{error}");
    }
    let core = refusal(&runtime, &wat::parse_str("(module (memory 1))").unwrap()).to_string();
    assert!(core.contains("a core module without an embedded interface"), "{core}");
    let half = Guest::default().build();
    refusal(&runtime, &half[..half.len() / 2]);
    assert!(matches!(refusal(&runtime, &vec![0; (64 << 20) + 1]), LoadError::TooLarge { .. }));
}

#[test]
fn core_module_with_the_interface_embedded_is_wrapped() {
    let runtime = runtime();
    let core = Guest::default().core();
    let generation = runtime.load(&core, "{}").unwrap();
    assert_eq!(&*generation.policy().version, "1.2.3");
    assert_ne!(
        generation.policy().digest_hex,
        runtime.load(&Guest::default().build(), "{}").unwrap().policy().digest_hex,
        "the digest is that of the file"
    );
}

#[test]
fn without_lifecycle() {
    let mut guest = Guest::default();
    guest.world = guest.world.replace("export p:lifecycle@;", "");
    let found = differences(&runtime(), &guest);
    assert_eq!(found, ["it does not export `pointsman:policy/lifecycle@0.1.0`, so it can't be configured"]);
}

#[test]
fn without_hooks() {
    let mut guest = Guest::default();
    guest.world = guest.world.replace("export p:on-action@;", "");
    let found = differences(&runtime(), &guest);
    assert_eq!(
        found,
        ["it exports none of on-action, on-assignment, on-result, on-worker, so it would never be called"]
    );
}

#[test]
fn everything_wrong_is_listed() {
    let mut guest = Guest::routing(
        r#"(import "wasi:clocks/wall-clock@0.2.0" "now" (func $now (result i64)))
           (import "wasi:random/random@0.2.0" "get" (func $get (result i64)))
           (import "acme:tools/http@1.0.0" "fetch" (func $fetch))"#,
        &format!("(drop (call $now)) (drop (call $get)) (call $fetch) {ACCEPT}"),
    );
    guest.more_wit = vec![
        "package wasi:clocks@0.2.0; interface wall-clock { now: func() -> u64; }".into(),
        "package wasi:random@0.2.0; interface random { get: func() -> u64; }".into(),
        "package acme:tools@1.0.0; interface http { fetch: func(); }".into(),
    ];
    guest.world.push_str(
        "import wasi:clocks/wall-clock@0.2.0; import wasi:random/random@0.2.0; import acme:tools/http@1.0.0;",
    );
    guest.world = guest.world.replace("export p:lifecycle@;", "");
    let found = differences(&runtime(), &guest);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(
        found[0]
            .contains("`acme:tools/http@1.0.0`, and a policy can import interfaces of pointsman:policy only")
    );
    assert!(
        found[1].starts_with(
            "it imports wasi:clocks/wall-clock@0.2.0, wasi:random/random@0.2.0: a policy has no"
        )
    );
    assert!(found[1].contains("wasm32-unknown-unknown"));
    assert!(found[2].contains("lifecycle"));
}

/// A later interface of the same line: what is not used makes no difference.
fn later() -> Guest {
    let mut guest = Guest::default();
    guest.wit = WIT
        .replace("package pointsman:policy@0.1.0;", "package pointsman:policy@0.1.1;")
        .replace("  mnemonic: func() -> string;", "  mnemonic: func() -> string;\n  cost: func() -> u32;");
    guest
}

#[test]
fn later_interface_is_good_when_only_old_functions_are_used() {
    let mut guest = later();
    guest.imports = import("action", "priority", "", "i32");
    guest.route = format!("(drop (call $action.priority)) {ACCEPT}");
    let generation = runtime().load(&guest.build(), "{}").unwrap();
    assert_eq!(generation.hooks().len(), 1);
}

#[test]
fn functions_that_are_not_there_yet() {
    let mut guest = later();
    guest.imports = import("action", "cost", "", "i32");
    guest.route = format!("(drop (call $action.cost)) {ACCEPT}");
    let found = differences(&runtime(), &guest);
    let wanted = "it imports `cost: func() -> u32` of `pointsman:policy/action@0.1.1`, \
                  which pointsman:policy 0.1.0 does not have yet";
    assert_eq!(found, [wanted]);
}

#[test]
fn functions_of_another_shape() {
    let mut guest = Guest::routing(
        &import("action", "priority", "", "i64"),
        "(drop (call $action.priority)) i32.const 0",
    );
    guest.wit = WIT.replace("priority: func() -> s32;", "priority: func() -> s64;");
    let found = differences(&runtime(), &guest);
    let wanted = "it imports `priority` of `pointsman:policy/action@0.1.0` as `func() -> s64`, \
                  this server has it as `func() -> s32`";
    assert_eq!(found, [wanted]);
}

#[test]
fn hooks_of_another_shape() {
    let mut guest = Guest::default();
    guest.wit = WIT.replace("    resource-exhausted,\n", "");
    let found = differences(&runtime(), &guest);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].starts_with(
        "its `pointsman:policy/on-action@0.1.0` has `route-action` as `func() -> result<_, record { code: enum { \
         invalid-argument, failed-precondition, permission-denied, unavailable }, "
    ));
}

#[test]
fn another_line_of_versions() {
    let mut guest = Guest::default();
    guest.wit = WIT.replace("package pointsman:policy@0.1.0;", "package pointsman:policy@0.2.0;");
    let found = differences(&runtime(), &guest);
    assert!(found.iter().all(|line| line.contains("0.2.0") && line.contains("this server")), "{found:#?}");
    assert_eq!(found.len(), 3, "types, lifecycle and on-action: {found:#?}");
}

#[test]
fn mistyped_hooks() {
    let mut guest = Guest::default();
    guest.wit =
        WIT.replace("interface on-worker {", "interface on-workers { now: func(); }\ninterface on-worker {");
    guest.world.push_str("export p:on-workers@; export on-action: func();");
    guest.more =
        r#"(func (export "pointsman:policy/on-workers@0.1.0#now")) (func (export "on-action"))"#.into();
    let found = differences(&runtime(), &guest);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found
            .iter()
            .any(|line| line.contains("`pointsman:policy/on-workers@0.1.0`, which would never be called"))
    );
    assert!(found.iter().any(|line| line.contains("did you mean `pointsman:policy/on-action@0.1.0`?")));
}

#[test]
fn exports_of_toolchains_are_let_through() {
    let mut guest = Guest::default();
    guest.world.push_str("export init: func(); export exports: func();");
    guest.more = r#"(func (export "init")) (func (export "exports"))"#.into();
    runtime().load(&guest.build(), "{}").unwrap();
}

#[test]
fn configuration_that_is_refused() {
    let mut guest = Guest::default();
    guest.configure = "i32.const 1024".into();
    // result<_, list<config-error>> at 1024; the list at 1040: path at 1100, message at 1110.
    guest.more = r#"
        (data (i32.const 1024) "\01\00\00\00\10\04\00\00\01\00\00\00")
        (data (i32.const 1040) "\4c\04\00\00\04\00\00\00\56\04\00\00\06\00\00\00")
        (data (i32.const 1100) "/a/b") (data (i32.const 1110) "no way")"#
        .into();
    let runtime = runtime();
    let error = refusal(&runtime, &guest.build());
    assert_eq!(error.to_string(), "it refuses its configuration: /a/b: no way");
}

#[test]
fn configure_that_fails() {
    let runtime = runtime();
    let fails = |configure: &str| {
        let mut guest = Guest::default();
        guest.imports = import("action", "priority", "", "i32");
        guest.configure = configure.into();
        match refusal(&runtime, &guest.build()) {
            LoadError::Failed(failure) => failure,
            other => panic!("{other}"),
        }
    };
    assert_eq!(fails("unreachable").kind, FailureKind::Trap);
    assert_eq!(fails("(loop $again (br $again)) unreachable").kind, FailureKind::OutOfFuel);
    let misplaced = fails("(drop (call $action.priority)) i32.const 64");
    assert_eq!(misplaced.kind, FailureKind::Misplaced);
    assert_eq!(
        misplaced.text,
        "action.priority was called in configure, it speaks of an action, so only route-action, completed and rank can call it"
    );
}

#[test]
fn nameless() {
    let mut guest = Guest::default();
    guest.name = String::new();
    let error = refusal(&runtime(), &guest.build()).to_string();
    assert!(error.contains("name \"\" is not 1 to 100 printable"), "{error}");
    guest.name = "a b".into();
    refusal(&runtime(), &guest.build());
}
