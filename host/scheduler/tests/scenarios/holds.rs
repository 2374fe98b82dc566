//! Drains and pauses.

use pointsman_scheduler::event::Event;
use pointsman_scheduler::holds::{Hold, HoldOutcome};
use pointsman_scheduler::scheduler::Config;
use pointsman_scheduler::views::Activity;

use crate::support::{World, ask, worker};

#[test]
fn a_drained_worker_finishes_what_it_runs_and_gets_nothing_new() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.hold(Hold::Drain, &[("host", "h")]), HoldOutcome::Added(1));
    w.submit(&ask("b"));
    assert_eq!(w.executing(&worker("h"), "a"), "continue");
    assert_eq!(w.completed(&worker("h"), "a"), "waits");
    assert_eq!((w.state(a), w.queue()), ("reported".to_owned(), vec!["b".to_owned()]));
    assert_eq!(w.let_go(Hold::Drain, &[("host", "h")]), HoldOutcome::Removed(1));
    assert_eq!(w.answers(), ["h: run b"]);
}

#[test]
fn a_waiting_call_stops_being_a_candidate_and_stays_open() {
    for hold in [Hold::Drain, Hold::Pause] {
        let mut w = World::default();
        w.idle(&worker("h1"));
        w.idle(&worker("h2"));
        w.hold(hold, &[("host", "h1")]);
        assert_eq!(w.answers(), [""; 0]);
        w.submit(&ask("a"));
        w.submit(&ask("b"));
        assert_eq!(w.answers(), ["h2: run a"]);
        w.pass(120);
        assert_eq!(w.answers()[0], "h1: idle", "its call ends when it would have");
        assert_eq!(w.idle(&worker("h1")), "waits");
    }
}

#[test]
fn a_worker_that_comes_back_is_still_drained() {
    let mut w = World::default();
    w.hold(Hold::Drain, &[("host", "h")]);
    w.submit(&ask("a"));
    assert_eq!(w.idle(&worker("h/1")), "waits");
    w.pass(200);
    assert_eq!(w.core.counts().workers, 0);
    assert_eq!(w.idle(&worker("h/2")), "waits");
    assert_eq!(w.idle(&worker("other")), "run a");
}

#[test]
fn a_pattern_may_mean_one_thread_or_all() {
    let mut w = World::default();
    w.hold(Hold::Drain, &[("thread", "1"), ("host", "h1")]);
    for key in ["h1/1", "h1/2", "h2/1"] {
        w.idle(&worker(key));
    }
    for name in ["a", "b", "c"] {
        w.submit(&ask(name));
    }
    assert_eq!(w.answers(), ["h1/2: run a", "h2/1: run b"]);
    assert_eq!(w.hold(Hold::Pause, &[]), HoldOutcome::Added(3));
    assert_eq!(w.completed(&worker("h2/1"), "b"), "waits");
    w.let_go(Hold::Pause, &[]);
    assert_eq!(w.answers(), ["h2/1: run c"]);
}

#[test]
fn who_matches_two_patterns_is_held_until_both_are_gone() {
    let mut w = World::default();
    w.idle(&worker("h/1"));
    w.submit(&ask("a").with("gpu", "x"));
    w.hold(Hold::Drain, &[("host", "h")]);
    w.hold(Hold::Drain, &[("thread", "1")]);
    w.hold(Hold::Pause, &[("thread", "1")]);
    let b = w.submit(&ask("b"));
    w.let_go(Hold::Drain, &[("host", "h")]);
    w.let_go(Hold::Drain, &[("thread", "1")]);
    assert_eq!(w.state(b), "queued");
    w.let_go(Hold::Pause, &[("thread", "1")]);
    assert_eq!(w.state(b), "on h");
}

#[test]
fn to_say_it_twice_changes_nothing() {
    let mut w = World::default();
    w.idle(&worker("h"));
    assert_eq!(w.hold(Hold::Drain, &[("host", "h")]), HoldOutcome::Added(1));
    assert_eq!(w.hold(Hold::Drain, &[("host", "h")]), HoldOutcome::Already(1));
    assert_eq!(w.let_go(Hold::Drain, &[("host", "h")]), HoldOutcome::Removed(1));
    assert_eq!(w.let_go(Hold::Drain, &[("host", "h")]), HoldOutcome::Unknown);
    assert_eq!(w.let_go(Hold::Pause, &[("host", "h")]), HoldOutcome::Unknown);
}

