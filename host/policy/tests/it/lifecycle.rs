//! Versions that come, are tried out, and have to go.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pointsman_policy::{
    CommandError, LinkPlan, Manager, Mode, OnError, Options, Places, Plan, Push, Rollout, Runtime, Share,
    Source, WatchOptions,
};
use pointsman_scheduler::route::SizeClass;

use crate::guests::{ACCEPT, Guest, import};
use crate::managed::{for_file, manager, plan, wait_for};
use crate::support::{facts, first, wishes};

/// A policy that sets this priority.
fn setting(priority: i32) -> Vec<u8> {
    let imports = import("route", "set-priority", "i32", "");
    Guest::routing(&imports, &format!("(call $route.set-priority (i32.const {priority})) {ACCEPT}")).build()
}

/// One that traps when the digest of the action is not short.
fn trapping(every: u32) -> Vec<u8> {
    let mut guest = Guest::routing(
        "",
        &format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
        (if (i32.eqz (i32.rem_u (global.get $calls) (i32.const {every}))) (then unreachable))
        {ACCEPT}"
        ),
    );
    guest.more = "(global $calls (mut i32) (i32.const 0))".into();
    guest.build()
}

fn quick() -> WatchOptions {
    WatchOptions { settle: Duration::from_millis(20), ..WatchOptions::default() }
}

fn runtime_in(folder: &Path) -> Arc<Runtime> {
    let options = Options { state_dir: Some(folder.join("policies")), instances: 1, ..Options::default() };
    Arc::new(Runtime::new(options).unwrap())
}

fn push(manager: &Manager, bytes: Vec<u8>, rollout: Option<Rollout>) -> Result<String, CommandError> {
    manager.push(Push { link: String::new(), bytes, signature: None, rollout, again: false })
}

fn priority(runtime: &Runtime, digest: &str) -> i32 {
    let mut facts = facts();
    facts.digest = digest.into();
    facts.invocation_id = digest.into();
    let facts = Arc::new(facts);
    runtime.route(&facts, wishes(&facts)).route.priority
}

#[test]
fn a_version_that_traps_is_rolled_back_by_itself_and_not_let_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, setting(1)).unwrap();
    let runtime = runtime_in(folder.path());
    let manager = manager(&runtime, for_file(&path), quick()).unwrap();
    fs::write(&path, trapping(100)).unwrap();
    let bad = wait_for(&manager, "the bad version", |link| link.probation_left.is_some());
    let mut failed = 0;
    for index in 0..1_000 {
        let facts = Arc::new(facts());
        let decision = runtime.route(&facts, wishes(&facts));
        if let Some(why) = decision.fallback {
            failed += 1;
            assert!(why.ends_with("the version before it decides"), "{why}");
            assert_eq!(decision.route.priority, 1);
        }
        if index > 350 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    assert_eq!(failed, 3, "the third ends it");
    let link = wait_for(&manager, "rolled back", |link| !link.rolled_back.is_empty());
    assert_ne!(link.active.id, bad.active.id);
    assert_eq!(link.rolled_back[0].digest_hex, *bad.active.id.digest_hex);
    assert!(link.rolled_back[0].reason.contains("it failed in 3 of 300 calls (1.00 %)"), "{link:#?}");
    assert_eq!(priority(&runtime, "a/1"), 1);
    // The same content comes again, by file and by push.
    fs::write(&path, setting(2)).unwrap();
    wait_for(&manager, "another version", |link| link.last_load.ok && link.active.tally.total() == 0);
    fs::write(&path, trapping(100)).unwrap();
    wait_for(&manager, "refused", |link| {
        link.last_load.text.contains("it was rolled back before (it failed")
    });
    let refused = push(&manager, trapping(100), None).unwrap_err().to_string();
    assert!(refused.contains("--again lets it in"), "{refused}");
    assert_eq!(priority(&runtime, "a/1"), 2);
}

