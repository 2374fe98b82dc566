//! Actions that nobody could ever run.

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

const TIMEOUT: u64 = 15 * 60;

/// Keeps a worker from being lost.
fn keep(w: &mut World, key: &str, seconds: u64) {
    let mut left = seconds;
    while left > 0 {
        let nap = left.min(50);
        w.pass(nap);
        left -= nap;
        w.idle(&worker(key).with("cpu", "4"));
    }
}

#[test]
fn it_ends_after_a_quarter_of_an_hour_with_the_reason() {
    let mut w = World::default();
    let a = w.submit(&ask("a").with("cpu", "8"));
    keep(&mut w, "h", TIMEOUT - 1);
    assert_eq!(w.state(a), "queued");
    keep(&mut w, "h", 1);
    assert_eq!(
        w.state(a),
        "unschedulable: no worker that could run it was there for 900 s: queued for 15 min (never-fits): it asks for \
         more than any host has in all; of 1 known worker 1 is too small; cpu 8 is asked for, the most that a host \
         has left is 4 of 4; to unblock it: start a worker with cpu of 8 or more, or ask for less"
    );
}

#[test]
fn what_some_worker_could_run_waits_for_ever() {
    let mut w = World::default();
    w.idle(&worker("h").with("cpu", "4"));
    w.hold(Hold::Drain, &[]);
    let [a, b] = ["a", "b"].map(|name| w.submit(&ask(name).with("cpu", "3")));
    keep(&mut w, "h", 3 * TIMEOUT);
    assert_eq!((w.state(a), w.state(b)), ("queued".to_owned(), "queued".to_owned()));
}

#[test]
fn it_is_counted_from_when_the_last_worker_that_could_was_missed() {
    let mut w = World::default();
    w.idle(&worker("h").with("cpu", "4"));
    w.hold(Hold::Drain, &[]);
    let a = w.submit(&ask("a").with("cpu", "3"));
    keep(&mut w, "h", 2 * TIMEOUT);
    w.pass(200);
    assert_eq!((w.core.counts().workers, w.state(a)), (0, "queued".to_owned()));
    w.pass(TIMEOUT + TIMEOUT / 8);
    assert!(w.state(a).contains("(no-worker-registered)"), "{}", w.state(a));
}

#[test]
fn a_worker_that_comes_in_time_saves_it() {
    let mut w = World::default();
    let a = w.submit(&ask("a").with("cpu", "3"));
    w.pass(TIMEOUT - 1);
    w.idle(&worker("h").with("cpu", "4"));
    assert_eq!(w.state(a), "on h");
}

#[test]
fn after_a_restart_workers_have_as_long_to_come_back() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.pass(TIMEOUT - 1);
    w.restart();
    let a = w.core.operation("operation-1").map(|o| o.max(a)).unwrap();
    w.step(Event::Watch(a));
    w.pass(TIMEOUT - 1);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert!(w.state(a).starts_with("unschedulable: "), "{}", w.state(a));
}

#[test]
fn an_action_that_is_rerouted_begins_anew() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.pass(TIMEOUT - 1);
    w.reroute(a, &ask("a").with("os", ""));
    w.pass(TIMEOUT - 1);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert!(w.state(a).starts_with("unschedulable: "), "{}", w.state(a));
}

#[test]
fn it_can_be_switched_off() {
    let mut w = World::new(Config { unschedulable_timeout: Duration::ZERO, ..Config::default() });
    let a = w.submit(&ask("a"));
    w.pass(100 * TIMEOUT);
    assert_eq!(w.state(a), "queued");
}

#[test]
fn a_long_queue_ends_bit_by_bit() {
    let mut w = World::default();
    w.checked = false;
    for i in 0..2500 {
        w.submit(&ask(&i.to_string()));
    }
    let late = w.submit(&ask("late").with("os", ""));
    w.pass(TIMEOUT - 1);
    assert_eq!(w.core.counts().queued, 2501);
    w.pass(20);
    assert_eq!(w.core.counts().queued, 0);
    assert!(w.state(late).starts_with("unschedulable: "));
}
