//! Why an action waits, as data and in words.

use std::collections::BTreeSet;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::explain::{Explanation, Obstacle, Reason, UNAVAILABLE_MAX};
use pointsman_scheduler::explain_text::Verdict;
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::scheduler::Config;

use crate::support::{Ask, Worker, World, ask, worker};

/// What is said of an action while these workers wait.
fn why(workers: &[Worker], ask: &Ask) -> Explanation {
    let mut w = World::default();
    for worker in workers {
        w.idle(worker);
    }
    let plan = w.plan(ask);
    let operation = w.submit(ask);
    let why = w.why(operation);
    if why.reason != Reason::Running {
        assert_eq!((plan.reason, &plan.counts), (why.reason, &why.counts), "planned otherwise");
        assert_eq!(plan.log_lines(), why.log_lines());
    }
    why
}

fn counts(why: &Explanation) -> Vec<(&'static str, usize)> {
    why.counts.iter().map(|(o, n)| (o.code(), *n)).collect()
}

// === Each reason ===

#[test]
fn no_worker_registered() {
    let why = why(&[], &ask("a").with("gpu", "x"));
    assert_eq!((why.reason, counts(&why)), (Reason::NoWorkerRegistered, vec![]));
    assert_eq!(
        why.to_string(),
        "queued for 0 s (no-worker-registered): no worker is connected; to unblock it: start a worker that connects \
         to this scheduler"
    );
}

#[test]
fn unknown_property() {
    let why = why(&[worker("h")], &ask("a").with("typo", "1"));
    assert_eq!(why.reason, Reason::UnknownProperty);
    assert!(why.to_string().contains("'typo' is not in supported_platform_properties"), "{why}");
    assert_eq!(self::why(&[], &ask("a").with("typo", "1")).reason, Reason::UnknownProperty);
}

#[test]
fn no_instance_match_no_pool_no_size_class() {
    let why_not = |a: Ask| why(&[worker("h").prefix("x")], &a);
    assert_eq!(why_not(ask("a")).reason, Reason::NoInstanceMatch);
    assert_eq!(why_not(ask("a").instance("x").pool("p")).reason, Reason::NoPool);
    assert_eq!(why_not(ask("a").instance("x").size(1)).reason, Reason::NoSizeClass);
    assert_eq!(counts(&why_not(ask("a").instance("x").size(1))), [("other-size-class", 1)]);
}

#[test]
fn an_exact_property_with_another_value() {
    let workers = [
        worker("h1").with("gpu", "none"),
        worker("h2").with("gpu", "none").with("gpu", " A100 "),
        worker("h3"),
    ];
    let why = why(&workers, &ask("a").with("gpu", "a100"));
    assert_eq!((why.reason, counts(&why)), (Reason::NoPropertyMatch, vec![("property-mismatch", 3)]));
    assert_eq!(
        why.to_string(),
        "queued for 0 s (no-property-match): no worker has what it asks for; of 3 known workers 3 lack a property it \
         asks for; gpu must be \"a100\", which 3 workers don't offer (offered: \" A100 \" on 1, \"none\" on 2) - \
         \" A100 \" differs only in case or spaces; to unblock it: start a worker with gpu=a100"
    );
}

#[test]
fn an_exact_property_that_nobody_carries() {
    let why = why(&[worker("h1").with("os", "linux")], &ask("a").with("gpu", "a100"));
    assert!(why.to_string().contains("which 1 worker doesn't offer (none offers any value)"), "{why}");
}

#[test]
fn a_key_that_nobody_carries() {
    let os = why(&[worker("h")], &ask("a").with("os", ""));
    assert!(os.to_string().contains("; 1 worker doesn't have the key os;"), "{os}");
    assert!(os.to_string().ends_with("to unblock it: start a worker with the key os"), "{os}");
    let cpu = why(&[worker("h"), worker("h2")], &ask("a").with("cpu", "4"));
    assert!(cpu.to_string().contains("2 workers don't have the key cpu"), "{cpu}");
    assert!(cpu.to_string().ends_with("start a worker with cpu of 4 or more"), "{cpu}");
}

#[test]
fn each_property_is_there_and_never_together() {
    let workers = [worker("h1").with("gpu", "a"), worker("h2").with("os", "linux")];
    let why = why(&workers, &ask("a").with("gpu", "a").with("os", "linux"));
    assert_eq!(why.reason, Reason::NoPropertyMatch);
    assert!(why.to_string().ends_with("start a worker with the key os, and gpu=a"), "{why}");
}

