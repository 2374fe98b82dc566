//! What well-behaved guests answer, and what they are shown.

use std::sync::Arc;
use std::time::Duration;

use pointsman_policy::{ActionFacts, Code, CommandFacts, Hook, Options, Pool, Rejection, Runtime, Sources};
use pointsman_scheduler::route::{Affinity, Exclusivity, Scope};

use wit_parser::abi::{AbiVariant, WasmType};
use wit_parser::{Function, Resolve, WorldItem};

use crate::guests::{ACCEPT, Guest, MANIFEST, WIT, import};
use crate::support::{facts, first, properties, runtime, strings, wishes};

#[test]
fn a_rejection_is_an_answer() {
    let imports = import("route", "note", "i32 i32", "");
    let mut guest =
        Guest::routing(&imports, "(call $route.note (i32.const 128) (i32.const 5)) i32.const 1024");
    // result<_, rejection> at 1024: permission-denied, reason at 1100, help at 1110.
    guest.more = r#"
        (data (i32.const 1024) "\01\00\00\00\02\00\00\00\4c\04\00\00\02\00\00\00\01\00\00\00\56\04\00\00\03\00\00\00")
        (data (i32.const 1100) "no") (data (i32.const 1110) "ask")"#
        .into();
    let runtime = runtime();
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    let facts = Arc::new(facts());
    let decision = runtime.route(&facts, wishes(&facts));
    let expected = Rejection { code: Code::PermissionDenied, reason: "no".into(), help: Some("ask".into()) };
    assert_eq!(decision.rejection, Some(expected));
    assert_eq!(decision.fallback, None);
    assert_eq!(strings(&decision.route.notes), ["guest"], "what it did before it refused stays visible");
    assert_eq!(&*decision.policy.name, "guest");
    let counters = runtime.counters();
    assert_eq!((counters.rejections, counters.fallbacks), (1, 0));
}

#[test]
fn edits_arrive() {
    let imports = [
        import("route", "set-property", "i32 i32 i32 i32", ""),
        import("route", "remove-property", "i32 i32", ""),
        import("route", "set-pool", "i32 i32 i32", ""),
        import("route", "set-exclusive", "i32 i32 i32 i32 i32", ""),
        import("route", "set-strategies", "i32 i32 i32", ""),
        import("route", "set-priority", "i32", ""),
        import("route", "set-timeout-ms", "i32", ""),
        import("route", "set-shared", "i32", ""),
        import("route", "set-affinity", "i32 i32 i32", ""),
        import("route", "set-learning-key", "i32 i32", ""),
        import("route", "set-environment", "i32 i32 i32 i32", ""),
        import("route", "rank-candidates", "i32", ""),
    ]
    .concat();
    let name = "(i32.const 128) (i32.const 5)";
    let other = "(i32.const 1024) (i32.const 2)";
    let route = format!(
        "(call $route.set-property {name} {other}) (call $route.set-property {other} {name})
        (call $route.set-property {name} {name}) (call $route.remove-property (i32.const 1026) (i32.const 8))
        (call $route.set-pool (i32.const 1) {name}) (call $route.set-strategies (i32.const 1) (i32.const 0) (i32.const 0))
        (call $route.set-exclusive (i32.const 2) {name} (i32.const 1) (i32.const 3))
        (call $route.set-priority (i32.const -5)) (call $route.set-timeout-ms (i32.const 1500))
        (call $route.set-shared (i32.const 0)) (call $route.set-affinity {name} (i32.const 20))
        (call $route.set-learning-key {other}) (call $route.rank-candidates (i32.const 3))
        (call $route.set-environment {name} {other}) (call $route.set-environment (i32.const 1026) (i32.const 8) {other})
        (call $route.set-environment {name} {name}) {ACCEPT}"
    );
    let mut guest = Guest::routing(&imports, &route);
    guest.more = r#"(data (i32.const 1024) "a!OSFamily")"#.into();
    let runtime = runtime();
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    let facts = Arc::new(facts());
    let decision = runtime.route(&facts, wishes(&facts));
    assert_eq!(decision.fallback, None);
    let route = decision.route;
    assert_eq!(route.platform, properties(&[("a!", "guest"), ("guest", "guest")]));
    assert_eq!(route.pool.as_deref(), Some("guest"));
    let group = Exclusivity::Group { name: "guest".into(), scope: Scope::Pool, at_most: 3 };
    assert_eq!(route.exclusivity, group);
    assert_eq!(route.strategies, Some(Vec::new()));
    assert_eq!((route.priority, route.timeout), (-5, Some(Duration::from_millis(1500))));
    assert_eq!((route.shared, route.rank_candidates), (false, 3));
    let affinity = Affinity { key: "guest".into(), wait: Duration::from_millis(20) };
    assert_eq!(route.affinity, Some(affinity));
    assert_eq!(route.learning_key.as_deref(), Some("a!"));
    let variables = [("OSFamily", "a!"), ("guest", "guest")].map(|(name, value)| (name.into(), value.into()));
    assert_eq!(route.environment, variables, "the last value of each");
    assert_eq!(route.invocation_keys, [], "nobody set them");
}

