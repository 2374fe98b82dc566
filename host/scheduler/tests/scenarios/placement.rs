//! Which host an action goes to when several wait, and which one it would rather wait for.

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::placement::Placement;
use pointsman_scheduler::scheduler::Config;

use crate::support::{Ask, Worker, World, ask, worker};

fn placing(placement: Placement) -> World {
    World::new(Config { placement, ..Config::default() })
}

/// Threads of hosts with so many CPUs, all waiting: `a/0`, `a/1`, ….
fn hosts(w: &mut World, hosts: &[(&str, u64)], threads: usize) -> Vec<Worker> {
    let mut all = vec![];
    for (name, cpu) in hosts {
        for i in 0..threads {
            all.push(worker(&format!("{name}/{i}")).with("cpu", &cpu.to_string()));
        }
    }
    all.iter().for_each(|h| assert_eq!(w.idle(h), "waits"));
    all
}

/// Hosts that these actions go to, each of so many CPUs.
fn placed(w: &mut World, cpus: &[u64]) -> String {
    let mut on = String::new();
    for cpu in cpus {
        let n = w.store.tasks.len() + w.ends.len();
        let a = w.submit(&ask(&format!("n{n}")).with("cpu", &cpu.to_string()));
        on.push_str(w.state(a).strip_prefix("on ").unwrap_or("-"));
    }
    on
}

#[test]
fn spread_uses_all_hosts_alike() {
    let mut w = placing(Placement::Spread);
    hosts(&mut w, &[("a", 8), ("b", 8), ("c", 8)], 3);
    assert_eq!(placed(&mut w, &[1, 4, 1, 1, 1]), "abcab");
}

#[test]
fn pack_fills_one_host_after_the_other() {
    let mut w = placing(Placement::Pack);
    hosts(&mut w, &[("a", 4), ("b", 4), ("c", 4)], 4);
    assert_eq!(placed(&mut w, &[1, 1, 2, 3, 2, 1, 2]), "aaabcbc");
}

#[test]
fn pack_without_amounts_goes_by_who_waits() {
    let mut w = placing(Placement::Pack);
    for i in 0..2 {
        ["a", "b"].iter().for_each(|h| _ = w.idle(&worker(&format!("{h}/{i}"))));
    }
    let all: Vec<_> = (0..4).map(|i| w.submit(&ask(&i.to_string()))).collect();
    let on: Vec<String> = all.iter().map(|a| w.state(*a)).collect();
    assert_eq!(on, ["on a", "on a", "on b", "on b"]);
}

#[test]
fn best_fit_leaves_large_hosts_whole() {
    let mut w = placing(Placement::BestFit);
    hosts(&mut w, &[("l", 16), ("m", 8), ("s", 4)], 2);
    assert_eq!(placed(&mut w, &[3, 8, 1, 12, 4]), "smsll");
}

#[test]
fn best_fit_looks_at_what_is_asked_for() {
    let mut w = placing(Placement::BestFit);
    w.idle(&worker("a").with("cpu", "4").with("mem", "64"));
    w.idle(&worker("b").with("cpu", "8").with("mem", "16"));
    let a = w.submit(&ask("mem").with("mem", "16"));
    assert_eq!(w.state(a), "on b");
    // Who asks for nothing gets the one that waits longest unused.
    let a = w.submit(&ask("none"));
    assert_eq!(w.state(a), "on a");
}

#[test]
fn equals_are_used_in_turn() {
    for placement in [Placement::Pack, Placement::BestFit] {
        let mut w = placing(placement);
        let all = hosts(&mut w, &[("a", 4), ("b", 4)], 1);
        assert_eq!(placed(&mut w, &[4]), "a");
        assert_eq!(w.completed(&all[0], "n0"), "waits");
        assert_eq!(placed(&mut w, &[4]), "b", "{placement:?}");
    }
}

#[test]
fn a_host_that_runs_the_same_is_passed_over_by_every_rule() {
    for placement in [Placement::Spread, Placement::Pack, Placement::BestFit] {
        let mut w = placing(placement);
        hosts(&mut w, &[("a", 4), ("b", 4)], 2);
        let all: Vec<_> = (0..3).map(|_| w.submit(&ask("d").unshared().with("cpu", "1"))).collect();
        let on: Vec<String> = all.iter().map(|a| w.state(*a)).collect();
        assert_eq!(on, ["on a", "on b", "queued"], "{placement:?}");
    }
}

// === Affinity ===

fn near(name: &str, key: &str) -> Ask {
    ask(name).affinity(key, Duration::from_secs(10))
}

/// Two hosts of one worker; `a` has run the key and waits, used more recently than `b`.
fn with_last_host() -> (World, Worker, Worker) {
    let mut w = World::default();
    let (a, b) = (worker("a"), worker("b"));
    w.submit(&near("first", "k"));
    assert_eq!(w.idle(&a), "run first");
    assert_eq!(w.idle(&b), "waits");
    assert_eq!(w.completed(&a, "first"), "waits");
    (w, a, b)
}