#[test]
fn more_than_any_host_has() {
    let workers = [worker("h1").with("cpu", "8"), worker("h2").with("cpu", "4")];
    let why = why(&workers, &ask("a").with("cpu", "32"));
    assert_eq!((why.reason, counts(&why)), (Reason::NeverFits, vec![("never-fits", 2)]));
    assert_eq!(
        why.to_string(),
        "queued for 0 s (never-fits): it asks for more than any host has in all; of 2 known workers 2 are too small; \
         cpu 32 is asked for, the most that a host has left is 8 of 8; to unblock it: start a worker with cpu of 32 \
         or more, or ask for less"
    );
}

#[test]
fn enough_in_all_and_too_little_left() {
    let mut w = World::default();
    w.idle(&worker("h/1").with("cpu", "8"));
    w.idle(&worker("h/2").with("cpu", "8"));
    w.submit(&ask("a").with("cpu", "6"));
    let b = w.submit(&ask("b").with("cpu", "3"));
    let why = w.why(b);
    assert_eq!((why.reason, counts(&why)), (Reason::AllBusy, vec![("busy", 1), ("not-enough-free", 1)]));
}

#[test]
fn all_are_busy() {
    let mut w = World::default();
    for (key, name) in [("h1", "a"), ("h2/1", "b")] {
        w.idle(&worker(key).at_once(1));
        w.submit(&ask(name));
    }
    w.idle(&worker("h2/2").at_once(1));
    let c = w.submit(&ask("c"));
    let why = w.why(c);
    assert_eq!((why.reason, counts(&why)), (Reason::AllBusy, vec![("busy", 2), ("max-inflight", 1)]));
    assert_eq!(
        why.to_string(),
        "queued for 0 s (all-busy): every worker that could run it is busy; of 3 known workers 2 are busy, 1 is on a \
         host at its max_inflight_tasks"
    );
}

#[test]
fn drained_and_paused() {
    let mut w = World::default();
    for key in ["h1", "h2/1", "h2/2"] {
        w.idle(&worker(key));
    }
    w.hold(Hold::Drain, &[("host", "h1")]);
    w.hold(Hold::Drain, &[("host", "h2")]);
    let a = w.submit(&ask("a"));
    let why = w.why(a);
    assert_eq!((why.reason, counts(&why)), (Reason::Drained, vec![("drained", 3)]));
    assert!(why.to_string().ends_with("to unblock it: remove the drain, or start another worker like these"));
    assert_eq!(
        why.log_lines(),
        [
            "Worker h1 cannot accept work: is_paused=false, is_draining=true, inflight=0/1",
            "Worker h2 cannot accept work: is_paused=false, is_draining=true, inflight=0/2",
            "All workers are fully allocated or cannot accept work",
        ]
    );
    w.let_go(Hold::Drain, &[("host", "h2")]);
    assert_eq!(w.why(a).reason, Reason::Running);
    w.hold(Hold::Pause, &[("host", "h2")]);
    let b = w.submit(&ask("b"));
    let why = w.why(b);
    assert_eq!((why.reason, counts(&why)), (Reason::Paused, vec![("drained", 1), ("paused", 2)]));
    assert!(!why.reason.is_never());
    assert_eq!(
        why.log_lines()[1],
        "Worker h2 cannot accept work: is_paused=true, is_draining=false, inflight=1/2"
    );
}

#[test]
fn same_action_there_and_failed_there() {
    let mut w = World::default();
    w.idle(&worker("h1/1"));
    w.idle(&worker("h1/2"));
    let a = w.submit(&ask("a"));
    let twin = w.submit(&ask("a").unshared());
    let why = w.why(twin);
    assert_eq!((why.reason, counts(&why)), (Reason::AllBusy, vec![("busy", 1), ("same-action-there", 1)]));
    w.step(Event::Cancel(twin));
    w.idle(&worker("h2"));
    w.submit(&ask("b"));
    w.submit(&ask("c"));
    w.failed(&worker("h1/1"), "a", "disk full");
    let why = w.why(a);
    assert_eq!(counts(&why), [("failed-there", 2), ("busy", 1)]);
    assert_eq!(why.reason, Reason::AllBusy);
    assert!(why.to_string().ends_with("; attempt 1 on h1 failed: disk full"), "{why}");
}

