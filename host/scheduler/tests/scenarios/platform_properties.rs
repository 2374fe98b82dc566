//! What the guide to platform properties states, one test each, under its headings and with its worked examples.

use std::sync::Arc;

use pointsman_scheduler::explain::Reason;
use pointsman_scheduler::explain_text::Verdict;
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::properties::{PropertyError, PropertyType, Schema, UnknownProperty};
use pointsman_scheduler::route::Property;
use pointsman_scheduler::scheduler::Config;

use crate::support::{self, Ask, Worker, World, ask, worker};

/// The guide's keys, and one of each further type.
fn schema(unknown: UnknownProperty) -> Schema {
    let types = [
        ("cpu_count", PropertyType::Minimum),
        ("OSFamily", PropertyType::Priority),
        ("container-image", PropertyType::Priority),
        ("image", PropertyType::Exact),
        ("gpu", PropertyType::Exact),
        ("note", PropertyType::Ignore),
    ];
    Schema::new(types.map(|(k, t)| (k.into(), t)), unknown)
}

fn world() -> World {
    world_where(UnknownProperty::Queue)
}

fn world_where(unknown: UnknownProperty) -> World {
    World::with_schema(Config::default(), Arc::new(schema(unknown)))
}

/// Whether the worker would run the action.
fn meets(worker: Worker, ask: Ask) -> bool {
    support::meets(world, &worker, &ask)
}

/// What the log says of an action that waits for these workers.
fn lines(workers: &[Worker], ask: &Ask) -> Vec<String> {
    let mut w = world();
    for worker in workers {
        w.idle(worker);
    }
    let operation = w.submit(ask);
    w.why(operation).log_lines()
}

/// What the host of a worker has left of `cpu_count`.
fn left(w: &World) -> u64 {
    w.core.workers().next().unwrap().amounts[0].free
}

fn threads(count: usize, cpus: &str) -> Vec<Worker> {
    (0..count).map(|i| worker(&format!("h/{i:02}")).with("cpu_count", cpus)).collect()
}

// === Three places, four types ===

#[test]
fn a_key_outside_the_schema_is_valid_on_neither_side() {
    let schema = schema(UnknownProperty::Reject);
    let typo = [Property::new("gpus", "1")];
    for error in [schema.action(&typo).unwrap_err(), schema.worker(&typo).unwrap_err()] {
        assert!(matches!(error, PropertyError::Unknown { .. }), "{error}");
        assert!(error.to_string().contains("'gpus'") && error.to_string().contains("'gpu'?"), "{error}");
    }
}

#[test]
fn ignore_is_the_only_type_that_exempts_a_worker_from_the_key() {
    for (key, value, exempt) in
        [("note", "x", true), ("gpu", "x", false), ("OSFamily", "x", false), ("cpu_count", "0", false)]
    {
        assert_eq!(meets(worker("h"), ask("a").with(key, value)), exempt, "{key}");
    }
}

// === Presence before value ===

