//! The rows of the worker protocol.

use std::time::Duration;

use pointsman_scheduler::effect::End;
use pointsman_scheduler::event::{Event, Report, Stage, Verdict};
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, digest, worker};

#[test]
fn an_idle_call_waits_and_is_told_to_do_nothing_in_the_end() {
    let mut w = World::default();
    assert_eq!(w.poll_as(&worker("h"), Report::Idle, false, 90), "waits");
    w.pass(89);
    assert_eq!(w.answers(), [""; 0]);
    w.pass(1);
    assert_eq!(w.answers(), ["h: idle"]);
    w.pass(59);
    assert_eq!(w.core.counts().workers, 1);
    w.pass(1);
    assert_eq!(w.core.counts().workers, 0);
}

#[test]
fn a_call_that_may_not_wait_is_answered() {
    let mut w = World::default();
    assert_eq!(w.poll_as(&worker("h"), Report::Idle, false, 0), "idle");
}

#[test]
fn an_action_wakes_a_call_that_waits() {
    let mut w = World::default();
    w.idle(&worker("h"));
    w.submit(&ask("a"));
    assert_eq!(w.answers(), ["h: run a"]);
}

#[test]
fn a_result_is_answered_with_the_next_action() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.submit(&ask("b"));
    assert_eq!(w.idle(&worker("h")), "run a");
    assert_eq!(w.completed(&worker("h"), "a"), "run b");
    assert_eq!(w.state(a), "reported");
}

#[test]
fn a_result_that_is_sent_again_is_answered_once() {
    let mut w = World::default();
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.completed(&worker("h"), "a"), "waits");
    assert_eq!(w.completed(&worker("h"), "a"), "waits");
    assert_eq!(w.answers(), ["h: superseded"]);
    assert_eq!(w.ends.len(), 1);
}

#[test]
fn a_result_of_something_else_is_ignored() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    assert_eq!(w.completed(&worker("h"), "b"), "run a");
    assert_eq!(w.state(a), "on h");
    assert_eq!(w.completed(&worker("h"), "a"), "waits");
}

#[test]
fn a_heartbeat_is_answered_at_once_and_says_how_far_it_is() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.poll(&worker("h"), Report::Executing(digest("a"), Stage::UploadingOutputs));
    assert_eq!(w.core.running_on(w.task(a)).unwrap().1, Some(Stage::UploadingOutputs));
    for _ in 0..20 {
        w.pass(50);
        assert_eq!(w.executing(&worker("h"), "a"), "continue");
    }
}

#[test]
fn a_second_call_takes_the_place_of_one_that_waits() {
    let mut w = World::default();
    w.idle(&worker("h"));
    assert_eq!(w.idle(&worker("h")), "waits");
    assert_eq!(w.answers(), ["h: superseded"]);
    w.submit(&ask("a"));
    assert_eq!(w.answers(), ["h: run a"]);
}

#[test]
fn a_lost_answer_is_sent_again_once_and_then_the_action_goes_elsewhere() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    assert_eq!(w.idle(&worker("h1")), "run a");
    assert_eq!(w.idle(&worker("h1")), "run a");
    w.idle(&worker("h2"));
    assert_eq!(w.idle(&worker("h1")), "waits");
    assert_eq!((w.answers(), w.state(a)), (vec!["h2: run a".to_owned()], "on h2".to_owned()));
    assert_eq!(w.core.task(w.task(a)).unwrap().attempts.len(), 1);
}

#[test]
fn a_worker_that_had_begun_and_starts_anew_has_failed() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    w.executing(&worker("h1"), "a");
    w.idle(&worker("h2"));
    assert_eq!(w.idle(&worker("h1")), "waits");
    assert_eq!(w.state(a), "on h2");
}

#[test]
fn a_worker_that_leaves_gets_nothing() {
    let mut w = World::default();
    w.submit(&ask("a"));
    assert_eq!(w.poll_as(&worker("h"), Report::Idle, true, 120), "idle");
    assert_eq!(w.idle(&worker("h")), "run a");
    w.submit(&ask("b"));
    let done = Report::Completed(digest("a"), Verdict::Answer);
    assert_eq!(w.poll_as(&worker("h"), done, true, 120), "idle");
    assert_eq!(w.ends.len(), 1);
}

