//! What a step costs, counted in look-ups: it depends neither on how much waits that a worker may not run, nor on how
//! many workers there are that may not run it, nor on what a hostile client sends.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::scheduler::Config;

use support::{Ask, World, ask, worker};

/// A world of any size, unchecked, in which nobody is abandoned or lost.
fn large() -> World {
    let never = Duration::from_secs(1 << 30);
    let config = Config {
        abandoned: never,
        worker_expiry: never,
        queued_tasks_max: usize::MAX,
        classes_max: usize::MAX,
        workers_max: usize::MAX,
        ..Config::default()
    };
    let mut w = World::new(config);
    w.checked = false;
    w
}

/// Look-ups of what is done.
fn probes(w: &mut World, act: impl FnOnce(&mut World)) -> u64 {
    let before = w.core.probes();
    act(w);
    w.core.probes() - before
}

/// Look-ups of: submit to a worker that waits; submit two to a busy one; complete one after the other.
fn cycle(w: &mut World) -> [u64; 4] {
    let mut h = worker("cycle").with("os", "").with("cpu", "4").with("tag", "cycle");
    h.spec(&w.schema);
    let ask = |name| ask(name).with("os", "").with("tag", "cycle").with("cpu", "2").timeout(77);
    // The first to ask for a property pays for it.
    w.submit(&ask("first"));
    assert_eq!(w.idle(&h), "run first");
    assert_eq!(w.completed(&h, "first"), "waits");
    let costs = [
        probes(w, |w| _ = w.submit(&ask("a"))),
        probes(w, |w| _ = [w.submit(&ask("b")), w.submit(&ask("c"))]),
        probes(w, |w| assert_eq!(w.completed(&h, "a"), "run b")),
        probes(w, |w| assert_eq!(w.completed(&h, "b"), "run c")),
    ];
    assert_eq!(w.completed(&h, "c"), "waits");
    costs
}

fn cycle_with(prepare: impl Fn(&mut World)) -> [u64; 4] {
    let mut w = large();
    prepare(&mut w);
    let costs = cycle(&mut w);
    assert!(costs.iter().all(|c| *c < 16), "{costs:?}");
    costs
}

fn submit_all(w: &mut World, n: usize, ask: impl Fn(usize) -> Ask) {
    for i in 0..n {
        w.submit(&ask(i));
    }
}

#[test]
fn with_a_hundred_thousand_of_one_class_that_nobody_serves() {
    let unmatched = |w: &mut World| submit_all(w, 100_000, |i| ask(&i.to_string()).with("gpu", "none"));
    assert_eq!(cycle_with(unmatched), cycle_with(|_| {}));
}

#[test]
fn with_a_hundred_thousand_classes_that_nobody_serves() {
    let unmatched = |w: &mut World| {
        submit_all(w, 100_000, |i| ask(&i.to_string()).with("gpu", &i.to_string()).with("os", ""));
        assert_eq!((w.core.counts().classes, w.core.counts().lanes), (100_000, 1));
    };
    assert_eq!(cycle_with(unmatched), cycle_with(|_| {}));
}

#[test]
fn with_thousands_of_workers_that_wait_elsewhere() {
    let fleet = |w: &mut World| {
        for i in 0..5_000 {
            let pool = format!("pool{}", i % 50);
            w.idle(&worker(&format!("h{i}")).with("os", "").with("cpu", "4").pool(&pool));
        }
    };
    assert_eq!(cycle_with(fleet), cycle_with(|_| {}));
}

#[test]
fn with_thousands_of_equal_workers() {
    let mut w = large();
    let alone = |w: &mut World| probes(w, |w| _ = w.submit(&ask("a").with("cpu", "1")));
    w.idle(&worker("h").with("cpu", "4"));
    let one = alone(&mut w);
    let mut w = large();
    for i in 0..5_000 {
        w.idle(&worker(&format!("h{i}")).with("cpu", "4"));
    }
    assert_eq!(alone(&mut w), one);
}

