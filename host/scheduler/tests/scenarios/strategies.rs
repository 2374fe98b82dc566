//! Execution strategies: a route lists those that may be used, most wanted first; workers offer some.

use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::route::SizeClass;

use crate::support::{World, ask, worker};

#[test]
fn the_first_of_the_list_that_somebody_offers() {
    let mut w = World::default();
    let (plain, remote) = (worker("plain").offers(&["local"]), worker("far").offers(&["remote"]));
    w.idle(&plain);
    w.idle(&remote);
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    assert_eq!(w.state(a), "on far");
    let b = w.submit(&ask("b").strategies(&["remote", "local"]));
    assert_eq!(w.state(b), "queued", "a less wanted one is not used while the other is offered");
    let c = w.submit(&ask("c").strategies(&["worker", "local"]));
    assert_eq!(w.state(c), "on plain", "nobody offers `worker`");
    assert_eq!(w.completed(&remote, "a"), "run b");
}

#[test]
fn without_a_list_any_worker_will_do() {
    let mut w = World::default();
    w.idle(&worker("silent"));
    let a = w.submit(&ask("a"));
    assert_eq!(w.state(a), "on silent");
}

#[test]
fn who_says_nothing_offers_nothing() {
    let mut w = World::default();
    w.idle(&worker("silent"));
    w.idle(&worker("other").offers(&["local"]));
    let a = w.submit(&ask("a").strategies(&["remote", "sandboxed"]));
    let why = w.why(a);
    assert_eq!((why.reason, &why.counts[..]), (Reason::NoStrategy, &[(Obstacle::NoStrategy, 2)][..]));
    let text = why.to_string();
    assert!(
        text.contains(
            "it may be run by the strategies remote, sandboxed, of which 2 workers don't offer any (offered: local on \
             1, nothing said on 1)"
        ),
        "{text}"
    );
}

#[test]
fn counts_tell_who_offers_what_is_less_wanted() {
    let mut w = World::default();
    w.idle(&worker("a").offers(&["local"]));
    w.idle(&worker("b").offers(&["local", "sandboxed"]));
    w.idle(&worker("c"));
    w.submit(&ask("x").strategies(&["sandboxed", "local"]));
    let y = w.submit(&ask("y").strategies(&["sandboxed", "local"]));
    let why = w.why(y);
    let counts = vec![(Obstacle::NoStrategy, 1), (Obstacle::OtherStrategy, 1), (Obstacle::Busy, 1)];
    assert_eq!((why.reason, why.counts), (Reason::AllBusy, counts));
}

#[test]
fn when_the_better_one_goes_what_waits_takes_the_next() {
    let mut w = World::default();
    let (near, far) = (worker("near").offers(&["local"]), worker("far").offers(&["remote"]));
    w.idle(&far);
    w.submit(&ask("first").strategies(&["remote", "local"]));
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    w.pass(40);
    w.executing(&far, "first");
    w.idle(&near);
    assert_eq!(w.state(a), "queued");
    // The far one says nothing more.
    for _ in 0..4 {
        w.pass(20);
        w.idle(&near);
    }
    assert_eq!(w.state(a), "on near", "with the host that offers it gone, the next strategy counts");
}

#[test]
fn when_a_better_one_comes_what_waits_goes_there() {
    let mut w = World::default();
    let near = worker("near").offers(&["local"]);
    w.idle(&near);
    w.submit(&ask("first").strategies(&["remote", "local"]));
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    assert_eq!(w.idle(&worker("far").offers(&["remote"])), "run a");
    assert_eq!(w.state(a), "on far");
}

#[test]
fn who_is_drained_does_not_count() {
    let mut w = World::default();
    let (near, far) = (worker("near").offers(&["local"]), worker("far").offers(&["remote"]));
    w.idle(&near);
    w.idle(&far);
    w.submit(&ask("first").strategies(&["remote"]));
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    assert_eq!(w.state(a), "queued");
    w.hold(Hold::Drain, &[("host", "far")]);
    assert_eq!(w.state(a), "on near", "at once, though its worker was waiting already");
    let b = w.submit(&ask("b").strategies(&["remote", "local"]));
    let c = w.submit(&ask("c").strategies(&["remote"]));
    assert_eq!(w.why(b).counts, [(Obstacle::OtherStrategy, 1), (Obstacle::Busy, 1)]);
    assert_eq!(w.why(c).reason, Reason::Drained, "nobody else offers it");
    w.let_go(Hold::Drain, &[("host", "far")]);
    assert_eq!(w.completed(&far, "first"), "run b");
}

#[test]
fn who_is_paused_counts_for_the_pause_will_end() {
    let mut w = World::default();
    w.idle(&worker("near").offers(&["local"]));
    w.idle(&worker("far").offers(&["remote"]));
    w.hold(Hold::Pause, &[("host", "far")]);
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    assert_eq!(w.why(a).reason, Reason::Paused);
}

#[test]
fn one_that_is_too_small_does_not_offer_it() {
    let mut w = World::default();
    w.idle(&worker("far").offers(&["remote"]).with("cpu", "2"));
    w.idle(&worker("near").offers(&["local"]).with("cpu", "8"));
    let a = w.submit(&ask("a").with("cpu", "4").strategies(&["remote", "local"]));
    assert_eq!(w.state(a), "on near");
}

#[test]
fn the_size_is_chosen_before_the_strategy() {
    let mut w = World::default();
    w.idle(&worker("small").offers(&["local"]).size(1));
    w.idle(&worker("large").offers(&["remote"]).size(2));
    let wanted = ask("a").strategies(&["remote", "local"]).sized(SizeClass::Smallest);
    let a = w.submit(&wanted);
    assert_eq!(w.state(a), "on small");
}

#[test]
fn a_worker_becomes_one_that_offers_more() {
    let mut w = World::default();
    let a = w.submit(&ask("a").strategies(&["remote"]));
    w.idle(&worker("h"));
    assert_eq!(w.why(a).reason, Reason::NoStrategy);
    w.pass(130);
    assert_eq!(w.idle(&worker("h").offers(&["remote"])), "run a");
}

#[test]
fn an_attempt_says_by_which_strategy() {
    let mut w = World::default();
    let h = worker("h").offers(&["local", "remote"]);
    w.idle(&h);
    let a = w.submit(&ask("a").strategies(&["remote", "local"]));
    assert_eq!(w.core.strategy_of(w.task(a)).map(|s| &**s), Some("remote"));
    w.failed(&h, "a", "no disk");
    let task = w.core.task(w.task(a)).unwrap();
    assert_eq!(task.attempts[0].strategy.as_deref(), Some("remote"));
}

#[test]
fn other_strategies_are_another_execution() {
    let mut w = World::default();
    w.submit(&ask("a").strategies(&["remote"]));
    assert!(w.joins(&ask("a").strategies(&["remote"])));
    assert!(!w.joins(&ask("a").strategies(&["remote", "local"])));
    assert!(!w.joins(&ask("a")));
}

#[test]
fn strategies_survive_a_restart() {
    let mut w = World::default();
    let a = w.submit(&ask("a").strategies(&["remote"]));
    w.restart();
    w.idle(&worker("near").offers(&["local"]));
    assert_eq!(w.state(a), "queued");
    assert_eq!(w.idle(&worker("far").offers(&["remote"])), "run a");
}