#[test]
fn a_policy_of_other_hooks_leaves_routes_alone() {
    let mut guest = Guest::default();
    guest.world = "import p:worker@; import p:terms@; export p:lifecycle@; export p:on-worker@;".into();
    guest.imports = import("worker", "size-class", "", "i32");
    guest.more = r#"(func (export "pointsman:policy/on-worker@0.1.0#admit") (result i32)
        (drop (call $worker.size-class)) i32.const 0)"#
        .into();
    let runtime = runtime();
    let generation = runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    assert_eq!(first(&generation).hooks(), [Hook::OnWorker]);
    let facts = Arc::new(facts());
    let decision = runtime.route(&facts, wishes(&facts));
    assert_eq!((&*decision.policy.name, decision.fallback, decision.fuel), ("guest", None, 0));
    assert_eq!(*decision.route, wishes(&facts));
}

/// Notes the first argument of the Command.
fn noting_argument(configure: &str) -> Guest {
    let mut guest = Guest::routing(
        &(import("command", "argument", "i32 i32", "")
            + &import("command", "request", "i32", "")
            + &import("route", "note", "i32 i32", "")),
        &format!(
            "(call $command.argument (i32.const 0) (i32.const 1024))
            (if (i32.load8_u (i32.const 1024)) (then
                (call $route.note (i32.load (i32.const 1028)) (i32.load (i32.const 1032)))))
            {ACCEPT}"
        ),
    );
    guest.configure = format!("{configure} i32.const 64");
    guest
}

#[test]
fn commands_are_shown_to_those_who_asked() {
    let runtime = runtime();
    let command = CommandFacts { arguments: vec!["gcc".into()], ..CommandFacts::default() };
    let with = Arc::new(ActionFacts { command: Some(command.into()), ..facts() });
    let without = Arc::new(ActionFacts { platform: None, ..(*with).clone() });
    let noted = |configure: &str| {
        runtime.install(runtime.load(&noting_argument(configure).build(), "{}").unwrap());
        let noted = [&with, &without].map(|facts| runtime.route(facts, wishes(facts)).route.notes.len());
        (noted, [true, false].map(|has_platform| runtime.wants_command("", has_platform)))
    };
    assert_eq!(noted(""), ([0, 0], [false, true]), "the default wants it, the policy still doesn't see it");
    assert_eq!(noted("(call $command.request (i32.const 0))"), ([0, 1], [false, true]));
    assert_eq!(noted("(call $command.request (i32.const 1))"), ([1, 1], [true, true]));
}

/// Notes its name when a value is stored, else stores one for 10 s; then does `end`.
fn remembering(name: &str, end: &str) -> Vec<u8> {
    let mut guest = Guest::routing(
        &(import("host", "get", "i32 i32 i32", "")
            + &import("host", "set", "i32 i32 i32 i32 i32", "")
            + &import("route", "note", "i32 i32", "")),
        &format!(
            "(call $host.get (i32.const 144) (i32.const 5) (i32.const 1024))
            (if (i32.load8_u (i32.const 1024))
                (then (call $route.note (i32.const 128) (i32.const 4)))
                (else (call $host.set (i32.const 144) (i32.const 5) (i32.const 144) (i32.const 5) (i32.const 10000))))
            {end}"
        ),
    );
    guest.name = name.into();
    guest.build()
}

