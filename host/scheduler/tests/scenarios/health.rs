//! Hosts that are out of resources, and hosts that fail.

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::explain::Reason;
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, pattern, worker};

/// Tasks are given up when they have failed once; three that fail make a quarantine of 10 s.
fn strict() -> Config {
    Config {
        max_attempts: 1,
        quarantine_after: 3,
        quarantine: Duration::from_secs(10),
        quarantine_max: Duration::from_secs(25),
        ..Config::default()
    }
}

/// Lets so many tasks fail on a worker that waits for work.
fn fail(w: &mut World, key: &str, names: &[&str]) {
    for name in names {
        w.submit(&ask(name));
        assert_eq!(w.answers(), [format!("{key}: run {name}")]);
        w.failed(&worker(key), name, "disk full");
    }
}

// === Out of resources ===

#[test]
fn a_host_that_is_out_of_resources_is_spared_and_the_action_loses_nothing() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    assert_eq!(w.exhausted(&worker("h1"), "a"), "waits");
    assert_eq!(w.news, ["h1 paused for 1s, as it is out of resources: no memory"]);
    assert_eq!(w.core.task(w.task(a)).unwrap().attempts.len(), 0);
    let why = w.why(a);
    assert_eq!(why.reason, Reason::Paused);
    assert_eq!(
        why.log_lines()[0],
        "Worker h1 cannot accept work: is_paused=true, is_draining=false, inflight=0/1"
    );
    let paused = w.core.workers().next().unwrap().paused.unwrap();
    assert_eq!(&*paused, "out of resources, for 1 s or until it completes an action: no memory");
    w.pass(1);
    assert_eq!((w.state(a), w.news.pop().unwrap()), ("on h1".to_owned(), "h1 resumed".to_owned()));
    w.exhausted(&worker("h1"), "a");
    w.pass(1);
    assert_eq!(w.state(a), "queued", "twice as long each time");
    w.pass(1);
    assert_eq!(w.state(a), "on h1");
    assert_eq!(w.idle(&worker("h2")), "waits");
    w.exhausted(&worker("h1"), "a");
    assert_eq!(w.state(a), "on h2", "others take it at once");
}

#[test]
fn a_pause_ends_when_something_completes() {
    let mut w = World::default();
    for (key, name) in [("h/1", "a"), ("h/2", "b")] {
        w.idle(&worker(key));
        w.submit(&ask(name));
    }
    let b = w.core.operation("operation-4").unwrap();
    w.exhausted(&worker("h/2"), "b");
    assert_eq!(w.state(b), "queued");
    assert_eq!(w.executing(&worker("h/1"), "a"), "continue");
    assert_eq!(w.completed(&worker("h/1"), "a"), "run b");
    assert_eq!(w.state(b), "on h");
    assert_eq!(w.news[1], "h resumed");
}

#[test]
fn threads_that_say_so_together_are_one_pause() {
    let mut w = World::default();
    for key in ["h/1", "h/2", "h/3"] {
        w.submit(&ask(key));
        w.idle(&worker(key));
    }
    for key in ["h/1", "h/2", "h/3"] {
        w.exhausted(&worker(key), key);
    }
    assert_eq!((w.news.len(), w.queue().len()), (1, 3));
    w.pass(1);
    assert_eq!(w.queue().len(), 0);
}

#[test]
fn an_action_that_meets_none_but_such_workers_uses_up_its_attempts_at_last() {
    let config = Config { exhausted_max: 2, exhausted_pause: Duration::ZERO, ..Config::default() };
    let mut w = World::new(Config { retry_backoff: Duration::ZERO, ..config });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    for _ in 0..4 {
        assert_eq!(w.exhausted(&worker("h"), "a"), "run a");
    }
    w.exhausted(&worker("h"), "a");
    assert!(w.state(a).starts_with("gave up: the action was tried 3 times"), "{}", w.state(a));
    assert!(w.state(a).contains("; attempt 1 on h: no memory"));
}

// === Quarantine ===

#[test]
fn a_host_that_fails_different_actions_in_a_row_is_in_quarantine() {
    let mut w = World::new(strict());
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b", "c"]);
    assert_eq!(w.news, ["h in quarantine for 10s, as tasks failed one after the other, at last: disk full"]);
    let d = w.submit(&ask("d"));
    assert_eq!((w.state(d), w.why(d).reason), ("queued".to_owned(), Reason::Quarantined));
    let said = w.core.workers().next().unwrap().quarantined.unwrap();
    assert_eq!(
        &*said,
        "actions failed there one after the other, at last: disk full; tried with one action in 10 s"
    );
    assert!(w.why(d).to_string().contains("; of 1 known worker 1 is on a host in quarantine;"));
}