#[test]
fn a_worker_that_does_not_call() {
    let mut w = World::default();
    w.idle(&worker("h"));
    w.drop_poll(&worker("h"));
    let a = w.submit(&ask("a"));
    let why = w.why(a);
    assert_eq!((why.reason, counts(&why)), (Reason::AllBusy, vec![("not-calling", 1)]));
    assert!(why.unavailable.is_empty(), "it could take something");
}

#[test]
fn it_runs() {
    let mut w = World::default();
    w.idle(&worker("h"));
    let a = w.submit(&ask("a"));
    w.pass(150);
    let a = w.core.operation_by_id(a).map(|_| a).unwrap();
    assert_eq!(w.state(a), "queued");
    w.idle(&worker("h2"));
    assert!(
        w.why(a).to_string().starts_with("running on h2, 2 min after it arrived; attempt 1 on h failed: ")
    );
}

#[test]
fn one_worker_is_counted_once_under_the_first_thing() {
    let workers = [
        worker("far").prefix("x").pool("p").size(1),
        worker("pool").pool("q").size(1),
        worker("size").size(1).with("gpu", "b"),
        worker("gpu").with("gpu", "b").with("cpu", "9"),
        worker("cpu").with("gpu", "a").with("cpu", "1"),
    ];
    let mut a = ask("a").with("gpu", "a").with("cpu", "2").size(0).pool("");
    let all = why(&workers, &a);
    assert_eq!(
        counts(&all),
        [
            ("other-instance", 1),
            ("other-pool", 1),
            ("other-size-class", 1),
            ("property-mismatch", 1),
            ("never-fits", 1)
        ]
    );
    assert_eq!(all.reason, Reason::NeverFits, "who comes furthest");
    a.route.platform.clear();
    assert_eq!(why(&workers, &a).reason, Reason::Running);
}

/// One queue with every reason that an action may wait for, but that there is no worker.
#[test]
fn every_reason_at_once() {
    let mut w = World::new(Config { quarantine_after: 2, ..Config::default() });
    let of = |tag: &str| worker(tag).prefix("x").with("tag", tag).with("cpu", "4");
    let any = |name: &str| ask(name).instance("x");
    let tagged = |name: &str, tag: &str| any(name).with("tag", tag).with("cpu", "3");
    for tag in ["drained", "paused", "sick", "failed", "busy"] {
        w.idle(&of(tag));
    }
    w.hold(Hold::Drain, &[("host", "drained")]);
    w.hold(Hold::Pause, &[("host", "paused")]);
    for (name, tag) in [("s1", "sick"), ("s2", "sick"), ("f", "failed")] {
        w.submit(&tagged(name, tag));
        w.failed(&of(tag), name, "disk full");
    }
    w.submit(&tagged("b", "busy"));
    let asks = [
        ("unknown-property", any("1").with("typo", "")),
        ("no-instance-match", ask("2")),
        ("no-pool", any("3").pool("p")),
        ("no-size-class", any("4").size(7)),
        ("no-property-match", any("5").with("gpu", "x")),
        ("never-fits", any("6").with("cpu", "5")),
        ("drained", tagged("7", "drained")),
        ("paused", tagged("8", "paused")),
        ("quarantined", tagged("9", "sick")),
        ("all-busy", tagged("10", "busy")),
        ("backing-off", tagged("f", "failed")),
    ];
    for (code, ask) in &asks {
        let plan = w.plan(ask);
        let operation = w.submit(ask);
        let why = w.why(operation);
        assert_eq!((why.reason.code(), why.workers), (*code, 5), "{why}");
        let waits = ["all-busy", "backing-off"].contains(code);
        assert_eq!(why.remedy().is_none(), waits, "{why}");
        // What hasn't failed yet would run where this one rests.
        let planned = if *code == "backing-off" { "next" } else { code };
        assert_eq!(plan.reason.code(), planned, "{plan}");
        assert_eq!(plan.counts.iter().map(|(_, n)| n).sum::<usize>(), 5);
    }
    let classes = w.core.queue(99);
    assert_eq!(classes.iter().map(|c| c.count).sum::<usize>(), w.core.counts().queued);
    let shown: BTreeSet<_> = classes.iter().map(|c| c.explanation.reason.code()).collect();
    assert_eq!(shown, asks.iter().map(|(code, _)| *code).collect());
}