#[test]
fn stored_values() {
    let runtime = runtime();
    let at = |now_unix_seconds| {
        let facts = Arc::new(ActionFacts { now_unix_seconds, ..facts() });
        runtime.route(&facts, wishes(&facts)).route.notes.len()
    };
    let install = |bytes: Vec<u8>| runtime.install(runtime.load(&bytes, "{}").unwrap());
    install(remembering("keep", "unreachable"));
    assert_eq!(at(100.0), 0);
    install(remembering("keep", ACCEPT));
    assert_eq!(at(100.0), 0, "a call that fails stores nothing");
    assert_eq!(at(109.9), 1);
    install(remembering("also", ACCEPT));
    assert_eq!(at(109.9), 0, "policies don't see each other's values");
    install(remembering("keep", "nop i32.const 0"));
    assert_eq!(at(109.9), 1, "values outlive a swap");
    assert_eq!(at(110.1), 0, "and expire");
}

#[test]
fn pools_come_from_the_server() {
    let pool = Pool {
        name: "linux".into(),
        workers: 3,
        idle_workers: 1,
        executing: 2,
        queued: 7,
        oldest_queued: Duration::from_secs(1),
    };
    let pools: Arc<[Pool]> = [pool.clone(), pool].into();
    let sources = Sources { pools: Arc::new(move || pools.clone()), ..Sources::default() };
    let runtime = Runtime::new(Options { sources, ..Options::default() }).unwrap();
    // The priority becomes the number of pools plus what is queued in the first.
    let guest = Guest::routing(
        &(import("host", "pools", "i32", "") + &import("route", "set-priority", "i32", "")),
        &format!(
            "(call $host.pools (i32.const 1024))
            (call $route.set-priority (i32.add (i32.load (i32.const 1028))
                (i32.load offset=20 (i32.load (i32.const 1024)))))
            {ACCEPT}"
        ),
    );
    runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    let facts = Arc::new(facts());
    let decision = runtime.route(&facts, wishes(&facts));
    assert_eq!((decision.fallback, decision.route.priority), (None, 9));
}

/// Text of a core function's parameters and result.
fn core_type(resolve: &Resolve, variant: AbiVariant, function: &Function) -> String {
    let signature = resolve.wasm_signature(variant, function);
    let name = |ty: &WasmType| match ty {
        WasmType::I64 | WasmType::PointerOrI64 => "i64",
        WasmType::F32 => "f32",
        WasmType::F64 => "f64",
        WasmType::I32 | WasmType::Pointer | WasmType::Length => "i32",
    };
    let list = |types: &[WasmType]| types.iter().map(name).collect::<Vec<_>>().join(" ");
    format!("(param {}) (result {})", list(&signature.params), list(&signature.results))
}

#[test]
fn a_policy_of_the_whole_interface_loads() {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("policy.wit", WIT).unwrap();
    let world = &resolve.worlds[resolve.select_world(&[package], Some("full")).unwrap()];
    let functions = |item: &WorldItem| match item {
        WorldItem::Interface { id, .. } => {
            let interface = &resolve.interfaces[*id];
            let name = interface.name.clone().unwrap();
            interface.functions.values().map(|function| (name.clone(), function.clone())).collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    let mut guest = Guest { world: "include p:full@;".into(), ..Guest::default() };
    for (interface, function) in world.imports.values().flat_map(functions) {
        let ty = core_type(&resolve, AbiVariant::GuestImport, &function);
        let name = &function.name;
        guest.imports += &format!(r#"(import "pointsman:policy/{interface}@0.1.0" "{name}" (func {ty}))"#);
    }
    for (interface, function) in world.exports.values().flat_map(functions) {
        let body = match &*interface {
            "lifecycle" => MANIFEST,
            "on-action" => ACCEPT,
            _ => "unreachable",
        };
        let ty = core_type(&resolve, AbiVariant::GuestExport, &function);
        let name = &function.name;
        guest.more += &format!(r#"(func (export "pointsman:policy/{interface}@0.1.0#{name}") {ty} {body})"#);
    }
    let runtime = runtime();
    let generation = runtime.install(runtime.load(&guest.build(), "{}").unwrap());
    assert_eq!(first(&generation).hooks(), Hook::ALL);
    let facts = Arc::new(facts());
    assert_eq!(runtime.route(&facts, wishes(&facts)).fallback, None);
}
