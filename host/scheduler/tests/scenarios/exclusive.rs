//! Exclusive actions: what those who run tests that must not share a machine have asked for, one story each.

use std::time::Duration;

use pointsman_scheduler::event::{Event, HostExclusive};
use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::scheduler::Config;

use crate::support::{Worker, World, ask, worker};

const MINUTE: Duration = Duration::from_secs(60);

fn threads(host: &str, n: usize) -> Vec<Worker> {
    (1..=n).map(|i| worker(&format!("{host}/{i}")).with("tag", host)).collect()
}

/// A host with four threads of which so many execute `a`, `b`, …
fn with_busy(w: &mut World, host: &str, names: &[&str]) -> Vec<Worker> {
    let threads = threads(host, 4);
    for (thread, name) in threads.iter().zip(names) {
        // For none of the other hosts that wait.
        w.submit(&ask(name).with("tag", host));
        assert_eq!(w.idle(thread), format!("run {name}"));
        w.executing(thread, name);
    }
    for thread in &threads[names.len()..] {
        assert_eq!(w.idle(thread), "waits");
    }
    threads
}

#[test]
fn it_goes_to_a_host_with_nothing_to_do_at_once() {
    let mut w = World::default();
    with_busy(&mut w, "busy", &["a"]);
    with_busy(&mut w, "quiet", &[]);
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.state(e), "on quiet");
    assert_eq!(w.core.metrics(w.now).hosts_reserved, 0);
}

#[test]
fn it_waits_until_all_before_it_have_executed_and_nothing_overtakes_it() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &["a", "b"]);
    let e = w.submit(&ask("e").exclusive());
    let c = w.submit(&ask("c"));
    assert_eq!(
        (w.state(e).as_str(), w.state(c).as_str()),
        ("queued", "queued"),
        "two threads wait, and in vain"
    );
    let why = w.why(e);
    assert_eq!((why.reason, why.kept.as_deref()), (Reason::Reserved, Some("h")));
    assert!(
        why.to_string()
            .contains("(reserved): a host is kept free for it, and what executes there has to end first (h)"),
        "{why}"
    );
    assert_eq!(w.why(c).counts, [(Obstacle::Reserved, 4)]);
    assert_eq!(w.completed(&t[0], "a"), "waits");
    assert_eq!(w.completed(&t[1], "b"), "run e", "the last to end");
    assert_eq!(w.state(c), "queued");
    assert_eq!(w.why(c).reason, Reason::AllBusy);
    w.executing(&t[1], "e");
    assert_eq!(w.completed(&t[1], "e"), "run c");
    assert_eq!(w.answers(), [""; 0]);
}

#[test]
fn uploads_may_overlap_with_it_on_both_sides() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &["a"]);
    let e = w.submit(&ask("e").exclusive());
    w.submit(&ask("c"));
    assert_eq!(w.uploading(&t[0], "a"), "continue");
    assert_eq!(w.answers(), ["h/2: run e"], "a uploads, and executes no more");
    w.executing(&t[1], "e");
    assert_eq!(w.completed(&t[0], "a"), "waits");
    assert_eq!(w.answers(), [""; 0], "e executes");
    assert_eq!(w.uploading(&t[1], "e"), "continue");
    assert_eq!(w.answers(), ["h/3: run c"], "e uploads");
    assert_eq!(w.state(e), "on h");
}

#[test]
fn it_takes_the_host_that_is_expected_to_be_free_first() {
    let mut w = World::default();
    for (host, name, seconds) in [("slow", "a", 300), ("fast", "b", 20)] {
        w.submit(&ask(name).with("tag", host).expected(seconds));
        let t = threads(host, 2);
        assert_eq!(w.idle(&t[0]), format!("run {name}"));
        w.idle(&t[1]);
    }
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).kept.as_deref(), Some("fast"));
    // The other takes what comes.
    let c = w.submit(&ask("c"));
    assert_eq!(w.state(c), "on slow");
}