#[test]
fn on_trial_it_gets_one_action_and_success_releases_it() {
    let mut w = World::new(strict());
    w.idle(&worker("h/1"));
    fail(&mut w, "h/1", &["a", "b", "c"]);
    w.idle(&worker("h/2"));
    let [d, e] = ["d", "e"].map(|name| w.submit(&ask(name)));
    w.pass(10);
    assert_eq!((w.state(d), w.state(e)), ("on h".to_owned(), "queued".to_owned()));
    assert_eq!(w.why(e).reason, Reason::Quarantined, "one is out there already");
    assert_eq!(w.completed(&worker("h/1"), "d"), "run e");
    assert_eq!(w.state(e), "on h");
    assert_eq!(w.news[1..], ["h on trial with one task", "h released from quarantine"]);
}

#[test]
fn a_trial_that_fails_makes_it_longer_up_to_a_bound() {
    let mut w = World::new(strict());
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b", "c"]);
    for (name, length) in [("d", 20), ("e", 25), ("f", 25)] {
        w.pass(25);
        w.news.clear();
        fail(&mut w, "h", &[name]);
        let expected = format!("h in quarantine for another {length}s, as its trial failed: disk full");
        assert_eq!(w.news, [expected]);
    }
}

#[test]
fn a_trial_that_says_nothing_is_held_again() {
    let mut w = World::new(strict());
    w.idle(&worker("h/1"));
    fail(&mut w, "h/1", &["a", "b", "c"]);
    w.pass(10);
    let d = w.submit(&ask("d"));
    w.step(Event::Cancel(d));
    assert_eq!(w.executing(&worker("h/1"), "d"), "idle");
    w.idle(&worker("h/1"));
    let e = w.submit(&ask("e"));
    assert_eq!(w.state(e), "on h");
}

#[test]
fn one_action_that_fails_again_and_again_is_not_the_host_s_fault() {
    let mut w = World::new(Config { max_attempts: 9, retry_backoff: Duration::ZERO, ..strict() });
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    for _ in 0..2 {
        assert_eq!(w.failed(&worker("h"), "a", "odd input"), "run a");
    }
    assert!(w.news.is_empty());
}

#[test]
fn a_success_between_breaks_the_row() {
    let mut w = World::new(strict());
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b"]);
    w.submit(&ask("c"));
    w.completed(&worker("h"), "c");
    w.answers();
    fail(&mut w, "h", &["d", "e"]);
    assert!(w.news.is_empty());
}

#[test]
fn it_can_be_switched_off() {
    let mut w = World::new(Config { quarantine_after: 0, ..strict() });
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b", "c", "d", "e", "f", "g"]);
    assert!(w.news.is_empty());
}

#[test]
fn a_host_that_dies_of_every_action_is_remembered_when_it_comes_back() {
    let mut w = World::new(strict());
    for name in ["a", "b", "c"] {
        w.submit(&ask(name));
        assert_eq!(w.idle(&worker("h")), format!("run {name}"));
        w.pass(60);
        assert_eq!(w.core.counts().hosts, 0);
    }
    w.submit(&ask("d"));
    w.pass(10);
    assert_eq!(w.idle(&worker("h")), "run d", "the quarantine is over, and this is its trial");
    assert_eq!(w.idle(&worker("h/2")), "waits");
    w.submit(&ask("e"));
    assert_eq!(w.queue(), ["e"]);
}

#[test]
fn what_failed_elsewhere_goes_back_when_the_other_host_is_in_quarantine() {
    let mut w = World::new(Config { max_attempts: 2, quarantine_after: 1, ..strict() });
    let a = w.submit(&ask("a").with("os", ""));
    w.idle(&worker("h1").with("os", ""));
    w.submit(&ask("b").priority(-1));
    w.idle(&worker("h2").with("os", ""));
    w.completed(&worker("h2").with("os", ""), "b");
    w.submit(&ask("c"));
    w.failed(&worker("h1").with("os", ""), "a", "disk full");
    assert_eq!(w.why(a).reason, Reason::AllBusy, "it waits for h2; h1 is in quarantine too");
    w.failed(&worker("h2").with("os", ""), "c", "disk full");
    w.pass(10);
    assert_eq!(w.state(a), "on h1", "on trial, though it failed there: h2 is no better");
}

#[test]
fn an_operator_may_release_it() {
    let mut w = World::new(strict());
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b", "c"]);
    let d = w.submit(&ask("d"));
    w.step(Event::Release(pattern(&[("host", "other")])));
    assert_eq!(w.state(d), "queued");
    w.step(Event::Release(pattern(&[("host", "h")])));
    assert_eq!((w.state(d), &*w.news[1]), ("on h".to_owned(), "h released from quarantine"));
}

#[test]
fn a_host_that_is_drained_gets_no_trial() {
    let mut w = World::new(strict());
    w.idle(&worker("h"));
    fail(&mut w, "h", &["a", "b", "c"]);
    w.hold(Hold::Drain, &[]);
    w.pass(20);
    let d = w.submit(&ask("d"));
    assert_eq!((w.state(d), w.why(d).reason), ("queued".to_owned(), Reason::Drained));
    w.let_go(Hold::Drain, &[]);
    assert_eq!(w.state(d), "on h");
}