#[test]
fn the_host_that_last_ran_the_key_gets_it() {
    let (mut w, a, _) = with_last_host();
    for name in ["again", "and again"] {
        w.submit(&near(name, "k"));
        assert_eq!(w.answers(), [format!("a: run {name}")], "though b was used less recently");
        assert_eq!(w.completed(&a, name), "waits");
    }
    w.submit(&near("other", "l"));
    assert_eq!(w.answers(), ["b: run other"]);
}

#[test]
fn it_waits_for_that_host_though_another_waits_for_work() {
    let (mut w, a, _) = with_last_host();
    w.submit(&near("again", "k"));
    let waits = w.submit(&near("waits", "k"));
    assert_eq!((w.state(waits), w.answers()), ("queued".to_owned(), vec!["a: run again".to_owned()]));
    let why = w.why(waits);
    assert_eq!(
        (why.reason, &why.counts[..]),
        (Reason::Affinity, &[(Obstacle::Affinity, 1), (Obstacle::Busy, 1)][..])
    );
    assert!(
        why.to_string().contains("(affinity): it waits a while for the host that last ran its affinity key")
    );
    assert_eq!(&**w.core.waits_for(w.task(waits)).unwrap().0, "a");
    assert_eq!(w.completed(&a, "again"), "run waits");
}

#[test]
fn when_its_time_is_up_it_goes_anywhere() {
    let (mut w, _, _) = with_last_host();
    w.submit(&near("again", "k"));
    let waits = w.submit(&near("waits", "k"));
    w.pass(9);
    assert_eq!(w.state(waits), "queued");
    w.pass(1);
    assert_eq!((w.state(waits), w.answers().pop()), ("on b".to_owned(), Some("b: run waits".to_owned())));
    assert_eq!(w.core.waits_for(w.task(waits)), None);
}

#[test]
fn no_time_to_wait_is_a_preference_alone() {
    let (mut w, _, _) = with_last_host();
    let no_wait = |name: &str| ask(name).affinity("k", Duration::ZERO);
    let (x, y) = (w.submit(&no_wait("x")), w.submit(&no_wait("y")));
    assert_eq!((w.state(x), w.state(y)), ("on a".to_owned(), "on b".to_owned()));
}

#[test]
fn in_the_side_queue_nobody_jumps_the_queue() {
    let (mut w, a, b) = with_last_host();
    w.submit(&near("again", "k"));
    w.submit(&ask("busy"));
    assert_eq!(w.answers().len(), 2);
    w.submit(&ask("before").invocation("x"));
    w.submit(&near("aside", "k").invocation("x"));
    w.submit(&ask("after").invocation("x"));
    w.submit(&ask("other").invocation("y"));
    assert_eq!(w.completed(&a, "again"), "run before");
    assert_eq!(w.completed(&b, "busy"), "run other", "its share, though two came before it");
    assert_eq!(w.completed(&b, "other"), "run after", "not its to run");
    assert_eq!(w.completed(&a, "before"), "run aside");
}

#[test]
fn a_host_that_goes_or_is_drained_is_not_waited_for() {
    let (mut w, a, b) = with_last_host();
    let waiting = |w: &mut World| {
        w.submit(&ask("long"));
        let x = w.submit(&ask("x").affinity("k", Duration::from_secs(1000)));
        assert_eq!(w.state(x), "queued");
    };
    let again = w.submit(&near("again", "k"));
    waiting(&mut w);
    w.pass(30);
    assert_eq!(w.completed(&b, "long"), "waits");
    w.pass(30);
    w.idle(&b);
    assert_eq!(w.state(again), "on b", "a has not called for a minute, and what it ran is older");
    assert_eq!(w.completed(&b, "again"), "run x");
    _ = a;
}

#[test]
fn what_cannot_run_there_is_not_kept() {
    let (mut w, _, _) = with_last_host();
    w.submit(&near("again", "k"));
    let tagged = w.submit(&near("tagged", "k").with("tag", "t"));
    assert_eq!(w.why(tagged).reason, Reason::NoPropertyMatch);
    assert_eq!(w.core.waits_for(w.task(tagged)), None);
    w.submit(&near("fails", "m"));
    assert_eq!(w.failed(&worker("b"), "fails", "disk full"), "waits");
    let fails = w.task(w.core.operations().last().unwrap().0);
    assert_eq!(w.core.waits_for(fails), None, "not for the host where it failed");
}

#[test]
fn joined_cancelled_and_rerouted_in_the_side_queue() {
    let (mut w, a, _) = with_last_host();
    w.submit(&near("again", "k"));
    let x = w.submit(&near("x", "k"));
    assert!(w.joins(&near("x", "k").priority(-5).invocation("y")));
    let y = w.submit(&near("y", "k"));
    w.reroute(y, &ask("y"));
    assert_eq!(w.state(y), "on b");
    let z = w.submit(&near("z", "k"));
    w.step(Event::Cancel(z));
    assert_eq!(w.completed(&a, "again"), "run x");
    assert_eq!(w.state(x), "on a");
    w.restart();
    w.submit(&near("new", "k"));
    assert_eq!(w.idle(&worker("c")), "run x", "what ran where is forgotten");
}