#[test]
fn of_hosts_of_which_nothing_is_known_the_one_that_began_last_is_free_first() {
    let mut w = World::default();
    for host in ["long", "short"] {
        w.submit(&ask(host));
        w.idle(&worker(&format!("{host}/1")));
        w.idle(&worker(&format!("{host}/2")));
        w.pass(20);
        w.executing(&worker(&format!("{host}/1")), host);
    }
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).kept.as_deref(), Some("short"));
}

#[test]
fn it_keeps_its_place_in_the_queue() {
    let mut w = World::default();
    let t = threads("h", 2);
    for name in ["a", "b", "c"] {
        w.submit(&ask(name));
    }
    assert_eq!(w.idle(&t[0]), "run a");
    assert_eq!(w.idle(&t[1]), "run b");
    let e = w.submit(&ask("e").exclusive());
    w.submit(&ask("d"));
    assert_eq!(w.why(e).reason, Reason::AllBusy, "nothing is kept free before its turn");
    assert_eq!(w.completed(&t[0], "a"), "run c", "c came before it");
    assert_eq!(w.completed(&t[1], "b"), "waits", "now it is next, and d comes after it");
    assert_eq!(w.completed(&t[0], "c"), "run e", "the last to end runs it");
    w.executing(&t[0], "e");
    assert_eq!(w.completed(&t[0], "e"), "run d");
}

#[test]
fn another_host_that_has_nothing_to_do_takes_it_first() {
    let mut w = World::default();
    let t = with_busy(&mut w, "kept", &["a"]);
    let other = threads("other", 1);
    let e = w.submit(&ask("e").exclusive());
    let c = w.submit(&ask("c"));
    assert_eq!(w.why(e).kept.as_deref(), Some("kept"));
    assert_eq!(w.idle(&other[0]), "run c", "what others may run goes first");
    assert_eq!(w.state(c), "on other");
    assert_eq!(w.completed(&other[0], "c"), "run e");
    let d = w.submit(&ask("d"));
    assert_eq!(w.state(d), "on kept", "it is kept no more");
    assert_eq!(w.completed(&t[0], "a"), "waits");
}

#[test]
fn who_has_opted_out_is_never_taken() {
    let mut w = World::default();
    let no = worker("no").admits(HostExclusive::Never);
    w.idle(&no);
    let e = w.submit(&ask("e").exclusive());
    let why = w.why(e);
    assert_eq!((why.reason, why.counts), (Reason::NoExclusive, vec![(Obstacle::NoExclusive, 1)]));
    assert!(w.why(e).remedy().unwrap().contains("admits exclusive actions"));
    let plain = w.submit(&ask("plain"));
    assert_eq!(w.state(plain), "on no");
    assert_eq!(w.idle(&worker("yes")), "run e");
}

#[test]
fn not_more_often_than() {
    let mut w = World::default();
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).admits(HostExclusive::NotMoreOftenThan(5 * MINUTE)));
    w.idle(&one);
    w.idle(&two);
    w.submit(&ask("e").exclusive());
    assert_eq!(w.answers(), ["h/1: run e"]);
    w.executing(&one, "e");
    w.completed(&one, "e");
    let f = w.submit(&ask("f").exclusive());
    assert_eq!(w.why(f).reason, Reason::Exclusive);
    assert_eq!(w.why(f).counts, [(Obstacle::NotAdmitted, 2)]);
    let plain = w.submit(&ask("plain"));
    assert_eq!(w.state(plain), "on h", "meanwhile it takes what is not exclusive");
    w.completed(&two, "plain");
    for _ in 0..4 {
        w.pass(55);
        w.idle(&one);
        w.idle(&two);
    }
    assert_eq!(w.state(f), "queued");
    w.pass(80);
    assert_eq!(w.state(f), "on h", "it is admitted by time alone");
}

#[test]
fn not_after_more_than_so_many_actions_in_the_last_minute() {
    let mut w = World::default();
    let h = worker("h").admits_below(3);
    w.idle(&h);
    for name in ["a", "b", "c", "d"] {
        w.submit(&ask(name));
        w.completed(&h, name);
        w.pass(5);
    }
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).counts, [(Obstacle::NotAdmitted, 1)]);
    w.pass(39);
    assert_eq!(w.state(e), "queued");
    w.pass(2);
    assert_eq!(w.state(e), "on h", "of the last minute's there are three");
}

