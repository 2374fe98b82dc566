//! Clients that leave, come back, and cancel.

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

#[test]
fn an_action_that_nobody_waits_for_is_dropped() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.step(Event::Unwatch(a));
    w.pass(59);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert_eq!((w.state(a), w.forgotten.clone()), ("gone".to_owned(), vec![a]));
    assert!(w.core.operation("operation-1").is_none());
    assert_eq!(w.store.tasks.len(), 0);
}

#[test]
fn only_the_last_client_takes_the_action_along() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    let b = w.submit(&ask("a"));
    w.step(Event::Unwatch(a));
    w.pass(60);
    assert_eq!((w.state(a), w.state(b)), ("gone".to_owned(), "queued".to_owned()));
    w.step(Event::Unwatch(b));
    w.pass(60);
    assert_eq!(w.queue(), [""; 0]);
}

#[test]
fn to_listen_again_stops_the_clock() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.step(Event::Unwatch(a));
    w.pass(50);
    w.step(Event::Watch(a));
    w.pass(500);
    w.step(Event::Unwatch(a));
    w.pass(59);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert_eq!(w.state(a), "gone");
}

#[test]
fn of_two_streams_the_last_counts() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.step(Event::Watch(a));
    w.step(Event::Unwatch(a));
    w.pass(500);
    assert_eq!(w.state(a), "queued");
}

#[test]
fn what_is_cancelled_in_the_queue_is_not_run() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.step(Event::Cancel(a));
    w.step(Event::Cancel(a));
    assert_eq!(w.state(a), "cancelled");
    assert_eq!(w.idle(&worker("h")), "waits");
}

#[test]
fn one_that_cancels_leaves_the_others_alone() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    let b = w.submit(&ask("a"));
    w.step(Event::Cancel(a));
    assert_eq!((w.state(a), w.state(b)), ("cancelled".to_owned(), "queued".to_owned()));
}

#[test]
fn what_is_cancelled_while_it_runs_stops_at_the_next_heartbeat() {
    let mut w = World::default();
    let h = worker("h").with("cpu", "4");
    let a = w.submit(&ask("a").with("cpu", "4"));
    w.idle(&h);
    assert_eq!(w.executing(&h, "a"), "continue");
    w.step(Event::Cancel(a));
    w.submit(&ask("b").with("cpu", "4"));
    assert_eq!(w.executing(&h, "a"), "idle");
    assert_eq!(w.idle(&h), "run b", "what a took is free when the worker has stopped");
}

#[test]
fn until_a_worker_has_stopped_its_host_still_runs_the_digest() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h/1"));
    w.step(Event::Cancel(a));
    w.submit(&ask("a"));
    assert_eq!(w.executing(&worker("h/1"), "a"), "idle");
    assert_eq!(w.idle(&worker("h/2")), "waits");
    assert_eq!(w.completed(&worker("h/1"), "a"), "run a");
    assert_eq!(w.ends.len(), 1, "the old result is nobody's");
}

#[test]
fn an_ended_operation_is_remembered_for_a_while() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.completed(&worker("h"), "a");
    w.step(Event::Unwatch(a));
    w.pass(59);
    assert_eq!(w.core.operation("operation-1"), Some(a));
    assert_eq!(w.store.finished.len(), 1);
    w.pass(1);
    assert_eq!((w.core.operation("operation-1"), w.forgotten.clone()), (None, vec![a]));
    assert_eq!(w.store.finished.len(), 0);
}

#[test]
fn comings_and_goings_cost_no_memory() {
    let mut w = World::new(Config { unschedulable_timeout: Duration::ZERO, ..Config::default() });
    let a = w.submit(&ask("a"));
    let start = w.core.next_deadline();
    for _ in 0..1000 {
        w.step(Event::Unwatch(a));
        w.step(Event::Watch(a));
    }
    assert_eq!(start, None);
    let mut wakes = 0;
    while let Some(next) = w.core.next_deadline() {
        w.now = next;
        w.step(Event::Deadline);
        wakes += 1;
    }
    assert_eq!((wakes, w.state(a)), (1, "queued".to_owned()));
}
