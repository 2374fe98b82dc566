//! Who gets the next worker of those that wait in the same pool.

use std::collections::BTreeMap;

use pointsman_scheduler::scheduler::Config;

use crate::support::{Ask, Worker, World, ask, worker};

fn by(invocation: &str, name: &str) -> Ask {
    ask(name).invocation(invocation)
}

fn submit_all(w: &mut World, invocation: &str, n: usize, change: impl Fn(Ask) -> Ask) {
    let prefix = invocation.replace('/', "-");
    for i in 0..n {
        w.submit(&change(by(invocation, &format!("{prefix}{i}"))));
    }
}

fn threads(n: usize) -> Vec<Worker> {
    (0..n).map(|i| worker(&format!("h{i}"))).collect()
}

/// Who the workers run something for: names begin with the letter of who asked.
fn run(answer: &str) -> char {
    answer.strip_prefix("run ").and_then(|name| name.chars().next()).unwrap_or('-')
}

/// All workers ask; how many run something for whom.
fn share_out(w: &mut World, workers: &[Worker]) -> BTreeMap<char, usize> {
    let mut shares = BTreeMap::new();
    for h in workers {
        *shares.entry(run(&w.idle(h))).or_default() += 1;
    }
    shares
}

/// Lets one worker do everything; for whom, in order.
fn drain(w: &mut World) -> String {
    let h = worker("h");
    let mut order = String::new();
    let mut answer = w.idle(&h);
    while let Some(name) = answer.strip_prefix("run ").map(str::to_owned) {
        order.push(run(&answer));
        answer = w.completed(&h, &name);
    }
    order
}

#[test]
fn one_action_goes_next_before_a_hundred_thousand_of_another() {
    let mut w = World::new(Config { queued_tasks_max: 1_000_000, ..Config::default() });
    w.checked = false;
    submit_all(&mut w, "a", 100_000, |a| a);
    let all = threads(2);
    assert_eq!(share_out(&mut w, &all), BTreeMap::from([('a', 2)]));
    w.pass(30);
    w.submit(&by("b", "b"));
    assert_eq!(w.completed(&all[0], "a0"), "run b");
    assert_eq!(w.completed(&all[1], "a1"), "run a2");
}

#[test]
fn the_same_with_one_worker() {
    let mut w = World::default();
    submit_all(&mut w, "a", 9, |a| a);
    let h = worker("h");
    assert_eq!(w.idle(&h), "run a0");
    w.submit(&by("b", "b"));
    assert_eq!(w.completed(&h, "a0"), "run b");
    assert_eq!(w.completed(&h, "b"), "run a1");
}

#[test]
fn equal_invocations_get_equal_shares() {
    let mut w = World::default();
    ["a", "b", "c"].iter().for_each(|i| submit_all(&mut w, i, 20, |a| a));
    assert_eq!(share_out(&mut w, &threads(12)), BTreeMap::from([('a', 4), ('b', 4), ('c', 4)]));
}

#[test]
fn a_hundred_of_priority_is_half_as_many_workers() {
    let mut w = World::default();
    submit_all(&mut w, "a", 20, |a| a.priority(100));
    submit_all(&mut w, "b", 20, |a| a);
    assert_eq!(share_out(&mut w, &threads(9)), BTreeMap::from([('a', 3), ('b', 6)]));
}

#[test]
fn what_is_most_urgent_speaks_for_an_invocation() {
    let mut w = World::default();
    w.submit(&by("a", "a-background").priority(1000));
    w.submit(&by("b", "b").priority(100));
    w.submit(&by("a", "a"));
    assert_eq!(w.idle(&worker("h")), "run a");
    assert_eq!(w.idle(&worker("h2")), "run b");
}

