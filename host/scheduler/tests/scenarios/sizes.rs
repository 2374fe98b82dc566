//! Size classes that are meant relative to what there is, and what is known of actions by measurement.

use pointsman_scheduler::explain::{Obstacle, Reason};
use pointsman_scheduler::placement::Placement;
use pointsman_scheduler::route::SizeClass;
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

#[test]
fn the_smallest_and_the_largest_of_what_there_is() {
    let mut w = World::default();
    for size in [2, 4, 8] {
        w.idle(&worker(&format!("h{size}")).size(size));
    }
    let on = |w: &mut World, name: &str, size| {
        let op = w.submit(&ask(name).sized(size));
        w.state(op)
    };
    assert_eq!(on(&mut w, "a", SizeClass::Largest), "on h8");
    assert_eq!(on(&mut w, "b", SizeClass::Smallest), "on h2");
    assert_eq!(on(&mut w, "c", SizeClass::AtLeast(3)), "on h4");
    assert_eq!(on(&mut w, "d", SizeClass::Smallest), "queued", "also while others wait");
    assert_eq!(on(&mut w, "e", SizeClass::AtLeast(9)), "queued");
    assert_eq!(w.completed(&worker("h8").size(8), "a"), "run e", "the largest, where none is as large");
}

#[test]
fn only_those_count_that_could_run_it() {
    let mut w = World::default();
    w.idle(&worker("plain").size(1));
    w.idle(&worker("gpu").size(2).with("gpu", "a100"));
    let a = w.submit(&ask("a").with("gpu", "a100").sized(SizeClass::Smallest));
    assert_eq!(w.state(a), "on gpu");
}

#[test]
fn it_goes_by_who_is_there_now() {
    let mut w = World::default();
    let (small, large) = (worker("small").size(1), worker("large").size(2));
    w.idle(&large);
    w.submit(&ask("first").sized(SizeClass::Smallest));
    assert_eq!(w.answers(), ["large: run first"], "nobody is smaller");
    let a = w.submit(&ask("a").sized(SizeClass::Smallest));
    let b = w.submit(&ask("b").sized(SizeClass::Smallest));
    assert_eq!(w.idle(&small), "run a");
    assert_eq!(w.completed(&large, "first"), "waits", "b is for the small one now");
    let why = w.why(b);
    assert_eq!(
        (why.reason, why.counts),
        (Reason::AllBusy, vec![(Obstacle::OtherSizeClass, 1), (Obstacle::Busy, 1)])
    );
    // The small one is lost, and what it ran comes back too.
    w.pass(40);
    w.idle(&large);
    w.pass(40);
    assert_eq!(w.state(a), "on large");
    assert_eq!(w.state(b), "queued");
}

#[test]
fn what_was_learned_keeps_nothing_from_running() {
    let mut w = World::default();
    w.idle(&worker("small").size(1));
    let a = w.submit(&ask("a").sized(SizeClass::AtLeast(7)));
    assert_eq!(w.state(a), "on small");
}

#[test]
fn what_is_learned_meanwhile_makes_no_other_action_of_it() {
    let mut w = World::default();
    w.submit(&ask("a").sized(SizeClass::Learned));
    assert!(w.joins(&ask("a").sized(SizeClass::AtLeast(4))));
    assert!(!w.joins(&ask("a").sized(SizeClass::Largest)));
}

#[test]
fn as_much_is_set_aside_as_was_measured() {
    let mut w = World::default();
    let t = ["h/1", "h/2", "h/3"].map(|k| worker(k).with("cpu", "8"));
    t.iter().for_each(|t| _ = w.idle(t));
    // It asks for nothing and takes five; the other asks for six and takes two.
    w.submit(&ask("hungry").measured(5, 0));
    let modest = w.submit(&ask("modest").with("cpu", "6").measured(2, 0));
    assert_eq!(w.state(modest), "on h");
    let third = w.submit(&ask("third").measured(2, 0));
    assert_eq!(w.why(third).reason, Reason::AllBusy, "seven of eight are taken");
    assert_eq!(w.completed(&t[1], "modest"), "run third");
}

#[test]
fn a_measurement_makes_nothing_impossible() {
    let mut w = World::default();
    w.idle(&worker("h").with("cpu", "4"));
    let a = w.submit(&ask("a").with("cpu", "2").measured(64, 1000));
    assert_eq!(w.state(a), "on h", "it takes the host as it is");
    w.completed(&worker("h").with("cpu", "4"), "a");
    let b = w.submit(&ask("b").with("cpu", "5").measured(1, 0));
    assert_eq!(w.why(b).reason, Reason::NeverFits, "what it asks for must be there in all");
}

#[test]
fn it_fits_best_where_it_is_measured_to() {
    let mut w = World::new(Config { placement: Placement::BestFit, ..Config::default() });
    for (host, cpu) in [("large", "8"), ("small", "3")] {
        w.idle(&worker(&format!("{host}/1")).with("cpu", cpu));
    }
    let a = w.submit(&ask("a").measured(2, 0));
    assert_eq!(w.state(a), "on small");
}

#[test]
fn of_what_arrives_together_the_longest_goes_first() {
    let mut w = World::default();
    w.submit(&ask("short").expected(2));
    w.submit(&ask("unknown"));
    w.submit(&ask("long").expected(300));
    w.submit(&ask("urgent").priority(-1));
    w.submit(&ask("as-long").expected(310));
    assert_eq!(w.queue(), ["urgent", "long", "as-long", "short", "unknown"]);
    w.restart();
    assert_eq!(w.queue(), ["urgent", "long", "as-long", "short", "unknown"]);
    w.pass(1);
    w.submit(&ask("later").expected(900));
    assert_eq!(w.queue().last().unwrap(), "later", "one that came before is not overtaken");
}

#[test]
fn measurements_survive_a_restart() {
    let mut w = World::default();
    w.submit(&ask("a").measured(6, 0));
    w.submit(&ask("b").measured(6, 0));
    w.restart();
    let [one, two] = ["h/1", "h/2"].map(|k| worker(k).with("cpu", "8"));
    assert_eq!(w.idle(&one), "run a");
    assert_eq!(w.idle(&two), "waits");
}
