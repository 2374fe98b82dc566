//! Who goes first.

use crate::support::{World, ask, worker};

fn drain(w: &mut World) -> Vec<String> {
    let all = worker("h");
    let mut order = vec![];
    let mut answer = w.idle(&all);
    while let Some(name) = answer.strip_prefix("run ").map(str::to_owned) {
        answer = w.completed(&all, &name);
        order.push(name);
    }
    order
}

#[test]
fn first_come_first_served_over_all_classes() {
    let mut w = World::default();
    for (i, instance) in ["", "x", "y", "", "x", "y"].iter().enumerate() {
        w.submit(&ask(&i.to_string()).instance(instance));
    }
    assert_eq!(drain(&mut w), ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_smaller_priority_goes_first() {
    let mut w = World::default();
    for (name, priority) in [("late", 5), ("normal", 0), ("urgent", -3), ("normal2", 0)] {
        w.submit(&ask(name).priority(priority));
    }
    assert_eq!(drain(&mut w), ["urgent", "normal", "normal2", "late"]);
}

#[test]
fn one_unit_of_priority_is_worth_one_step_of_waiting() {
    let mut w = World::default();
    w.submit(&ask("old").priority(2));
    w.pass(119);
    w.submit(&ask("overtakes").priority(0));
    w.pass(2);
    w.submit(&ask("too late").priority(0));
    assert_eq!(w.queue(), ["overtakes", "old", "too late"]);
}

#[test]
fn priorities_at_the_ends_of_their_range() {
    let mut w = World::default();
    w.submit(&ask("max").priority(i32::MAX));
    w.submit(&ask("min").priority(i32::MIN));
    assert_eq!(drain(&mut w), ["min", "max"]);
}

#[test]
fn what_is_free_decides_before_order() {
    let mut w = World::default();
    w.submit(&ask("large").with("cpu", "4"));
    w.submit(&ask("small").with("cpu", "1"));
    assert_eq!(w.idle(&worker("h").with("cpu", "2")), "run small");
}

#[test]
fn rerouted_actions_keep_their_place() {
    let mut w = World::default();
    let b = w.submit(&ask("b").with("tag", "nobody"));
    let first = w.submit(&ask("first"));
    w.submit(&ask("last"));
    w.reroute(b, &ask("b"));
    assert_eq!(w.queue(), ["b", "first", "last"]);
    w.reroute(first, &ask("first").priority(1));
    assert_eq!(drain(&mut w), ["b", "last", "first"]);
}

#[test]
fn a_rerouted_action_goes_to_a_worker_that_waits() {
    let mut w = World::default();
    w.idle(&worker("h"));
    let a = w.submit(&ask("a").with("tag", "nobody"));
    w.reroute(a, &ask("a"));
    assert_eq!(w.answers(), ["h: run a"]);
    w.reroute(a, &ask("a").with("tag", "nobody"));
    assert_eq!(w.state(a), "on h", "it runs: too late");
}

#[test]
fn a_policy_may_refuse_what_waits() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    let refuse = |w: &World, a| pointsman_scheduler::event::Event::Refuse {
        task: w.task(a),
        reason: "no longer welcome".into(),
    };
    w.step(refuse(&w, a));
    assert_eq!(w.state(a), "refused: no longer welcome");
    let b = w.submit(&ask("b"));
    w.idle(&worker("h"));
    w.step(refuse(&w, b));
    assert_eq!(w.state(b), "on h");
}