#[test]
fn a_worker_that_leaves_before_it_began_does_no_harm_once() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h1"));
    assert_eq!(w.poll_as(&worker("h1"), Report::Idle, true, 120), "idle");
    assert_eq!(w.core.task(w.task(a)).unwrap().attempts.len(), 0);
    // One that can't read what it is given does so each time.
    w.idle(&worker("h1"));
    w.poll_as(&worker("h1"), Report::Idle, true, 120);
    assert_eq!(w.core.task(w.task(a)).unwrap().attempts.len(), 1);
}

#[test]
fn a_worker_that_leaves_may_finish_what_it_runs() {
    let mut w = World::default();
    let a = w.submit(&ask("a"));
    w.idle(&worker("h"));
    let report = Report::Executing(digest("a"), Stage::Running);
    assert_eq!(w.poll_as(&worker("h"), report, true, 120), "continue");
    assert_eq!(w.state(a), "on h");
}

#[test]
fn a_worker_that_runs_what_nobody_knows_is_stopped() {
    let mut w = World::default();
    assert_eq!(w.executing(&worker("h/1"), "a"), "idle");
    w.submit(&ask("a"));
    w.submit(&ask("b"));
    assert_eq!(w.idle(&worker("h/2")), "run b", "the host may still run a");
    assert_eq!(w.idle(&worker("h/1")), "run a");
}

#[test]
fn a_broken_call_is_no_candidate() {
    let mut w = World::default();
    w.idle(&worker("h"));
    w.drop_poll(&worker("h"));
    let a = w.submit(&ask("a"));
    assert_eq!(w.state(a), "queued");
    assert_eq!(w.idle(&worker("h")), "run a");
}

#[test]
fn the_same_host_with_other_properties_is_another_worker() {
    let mut w = World::default();
    w.idle(&worker("h/old").with("gpu", "a100"));
    w.submit(&ask("a").with("gpu", "a100"));
    w.idle(&worker("h/new").with("gpu", "h100"));
    w.submit(&ask("b").with("gpu", "h100"));
    assert_eq!(w.answers(), ["h/old: run a", "h/new: run b"]);
    assert_eq!((w.core.counts().hosts, w.core.counts().workers), (1, 2));
}

#[test]
fn a_cached_answer_ends_the_task_and_says_nothing_of_the_host() {
    let strict = Config { max_attempts: 1, quarantine_after: 1, ..Config::default() };
    let mut w = World::new(strict);
    w.submit(&ask("a"));
    w.idle(&worker("h"));
    w.failed(&worker("h"), "a", "disk full");
    w.pass(60);
    let b = w.submit(&ask("b"));
    assert_eq!(w.answers(), ["h: run b"]);
    let c = w.submit(&ask("c"));
    w.step(Event::FoundInCache(w.task(b)));
    assert_eq!(w.ends[&b], End::Reported);
    // Still on trial, so it is given the next one.
    assert_eq!(w.idle(&worker("h")), "run c");
    assert_eq!(w.news.last().unwrap(), "h on trial with one task");
    // What waits can be answered too, and what is over is answered already.
    let (d, task) = (w.submit(&ask("d")), w.task(c));
    w.step(Event::FoundInCache(w.task(d)));
    w.completed(&worker("h"), "c");
    w.step(Event::FoundInCache(task));
    assert_eq!(w.ends.len(), 4);
    assert_eq!(w.news.last().unwrap(), "h released from quarantine");
}

#[test]
fn the_more_execute_the_later_they_call_and_the_later_they_are_lost() {
    let (s, base) = (Duration::from_secs, Config::default());
    let config = Config { heartbeat: s(2), heartbeat_max: s(5), heartbeats_per_s: 1, ..base };
    let mut w = World::new(config);
    let heartbeat_of = |w: &mut World, n: usize| {
        w.submit(&ask(&n.to_string()));
        w.idle(&worker(&format!("h{n}")));
        w.executing(&worker(&format!("h{n}")), &n.to_string());
        w.core.heartbeat().as_secs()
    };
    assert_eq!((1..=7).map(|n| heartbeat_of(&mut w, n)).collect::<Vec<_>>(), [2, 2, 3, 4, 5, 5, 5]);
    w.pass(60);
    assert_eq!(w.core.counts().workers, 5, "those that were told 2 s are lost");
    w.pass(3);
    assert_eq!(w.core.counts().workers, 0);
}
