//! What an action has on each size class: the least of its hosts, by the actions that these run at once.

use pointsman_scheduler::capacities::Capacity;

use crate::support::{World, worker};

fn capacity(pool: &str, size_class: u32, hosts: usize, least: Option<f64>) -> Capacity {
    Capacity { pool: pool.into(), size_class, hosts, least }
}

#[test]
fn the_least_host_counts() {
    let mut world = World::default();
    for thread in 0..4 {
        world.idle(&worker(&format!("small/{thread}")).with("cpu", "6").size(1));
    }
    world.idle(&worker("one").with("cpu", "2").size(1));
    world.idle(&worker("large").with("cpu", "16").size(8).at_once(2));
    world.idle(&worker("other").with("cpu", "3").size(8).pool("mac"));
    world.idle(&worker("silent").size(9));
    let found = world.core.capacities(Some("cpu"));
    assert_eq!(
        found,
        [
            capacity("", 1, 2, Some(1.5)),
            capacity("", 8, 1, Some(8.0)),
            capacity("", 9, 1, None),
            capacity("mac", 8, 1, Some(3.0)),
        ]
    );
    for no_amount in [None, Some("gpu"), Some("nothing")] {
        let found = world.core.capacities(no_amount);
        assert!(found.iter().all(|c| c.least.is_none()) && found.len() == 4, "{no_amount:?}: {found:?}");
    }
}
