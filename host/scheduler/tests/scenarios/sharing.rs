//! One execution for several clients.

use std::time::Duration;

use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

#[test]
fn equal_actions_share_an_execution() {
    let mut w = World::default();
    let a = w.submit(&ask("a").with("os", ""));
    assert!(w.joins(&ask("a").with("os", "").priority(7)), "priority is not part of what is executed");
    w.idle(&worker("h").with("os", ""));
    assert!(w.joins(&ask("a").with("os", "")), "it runs: still in flight");
    w.completed(&worker("h").with("os", ""), "a");
    assert_eq!((w.state(a), w.ends.len()), ("reported".to_owned(), 3));
    assert!(!w.joins(&ask("a").with("os", "")), "it is over");
}

#[test]
fn another_execution_is_not_shared() {
    let mut w = World::default();
    w.submit(&ask("a"));
    assert!(!w.joins(&ask("b")));
    assert!(!w.joins(&ask("a").timeout(5)));
    assert!(!w.joins(&ask("a").with("os", "")));
    assert!(!w.joins(&ask("a").pool("p")));
    assert!(!w.joins(&ask("a").size(1)));
    assert!(!w.joins(&ask("a").instance("x")));
    assert!(!w.joins(&ask("a").unshared()));
    assert!(!w.joins(&ask("a").unshared()));
    assert!(w.joins(&ask("a")));
    assert!(w.joins(&ask("a").timeout(5)));
}

#[test]
fn to_join_raises_the_priority() {
    let mut w = World::default();
    w.submit(&ask("a").priority(5));
    w.submit(&ask("b").priority(3));
    w.submit(&ask("a").priority(1));
    assert_eq!(w.queue(), ["a", "b"]);
    w.submit(&ask("b").priority(9));
    assert_eq!(w.queue(), ["a", "b"], "never lowers it");
}

#[test]
fn to_join_what_runs_counts_should_it_come_back() {
    let mut w = World::new(Config { retry_backoff: Duration::ZERO, ..Config::default() });
    w.submit(&ask("a").priority(5));
    w.idle(&worker("h1"));
    w.submit(&ask("b").priority(3));
    w.submit(&ask("a").priority(1));
    w.failed(&worker("h1"), "a", "disk full");
    assert_eq!(w.queue(), ["b"]);
    assert_eq!(w.state(w.core.operation("operation-1").unwrap()), "on h1", "no other host, and more urgent");
}

#[test]
fn a_rerouted_action_is_joined_by_its_new_equals() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.reroute(a, &ask("a").timeout(9));
    assert!(!w.joins(&ask("a")));
    assert!(w.joins(&ask("a").timeout(9)));
}

#[test]
fn the_older_of_two_that_became_equal_is_joined() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    let b = w.submit(&ask("a").timeout(9));
    w.reroute(a, &ask("a").timeout(9));
    assert_eq!(w.try_submit(&ask("a").timeout(9)).unwrap().1, w.task(a));
    let task = w.task(a);
    w.step(pointsman_scheduler::event::Event::Refuse { task, reason: "".into() });
    assert_eq!(w.try_submit(&ask("a").timeout(9)).unwrap().1, w.task(b));
}

#[test]
fn so_many_share_a_task_and_then_there_is_another() {
    let mut w = World::default();
    w.checked = false;
    w.submit(&ask("a"));
    let joined = (0..3000).filter(|_| w.joins(&ask("a"))).count();
    assert_eq!((joined, w.core.counts().queued), (2998, 3));
    w.core.check().unwrap();
}