#[test]
fn what_was_decided_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("policy.wasm");
    fs::write(&path, setting(1)).unwrap();
    let start = || {
        let runtime = runtime_in(folder.path());
        let manager = manager(&runtime, for_file(&path), quick()).unwrap();
        (runtime, manager)
    };
    let (runtime, manager) = start();
    push(&manager, setting(5), None).unwrap();
    assert_eq!(priority(&runtime, "a/1"), 5);
    drop((runtime, manager));
    let (runtime, manager) = start();
    assert_eq!(priority(&runtime, "a/1"), 5, "the file is the one that the push replaced");
    assert_eq!(manager.status()[0].active.origin, "push");
    manager.rollback("main").unwrap();
    assert_eq!(priority(&runtime, "a/1"), 1, "the version before was kept too");
    drop((runtime, manager));
    let (runtime, manager) = start();
    assert_eq!(priority(&runtime, "a/1"), 1, "an operator's word holds");
    drop((runtime, manager));
    // The file breaks while nobody looks.
    fs::write(&path, "rubbish").unwrap();
    let (runtime, manager) = start();
    assert_eq!(priority(&runtime, "a/1"), 1, "the last good version");
    let link = manager.status().remove(0);
    assert!(!link.last_load.ok && link.last_load.text.contains("not a WebAssembly component"), "{link:#?}");
    drop((runtime, manager));
    fs::write(&path, setting(7)).unwrap();
    let (runtime, _manager) = start();
    assert_eq!(priority(&runtime, "a/1"), 7, "a file that changed meanwhile is a new version");
}

#[test]
fn a_shadow_is_compared_and_promoted() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime_in(folder.path());
    let manager = manager(&runtime, Plan::default(), quick()).unwrap();
    push(&manager, setting(1), None).unwrap();
    push(&manager, setting(2), Some(Rollout::Trial(Mode::Shadow(0.5)))).unwrap();
    for index in 0..200 {
        assert_eq!(priority(&runtime, &format!("{index}/1")), 1, "a shadow decides nothing");
    }
    let link = wait_for(&manager, "compared", |link| {
        link.trial.as_ref().is_some_and(|trial| trial.results.compared + trial.results.not_compared > 60)
    });
    let results = link.trial.unwrap().results;
    assert!((60..140).contains(&results.compared), "{results:?}");
    wait_for(&manager, "all differ", |link| {
        let results = &link.trial.as_ref().unwrap().results;
        results.disagreed == results.compared && results.samples.len() == 20
    });
    assert_eq!(results.samples[0].differences, ["priority: 1 in force, 2 on trial"]);
    let text = manager.promote("").unwrap();
    assert!(text.contains("is in force, on probation for 600s"), "{text}");
    assert_eq!(priority(&runtime, "a/1"), 2);
    assert!(manager.promote("").unwrap_err().to_string().contains("no version is tried out"));
    manager.rollback("").unwrap();
    assert_eq!(priority(&runtime, "a/1"), 1);
}

#[test]
fn a_canary_decides_for_its_share_and_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let canary = Rollout::Trial(Mode::Canary(Share::Invocations(0.3)));
    let routed = |runtime: &Runtime| -> Vec<i32> {
        (0..300).map(|index| priority(runtime, &format!("invocation {index}"))).collect()
    };
    let first = {
        let runtime = runtime_in(folder.path());
        let manager = manager(&runtime, Plan::default(), quick()).unwrap();
        push(&manager, setting(1), None).unwrap();
        push(&manager, setting(2), Some(canary.clone())).unwrap();
        routed(&runtime)
    };
    let share = first.iter().filter(|priority| **priority == 2).count();
    assert!((60..120).contains(&share), "{share} of 300");
    let runtime = runtime_in(folder.path());
    let manager = manager(&runtime, Plan::default(), quick()).unwrap();
    assert_eq!(routed(&runtime), first, "each invocation stays on its side");
    // One that fails does no harm and ends by itself.
    push(&manager, trapping(1), Some(canary)).unwrap();
    for priority in routed(&runtime) {
        assert_eq!(priority, 1, "where the canary fails the version in force decides");
    }
    let link = wait_for(&manager, "ended", |link| link.trial.is_none());
    assert!(link.history.last().unwrap().detail.contains("it failed in"), "{link:#?}");
}

