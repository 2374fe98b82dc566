//! Bounds, and what is said at them.

use pointsman_scheduler::effect::Refusal;
use pointsman_scheduler::event::Event;
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

#[test]
fn the_queue_may_be_full() {
    let mut w = World::new(Config { queued_tasks_max: 2, ..Config::default() });
    w.submit(&ask("a"));
    w.submit(&ask("b"));
    assert_eq!(w.try_submit(&ask("c")), Err(Refusal::QueueFull(2)));
    assert!(w.joins(&ask("a")), "one that joins takes no room");
    w.idle(&worker("h"));
    w.submit(&ask("c"));
}

#[test]
fn classes_are_bounded_and_reused() {
    let mut w = World::new(Config { classes_max: 2, ..Config::default() });
    let a = w.submit(&ask("a").instance("a"));
    w.submit(&ask("b").instance("b"));
    assert_eq!(w.try_submit(&ask("c").instance("c")), Err(Refusal::TooManyClasses(2)));
    w.submit(&ask("d").instance("b"));
    w.step(Event::Cancel(a));
    w.submit(&ask("c").instance("c"));
}

#[test]
fn demands_are_bounded_and_reused() {
    let mut w = World::new(Config { demands_max: 2, ..Config::default() });
    let a = w.submit(&ask("a").with("cpu", "1"));
    w.submit(&ask("b").with("cpu", "2"));
    assert_eq!(w.try_submit(&ask("c").with("cpu", "3")), Err(Refusal::TooManyDemands(2)));
    let nothing = w.submit(&ask("nothing"));
    w.step(Event::Cancel(nothing));
    w.submit(&ask("d").with("cpu", "2").with("os", ""));
    w.step(Event::Cancel(a));
    w.submit(&ask("c").with("cpu", "3"));
}

#[test]
fn an_action_that_is_tried_again_needs_no_room() {
    let mut w =
        World::new(Config { classes_max: 1, demands_max: 1, queued_tasks_max: 1, ..Config::default() });
    let a = w.submit(&ask("a").with("cpu", "1"));
    w.idle(&worker("h1").with("cpu", "1"));
    w.submit(&ask("b").with("cpu", "1"));
    w.idle(&worker("h2").with("cpu", "1"));
    w.failed(&worker("h1").with("cpu", "1"), "a", "disk full");
    assert_eq!(w.state(a), "queued");
}

#[test]
fn a_reroute_beyond_a_bound_changes_nothing() {
    let mut w = World::new(Config { classes_max: 1, ..Config::default() });
    let a = w.submit(&ask("a"));
    w.reroute(a, &ask("a").with("os", ""));
    assert_eq!(w.idle(&worker("h")), "run a");
}

#[test]
fn workers_are_bounded() {
    let mut w = World::new(Config { workers_max: 1, ..Config::default() });
    w.idle(&worker("h1"));
    assert_eq!(w.idle(&worker("h2")), "too many workers");
    assert_eq!(w.idle(&worker("h1")), "waits");
}
