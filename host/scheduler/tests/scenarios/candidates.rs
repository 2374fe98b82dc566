//! Hosts that a policy may put in order, and workers that become others.

use std::time::Duration;

use pointsman_scheduler::event::{Event, Poll, Report};
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::ids::{HostId, PollId};
use pointsman_scheduler::placement::Placement;
use pointsman_scheduler::scheduler::Config;
use pointsman_scheduler::task_metrics::Outcome;

use crate::support::{Ask, World, ask, worker};

fn names(w: &World, ask: &Ask, at_most: usize) -> Vec<String> {
    w.candidates(ask, at_most).iter().map(|c| c.name.to_string()).collect()
}

fn hosts(w: &World, ask: &Ask) -> Vec<HostId> {
    w.candidates(ask, 9).iter().map(|c| c.host).collect()
}

/// Three hosts that wait, `a` for longest.
fn three() -> World {
    let mut w = World::default();
    for host in ["a", "b", "c"] {
        assert_eq!(w.idle(&worker(host)), "waits");
        w.pass(1);
    }
    w
}

#[test]
fn they_are_those_that_placement_would_take_in_its_order() {
    let mut w = three();
    assert_eq!(names(&w, &ask("x"), 9), ["a", "b", "c"]);
    assert_eq!(names(&w, &ask("x"), 2), ["a", "b"]);
    assert_eq!(names(&w, &ask("x"), 0), [""; 0]);
    w.submit(&ask("y"));
    assert_eq!(names(&w, &ask("x"), 9), ["b", "c"], "a is busy");
    assert_eq!(names(&w, &ask("x").with("gpu", "1"), 9), [""; 0]);
    let mut w = World::new(Config { placement: Placement::BestFit, ..Config::default() });
    for (host, cpu) in [("l", "16"), ("m", "8"), ("s", "4")] {
        w.idle(&worker(host).with("cpu", cpu));
    }
    // Whether or not such an action has been here.
    for _ in 0..2 {
        assert_eq!(names(&w, &ask("x").with("cpu", "5"), 9), ["m", "l"]);
        w.submit(&ask("waits").with("cpu", "5").with("gpu", "1"));
    }
}

#[test]
fn a_host_is_there_once_and_says_how_it_does() {
    let mut w = World::default();
    for thread in ["h/1", "h/2", "h/3"] {
        w.idle(&worker(thread).pool("p"));
    }
    w.pass(3);
    w.submit(&ask("x"));
    w.pass(4);
    let [candidate] = &w.candidates(&ask("y"), 9)[..] else { panic!() };
    assert_eq!((&*candidate.name, &*candidate.pool, candidate.executing), ("h", "p", 1));
    assert_eq!((candidate.affine, candidate.idle.as_secs()), (false, 7));
    assert_eq!(names(&w, &ask("x").unshared(), 9), [""; 0], "it runs that already");
    assert_eq!(names(&w, &ask("x"), 9), [""; 0], "it would join");
}

#[test]
fn idle_is_who_has_had_nothing_to_do_however_often_it_has_called() {
    let mut w = World::default();
    let h = worker("h");
    w.idle(&h);
    w.submit(&ask("x"));
    w.pass(10);
    w.completed(&h, "x");
    w.pass(30);
    w.idle(&h);
    assert_eq!(w.candidates(&ask("y"), 1)[0].idle.as_secs(), 30);
}

#[test]
fn the_host_of_the_affinity_key_comes_first_and_what_waits_for_it_has_none() {
    let mut w = three();
    let near = |name: &str| ask(name).affinity("k", Duration::from_secs(10));
    w.submit_to(&near("x"), vec![hosts(&w, &near("x"))[1]]).unwrap();
    assert_eq!(w.completed(&worker("b"), "x"), "waits");
    assert_eq!(names(&w, &near("y"), 2), ["b", "a"]);
    assert_eq!(w.candidates(&near("y"), 2).iter().map(|c| c.affine).collect::<Vec<_>>(), [true, false]);
    w.submit(&near("y"));
    assert_eq!(names(&w, &near("z"), 9), [""; 0], "it waits for b");
    assert_eq!(names(&w, &ask("z").affinity("k", Duration::ZERO), 9), ["a", "c"]);
}

#[test]
fn the_first_that_can_gets_it() {
    let mut w = three();
    let [a, b, c] = hosts(&w, &ask("x"))[..] else { panic!() };
    let (x, ..) = w.submit_to(&ask("x"), vec![c, a]).unwrap();
    assert_eq!(w.state(x), "on c");
    let (y, ..) = w.submit_to(&ask("y"), vec![c, b, a]).unwrap();
    assert_eq!(w.state(y), "on b", "c is busy by now");
    let (z, ..) = w.submit_to(&ask("z"), vec![c, b]).unwrap();
    assert_eq!(w.state(z), "on a", "one try, then by the rule");
    let (none, ..) = w.submit_to(&ask("none"), vec![a, b, c]).unwrap();
    assert_eq!(w.state(none), "queued");
}