#[test]
fn presence_is_checked_before_value() {
    // Not even nothing at all of a minimum can be had from a worker without the key.
    assert!(!meets(worker("h"), ask("a").with("cpu_count", "0")));
    assert!(meets(worker("h").with("cpu_count", "0"), ask("a").with("cpu_count", "0")));
    // That it has too little is no matter while it lacks another key.
    let small = worker("h").with("cpu_count", "8");
    assert_eq!(
        lines(&[small], &ask("a").with("cpu_count", "32").with("OSFamily", "")),
        [r#"No candidate workers due to a lack of key 'OSFamily'. Job asked for Priority("")"#]
    );
}

#[test]
fn priority_stops_caring_about_the_value_only() {
    assert!(meets(worker("h").with("OSFamily", "windows"), ask("a").with("OSFamily", "linux")));
    assert!(!meets(worker("h"), ask("a").with("OSFamily", "linux")), "it omits the key");
    assert!(!meets(worker("h"), ask("a").with("OSFamily", "")));
}

#[test]
fn an_empty_value_is_a_value() {
    assert!(meets(worker("h").with("OSFamily", ""), ask("a").with("OSFamily", "linux")));
    assert!(meets(worker("h").with("gpu", ""), ask("a").with("gpu", "")));
    assert!(!meets(worker("h").with("gpu", ""), ask("a").with("gpu", "a100")));
    assert!(!meets(worker("h"), ask("a").with("gpu", "")));
}

#[test]
fn exact_compares_with_all_that_the_worker_lists() {
    let both = worker("h").with("gpu", "a100").with("gpu", "h100");
    assert!(meets(both.clone(), ask("a").with("gpu", "h100")));
    assert!(meets(both, ask("a").with("gpu", "a100").with("gpu", "h100")));
    assert!(!meets(worker("h").with("gpu", "a100"), ask("a").with("gpu", "a100").with("gpu", "h100")));
}

#[test]
fn minimum_wants_the_key_and_as_much() {
    assert!(meets(worker("h").with("cpu_count", "4"), ask("a").with("cpu_count", "4")));
    assert!(!meets(worker("h").with("cpu_count", "4"), ask("a").with("cpu_count", "5")));
    // As numbers, not as text.
    assert!(meets(worker("h").with("cpu_count", "16"), ask("a").with("cpu_count", "9")));
}

#[test]
fn a_workers_other_properties_do_not_matter() {
    let much = worker("h").with("gpu", "a100").with("OSFamily", "linux").with("cpu_count", "8");
    assert!(meets(much.clone().with("note", "x"), ask("a")));
    assert!(meets(much, ask("a").with("OSFamily", "")));
}

// === minimum is consumed ===

#[test]
fn four_actions_of_4_leave_nothing_of_16_until_one_ends() {
    let mut w = world();
    let threads = threads(6, "16");
    for thread in &threads {
        w.idle(thread);
    }
    for (name, left_after) in [("a", 12), ("b", 8), ("c", 4), ("d", 0)] {
        w.submit(&ask(name).with("cpu_count", "4"));
        assert_eq!(left(&w), left_after);
    }
    assert_eq!(w.answers().len(), 4);
    let one = w.submit(&ask("one").with("cpu_count", "1"));
    assert_eq!((w.state(one), w.queue()), ("queued".to_owned(), vec!["one".to_owned()]));
    assert_eq!(
        w.why(one).log_lines(),
        ["Property mismatch on worker property cpu_count. Minimum(0) < Minimum(1)"]
    );
    w.completed(&threads[0], "a");
    assert_eq!((w.state(one), left(&w)), ("on h".to_owned(), 3), "4 came back, 1 is gone again");
}

#[test]
fn all_comes_back_when_the_last_action_ends() {
    let mut w = world();
    let threads = threads(2, "16");
    for (thread, name) in threads.iter().zip(["a", "b"]) {
        w.submit(&ask(name).with("cpu_count", "7"));
        w.idle(thread);
    }
    assert_eq!(left(&w), 2);
    for (thread, name) in threads.iter().zip(["a", "b"]) {
        w.completed(thread, name);
    }
    assert_eq!(left(&w), 16);
}

#[test]
fn asking_32_of_16_never_runs_and_nothing_is_put_together_from_several_workers() {
    let mut w = world();
    for host in ["h1", "h2", "h3"] {
        w.idle(&worker(host).with("cpu_count", "16"));
    }
    let big = w.submit(&ask("big").with("cpu_count", "32"));
    let why = w.why(big);
    assert_eq!((why.reason, why.reason.is_never()), (Reason::NeverFits, true));
    assert_eq!(w.plan(&ask("big").with("cpu_count", "32")).verdict(), Verdict::Never);
    assert_eq!(
        why.log_lines(),
        ["Property mismatch on worker property cpu_count. Minimum(16) < Minimum(32)"]
    );
    for name in ["a", "b", "c"] {
        let small = w.submit(&ask(name).with("cpu_count", "16"));
        assert!(w.state(small).starts_with("on h"), "what comes later and fits isn't held up");
    }
    assert_eq!(w.state(big), "queued");
}

/// Where the guide's scheduler raises no error, this one does in the end.
#[test]
fn what_never_runs_ends_with_the_reason() {
    let mut w = world();
    let big = w.submit(&ask("big").with("cpu_count", "32"));
    for _ in 0..18 {
        w.pass(50);
        w.idle(&worker("h").with("cpu_count", "16"));
    }
    let end = w.state(big);
    assert!(end.starts_with("unschedulable: ") && end.contains("cpu_count 32 is asked for"), "{end}");
}

#[test]
fn cpu_count_1_on_every_action_is_as_many_at_once_as_there_are_cores() {
    let mut w = world();
    for thread in &threads(20, "16") {
        w.idle(thread);
    }
    for i in 0..20 {
        w.submit(&ask(&format!("a{i:02}")).with("cpu_count", "1"));
    }
    assert_eq!((w.answers().len(), w.core.counts().running, w.queue().len()), (16, 16, 4));
}

#[test]
fn max_inflight_tasks_counts_tasks_and_0_is_unlimited() {
    for (at_once, runs) in [(2, 2), (0, 5)] {
        let mut w = world();
        for thread in threads(5, "100") {
            w.idle(&thread.at_once(at_once));
        }
        // What they take of resources is nothing to it.
        for (i, cpus) in ["90", "1", "0", "0", "0"].iter().enumerate() {
            w.submit(&ask(&i.to_string()).with("cpu_count", cpus));
        }
        assert_eq!(w.answers().len(), runs, "max_inflight_tasks: {at_once}");
    }
}

// === An unknown key on an action ===

#[test]
fn an_unknown_key_on_an_action_waits_where_that_is_asked_for_and_others_do_not() {
    let mut w = world_where(UnknownProperty::Queue);
    let typo = w.submit(&ask("typo").with("gpus", "1"));
    let other = w.submit(&ask("other"));
    assert_eq!(w.idle(&worker("h")), "run other");
    let why = w.why(typo);
    assert_eq!(why.reason, Reason::UnknownProperty);
    assert_eq!(why.log_lines(), ["Error while running do_try_match", "Unknown platform property 'gpus'"]);
    assert_eq!((w.state(typo), w.state(other)), ("queued".to_owned(), "on h".to_owned()));
}

#[test]
fn an_unknown_key_on_an_action_is_dropped_where_that_is_asked_for() {
    let mut w = world_where(UnknownProperty::Ignore);
    w.submit(&ask("typo").with("gpus", "1"));
    assert_eq!(w.idle(&worker("h")), "run typo");
}

#[test]
fn an_unknown_key_on_an_action_is_refused_where_that_is_asked_for() {
    let error = schema(UnknownProperty::Reject).action(&ask("typo").with("gpus", "1").route.platform);
    assert_eq!(
        error.unwrap_err().to_string(),
        "unknown platform property 'gpus': known are OSFamily, container-image, cpu_count, gpu, image, note; did you \
         mean 'gpu'?"
    );
}

// === Each line of the log ===

#[test]
fn lack_of_key_no_worker_has_it() {
    let image = ask("a").with("container-image", "");
    let without = worker("h").with("OSFamily", "");
    assert_eq!(
        lines(std::slice::from_ref(&without), &image),
        [r#"No candidate workers due to a lack of key 'container-image'. Job asked for Priority("")"#]
    );
    assert_eq!(
        lines(&[without.clone(), worker("h2")], &ask("a").with("cpu_count", "4")),
        ["No candidate workers due to a lack of key 'cpu_count'. Job asked for Minimum(4)"]
    );
    // The two ways out: an empty value, or `ignore`.
    assert!(meets(without.clone().with("container-image", ""), image));
    assert!(meets(without, ask("a").with("note", "")));
}

#[test]
fn lack_of_matching_lists_the_values_that_workers_have() {
    assert_eq!(
        lines(&[worker("h").with("gpu", "none")], &ask("a").with("gpu", "a100")),
        [
            r#"No candidate workers due to a lack of matching 'gpu' = Exact("a100"). Workers have: [Exact("none")]"#
        ]
    );
}

#[test]
fn lack_of_matching_shows_what_differs_only_in_spaces_and_case() {
    let workers = [worker("h1").with("gpu", "a100 "), worker("h2").with("gpu", "A100")];
    assert_eq!(
        lines(&workers, &ask("a").with("gpu", "a100")),
        [
            "No candidate workers due to a lack of matching 'gpu' = Exact(\"a100\"). Workers have: [Exact(\"A100\"), \
          Exact(\"a100 \")]"
        ]
    );
}

#[test]
fn lack_of_matching_has_an_empty_list_when_workers_omit_the_key() {
    assert_eq!(
        lines(&[worker("h").with("OSFamily", "linux")], &ask("a").with("gpu", "a100")),
        [r#"No candidate workers due to a lack of matching 'gpu' = Exact("a100"). Workers have: []"#]
    );
}

#[test]
fn no_workers_in_the_capability_index_when_no_one_worker_has_it_all() {
    let workers = [worker("h1").with("gpu", "a100"), worker("h2").with("OSFamily", "linux")];
    assert_eq!(
        lines(&workers, &ask("a").with("gpu", "a100").with("OSFamily", "linux")),
        ["No workers in capability index match required properties"]
    );
}

#[test]
fn property_mismatch_has_on_its_left_what_remains() {
    let mut w = world();
    for thread in &threads(2, "32") {
        w.idle(thread);
    }
    w.submit(&ask("a").with("cpu_count", "24"));
    let b = w.submit(&ask("b").with("cpu_count", "32"));
    assert_eq!(
        w.why(b).log_lines(),
        ["Property mismatch on worker property cpu_count. Minimum(8) < Minimum(32)"]
    );
}

#[test]
fn a_worker_that_cannot_accept_work_says_how_many_it_has() {
    let mut w = world();
    for thread in threads(4, "16") {
        w.idle(&thread);
    }
    for i in 0..4 {
        w.submit(&ask(&i.to_string()));
    }
    let last = w.submit(&ask("last"));
    assert_eq!(
        w.why(last).log_lines(),
        [
            "Worker h cannot accept work: is_paused=false, is_draining=false, inflight=4/4",
            "All workers are fully allocated or cannot accept work",
        ]
    );
}

#[test]
fn all_workers_are_fully_allocated_when_each_is_paused_draining_or_at_its_cap() {
    let mut w = world();
    for host in ["busy", "draining", "paused"] {
        w.idle(&worker(host).at_once(1));
    }
    w.hold(Hold::Drain, &[("host", "draining")]);
    w.hold(Hold::Pause, &[("host", "paused")]);
    w.submit(&ask("a"));
    let b = w.submit(&ask("b"));
    assert_eq!(
        w.why(b).log_lines(),
        [
            "Worker busy cannot accept work: is_paused=false, is_draining=false, inflight=1/1",
            "Worker draining cannot accept work: is_paused=false, is_draining=true, inflight=0/1",
            "Worker paused cannot accept work: is_paused=true, is_draining=false, inflight=0/1",
            "All workers are fully allocated or cannot accept work",
        ]
    );
}

/// Whatever else an action may wait for has a line.
#[test]
fn none_of_these_lines_points_at_typing() {
    const TYPING: [&str; 2] = ["Error while running do_try_match", "Unknown platform property 'gpus'"];
    let other = ask("a").with("gpus", "1");
    for workers in [&[][..], &[worker("h")], &[worker("h").with("OSFamily", "")]] {
        assert_eq!(lines(workers, &other), TYPING);
    }
    let alone = ask("a").instance("x").with("OSFamily", "");
    for (workers, asked, reason) in [
        (vec![], alone.clone(), Reason::NoWorkerRegistered),
        (vec![worker("h").prefix("y")], alone.clone(), Reason::NoInstanceMatch),
        (vec![worker("h")], alone.clone().pool("p"), Reason::NoPool),
        (vec![worker("h")], alone.clone().size(3), Reason::NoSizeClass),
        (vec![worker("h")], alone, Reason::NoPropertyMatch),
    ] {
        let mut w = world();
        for worker in &workers {
            w.idle(worker);
        }
        let operation = w.submit(&asked);
        let why = w.why(operation);
        assert_eq!(why.reason, reason);
        let named = why.log_lines().iter().any(|line| line.starts_with("No "));
        assert!(named, "{reason:?} has no line");
    }
}

// === Routing to a GPU pool ===

#[test]
fn a_gpu_pool_takes_what_asks_for_it_and_everything_else_goes_anywhere() {
    for cpu_only in [worker("cpu").with("gpu", "none"), worker("cpu")] {
        let mut w = world();
        let cpu_only = cpu_only.with("cpu_count", "16").with("OSFamily", "");
        let with_gpu = worker("gpu").with("cpu_count", "16").with("OSFamily", "").with("gpu", "a100");
        w.idle(&cpu_only);
        w.submit(&ask("early").with("gpu", "a100"));
        w.submit(&ask("plain").with("OSFamily", "linux"));
        assert_eq!(w.answers(), ["cpu: run plain"], "the older one leaves it alone");
        assert_eq!(w.idle(&with_gpu), "run early");
        w.submit(&ask("late").with("gpu", "a100"));
        let plain = w.submit(&ask("plain too").with("OSFamily", "linux"));
        assert_eq!(w.completed(&cpu_only, "plain"), "run plain too");
        assert_eq!(w.completed(&with_gpu, "early"), "run late");
        assert_eq!(w.state(plain), "on cpu");
        // What says nothing of a GPU runs on the GPU's worker just as well.
        w.submit(&ask("third").with("OSFamily", "linux"));
        assert_eq!(w.completed(&with_gpu, "late"), "run third");
    }
}

#[test]
fn a_new_capability_of_the_fleet_concerns_nobody_who_does_not_ask_for_it() {
    let plain = ask("a").with("OSFamily", "linux");
    assert!(meets(worker("h").with("OSFamily", ""), plain.clone()));
    assert!(meets(worker("h").with("OSFamily", "").with("gpu", "a100").with("image", "x"), plain));
}

// === container-image ===

#[test]
fn container_image_is_an_ordinary_string() {
    let image = "docker://registry/img@sha256:00";
    // Of type priority, as in the examples, any image will do.
    let worker_of = |key: &str, value: &str| worker("h").with(key, value);
    assert!(meets(worker_of("container-image", "docker://another"), ask("a").with("container-image", image)));
    // Of type exact it is compared byte for byte.
    assert!(meets(worker_of("image", image), ask("a").with("image", image)));
    for other in [format!("{image} "), image.to_uppercase(), image.replace("docker://", "")] {
        assert!(!meets(worker_of("image", &other), ask("a").with("image", image)), "{other:?}");
    }
}
