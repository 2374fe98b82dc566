//! Groups of which only so many execute at once.

use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::route::Scope;

use crate::support::{Ask, World, ask, worker};

fn licensed(name: &str, scope: Scope, at_most: u32) -> Ask {
    ask(name).group("licence", scope, at_most)
}

#[test]
fn a_pool_never_executes_more() {
    let mut w = World::default();
    let workers: Vec<_> = (0..4).map(|i| worker(&format!("h{i}"))).collect();
    workers.iter().for_each(|x| _ = w.idle(x));
    let ops: Vec<_> = ["a", "b", "c", "d"].iter().map(|n| w.submit(&licensed(n, Scope::Pool, 2))).collect();
    assert_eq!(w.answers(), ["h0: run a", "h1: run b"]);
    let why = w.why(ops[2]);
    assert_eq!(
        (why.reason, why.counts),
        (Reason::GroupFull, vec![(Obstacle::Busy, 2), (Obstacle::GroupFull, 2)])
    );
    let other = w.submit(&ask("other"));
    assert_eq!(w.answers(), ["h2: run other"], "others pass");
    assert_eq!(w.state(other), "on h2");
    // The token goes to whoever waits for one, also on another host.
    assert_eq!(w.completed(&workers[0], "a"), "run c");
    assert_eq!(w.uploading(&workers[1], "b"), "continue");
    assert_eq!(w.answers(), ["h3: run d"], "b executes no more");
    assert_eq!(w.completed(&workers[1], "b"), "waits");
}

#[test]
fn each_pool_counts_for_itself_and_a_cluster_as_one() {
    for (scope, running) in [(Scope::Pool, 2), (Scope::Cluster, 1)] {
        let mut w = World::default();
        for key in ["p1", "p2", "q1", "q2"] {
            w.idle(&worker(key).pool(&key[..1]));
        }
        for name in ["a", "b", "c"] {
            w.submit(&licensed(name, scope, 1));
        }
        assert_eq!(w.answers().len(), running, "{scope:?}");
    }
}

#[test]
fn each_host_counts_for_itself() {
    let mut w = World::default();
    let workers: Vec<_> = ["h/1", "h/2", "h/3", "i/1"].map(worker).into();
    workers.iter().for_each(|x| _ = w.idle(x));
    let ops: Vec<_> = ["a", "b", "c"].iter().map(|n| w.submit(&licensed(n, Scope::Host, 1))).collect();
    assert_eq!(w.answers(), ["h/1: run a", "i/1: run b"]);
    assert_eq!(w.why(ops[2]).reason, Reason::GroupFull);
    assert_eq!(w.uploading(&workers[0], "a"), "continue");
    assert_eq!(w.answers(), ["h/2: run c"]);
}

#[test]
fn groups_are_told_apart_by_name_and_scope() {
    let mut w = World::default();
    for i in 0..4 {
        w.idle(&worker(&format!("h{i}")));
    }
    w.submit(&ask("a").group("x", Scope::Cluster, 1));
    w.submit(&ask("b").group("y", Scope::Cluster, 1));
    w.submit(&ask("c").group("x", Scope::Pool, 1));
    let d = w.submit(&ask("d").group("x", Scope::Cluster, 1));
    assert_eq!(w.answers().len(), 3);
    assert_eq!(w.state(d), "queued");
    // A policy that has been swapped in allows more.
    let e = w.submit(&ask("e").group("x", Scope::Cluster, 2));
    assert_eq!(w.state(e), "on h3");
}

#[test]
fn a_token_comes_back_from_whoever_is_lost() {
    let mut w = World::default();
    w.idle(&worker("h"));
    w.submit(&licensed("a", Scope::Cluster, 1));
    let b = w.submit(&licensed("b", Scope::Cluster, 1));
    w.pass(30);
    let i = worker("i");
    assert_eq!(w.idle(&i), "waits");
    w.pass(60);
    assert_eq!(w.answers().last().unwrap(), "i: run a", "a came first");
    assert_eq!(w.completed(&i, "a"), "run b");
    assert_eq!(w.state(b), "on i");
}