#[test]
fn a_pin_lets_one_version_in() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime_in(folder.path());
    let manager = manager(&runtime, Plan::default(), quick()).unwrap();
    push(&manager, setting(1), None).unwrap();
    push(&manager, setting(2), None).unwrap();
    let pin = manager.status()[0].previous[0].digest_hex.to_string();
    let pinned = |pin: &str| {
        let link = LinkPlan { pin: Some(pin.to_owned()), ..LinkPlan::default() };
        Plan { links: [("default".into(), link)].into(), ..Plan::default() }
    };
    manager.configure(pinned(&pin)).unwrap();
    assert_eq!(priority(&runtime, "a/1"), 1, "the pinned version is in force");
    let error = push(&manager, setting(2), None).unwrap_err().to_string();
    assert!(error.contains(&format!("the configuration pins {pin}")), "{error}");
    let unknown = "0".repeat(64);
    let error = manager.configure(pinned(&unknown)).unwrap_err().to_string();
    assert!(error.contains(&unknown), "{error}");
    assert_eq!(priority(&runtime, "a/1"), 1);
}

#[test]
fn signatures_are_wanted_where_keys_are() {
    use pointsman_policy::signature::SigningKey;
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime_in(folder.path());
    let key = SigningKey::parse("RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3").unwrap();
    let manager = manager(&runtime, Plan::default(), quick()).unwrap();
    let signed = LinkPlan { public_keys: vec![key], ..LinkPlan::default() };
    let plan = Plan { links: [("default".into(), signed)].into(), ..Plan::default() };
    let error = manager.configure(plan).unwrap_err().to_string();
    assert!(error.contains("it has none, and `public_keys` wants one"), "{error}");
}

#[test]
fn chains_are_chosen_by_prefix_and_each_link_edits_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: Vec<u8>| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        Source::File(path)
    };
    let adding = |amount: i32| {
        let imports = import("route", "set-priority", "i32", "")
            + "(import \"pointsman:policy/route@0.1.0\" \"priority\" \
             (func $route.priority (result i32)))";
        let route = format!(
            "(call $route.set-priority (i32.add (i32.mul (call $route.priority) (i32.const 10)) (i32.const {amount}))) {ACCEPT}"
        );
        Guest::routing(&imports, &route)
    };
    let failing = |on_error| {
        let mut guest = adding(9);
        guest.route = guest.route.replace(ACCEPT, "unreachable");
        LinkPlan { source: file(&format!("{on_error:?}"), guest.build()), on_error, ..LinkPlan::default() }
    };
    let good = |name, amount| LinkPlan { source: file(name, adding(amount).build()), ..LinkPlan::default() };
    let mut plan = plan(good("main", 1));
    plan.links.extend([
        ("two".into(), good("two", 2)),
        ("skip".into(), failing(OnError::Skip)),
        ("last".into(), failing(OnError::LastGood)),
        ("reject".into(), failing(OnError::Reject)),
    ]);
    let chain = |names: &[&str]| names.iter().map(|name| (*name).into()).collect::<Vec<Arc<str>>>();
    plan.chains = [
        ("".into(), chain(&["main", "two"])),
        ("ci".into(), chain(&["two", "skip", "last", "main"])),
        ("ci/nightly".into(), chain(&["main", "reject", "two"])),
        ("alone".into(), chain(&["last"])),
    ]
    .into();
    let runtime = runtime_in(folder.path());
    let _manager = manager(&runtime, plan, quick()).unwrap();
    let route = |instance: &str| {
        let facts = Arc::new(pointsman_policy::ActionFacts { instance_name: instance.into(), ..facts() });
        runtime.route(&facts, wishes(&facts))
    };
    assert_eq!(route("").route.priority, 12);
    assert_eq!(route("cia").route.priority, 12, "a prefix ends at a slash");
    let ci = route("ci/x");
    assert_eq!(ci.route.priority, 21, "links that fail leave nothing behind");
    assert_eq!(ci.steps.len(), 4);
    assert!(ci.fallback.unwrap().contains("the chain goes on without it"));
    let nightly = route("ci/nightly");
    let rejection = nightly.rejection.unwrap();
    assert!(rejection.reason.contains("the policy failed: it panicked"), "{rejection:?}");
    assert_eq!(nightly.route.priority, 1, "earlier edits stay visible");
    let alone = route("alone");
    assert_eq!(&*alone.policy.name, "default");
    assert!(alone.fallback.unwrap().contains("the built-in default decides in its place"));
    assert_eq!(first(&runtime.in_force()).hooks().len(), 1);
}

