//! Work that fails, and where it goes then.

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
    assert_eq!(w.failed(&worker("h1"), "a", "disk full"), "run a");
    assert_eq!(w.state(a), "on h1");
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
    w.executing(&worker("h1"), "a");
    w.failed(&worker("h1"), "a", "no inputs");
    w.pass(60);
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