#[test]
fn a_wish_is_no_right() {
    let mut w = three();
    let all = hosts(&w, &ask("x"));
    let (gpu, ..) = w.submit_to(&ask("gpu").with("gpu", "1"), all.clone()).unwrap();
    assert_eq!(w.state(gpu), "queued", "none has one");
    w.pass(130);
    let (x, ..) = w.submit_to(&ask("x"), all).unwrap();
    assert_eq!(w.state(x), "queued", "all have gone");
}

// === Workers that become others ===

#[test]
fn a_worker_that_waits_is_another_with_its_next_call() {
    let mut w = World::default();
    let a = w.submit(&ask("a").pool("p"));
    assert_eq!(w.idle(&worker("h")), "waits");
    assert_eq!(w.idle(&worker("h").pool("p")), "run a");
    assert_eq!(w.completed(&worker("h").pool("p"), "a"), "waits");
    let b = w.submit(&ask("b").pool(""));
    assert_eq!((w.state(a), w.state(b)), ("reported".to_owned(), "queued".to_owned()));
    assert_eq!(w.core.counts().workers, 1);
}

#[test]
fn one_that_executes_stays_what_it_is_until_it_has_completed() {
    let mut w = World::default();
    w.submit(&ask("a").with("gpu", "1"));
    let b = w.submit(&ask("b").with("gpu", "2"));
    let (old, new) = (worker("h").with("gpu", "1"), worker("h").with("gpu", "2"));
    assert_eq!(w.idle(&old), "run a");
    assert_eq!(w.executing(&new, "a"), "continue");
    assert_eq!(&*w.core.spec_of("h").unwrap().properties[0].value, "1");
    assert_eq!(w.completed(&new, "a"), "run b", "with its result it is another");
    assert_eq!(w.state(b), "on h");
}

#[test]
fn an_answer_that_was_lost_is_sent_again_to_what_it_was() {
    let mut w = World::default();
    w.submit(&ask("a").pool(""));
    w.idle(&worker("h"));
    assert_eq!(w.idle(&worker("h").pool("p")), "run a");
    assert_eq!(&*w.core.spec_of("h").unwrap().pool, "");
}

#[test]
fn what_it_has_and_how_much_it_may_run_changes_with_it() {
    let mut w = World::default();
    for thread in ["h/1", "h/2"] {
        w.idle(&worker(thread).with("cpu", "4"));
    }
    let a = w.submit(&ask("a").with("cpu", "8"));
    assert_eq!(w.idle(&worker("h/1").with("cpu", "8").at_once(1)), "run a");
    let b = w.submit(&ask("b"));
    assert_eq!((w.state(a), w.state(b)), ("on h".to_owned(), "queued".to_owned()), "one at a time now");
    assert_eq!(w.idle(&worker("h/2").with("cpu", "2").at_once(2)), "run b");
}

#[test]
fn what_waited_for_it_goes_elsewhere() {
    let mut w = World::default();
    // It failed on h1, and waits for h2, which is busy.
    w.submit(&ask("busy"));
    w.idle(&worker("h2"));
    let a = w.submit(&ask("a").pool(""));
    w.idle(&worker("h1"));
    w.failed(&worker("h1"), "a", "disk full");
    w.pass(20);
    assert_eq!(w.state(a), "queued");
    assert_eq!(w.completed(&worker("h2").pool("p"), "busy"), "waits");
    assert_eq!(w.state(a), "on h1", "h2 is in another pool now");
}

#[test]
fn a_drained_or_paused_worker_stays_so() {
    let mut w = World::default();
    w.hold(Hold::Drain, &[("host", "h")]);
    w.idle(&worker("h"));
    w.submit(&ask("a").pool("p"));
    assert_eq!(w.idle(&worker("h").pool("p")), "waits");
    w.let_go(Hold::Drain, &[("host", "h")]);
    assert_eq!(w.answers().pop().unwrap(), "h: run a");
}

#[test]
fn a_host_keeps_its_pause_and_its_quarantine() {
    let config = Config { quarantine_after: 1, max_attempts: 1, ..Config::default() };
    let mut w = World::new(Config { exhausted_pause: Duration::from_secs(30), ..config });
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.exhausted(&worker("h").pool("p"), "a");
    assert_eq!(w.idle(&worker("h").pool("p")), "waits", "it is paused");
    w.pass(30);
    assert_eq!(w.answers().pop().unwrap(), "h: run a");
    w.failed(&worker("h").pool("p"), "a", "disk full");
    assert_eq!(w.idle(&worker("h").pool("q")), "waits");
    assert!(w.core.workers().next().unwrap().quarantined.is_some());
}

#[test]
fn nobody_becomes_another_host() {
    let mut w = World::default();
    w.idle(&worker("h"));
    let spec = worker("elsewhere").spec(&w.schema);
    assert_eq!(&*spec.host, "elsewhere");
    let poll = Poll {
        poll: PollId(99),
        worker: "h".into(),
        spec,
        report: Report::Idle,
        prefer_idle: false,
        outcome: Outcome::default(),
        wait_until: w.now,
    };
    w.step(Event::Poll(poll));
    assert_eq!(&*w.core.spec_of("h").unwrap().host, "h");
}
