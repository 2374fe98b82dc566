//! What workers of one host share.

use pointsman_scheduler::event::{Report, Stage};

use crate::support::{World, ask, digest, worker};

#[test]
fn what_an_action_takes_comes_back_when_it_ends() {
    let mut w = World::default();
    let [one, two, three] = ["h/1", "h/2", "h/3"].map(|k| worker(k).with("cpu", "8").with("mem", "4"));
    for thread in [&one, &two, &three] {
        assert_eq!(w.idle(thread), "waits");
    }
    w.submit(&ask("a").with("cpu", "6"));
    w.submit(&ask("b").with("cpu", "3"));
    let c = w.submit(&ask("c").with("cpu", "2").with("mem", "4"));
    assert_eq!(w.answers(), ["h/1: run a", "h/2: run c"], "the threads share 8, and b has no room");
    w.submit(&ask("d").with("mem", "1"));
    assert_eq!(w.answers(), [""; 0]);
    assert_eq!(w.completed(&two, "c"), "run d");
    assert_eq!(w.state(c), "reported");
    assert_eq!(w.completed(&one, "a"), "run b");
}

#[test]
fn what_an_action_takes_comes_back_once_when_its_command_is_over() {
    let mut w = World::default();
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).with("cpu", "8"));
    let a = w.submit(&ask("a").with("cpu", "6"));
    w.idle(&one);
    w.idle(&two);
    w.submit(&ask("b").with("cpu", "4"));
    w.submit(&ask("c").with("cpu", "6"));
    w.executing(&one, "a");
    assert_eq!(w.queue(), ["b", "c"]);
    for stage in [Stage::UploadingOutputs, Stage::UploadingOutputs, Stage::Running] {
        assert_eq!(w.poll(&one, Report::Executing(digest("a"), stage)), "continue");
    }
    assert_eq!((w.answers(), w.state(a)), (vec!["h/2: run b".to_owned()], "on h".to_owned()));
    assert_eq!(w.completed(&one, "a"), "waits", "c needs 6, and 4 are left, not 10");
    assert_eq!(w.completed(&two, "b"), "run c");
}

#[test]
fn the_slot_is_free_only_when_the_result_comes() {
    let mut w = World::default();
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).with("cpu", "8").at_once(1));
    w.submit(&ask("a").with("cpu", "6"));
    w.submit(&ask("b").with("cpu", "6"));
    w.idle(&one);
    w.idle(&two);
    w.poll(&one, Report::Executing(digest("a"), Stage::UploadingOutputs));
    assert_eq!(w.queue(), ["b"]);
    assert_eq!(w.completed(&one, "a"), "run b");
}

#[test]
fn another_host_has_its_own() {
    let mut w = World::default();
    w.idle(&worker("h1/1").with("cpu", "4"));
    w.idle(&worker("h1/2").with("cpu", "4"));
    w.idle(&worker("h2/1").with("cpu", "4"));
    for name in ["a", "b", "c"] {
        w.submit(&ask(name).with("cpu", "3"));
    }
    assert_eq!(w.answers(), ["h1/1: run a", "h2/1: run b"]);
    assert_eq!(w.queue(), ["c"]);
}

#[test]
fn work_is_spread_to_the_host_that_was_used_least_recently() {
    let mut w = World::default();
    for key in ["h1/1", "h1/2", "h2/1", "h2/2", "h3/1"] {
        w.idle(&worker(key));
    }
    for name in ["a", "b", "c", "d", "e"] {
        w.submit(&ask(name));
    }
    assert_eq!(w.answers(), ["h1/1: run a", "h2/1: run b", "h3/1: run c", "h1/2: run d", "h2/2: run e"]);
}

#[test]
fn a_host_never_runs_one_digest_twice() {
    let mut w = World::default();
    w.idle(&worker("h1/1"));
    w.idle(&worker("h1/2"));
    w.submit(&ask("a").unshared());
    w.submit(&ask("a").unshared());
    w.submit(&ask("a").instance("other"));
    assert_eq!(w.answers(), ["h1/1: run a"]);
    w.idle(&worker("h2/1"));
    assert_eq!((w.answers(), w.queue().len()), (vec![], 1), "it went to h2");
    assert_eq!(w.idle(&worker("h2/2")), "waits");
    assert_eq!(w.completed(&worker("h1/1"), "a"), "run a");
    assert_eq!(w.answers(), [""; 0]);
}

#[test]
fn what_cannot_run_here_holds_up_nothing_behind_it() {
    let mut w = World::default();
    for thread in 0..200 {
        let thread = worker(&format!("h/{thread}"));
        w.submit(&ask(&format!("a{}", &*thread.key)).unshared());
        w.idle(&thread);
    }
    w.checked = false;
    for thread in 0..200 {
        w.submit(&ask(&format!("ah/{thread}")).unshared());
        w.submit(&ask(&format!("ah/{thread}")).instance("other"));
    }
    w.submit(&ask("z"));
    assert_eq!(w.idle(&worker("h/new")), "run z");
}

#[test]
fn an_older_action_is_not_starved_by_another_kind_of_worker_on_its_host() {
    let mut w = World::default();
    let small = worker("h/small").with("cpu", "4").with("tag", "small");
    let large = worker("h/large").with("cpu", "4").with("tag", "large");
    w.submit(&ask("s0").with("cpu", "4").with("tag", "small"));
    w.idle(&small);
    w.idle(&large);
    w.submit(&ask("l").with("cpu", "4").with("tag", "large"));
    w.submit(&ask("s1").with("cpu", "4").with("tag", "small"));
    assert_eq!(w.completed(&small, "s0"), "waits");
    assert_eq!(w.answers(), ["h/large: run l"]);
}

#[test]
fn a_host_that_comes_back_smaller_has_what_it_says_now() {
    let mut w = World::default();
    w.idle(&worker("h/old").with("cpu", "8"));
    w.pass(100);
    w.idle(&worker("h/new").with("cpu", "2"));
    w.submit(&ask("a").with("cpu", "8"));
    assert_eq!(w.answers(), ["h/old: run a"]);
    w.pass(61);
    assert_eq!(
        w.idle(&worker("h/new2").with("cpu", "2")),
        "waits",
        "the old threads are gone, and 8 with them"
    );
    assert_eq!(w.queue(), ["a"]);
}