#[test]
fn a_changed_table_is_a_new_configuration_and_a_wrong_one_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = runtime_in(folder.path());
    let with = |table: &str| {
        let config = format!(
            r#"{{ "size_classes": {{ "classes": {{ "small": 1, "big": 2 }}, "otherwise": "small", "table": {table} }} }}"#
        );
        let places = Places::new(|pointer| {
            pointer.starts_with("/size_classes/table").then(|| "heavy.json5:2:5".to_owned())
        });
        plan(LinkPlan { config, places, ..LinkPlan::default() })
    };
    let size = |target: &str| {
        let mut facts = facts();
        facts.target_id = target.into();
        let facts = Arc::new(facts);
        runtime.route(&facts, wishes(&facts)).route.size
    };
    let manager = manager(&runtime, with(r#"[{ "size": "big", "target": "//a" }]"#), quick()).unwrap();
    assert_eq!((size("//a"), size("//b")), (SizeClass::Exactly(2), SizeClass::Exactly(1)));
    manager.configure(with(r#"[{ "size": "big", "target": ["//a", "//b"] }]"#)).unwrap();
    assert_eq!((size("//a"), size("//b")), (SizeClass::Exactly(2), SizeClass::Exactly(2)));
    let status = wait_for(&manager, "the new configuration", |link| link.probation_left.is_some());
    assert_eq!(status.history.last().unwrap().what, "configured");

    let in_force = runtime.in_force().number();
    let error = manager.configure(with(r#"[{ "size": "bgi", "traget": "//c" }]"#)).unwrap_err().to_string();
    assert!(error.contains("heavy.json5:2:5: /size_classes/table/0/size: the size is \"bgi\""), "{error}");
    assert!(
        error.contains("/size_classes/table/0/traget: unknown key \"traget\": did you mean \"target\"?"),
        "{error}"
    );
    assert_eq!(runtime.in_force().number(), in_force, "nothing was swapped");
    assert_eq!((size("//b"), size("//c")), (SizeClass::Exactly(2), SizeClass::Exactly(1)));
    let status = wait_for(&manager, "the refusal", |link| !link.last_load.ok);
    assert!(status.last_load.text.contains("heavy.json5:2:5"));
    assert_eq!(status.history.last().unwrap().what, "refused");
}

#[test]
fn who_decides_when_all_else_fails_has_the_configuration_of_now() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fails.wasm");
    fs::write(&file, trapping(1)).unwrap();
    let runtime = runtime_in(folder.path());
    let with = |otherwise: &str| {
        let config = format!(r#"{{ "size_classes": {{ "otherwise": {otherwise} }} }}"#);
        let mut plan = for_file(&file);
        let name: Arc<str> = "usual".into();
        plan.links.insert(name.clone(), LinkPlan { config, ..LinkPlan::default() });
        plan.chains.insert("usual".into(), vec![name]);
        plan
    };
    let size = || {
        let facts = Arc::new(facts());
        let decision = runtime.route(&facts, wishes(&facts));
        assert!(decision.fallback.is_some(), "{decision:?}");
        decision.route.size
    };
    let manager = manager(&runtime, with("3"), quick()).unwrap();
    manager.configure(with("4")).unwrap();
    assert_eq!(size(), SizeClass::Exactly(4));
    manager.configure(with("\"largest\"")).unwrap();
    assert_eq!(size(), SizeClass::Largest);
    let _ = manager.configure(with("\"lragest\"")).unwrap_err();
    assert_eq!(size(), SizeClass::Largest, "what is refused changes nothing");
}