// === Position, samples ===

#[test]
fn what_is_before_it_is_counted_to_a_thousand() {
    let mut w = World::default();
    w.checked = false;
    let ops: Vec<_> = (0..1100).map(|i| w.submit(&ask(&i.to_string()))).collect();
    w.submit(&ask("other").with("os", ""));
    assert_eq!(w.why(ops[1]).position, 1);
    assert!(w.why(ops[1]).to_string().contains("; 1 like it is before it"));
    assert!(w.why(ops[1099]).to_string().contains("; 1000 or more like it are before it"));
    assert_eq!(w.why(ops[1099]).alike, 1100);
    let plan = w.plan(&ask("new"));
    assert_eq!((plan.position, plan.alike), (1000, 1100));
    assert_eq!(w.plan(&ask("first").priority(-1)).position, 0);
}

#[test]
fn few_hosts_are_named() {
    let mut w = World::default();
    for i in 0..20 {
        w.idle(&worker(&format!("h{i}")));
    }
    w.hold(Hold::Drain, &[]);
    let a = w.submit(&ask("a"));
    assert_eq!(w.why(a).unavailable.len(), UNAVAILABLE_MAX);
}

// === Plan ===

#[test]
fn a_plan_queues_nothing_and_says_what_would_be() {
    let mut w = World::default();
    w.idle(&worker("h").with("cpu", "4"));
    let now = w.plan(&ask("a").with("cpu", "4"));
    assert_eq!((now.reason, now.verdict()), (Reason::Next, Verdict::Now));
    assert_eq!(
        now.to_string(),
        "would run now (next): a worker is about to take it, or one before it; of 1 known worker 1 is free"
    );
    let never = w.plan(&ask("a").with("cpu", "5"));
    assert_eq!(never.verdict(), Verdict::Never);
    assert!(never.to_string().starts_with("would never run with the workers that are known (never-fits): "));
    w.submit(&ask("b"));
    let waits = w.plan(&ask("a").with("cpu", "4"));
    assert_eq!(waits.verdict(), Verdict::Waits);
    assert!(waits.to_string().starts_with("would wait (all-busy): every worker that could run it is busy; "));
    assert_eq!((w.core.counts().queued, w.core.counts().running), (0, 1));
}

// === The queue, and whose it is ===

#[test]
fn the_queue_by_requirements() {
    let mut w = World::default();
    for i in 0..7 {
        w.submit(&ask(&format!("gpu{i}")).with("gpu", "x"));
        w.pass(1);
    }
    w.submit(&ask("plain"));
    let queue = w.core.queue(10);
    let seen: Vec<_> =
        queue.iter().map(|c| (c.count, c.operations.len(), c.explanation.age.as_secs())).collect();
    assert_eq!(seen, [(7, 5, 7), (1, 1, 0)]);
    assert_eq!(&*queue[0].operations[0], "operation-1");
    assert_eq!(w.core.queue(1).len(), 1);
}

#[test]
fn operations_are_found_by_invocation_and_by_requirements() {
    let mut w = World::default();
    let of = |mut a: Ask, keys: &[&str]| {
        a.route.invocation_keys = keys.iter().map(|k| (*k).into()).collect();
        a
    };
    let a = w.submit(&of(ask("a"), &["ci", "1"]));
    let b = w.submit(&of(ask("b").with("os", ""), &["ci", "2"]));
    let joined = w.submit(&of(ask("a"), &["dev", "1"]));
    w.submit(&of(ask("c"), &[]));
    let found = |w: &World, keys: &[&str]| {
        w.core.operations_of_invocation(&keys.iter().map(|k| (*k).into()).collect::<Vec<_>>())
    };
    assert_eq!(found(&w, &["ci"]), [a, b]);
    assert_eq!(found(&w, &["ci", "2"]), [b]);
    assert_eq!(found(&w, &["dev"]), [joined], "its own client's, whose action it shares");
    assert_eq!(found(&w, &["c"]), []);
    assert_eq!(found(&w, &[]).len(), 4);
    assert_eq!(w.core.operations_alike(w.task(b)), [b]);
    assert_eq!(w.core.operations_alike(w.task(a)).len(), 3);
    w.step(Event::Cancel(a));
    assert_eq!(found(&w, &["ci"]), [b]);
    assert_eq!(Obstacle::Nothing.code(), "free");
}