#[test]
fn a_hundred_thousand_of_one_digest() {
    let mut w = large();
    let [h1, h2] = ["h/1", "h/2"].map(|k| worker(k).with("os", ""));
    w.submit(&ask("d").unshared());
    assert_eq!(w.idle(&h1), "run d");
    submit_all(&mut w, 100_000, |i| match i % 3 {
        // Its host may not run it twice, so all of them wait: as what shares nothing, for unlike timeouts, under
        // many instance names.
        0 => ask("d").unshared(),
        1 => ask("d").timeout(i as u64),
        _ => ask("d").instance(&i.to_string()),
    });
    w.submit(&ask("e"));
    let costs = [
        probes(&mut w, |w| assert_eq!(w.idle(&h2), "run e")),
        probes(&mut w, |w| _ = w.submit(&ask("d").timeout(1_000_000))),
        probes(&mut w, |w| assert_eq!(w.completed(&h1, "d"), "run d")),
        probes(&mut w, |w| assert_eq!(w.completed(&h2, "e"), "waits")),
    ];
    assert!(costs.iter().all(|c| *c < 8), "{costs:?}");
}

#[test]
fn thousands_of_instance_names() {
    let mut w = large();
    let h = worker("h");
    w.submit(&ask("d0"));
    w.idle(&h);
    submit_all(&mut w, 10_000, |i| ask(&format!("d{}", i + 1)).instance(&i.to_string()));
    assert_eq!((w.core.counts().classes, w.core.counts().lanes), (10_001, 1));
    let costs = [
        probes(&mut w, |w| _ = w.submit(&ask("last").instance("10000"))),
        probes(&mut w, |w| assert_eq!(w.completed(&h, "d0"), "run d1")),
        probes(&mut w, |w| assert_eq!(w.completed(&h, "d1"), "run d2")),
    ];
    assert!(costs.iter().all(|c| *c < 8), "{costs:?}");
}

#[test]
fn as_many_unlike_demands_as_there_may_be() {
    let mut w = large();
    for i in 0..5_000 {
        w.idle(&worker(&format!("h{i}")).with("cpu", "100000"));
    }
    let mut dearest = 0;
    for i in 0..1_000 {
        let cpu = (i + 1).to_string();
        dearest = dearest.max(probes(&mut w, |w| _ = w.submit(&ask(&cpu).with("cpu", &cpu))));
        // Nobody asks twice for the same, and all that was given is taken back.
        let h = worker(&format!("h{i}")).with("cpu", "100000");
        w.completed(&h, &cpu);
    }
    assert!(dearest < 8, "{dearest}");
    assert!(w.core.counts().classes <= 1_025);
}

#[test]
fn any_number_of_invocations() {
    // Each waits for what the host may run, but not before its turn.
    let costs = |invocations: usize, deep: bool| {
        let mut w = large();
        let h = worker("h");
        let path = |i: usize| if deep { format!("user/{i}/tool") } else { i.to_string() };
        w.submit(&ask("a").invocation("first"));
        assert_eq!(w.idle(&h), "run a");
        submit_all(&mut w, invocations, |i| ask(&i.to_string()).invocation(&path(i)));
        [
            probes(&mut w, |w| _ = w.submit(&ask("last").invocation("last"))),
            probes(&mut w, |w| assert_eq!(w.completed(&h, "a"), "run 0")),
            probes(&mut w, |w| _ = w.submit(&ask("more").invocation(&path(0)))),
            probes(&mut w, |w| assert!(w.completed(&h, "0").starts_with("run "))),
        ]
    };
    for deep in [false, true] {
        let few = costs(2, deep);
        assert!(few.iter().all(|c| *c < 16), "{few:?}");
        assert_eq!((costs(100, deep), costs(10_000, deep)), (few, few));
    }
}

#[test]
fn many_invocations_that_want_what_the_host_runs() {
    let mut w = large();
    let [h1, h2] = ["h/1", "h/2"].map(worker);
    w.submit(&ask("d").unshared().invocation("a"));
    assert_eq!(w.idle(&h1), "run d");
    submit_all(&mut w, 10_000, |i| ask("d").unshared().invocation(&i.to_string()));
    w.submit(&ask("e").invocation("e"));
    let cost = probes(&mut w, |w| assert_eq!(w.idle(&h2), "run e"));
    assert!(cost < 200, "what is in sight of one digest is bounded: {cost}");
    let cost = probes(&mut w, |w| assert_eq!(w.completed(&h1, "d"), "run d"));
    assert!(cost < 8, "{cost}");
}