#[test]
fn a_share_of_the_hosts_is_kept_free_at_most() {
    let mut w = World::new(Config { reserved_share: 50, ..Config::default() });
    let hosts: Vec<_> = ["p", "q", "r", "s"].map(|h| with_busy(&mut w, h, &[&format!("of-{h}")])).into();
    let exclusive: Vec<_> = ["e", "f", "g"].iter().map(|n| w.submit(&ask(n).exclusive())).collect();
    assert_eq!(w.core.metrics(w.now).hosts_reserved, 2);
    assert_eq!(w.why(exclusive[2]).reason, Reason::Exclusive);
    let plain = w.submit(&ask("plain"));
    assert_ne!(w.state(plain), "queued", "others find room");
    // As soon as one of the two has begun, the third keeps a host free.
    let kept = w.why(exclusive[0]).kept.unwrap();
    let at = ["p", "q", "r", "s"].iter().position(|h| **h == *kept).unwrap();
    w.completed(&hosts[at][0], &format!("of-{kept}"));
    assert_eq!(w.state(exclusive[0]), format!("on {kept}"));
    assert_eq!(w.core.metrics(w.now).hosts_reserved, 2);
    assert_eq!(w.why(exclusive[2]).reason, Reason::Reserved);
}

#[test]
fn one_host_at_least_may_be_kept_free() {
    let mut w = World::new(Config { reserved_share: 1, ..Config::default() });
    let t = with_busy(&mut w, "h", &["a"]);
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).reason, Reason::Reserved);
    w.completed(&t[0], "a");
    assert_eq!(w.state(e), "on h");
}

#[test]
fn a_host_that_is_kept_for_nobody_is_open_again() {
    let mut w = World::default();
    with_busy(&mut w, "h", &["a"]);
    let e = w.submit(&ask("e").exclusive());
    let c = w.submit(&ask("c"));
    assert_eq!(w.state(c), "queued");
    w.step(Event::Cancel(e));
    assert_eq!((w.state(e).as_str(), w.state(c).as_str()), ("cancelled", "on h"));
    assert_eq!(w.core.metrics(w.now).reservations[3], ("dropped", 1));
}

#[test]
fn a_host_that_goes_or_is_drained_is_exchanged_for_another() {
    let mut w = World::default();
    let t = with_busy(&mut w, "first", &["a"]);
    w.pass(10);
    w.executing(&t[0], "a");
    let e = w.submit(&ask("e").exclusive());
    with_busy(&mut w, "second", &["b"]);
    assert_eq!(w.why(e).kept.as_deref(), Some("first"));
    w.hold(Hold::Drain, &[("host", "first")]);
    assert_eq!(w.why(e).kept.as_deref(), Some("second"));
    w.let_go(Hold::Drain, &[("host", "first")]);
    let c = w.submit(&ask("c"));
    assert_eq!(w.state(c), "on first");
    // The second is never heard of again.
    w.pass(70);
    assert_ne!(w.why(e).kept.as_deref(), Some("second"));
}

#[test]
fn a_host_that_is_not_free_in_time_is_exchanged_for_another() {
    let mut w = World::new(Config { reservation_timeout: MINUTE, ..Config::default() });
    for host in ["p", "q"] {
        let seconds = if host == "p" { 30 } else { 90 };
        w.submit(&ask(&format!("of-{host}")).with("tag", host).expected(seconds));
        let t = threads(host, 2);
        w.idle(&t[0]);
        w.idle(&t[1]);
    }
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).kept.as_deref(), Some("p"), "of which too much was expected");
    for _ in 0..2 {
        w.pass(31);
        w.executing(&threads("p", 1)[0], "of-p");
        w.executing(&threads("q", 1)[0], "of-q");
    }
    assert_eq!(w.why(e).kept.as_deref(), Some("q"));
    assert_eq!(w.core.metrics(w.now).reservations[2], ("moved", 1));
    w.completed(&threads("q", 1)[0], "of-q");
    assert_eq!(w.state(e), "on q");
}

