//! Whole property lists, and the longest prefix: Buildbarn's rule.

use std::sync::Arc;

use pointsman_scheduler::explain::Reason;
use pointsman_scheduler::properties::Schema;
use pointsman_scheduler::scheduler::Config;
use pointsman_scheduler::views::Activity;

use crate::support::{World, ask, name, worker};

fn world() -> World {
    World::with_schema(Config::default(), Arc::new(Schema::exact_set()))
}

#[test]
fn the_whole_list_must_be_equal() {
    let mut w = world();
    let linux = worker("h").with("cpu", "4").with("os", "linux");
    for a in [
        ask("none"),
        ask("less").with("os", "linux"),
        ask("value").with("cpu", "2").with("os", "linux"),
        ask("more").with("cpu", "4").with("os", "linux").with("zzz", ""),
    ] {
        w.submit(&a);
    }
    assert_eq!(w.idle(&linux), "waits");
    let equal = w.submit(&ask("equal").with("os", "linux").with("cpu", "4"));
    assert_eq!(w.state(equal), "on h");
    w.submit(&ask("second").with("os", "linux").with("cpu", "4"));
    assert_eq!(w.completed(&linux, "equal"), "run second", "a number is no amount");
    assert_eq!(w.idle(&worker("plain")), "run none");
}

#[test]
fn the_longest_prefix_serves_alone() {
    let mut w = world();
    w.idle(&worker("short").prefix("x"));
    w.idle(&worker("long").prefix("x/y"));
    w.idle(&worker("other").prefix("x/y/z").with("os", "linux"));
    let [a, b] = ["a", "b"].map(|name| w.submit(&ask(name).instance("x/y/z")));
    assert_eq!((w.state(a), w.state(b)), ("on long".to_owned(), "queued".to_owned()));
    let c = w.submit(&ask("c").instance("x/yy"));
    assert_eq!(w.state(c), "on short");
    let why = w.why(b);
    assert_eq!(why.reason, Reason::AllBusy);
    let counts: Vec<_> = why.counts.iter().map(|(o, n)| (o.code(), *n)).collect();
    assert_eq!(counts, [("other-instance", 1), ("property-mismatch", 1), ("busy", 1)]);
}

#[test]
fn what_waits_follows_workers_that_come_and_go() {
    let mut w = world();
    let a = w.submit(&ask("a").instance("x/y"));
    w.submit(&ask("b").instance("x/y"));
    assert_eq!(w.idle(&worker("short").prefix("x")), "run a");
    w.submit(&ask("c").instance("x/y"));
    assert_eq!(w.idle(&worker("long").prefix("x/y")), "run b");
    assert_eq!(w.completed(&worker("short").prefix("x"), "a"), "waits", "c is not for it any more");
    assert_eq!((w.state(a), w.queue()), ("reported".to_owned(), vec!["c".to_owned()]));
    w.pass(60);
    assert_eq!(w.answers(), ["short: run b"], "long is lost, and b was before c");
}

#[test]
fn a_size_class_does_not_make_a_prefix_shorter() {
    let mut w = world();
    w.idle(&worker("short").prefix("x").size(2));
    w.idle(&worker("long").prefix("x/y").size(1));
    let a = w.submit(&ask("a").instance("x/y").size(2));
    assert_eq!(w.why(a).reason, Reason::NoSizeClass);
}

#[test]
fn it_is_explained() {
    let mut w = world();
    w.idle(&worker("h").with("os", "Linux"));
    let a = w.submit(&ask("a").with("os", "linux"));
    let why = w.why(a);
    assert_eq!(why.reason, Reason::NoPropertyMatch);
    assert_eq!(
        why.log_lines(),
        [
            r#"No candidate workers due to a lack of matching 'platform' = Exact("{\"os\":\"linux\"}"). Workers have: [Exact("{\"os\":\"Linux\"}")]"#
        ]
    );
    assert!(why.to_string().contains("differs only in case or spaces"), "{why}");
}

#[test]
fn when_the_longest_prefix_is_gone_all_that_waited_for_it_is_offered() {
    let mut w = world();
    w.idle(&worker("long").prefix("x/y"));
    for name in ["a", "b", "c"] {
        w.submit(&ask(name).instance("x/y"));
    }
    w.pass(50);
    w.idle(&worker("short/1").prefix("x"));
    w.idle(&worker("short/2").prefix("x"));
    w.pass(10);
    assert_eq!(w.answers(), ["long: run a", "short/1: run a", "short/2: run b"]);
}

/// All invariants are looked at after every step.
#[test]
fn many_come_and_go() {
    let mut w = world();
    let mut seed = 1_u64;
    let mut random = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for i in 0..1500 {
        let (prefix, linux) = (["", "x", "x/y"][random(3) as usize], random(2) == 0);
        let mut h = worker(&format!("h{}", random(5))).prefix(prefix);
        let mut a = ask(&format!("a{i}")).instance(["x", "x/y", "x/y/z", "z"][random(4) as usize]);
        if linux {
            (h, a) = (h.with("os", "linux"), a.with("os", "linux"));
        }
        h.key = format!("{}/{prefix}{linux}", h.key).into();
        let runs = w.core.workers().find(|v| v.key == h.key).and_then(|v| match v.activity {
            Activity::Executing { operation, .. } => operation,
            _ => None,
        });
        let runs =
            runs.and_then(|o| w.core.operation(&o)).map(|o| name(&w.core.task(w.task(o)).unwrap().digest));
        match (random(10), runs) {
            (0..4, _) if w.core.counts().queued < 20 => _ = w.submit(&a),
            (0..5, _) => w.pass(random(20)),
            (5, Some(runs)) => _ = w.failed(&h, &runs, "disk full"),
            (_, Some(runs)) => _ = w.completed(&h, &runs),
            (_, None) => _ = w.idle(&h),
        }
    }
    assert!(w.ends.len() > 100, "{} ended", w.ends.len());
}
