//! The running counts that monitoring reads.

use std::time::Duration;

use pointsman_scheduler::event::Event;
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::metrics::{Metrics, OTHER_POOLS, POOLS_MAX, PoolMetrics};
use pointsman_scheduler::scheduler::Config;

use crate::support::{World, ask, worker};

fn of<const N: usize>(table: [(&str, u64); N], name: &str) -> u64 {
    table.iter().find(|(n, _)| *n == name).expect("a known name").1
}

fn metrics(w: &World) -> Metrics {
    w.core.metrics(w.now)
}

fn pool(w: &World, name: &str) -> PoolMetrics {
    metrics(w).pools.into_iter().find(|p| &*p.name == name).expect("the pool is shown")
}

#[test]
fn what_waits_is_counted_for_each_pool_that_could_run_it_and_for_none() {
    let mut w = World::default();
    let (big, small) = (worker("b").pool("big").with("gpu", "a100"), worker("s").pool("small"));
    w.idle(&big);
    w.idle(&small);
    w.submit(&ask("1"));
    w.submit(&ask("2"));
    w.pass(3);
    w.submit(&ask("both"));
    w.submit(&ask("only big").with("gpu", "a100"));
    w.submit(&ask("nobody").with("gpu", "b200"));
    w.pass(2);
    assert_eq!((pool(&w, "big").queued, pool(&w, "small").queued, metrics(&w).unserved), (2, 1, 1));
    assert_eq!(metrics(&w).oldest_queued, Duration::from_secs(2));
    w.idle(&worker("new").pool("other kind").with("gpu", "b200"));
    assert_eq!(metrics(&w).unserved, 0, "it came, and took the one that arrived first");
    assert_eq!((metrics(&w).counts.queued, pool(&w, "other kind").queued), (2, 1));
}

#[test]
fn the_oldest_is_found_for_each_pool_and_guessed_beyond_those_that_are_looked_at() {
    let mut w = World::default();
    let (big, small) = (worker("b").pool("big").with("gpu", "a100"), worker("s").pool("small"));
    w.idle(&big);
    w.idle(&small);
    w.submit(&ask("1"));
    w.submit(&ask("2"));
    w.pass(1);
    w.submit(&ask("only big").with("gpu", "a100"));
    w.pass(2);
    w.submit(&ask("both"));
    w.pass(4);
    let oldest = |w: &World, looked_at| -> Vec<(String, u64)> {
        let oldest = w.core.oldest_by_pool(w.now, looked_at);
        oldest.iter().map(|(name, age)| (name.to_string(), age.as_secs())).collect()
    };
    assert_eq!(oldest(&w, 10), [("big".to_owned(), 6), ("small".to_owned(), 4)]);
    assert_eq!(oldest(&w, 1), [("big".to_owned(), 6), ("small".to_owned(), 6)], "no older than that");
}

#[test]
fn workers_are_counted_by_what_they_do() {
    let mut w = World::default();
    for (i, host) in ["runs", "waits", "drained", "silent"].into_iter().enumerate() {
        w.idle(&worker(host).pool("p"));
        assert_eq!(pool(&w, "p").workers, [0, i + 1, 0, 0]);
    }
    w.submit(&ask("a"));
    w.hold(Hold::Drain, &[("host", "drained")]);
    w.drop_poll(&worker("silent"));
    assert_eq!(pool(&w, "p").workers, [1, 1, 1, 1]);
    assert_eq!(metrics(&w).holds, 1);
    w.pass(3600);
    assert_eq!(pool(&w, "p").workers, [0; 4], "all are lost, and the pool is still shown");
    assert_eq!(pool(&w, "p").assigned, 2, "the second had it before it was lost, too");
}

#[test]
fn waits_and_executions_are_timed_by_pool() {
    let mut w = World::default();
    w.submit(&ask("a"));
    w.pass(7);
    let h = worker("h").pool("p");
    assert_eq!(w.idle(&h), "run a");
    w.pass(2);
    w.executing(&h, "a");
    w.pass(2);
    w.completed(&h, "a");
    let pool = pool(&w, "p");
    assert_eq!((pool.wait.sum_ms, pool.execution.sum_ms), (7_000, 4_000));
    assert_eq!((pool.wait.buckets[7], pool.execution.buckets[6]), (1, 1), "up to 10 s, up to 5 s");
    assert_eq!(of(metrics(&w).ended, "reported"), 1);
}

#[test]
fn each_end_and_each_retry_has_its_count() {
    let mut w = World::new(Config { max_attempts: 2, queued_tasks_max: 2, ..Config::default() });
    let (h1, h2) = (worker("h1"), worker("h2"));
    w.submit(&ask("a"));
    assert!(w.joins(&ask("a")));
    w.idle(&h1);
    w.failed(&h1, "a", "disk full");
    assert_eq!(w.idle(&h2), "run a");
    w.failed(&h2, "a", "disk full");
    let m = metrics(&w);
    assert_eq!((m.submitted, m.joined), (1, 1));
    assert_eq!((of(m.retried, "reported"), of(m.ended, "gave_up")), (1, 1));
    assert_eq!(m.pools[0].wait.buckets.iter().sum::<u64>(), 1, "only the first wait is timed");
    assert_eq!(m.pools[0].assigned, 2);

    let cancelled = w.submit(&ask("b").with("gpu", "x"));
    w.step(Event::Cancel(cancelled));
    let refused = w.submit(&ask("c").with("gpu", "x"));
    w.step(Event::Refuse { task: w.task(refused), reason: "no".into() });
    let cached = w.submit(&ask("d").with("gpu", "x"));
    w.step(Event::FoundInCache(w.task(cached)));
    w.submit(&ask("e").with("gpu", "x"));
    w.submit(&ask("f").with("gpu", "x"));
    w.try_submit(&ask("g").with("gpu", "x")).unwrap_err();
    w.pass(3600);
    let m = metrics(&w);
    let ends = ["reported", "cached", "cancelled", "gave_up", "unschedulable", "refused"];
    assert_eq!(ends.map(|end| of(m.ended, end)), [0, 1, 1, 1, 2, 1]);
    assert_eq!(of(m.refused, "queue_full"), 1);
}

#[test]
fn hosts_that_do_badly_are_counted_until_they_are_well() {
    let mut w = World::new(Config { quarantine_after: 1, ..Config::default() });
    let h = worker("h");
    w.submit(&ask("a"));
    w.idle(&h);
    w.exhausted(&h, "a");
    assert_eq!((metrics(&w).hosts_paused, of(metrics(&w).retried, "exhausted")), (1, 1));
    w.pass(1);
    assert_eq!((metrics(&w).hosts_paused, metrics(&w).hosts_quarantined), (0, 0));
    w.failed(&h, "a", "broken");
    assert_eq!(metrics(&w).hosts_quarantined, 1);
    w.pass(61);
    assert_eq!(w.completed(&h, "a"), "waits");
    assert_eq!(metrics(&w).hosts_quarantined, 0);
}

#[test]
fn ever_new_pools_are_one_from_some_number_on() {
    let mut w = World::default();
    w.checked = false;
    for i in 0..POOLS_MAX + 50 {
        w.idle(&worker(&format!("h{i}")).pool(&format!("pool {i}")));
    }
    w.core.check().unwrap();
    assert_eq!(metrics(&w).pools.len(), POOLS_MAX + 1);
    assert_eq!(pool(&w, OTHER_POOLS).workers, [0, 50, 0, 0]);
}