#[test]
fn five_hundred_classes_are_one_share() {
    let mut w = World::default();
    for i in 0..500 {
        w.submit(&by("a", &format!("a{i}")).instance(&format!("x{i}")).with("cpu", &(i % 4).to_string()));
    }
    submit_all(&mut w, "b", 20, |a| a);
    let all: Vec<Worker> = threads(8).into_iter().map(|h| h.with("cpu", "4")).collect();
    assert_eq!(share_out(&mut w, &all), BTreeMap::from([('a', 4), ('b', 4)]));
}

#[test]
fn equals_take_turns() {
    let mut w = World::default();
    ["a", "b", "c"].iter().for_each(|i| submit_all(&mut w, i, 3, |a| a));
    assert_eq!(drain(&mut w), "abcabcabc");
}

#[test]
fn who_comes_back_has_been_served() {
    let mut w = World::default();
    submit_all(&mut w, "a", 9, |a| a);
    w.submit(&by("b", "b"));
    let h = worker("h");
    let (mut answer, mut order) = (w.idle(&h), String::new());
    for _ in 0..8 {
        order.push(run(&answer));
        let name = answer.strip_prefix("run ").unwrap().to_owned();
        if order.ends_with('b') {
            // Its next action comes when its last is done, before the worker says so.
            w.submit(&by("b", &format!("{name}+")));
        }
        answer = w.completed(&h, &name);
    }
    assert_eq!(order, "abababab");
}

#[test]
fn a_stream_of_new_invocations_shuts_nobody_out() {
    let mut w = World::default();
    submit_all(&mut w, "a", 9, |a| a);
    let h = worker("h");
    let mut answer = w.idle(&h);
    let mut order = String::new();
    for i in 0..300 {
        order.push(run(&answer));
        let name = answer.strip_prefix("run ").unwrap().to_owned();
        w.submit(&by(&format!("new{i}"), &format!("new{i}")));
        answer = w.completed(&h, &name);
    }
    assert!(order.starts_with("an") && order.matches('a').count() >= 4, "{order}");
}

#[test]
fn what_an_invocation_asks_for_directly_goes_before_its_children() {
    let mut w = World::default();
    submit_all(&mut w, "a/c", 2, |a| a);
    submit_all(&mut w, "a/b", 1, |a| a);
    w.submit(&by("a", "direct").priority(50));
    let h = worker("h");
    assert_eq!(w.idle(&h), "run direct");
    assert_eq!(w.completed(&h, "direct"), "run a-c0");
    assert_eq!(w.completed(&h, "a-c0"), "run a-b0");
    assert_eq!(w.completed(&h, "a-b0"), "run a-c1");
}

#[test]
fn shares_are_of_the_coarsest_first() {
    let mut w = World::default();
    ["a/x", "a/y", "a/z", "b/x"].iter().for_each(|i| submit_all(&mut w, i, 9, |a| a));
    assert_eq!(share_out(&mut w, &threads(6)), BTreeMap::from([('a', 3), ('b', 3)]));
}

#[test]
fn each_pool_is_shared_out_for_itself() {
    let mut w = World::default();
    submit_all(&mut w, "a", 3, |a| a.pool("gpu"));
    let gpu: Vec<Worker> = threads(3).into_iter().map(|h| h.pool("gpu")).collect();
    assert_eq!(share_out(&mut w, &gpu), BTreeMap::from([('a', 3)]));
    w.submit(&by("a", "a"));
    w.submit(&by("b", "b"));
    assert_eq!(w.idle(&worker("cpu1")), "run a", "what it has of another pool doesn't count");
    assert_eq!(w.idle(&worker("cpu2")), "run b");
}

