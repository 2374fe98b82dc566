//! Who may run what, but for the rules of properties, which are in `platform_properties.rs`.

use crate::support::{self, Ask, Worker, World, ask, worker};

fn meets(worker: Worker, ask: Ask) -> bool {
    support::meets(World::default, &worker, &ask)
}

#[test]
fn prefixes_are_whole_path_components() {
    assert!(meets(worker("h"), ask("a").instance("x/y")));
    assert!(meets(worker("h").prefix("x"), ask("a").instance("x/y")));
    assert!(meets(worker("h").prefix("x/y"), ask("a").instance("x/y")));
    assert!(!meets(worker("h").prefix("x"), ask("a").instance("xy")));
    assert!(!meets(worker("h").prefix("x"), ask("a").instance("")));
}

#[test]
fn pool_and_size_class_are_exact() {
    assert!(meets(worker("h").pool("big"), ask("a")));
    assert!(meets(worker("h").pool("big"), ask("a").pool("big")));
    assert!(!meets(worker("h").pool("big"), ask("a").pool("small")));
    assert!(meets(worker("h").size(3), ask("a")));
    assert!(meets(worker("h").size(3), ask("a").size(3)));
    assert!(!meets(worker("h").size(3), ask("a").size(4)));
}

#[test]
fn a_property_that_nobody_asked_for_before_tells_workers_apart_that_were_equal() {
    let mut w = World::default();
    let (plain, gpu) = (worker("plain").with("os", ""), worker("gpu").with("os", "").with("gpu", "a100"));
    w.idle(&plain);
    w.idle(&gpu);
    w.submit(&ask("a").with("gpu", "a100"));
    assert_eq!(w.answers(), ["gpu: run a"]);
    w.submit(&ask("b").with("os", "linux"));
    assert_eq!(w.answers(), ["plain: run b"]);
    w.submit(&ask("c").with("gpu", "a100"));
    w.submit(&ask("d").with("os", "linux"));
    assert_eq!(w.completed(&plain, "b"), "run d");
    assert_eq!(w.completed(&gpu, "a"), "run c");
}

#[test]
fn workers_of_a_kind_that_comes_late_serve_what_waits() {
    let mut w = World::default();
    for i in 0..4 {
        w.submit(&ask(&format!("gpu{i}")).with("gpu", "a100"));
        w.submit(&ask(&format!("any{i}")));
        w.submit(&ask(&format!("os{i}")).with("os", ""));
    }
    assert_eq!(w.idle(&worker("os").with("os", "")), "run any0");
    assert_eq!(w.idle(&worker("gpu").with("gpu", "a100")), "run gpu0");
    assert_eq!(w.idle(&worker("all").with("gpu", "a100").with("os", "")), "run os0");
    w.pass(61);
    // All are gone, and what they had waits again.
    assert_eq!(w.core.counts().shapes, 0);
    assert_eq!(w.idle(&worker("late").with("os", "")), "run any0");
}