#[test]
fn there_are_so_many_at_most() {
    let mut w = World::new(Config { holds_max: 2, ..Config::default() });
    w.hold(Hold::Drain, &[("host", "a")]);
    w.hold(Hold::Pause, &[("host", "b")]);
    let refused = w.hold(Hold::Drain, &[]);
    assert_eq!(refused, HoldOutcome::TooMany(2));
    assert!(refused.to_string().contains("raise limits.holds"), "{refused}");
    assert_eq!(w.idle(&worker("h")), "waits");
    let c = w.submit(&ask("c"));
    assert_eq!(w.state(c), "on h");
    w.let_go(Hold::Pause, &[("host", "b")]);
    assert_eq!(w.hold(Hold::Drain, &[]), HoldOutcome::Added(1));
}

#[test]
fn they_survive_a_restart() {
    let mut w = World::default();
    w.hold(Hold::Drain, &[("host", "h1")]);
    w.hold(Hold::Pause, &[("host", "h2")]);
    w.hold(Hold::Pause, &[("host", "h3")]);
    w.let_go(Hold::Pause, &[("host", "h3")]);
    w.pass(7);
    w.submit(&ask("a"));
    w.restart();
    let holds: Vec<String> =
        w.core.drains().iter().map(|h| format!("{} {} {:?}", h.hold.name(), h.pattern, h.age)).collect();
    assert_eq!(holds, ["drain {\"host\":\"h1\"} 7s", "pause {\"host\":\"h2\"} 7s"]);
    assert_eq!((w.idle(&worker("h1")), w.idle(&worker("h2"))), ("waits".to_owned(), "waits".to_owned()));
    assert_eq!(w.idle(&worker("h3")), "run a");
}

#[test]
fn a_drained_host_is_no_other_host() {
    let mut w = World::default();
    w.submit(&ask("a"));
    w.idle(&worker("h1/1"));
    w.submit(&ask("b"));
    w.idle(&worker("h2"));
    w.idle(&worker("h1/2"));
    w.failed(&worker("h1/1"), "a", "disk full");
    assert_eq!(w.queue(), ["a"], "h2 is busy");
    w.hold(Hold::Drain, &[("host", "h2")]);
    w.pass(30);
    assert!(w.queue().is_empty(), "it runs on h1 again");
}

#[test]
fn a_host_that_is_too_small_is_no_other_host() {
    let mut w = World::default();
    w.submit(&ask("a").with("cpu", "8"));
    w.idle(&worker("large").with("cpu", "8"));
    w.idle(&worker("small").with("cpu", "1"));
    w.failed(&worker("large").with("cpu", "8"), "a", "disk full");
    w.pass(30);
    assert!(w.queue().is_empty());
}

#[test]
fn a_lost_answer_is_sent_again_to_a_drained_worker_too() {
    let mut w = World::default();
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.hold(Hold::Drain, &[]);
    assert_eq!(w.idle(&worker("h")), "run a", "it is its own");
}

#[test]
fn the_views_show_it() {
    let mut w = World::default();
    let a = w.submit(&ask("a").with("cpu", "3"));
    w.idle(&worker("h/1").with("cpu", "8"));
    w.idle(&worker("h/2").with("cpu", "8"));
    w.executing(&worker("h/1").with("cpu", "8"), "a");
    w.drop_poll(&worker("h/2"));
    w.hold(Hold::Drain, &[("thread", "1")]);
    w.hold(Hold::Pause, &[("thread", "2")]);
    w.pass(5);
    let workers: Vec<_> = w.core.workers().collect();
    assert_eq!(workers.iter().map(|v| v.drained).collect::<Vec<_>>(), [true, false]);
    assert_eq!(workers[1].paused.as_deref(), Some("by an operator"));
    assert_eq!((workers[0].amounts[0].free, workers[0].amounts[0].total), (5, 8));
    assert_eq!((workers[0].amounts.len(), workers[0].inflight, workers[0].inflight_max), (1, 1, 2));
    let Activity::Executing { operation, stage, since } = &workers[0].activity else { panic!() };
    assert_eq!((operation.as_deref(), since.as_secs()), (Some("operation-1"), 5));
    assert!(stage.is_some());
    assert_eq!(workers[1].activity, Activity::NotCalling);
    assert_eq!(w.core.drains().iter().map(|h| (h.workers, h.busy)).collect::<Vec<_>>(), [(1, 1), (1, 0)]);
    w.step(Event::Cancel(a));
    let Activity::Executing { operation, .. } = &w.core.workers().next().unwrap().activity else { panic!() };
    assert_eq!(*operation, None, "nobody waits for what it runs");
}
