//! What survives a restart.

use pointsman_scheduler::event::Event;

use crate::support::{World, ask, worker};

fn busy() -> World {
    let mut w = World::default();
    w.submit(&ask("fails").with("os", "").priority(4));
    w.idle(&worker("h1").with("os", ""));
    w.failed(&worker("h1").with("os", ""), "fails", "disk full");
    w.pass(5);
    for (name, priority) in [("a", 3), ("b", 0), ("c", 0), ("b", -1)] {
        w.submit(&ask(name).with("gpu", "none").priority(priority));
    }
    w.submit(&ask("b").unshared());
    w
}

#[test]
fn a_restored_queue_is_the_old_one() {
    let mut w = busy();
    let before = w.store.clone();
    w.restart();
    let order = w.queue();
    let mut again = World::default();
    for record in before.tasks.values() {
        let task = w.core.operation(&record.operations[0].name).and_then(|o| w.core.operation_by_id(o)?.task);
        assert_eq!(w.core.task_record(task.unwrap()).as_ref(), Some(record));
    }
    again.store = before;
    again.now = w.now;
    again.restart();
    assert_eq!(order, again.queue());
}

#[test]
fn what_ran_is_queued_in_its_old_place_and_still_avoids_where_it_failed() {
    let mut w = busy();
    w.restart();
    assert_eq!(w.queue()[0], "b");
    w.idle(&worker("h1").with("os", ""));
    w.idle(&worker("h2").with("os", ""));
    let fails = w.core.operation("operation-1").unwrap();
    assert_ne!(w.state(fails), "queued");
    assert_eq!(w.core.task(w.task(fails)).unwrap().attempts.len(), 1);
}

#[test]
fn after_a_restart_clients_have_as_long_to_come_back() {
    let mut w = busy();
    w.restart();
    let kept = w.core.operation("operation-4").unwrap();
    w.step(Event::Watch(kept));
    w.pass(60);
    assert_eq!(w.store.tasks.len(), 1);
    assert_eq!(w.core.counts().operations, 1);
    assert_eq!(w.state(kept), "queued");
}

#[test]
fn ended_operations_are_remembered_over_a_restart() {
    let mut w = World::default();
    for (i, name) in ["x", "y"].iter().enumerate() {
        w.submit(&ask(name));
        w.idle(&worker("h"));
        w.completed(&worker("h"), name);
        w.pass(10 * (2 - i as u64));
    }
    w.restart();
    let ops = ["operation-1", "operation-4"];
    assert!(ops.iter().all(|o| w.core.operation(o).is_some()), "{:?}", w.store.finished);
    w.pass(30);
    assert_eq!(ops.map(|o| w.core.operation(o).is_some()), [false, true]);
    w.pass(20);
    assert_eq!(w.store.finished.len(), 0);
}

#[test]
fn what_new_bounds_refuse_is_handed_back() {
    let mut w = busy();
    w.config.max_attempts = 1;
    let (core, refused) = w.store.restore(w.config, &w.schema, w.now);
    core.check().unwrap();
    assert_eq!(refused.len(), 1);
    assert!(refused[0].1.contains("attempt 1 on h1: disk full"), "{}", refused[0].1);
}
