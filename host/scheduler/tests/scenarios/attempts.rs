//! Work that fails, and where it goes then.

use std::time::Duration;

use pointsman_scheduler::attempts::Budgets;
use pointsman_scheduler::event::Event;
use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

#[test]
fn a_silent_worker_is_lost_and_its_action_goes_elsewhere() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.pass(59);
    w.idle(&worker("h2"));
    assert_eq!(w.state(a), "on h1");
    w.pass(1);
    assert_eq!((w.state(a), w.answers()), ("on h2".to_owned(), vec!["h2: run a".to_owned()]));
    assert_eq!(w.executing(&worker("h1"), "a"), "idle", "too late");
}

#[test]
fn not_to_the_same_host_while_there_is_another() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1/1"));
    w.idle(&worker("h1/2"));
    w.submit(&ask("b"));
    assert_eq!(w.answers(), ["h1/2: run b"]);
    w.idle(&worker("h2"));
    w.submit(&ask("c"));
    assert_eq!(w.answers(), ["h2: run c"]);
    assert_eq!(w.failed(&worker("h1/1"), "a", "disk full"), "waits", "h2 is busy, but it is there");
    assert_eq!(w.completed(&worker("h2"), "c"), "run a");
    assert_eq!(w.state(a), "on h2");
}

#[test]
fn to_the_same_host_if_it_is_the_only_one() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.idle(&worker("gpu").prefix("elsewhere"));
    assert_eq!(w.failed(&worker("h1"), "a", "disk full"), "waits", "not at once");
    assert_eq!(w.why(a).reason, Reason::BackingOff);
    w.pass(1);
    assert_eq!((w.state(a), w.answers()), ("on h1".to_owned(), vec!["h1: run a".to_owned()]));
    w.failed(&worker("h1"), "a", "disk full");
    w.pass(1);
    assert_eq!(w.state(a), "queued", "twice as long");
    w.pass(1);
    assert_eq!(w.state(a), "on h1");
}

#[test]
fn while_it_rests_it_goes_to_another_host_at_once() {
    let mut w = World::new(Config { retry_backoff: Duration::from_secs(40), ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.pass(10);
    assert_eq!(w.idle(&worker("h2")), "run a");
    w.pass(30);
    w.executing(&worker("h2"), "a");
    assert_eq!(w.state(a), "on h2", "its rest is over while it runs");
    w.failed(&worker("h2"), "a", "disk full");
    assert_eq!(w.why(a).counts, [(Obstacle::BackingOff, 2)]);
    assert!(w.why(a).to_string().contains("(backing-off): it failed on every worker that could run it now"));
    w.pass(59);
    assert_eq!(w.state(a), "queued", "80 s, and 60 at most");
    w.pass(1);
    assert_eq!(w.state(a), "on h1");
}

#[test]
fn without_a_rest_it_is_tried_at_once() {
    let mut w = World::new(Config { retry_backoff: Duration::ZERO, ..Config::default() });
    w.submit(&ask("a"));
    w.idle(&worker("h1"));
    assert_eq!(w.failed(&worker("h1"), "a", "disk full"), "run a");
}

#[test]
fn a_rest_goes_on_over_a_restart() {
    let mut w = World::new(Config { retry_backoff: Duration::from_secs(20), ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.pass(5);
    w.restart();
    let a = w.core.operation("operation-1").map(|o| o.max(a)).unwrap();
    w.step(Event::Watch(a));
    assert_eq!(w.idle(&worker("h1")), "waits");
    w.pass(14);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert_eq!(w.state(a), "on h1");
}

#[test]
fn a_rerouted_action_rests_on() {
    let mut w = World::new(Config { retry_backoff: Duration::from_secs(20), ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.reroute(a, &ask("a").timeout(3));
    assert_eq!(w.state(a), "queued");
    w.pass(20);
    assert_eq!(w.state(a), "on h1");
}

#[test]
fn what_is_cancelled_while_it_rests_leaves_nothing() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.step(Event::Cancel(a));
    w.pass(5);
}

#[test]
fn each_cause_has_a_budget() {
    let budgets = Budgets { lost: 1, given_back: 2, reported: 3 };
    let config = Config { max_attempts: 9, budgets, retry_backoff: Duration::ZERO, ..Config::default() };
    let mut w = World::new(config);
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.failed(&worker("h1"), "a", "disk full");
    w.executing(&worker("h1"), "a");
    assert_eq!(w.idle(&worker("h1")), "run a", "it was given back");
    assert_eq!(w.state(a), "on h1");
    w.pass(60);
    assert!(w.state(a).starts_with("gave up: the action was tried 4 times"), "{}", w.state(a));
    let b = w.submit(&ask("b"));
    w.idle(&worker("h1"));
    for _ in 0..3 {
        w.failed(&worker("h1"), "b", "disk full");
    }
    assert!(w.state(b).starts_with("gave up: the action was tried 3 times"), "{}", w.state(b));
}

#[test]
fn back_to_the_first_host_when_the_other_goes() {
    let mut w = World::default();
    w.submit(&ask("c"));
    w.idle(&worker("h2"));
    w.pass(30);
    for (thread, name) in [("h1/1", "a"), ("h1/2", "b")] {
        w.submit(&ask(name));
        w.idle(&worker(thread));
        w.executing(&worker(thread), name);
    }
    w.failed(&worker("h1/1"), "a", "disk full");
    w.failed(&worker("h1/2"), "b", "disk full");
    assert_eq!(w.queue(), ["a", "b"]);
    w.pass(30);
    assert_eq!(w.answers(), ["h1/1: run c", "h1/2: run a"]);
    assert_eq!(w.queue(), ["b"]);
}

#[test]
fn back_to_the_first_host_when_the_other_loses_the_last_worker_that_would_do() {
    let mut w = World::default();
    w.submit(&ask("b").with("gpu", "x"));
    w.idle(&worker("h2/gpu").with("gpu", "x"));
    w.pass(30);
    w.submit(&ask("a").with("gpu", "x").priority(-1));
    w.idle(&worker("h1").with("gpu", "x"));
    w.idle(&worker("h2/plain"));
    w.failed(&worker("h1").with("gpu", "x"), "a", "disk full");
    assert_eq!(w.queue(), ["a"]);
    w.pass(30);
    assert_eq!(w.answers(), ["h1: run a"]);
}

#[test]
fn at_last_the_client_is_told_of_every_attempt() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.pass(1);
    w.executing(&worker("h1"), "a");
    w.failed(&worker("h1"), "a", "no inputs");
    w.pass(62);
    assert_eq!(
        w.state(a),
        "gave up: the action was tried 3 times and never completed; attempt 1 on h1: disk full; \
         attempt 2 on h1: no inputs; attempt 3 on h1: the worker disappeared: it has not called for 60 s"
    );
}

#[test]
fn an_action_that_comes_back_has_its_old_place_and_no_more() {
    let mut w = World::default();
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).with("cpu", "4"));
    w.idle(&one);
    w.idle(&two);
    w.submit(&ask("old").with("cpu", "1").priority(1));
    w.submit(&ask("urgent").with("cpu", "4"));
    assert_eq!(w.answers(), ["h/1: run old"]);
    assert_eq!(w.failed(&one, "old", "no luck"), "run urgent");
    assert_eq!(w.queue(), ["old"]);
}