#[test]
fn a_host_with_many_threads() {
    let costs = |threads: usize| {
        let mut w = large();
        let all: Vec<_> = (0..threads)
            .map(|i| {
                let mut thread = worker(&format!("h/{i}")).with("cpu", "1000");
                thread.spec(&w.schema);
                thread
            })
            .collect();
        all.iter().for_each(|h| _ = w.idle(h));
        submit_all(&mut w, threads / 2, |i| ask(&i.to_string()).with("cpu", "2"));
        [
            probes(&mut w, |w| _ = w.submit(&ask("a").with("cpu", "2"))),
            probes(&mut w, |w| assert_eq!(w.completed(&all[0], "0"), "waits")),
            probes(&mut w, |w| assert_eq!(w.idle(&all[threads - 1]), "waits")),
        ]
    };
    assert_eq!(costs(4), costs(200));
}

#[test]
fn a_host_where_everything_fails() {
    let mut w = large();
    let [good, bad] = ["good", "bad"].map(worker);
    w.submit(&ask("long"));
    w.idle(&good);
    submit_all(&mut w, 1_000, |i| ask(&i.to_string()));
    let mut answer = w.idle(&bad);
    let mut dearest = 0;
    while let Some(name) = answer.strip_prefix("run ").map(str::to_owned) {
        let cost = probes(&mut w, |w| answer = w.failed(&bad, &name, "disk full"));
        dearest = dearest.max(cost);
    }
    assert_eq!(w.queue().len(), 1_000);
    assert!(dearest < 16, "{dearest}");
    assert_eq!(w.completed(&good, "long"), "run 0");
}

#[test]
fn a_worker_that_comes_to_a_long_queue() {
    let mut w = large();
    submit_all(&mut w, 50_000, |i| ask(&format!("l{i}")).with("tag", "linux"));
    submit_all(&mut w, 50_000, |i| ask(&format!("x{i}")).with("gpu", &i.to_string()));
    let windows = w.submit(&ask("w").with("tag", "windows"));
    // Only the class that it serves moves, though it waits among a hundred thousand others.
    let windows_host = worker("windows").with("tag", "windows").with("os", "");
    let cost = probes(&mut w, |w| assert_eq!(w.idle(&windows_host), "run w"));
    assert!(cost < 16, "{cost}");
    w.step(Event::Cancel(windows));
    // All other workers of that kind find everything in place.
    let cost = probes(&mut w, |w| assert_eq!(w.idle(&worker("linux1").with("tag", "linux")), "run l0"));
    assert!(cost < 150_000, "{cost}");
    let cost = probes(&mut w, |w| assert_eq!(w.idle(&worker("linux2").with("tag", "linux")), "run l1"));
    assert!(cost < 16, "{cost}");
    w.core.check().unwrap();
}

#[test]
fn as_many_demands_as_there_may_be_wait() {
    let mut w = large();
    let h = worker("h").with("cpu", "2");
    submit_all(&mut w, 64_000, |i| ask(&i.to_string()).with("cpu", &(1 + i % 64).to_string()));
    assert_eq!(w.idle(&h), "run 0");
    let costs = [
        probes(&mut w, |w| assert_eq!(w.completed(&h, "0"), "run 1")),
        probes(&mut w, |w| assert_eq!(w.completed(&h, "1"), "run 64")),
    ];
    assert!(costs.iter().all(|c| *c < 64 + 8), "a look at each demand, whatever the queue: {costs:?}");
}

#[test]
fn hosts_that_vanish_all_at_once() {
    let cost_of_one = |hosts: usize| {
        let mut w = large();
        w.config.worker_expiry = Duration::from_secs(60);
        w.core = pointsman_scheduler::scheduler::Scheduler::new(w.config, w.schema.clone());
        submit_all(&mut w, hosts, |i| ask(&i.to_string()));
        for i in 0..hosts {
            assert_eq!(w.idle(&worker(&format!("h{i}"))), format!("run {i}"));
        }
        w.now = w.now + Duration::from_secs(60);
        let all = probes(&mut w, |w| w.step(Event::Deadline));
        assert_eq!((w.queue().len(), w.core.counts().hosts), (hosts, 0));
        all / hosts as u64
    };
    let (few, many) = (cost_of_one(100), cost_of_one(1_000));
    assert!(many <= few + 4, "{few} for each of a hundred, {many} for each of a thousand");
}
