//! Results that a policy does not take: the action runs once more.

use std::time::Duration;

use pointsman_scheduler::effect::Effect;
use pointsman_scheduler::event::Event;
use pointsman_scheduler::scheduler::Config;
use pointsman_scheduler::task::Failure;

use crate::support::{World, ask, worker};

#[test]
fn it_runs_by_the_new_route_and_its_client_waits() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("small"));
    w.idle(&worker("large").pool("big"));
    assert_eq!(w.again(&worker("small"), "a", &ask("a").pool("big")), "waits");
    assert_eq!((w.state(a), w.answers()), ("on large".to_owned(), vec!["large: run a".to_owned()]));
    assert_eq!(w.completed(&worker("large").pool("big"), "a"), "waits");
    assert_eq!(w.state(a), "reported");
}

#[test]
fn it_has_its_old_place() {
    let mut w = World::default();
    w.submit(&ask("a"));
    w.submit(&ask("b"));
    w.pass(5);
    w.submit(&ask("c"));
    w.submit(&ask("urgent").priority(-100));
    assert_eq!(w.idle(&worker("h")), "run urgent");
    assert_eq!(w.completed(&worker("h"), "urgent"), "run a");
    assert_eq!(w.again(&worker("h"), "a", &ask("a").timeout(9)), "run a", "it came first");
    assert_eq!(w.again(&worker("h"), "a", &ask("a").priority(3)), "run b", "unless it is less urgent now");
    assert_eq!(w.queue(), ["c", "a"]);
}

#[test]
fn its_host_is_as_good_as_any_and_it_need_not_rest() {
    let mut w = World::new(Config { retry_backoff: Duration::from_secs(40), ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.idle(&worker("other").prefix("x"));
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    w.failed(&worker("h"), "a", "disk full");
    assert_eq!(w.state(a), "queued", "after a failure it rests");
    w.pass(39);
    assert_eq!(w.state(a), "queued");
    w.pass(1);
    assert_eq!(w.state(a), "on h", "as after a first failure");
}

#[test]
fn each_try_counts_and_the_last_result_is_the_answer() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    let causes: Vec<_> =
        w.core.task(w.task(a)).unwrap().attempts.iter().map(|t| (t.failure, &*t.cause)).collect();
    assert_eq!(causes, [(Failure::RunAgain, "policy p asked for another attempt"); 2]);
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "waits");
    assert_eq!(w.state(a), "reported", "three attempts are allowed");
}

#[test]
fn failures_count_with_it() {
    let mut w = World::new(Config { retry_backoff: Duration::ZERO, ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.failed(&worker("h"), "a", "disk full");
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    w.failed(&worker("h"), "a", "no inputs");
    assert_eq!(
        w.state(a),
        "gave up: the action was tried 3 times and failed at last; attempt 1 on h: disk full; attempt 2 on h: policy p \
         asked for another attempt; attempt 3 on h: no inputs"
    );
}

#[test]
fn where_no_new_requirements_fit_the_result_is_the_answer() {
    let mut w = World::new(Config { classes_max: 1, ..Config::default() });
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.again(&worker("h"), "a", &ask("a").with("gpu", "x")), "waits");
    assert_eq!(w.state(a), "reported");
}

#[test]
fn it_is_no_failure_of_the_host() {
    let config = Config { quarantine_after: 1, quarantine: Duration::from_secs(10), ..Config::default() };
    let mut w = World::new(Config { max_attempts: 9, retry_backoff: Duration::ZERO, ..config });
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    assert!(w.news.is_empty(), "{:?}", w.news);
    w.failed(&worker("h"), "a", "disk full");
    w.pass(10);
    assert_eq!(w.answers(), ["h: run a"], "on trial");
    w.news.clear();
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "run a");
    assert_eq!(w.news, ["h released from quarantine"]);
}

#[test]
fn all_who_wait_for_it_wait_on_and_go_by_the_most_urgent() {
    let mut w = World::default();
    let a = w.submit(&ask("a").priority(5).invocation("x"));
    w.idle(&worker("h"));
    assert!(w.joins(&ask("a").priority(-1).invocation("y")));
    let b = w.core.operation("operation-3").unwrap();
    assert_eq!(w.again(&worker("h"), "a", &ask("a").priority(7).pool("big").invocation("z")), "waits");
    assert_eq!(w.core.task(w.task(a)).unwrap().route.priority, -1);
    assert_eq!((w.state(a), w.state(b)), ("queued".to_owned(), "queued".to_owned()));
    assert!(!w.joins(&ask("a").invocation("x")), "it asks for something else now");
    assert!(w.joins(&ask("a").pool("big")));
    assert_eq!(w.idle(&worker("large").pool("big")), "run a");
    w.completed(&worker("large").pool("big"), "a");
    assert_eq!((w.state(a), w.state(b)), ("reported".to_owned(), "reported".to_owned()));
}

#[test]
fn a_result_of_what_is_over_is_not_run_again() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.step(Event::Cancel(a));
    assert_eq!(w.again(&worker("h"), "a", &ask("a")), "waits");
    assert!(w.queue().is_empty());
}

#[test]
fn it_survives_a_restart_and_is_explained() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h").size(3));
    w.pass(7);
    w.again(&worker("h").size(3), "a", &ask("a").pool("big"));
    let why = w.why(a).to_string();
    assert!(why.contains("; attempt 1 on h is run again: policy p asked for another attempt"), "{why}");
    w.restart();
    let task = w.core.operation("operation-1").and_then(|o| w.core.operation_by_id(o)?.task).unwrap();
    let [attempt] = &w.core.task(task).unwrap().attempts[..] else { panic!() };
    assert_eq!((attempt.size_class, attempt.ended.since(attempt.began).as_secs()), (3, 7));
    assert_eq!(w.idle(&worker("h")), "waits");
    assert_eq!(w.idle(&worker("large").pool("big")), "run a");
}

#[test]
fn who_fails_is_told_of_and_may_be_routed_anew() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    let retried = |w: &World| w.effects.contains(&Effect::Retried(w.task(a)));
    w.failed(&worker("h"), "a", "disk full");
    assert!(retried(&w));
    w.idle(&worker("large").pool("big"));
    w.reroute(a, &ask("a").pool("big"));
    assert_eq!(w.state(a), "on large");
    w.exhausted(&worker("large").pool("big"), "a");
    assert!(!retried(&w), "it is not held against it");
    w.pass(1);
    w.again(&worker("large").pool("big"), "a", &ask("a").pool("big"));
    assert!(!retried(&w), "its policy has just decided");
    w.pass(60);
    let Some(pointsman_scheduler::effect::End::GaveUp(_)) = w.ends.get(&a) else { panic!("{}", w.state(a)) };
}