#[test]
fn what_waits_for_a_token_is_in_no_workers_sight() {
    let mut w = World::default();
    w.checked = false;
    let workers: Vec<_> = (0..3).map(|i| worker(&format!("h{i}"))).collect();
    w.idle(&workers[0]);
    w.submit(&licensed("first", Scope::Cluster, 1));
    for i in 0..2_000 {
        w.submit(&ask(&format!("{i}")).with("tag", &format!("{}", i % 50)).group(
            "licence",
            Scope::Cluster,
            1,
        ));
        w.submit(&licensed(&format!("plain-{i}"), Scope::Cluster, 1));
    }
    let tagged = (0..50).fold(workers[1].clone(), |x, i| x.with("tag", &format!("{i}")));
    w.idle(&tagged);
    w.completed(&tagged, "nothing");
    let before = w.core.probes();
    w.completed(&tagged, "nothing");
    assert!(w.core.probes() - before < 10, "{} look-ups", w.core.probes() - before);
    w.core.check().unwrap();
}

#[test]
fn a_token_that_comes_back_goes_to_whom_a_host_is_kept_free_for() {
    let mut w = World::default();
    let threads: Vec<_> = (0..3).map(|i| worker(&format!("h/{i}")).with("cpu", "4")).collect();
    let other = worker("i").with("cpu", "1");
    // Something small runs on h for as long as it takes, so that there is no room for all of it.
    w.submit(&ask("small").with("cpu", "1"));
    assert_eq!(w.idle(&threads[0]), "run small");
    w.executing(&threads[0], "small");
    let large = w.submit(&licensed("large", Scope::Cluster, 1).with("cpu", "4"));
    assert_eq!(w.idle(&threads[1]), "waits");
    for _ in 0..2 {
        w.pass(40);
        w.executing(&threads[0], "small");
        w.idle(&threads[1]);
    }
    assert_eq!(w.why(large).kept.as_deref(), Some("h"));
    // Meanwhile the token goes to another, which takes less.
    w.submit(&licensed("little", Scope::Cluster, 1).with("cpu", "1"));
    assert_eq!(w.idle(&other), "run little");
    w.executing(&other, "little");
    assert_eq!(w.completed(&threads[0], "small"), "waits", "there is room, and no token");
    w.answers();
    assert_eq!(w.completed(&other, "little"), "waits");
    assert_eq!(w.state(large), "on h");
}

#[test]
fn a_token_that_goes_to_the_next_costs_no_look_at_all_who_wait() {
    let mut w = World::default();
    w.checked = false;
    let [one, two] = ["h0", "h1"].map(worker);
    w.idle(&one);
    w.submit(&licensed("0", Scope::Cluster, 1));
    (1..2_000).for_each(|i| _ = w.submit(&licensed(&format!("{i}"), Scope::Cluster, 1)));
    w.idle(&two);
    let before = w.core.probes();
    assert_eq!(w.completed(&one, "0"), "run 1");
    assert!(w.core.probes() - before < 50, "{} look-ups", w.core.probes() - before);
    w.core.check().unwrap();
}

#[test]
fn a_token_finds_its_way_to_what_two_builds_want_each_for_itself() {
    let mut w = World::default();
    let (one, two) = (worker("h1"), worker("h2"));
    w.idle(&one);
    w.idle(&two);
    w.submit(&licensed("first", Scope::Cluster, 1));
    let same = |build: &str| licensed("same", Scope::Cluster, 1).invocation(build).unshared();
    w.submit(&same("a"));
    w.submit(&same("b"));
    w.answers();
    assert_eq!(w.uploading(&one, "first"), "continue");
    assert_eq!(w.answers(), ["h2: run same"]);
}