#[test]
fn a_host_with_workers_of_two_pools() {
    let mut w = World::default();
    let cpu = |h: Worker| h.with("cpu", "1");
    let [p, q] = [cpu(worker("h/p").pool("p")), cpu(worker("h/q").pool("q"))];
    let elsewhere = cpu(worker("h2/p").pool("p"));
    // Of pool p a has a worker elsewhere, so there it is b's turn; of pool q nobody has any, and a came first.
    w.submit(&by("a", "a0").pool("p").with("cpu", "1"));
    assert_eq!(w.idle(&elsewhere), "run a0");
    w.submit(&by("c", "running").pool("p").with("cpu", "1"));
    assert_eq!(w.idle(&p), "run running");
    assert_eq!(w.idle(&q), "waits");
    w.submit(&by("a", "a1").with("cpu", "1"));
    w.submit(&by("b", "b").pool("p").with("cpu", "1"));
    assert_eq!(w.completed(&p, "running"), "waits");
    assert_eq!(w.answers(), ["h/q: run a1"], "what pool q chose is for a worker of pool q");
}

#[test]
fn what_a_worker_may_not_run_takes_no_turn() {
    let mut w = World::default();
    w.submit(&by("a", "a").with("gpu", "none"));
    w.submit(&by("b", "b").with("cpu", "9"));
    submit_all(&mut w, "c", 2, |a| a);
    assert_eq!(w.idle(&worker("h").with("cpu", "4")), "run c0");
    assert_eq!(w.idle(&worker("h2").with("gpu", "none")), "run a");
}

#[test]
fn a_shared_action_waits_for_all_who_want_it() {
    let mut w = World::default();
    submit_all(&mut w, "a", 20, |a| a);
    w.submit(&by("a", "shared").priority(10));
    let all = threads(4);
    assert_eq!(share_out(&mut w, &all), BTreeMap::from([('a', 4)]));
    // Alone it would be last; for b it is the first.
    assert!(w.joins(&by("b", "shared").priority(10)));
    assert_eq!(w.completed(&all[0], "a0"), "run shared");
    // It counts for both, so b has what a third would have.
    w.submit(&by("b", "b"));
    w.submit(&by("c", "c"));
    assert_eq!(w.completed(&all[1], "a1"), "run c");
    assert_eq!(w.completed(&all[2], "a2"), "run b");
}

#[test]
fn who_leaves_a_shared_action_gives_up_its_place() {
    let mut w = World::default();
    submit_all(&mut w, "a", 9, |a| a);
    w.submit(&by("a", "shared").priority(10));
    let h = worker("h");
    assert_eq!(w.idle(&h), "run a0");
    let (b, _, _) = w.try_submit(&by("b", "shared").priority(10)).unwrap();
    w.step(pointsman_scheduler::event::Event::Cancel(b));
    assert_eq!(w.completed(&h, "a0"), "run a1");
}

#[test]
fn a_policy_that_decides_anew_moves_an_action_to_another_invocation() {
    let mut w = World::default();
    submit_all(&mut w, "a", 9, |a| a);
    let last = w.submit(&by("a", "last"));
    let h = worker("h");
    assert_eq!(w.idle(&h), "run a0");
    w.reroute(last, &by("b", "last"));
    assert_eq!(w.completed(&h, "a0"), "run last");
}

#[test]
fn a_failed_action_goes_back_to_its_invocation() {
    let mut w = World::default();
    submit_all(&mut w, "a", 3, |a| a);
    submit_all(&mut w, "b", 3, |a| a);
    let all = threads(4);
    assert_eq!(share_out(&mut w, &all[..2]), BTreeMap::from([('a', 1), ('b', 1)]));
    assert_eq!(w.failed(&all[0], "a0", "disk full"), "run a1");
    assert_eq!(w.idle(&all[2]), "run b1", "of equals the one least recently started");
    assert_eq!(w.idle(&all[3]), "run a0", "in its old place");
}

#[test]
fn invocations_survive_a_restart() {
    let mut w = World::default();
    submit_all(&mut w, "a/x", 3, |a| a);
    w.submit(&by("a/x", "shared"));
    w.submit(&by("b", "shared"));
    w.submit(&by("a/y", "z"));
    w.restart();
    let all = threads(3);
    let answers: Vec<String> = all.iter().map(|h| w.idle(h)).collect();
    assert_eq!(answers, ["run a-x0", "run shared", "run z"]);
}