#[test]
fn what_nobody_wants_any_more_is_still_not_disturbed() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &[]);
    let e = w.submit(&ask("e").exclusive());
    w.executing(&t[0], "e");
    w.step(Event::Cancel(e));
    let c = w.submit(&ask("c"));
    assert_eq!(w.state(c), "queued", "its worker has not been told");
    assert_eq!(w.executing(&t[0], "e"), "idle");
    assert_eq!(w.state(c), "queued", "nor has it said that it stopped");
    w.idle(&t[0]);
    assert_eq!(w.state(c), "on h");
}

#[test]
fn it_does_not_begin_beside_what_a_worker_has_not_stopped() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &["a"]);
    let a = w.core.operations().next().unwrap().0;
    w.step(Event::Cancel(a));
    let e = w.submit(&ask("e").exclusive());
    assert_eq!(w.why(e).reason, Reason::Reserved, "a is wanted by nobody, and runs");
    w.idle(&t[0]);
    assert_eq!(w.state(e), "on h");
}

#[test]
fn a_lost_worker_gives_the_host_back() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &["a"]);
    let e = w.submit(&ask("e").exclusive());
    for _ in 0..2 {
        w.pass(40);
        t[1..].iter().for_each(|t| _ = w.idle(t));
    }
    assert_eq!(w.state(e), "on h", "a's worker is lost");
}

#[test]
fn equal_exclusive_actions_share_and_others_take_turns() {
    let mut w = World::default();
    let t = with_busy(&mut w, "h", &[]);
    w.submit(&ask("e").exclusive());
    assert!(w.joins(&ask("e").exclusive()));
    assert!(!w.joins(&ask("e")), "one that is not exclusive is another");
    let f = w.submit(&ask("f").exclusive());
    assert_eq!(w.state(f), "queued");
    w.executing(&t[0], "e");
    assert_eq!(w.completed(&t[0], "e"), "run e", "the plain one came before f");
    assert_eq!(w.why(f).reason, Reason::Reserved);
    assert_eq!(w.completed(&t[0], "e"), "run f");
}

#[test]
fn it_survives_a_restart() {
    let mut w = World::default();
    with_busy(&mut w, "h", &["a"]);
    let e = ask("e").exclusive();
    w.submit(&e);
    w.restart();
    assert_eq!(w.queue(), ["a", "e"]);
    let t = threads("h", 2);
    assert_eq!(w.idle(&t[0]), "run a");
    assert_eq!(w.idle(&t[1]), "waits");
    w.executing(&t[0], "a");
    assert_eq!(w.core.metrics(w.now).hosts_reserved, 1);
    assert_eq!(w.completed(&t[0], "a"), "run e");
}

#[test]
fn fairness_decides_whose_turn_it_is() {
    let mut w = World::default();
    let t = threads("h", 2);
    w.submit(&ask("a1").invocation("a"));
    w.submit(&ask("a2").invocation("a"));
    assert_eq!(w.idle(&t[0]), "run a1");
    assert_eq!(w.idle(&t[1]), "run a2");
    // Build a has both workers; its exclusive action came first, and build b is next all the same.
    let e = w.submit(&ask("e").invocation("a").exclusive());
    w.submit(&ask("b1").invocation("b"));
    assert_eq!(w.completed(&t[0], "a1"), "run b1");
    assert_eq!(w.why(e).reason, Reason::AllBusy);
}

#[test]
fn where_no_host_admits_it_one_more_costs_no_look_at_all_who_wait() {
    let mut w = World::default();
    w.checked = false;
    let hosts: Vec<_> = (0..20)
        .map(|i| worker(&format!("h{i}")).admits(HostExclusive::NotMoreOftenThan(60 * MINUTE)))
        .collect();
    for (i, host) in hosts.iter().enumerate() {
        w.idle(host);
        w.submit(&ask(&format!("first-{i}")).exclusive());
        w.completed(host, &format!("first-{i}"));
    }
    (0..500).for_each(|i| _ = w.submit(&ask(&format!("{i}")).exclusive()));
    let before = w.core.probes();
    w.submit(&ask("one more").exclusive());
    assert!(w.core.probes() - before < 200, "{} look-ups", w.core.probes() - before);
    w.core.check().unwrap();
}
