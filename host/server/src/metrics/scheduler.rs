//! What the scheduler says of itself: one look at the core per scrape.

use std::fmt;
use std::sync::Arc;

use pointsman_scheduler::metrics::{BOUNDS_MS, Histogram, Metrics, WorkerState};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use crate::arrivals::Arrivals;
use crate::driver::Driver;
use crate::workers::refused::RefusedWorkers;

const QUEUED: Family =
    Family::gauge("actions_queued", "Actions that wait for a worker.").ask("pointsman_actions_queued");
const OLDEST: Family = Family::gauge(
    "oldest_queued_action_age",
    "How long the action has waited that waits longest, 0 if none does; `pointsman queue` says what it waits for.",
)
.seconds()
.ask("pointsman_oldest_queued_action_age_seconds > 300");
const UNSERVED: Family = Family::gauge(
    "actions_queued_unserved",
    "Actions that wait although no worker that is known could run them: they end after timers.unschedulable_timeout, but for those of declared pools.",
)
.ask("pointsman_actions_queued_unserved > 0");
const RUNNING: Family =
    Family::gauge("actions_running", "Actions that workers have.").ask("pointsman_actions_running");
const POOL_QUEUED: Family = Family::gauge(
    "pool_actions_queued",
    "Actions that wait and that workers of the pool could run; one that several pools could run counts in each.",
)
.by(&["pool"])
.ask("topk(5, pointsman_pool_actions_queued)");
const POOL_LOAD: Family = Family::gauge(
    "pool_load",
    "Actions that wait for a declared pool or that its workers have, each counted in one pool (of the smallest size class, then the longest prefix, then the first declared), whether it has workers or not: what to size a pool by.",
)
.by(&["pool"])
.ask("sum by (pool) (pointsman_pool_load)");
const WORKERS: Family = Family::gauge(
    "workers",
    "Worker threads: executing, idle (a call waits for work), held (drained or paused, with nothing to do) or not_calling.",
)
.by(&["pool", "state"])
.ask("sum by (pool) (pointsman_workers{state=\"idle\"})");
const WAIT: Family = Family::histogram(
    "queue_wait",
    "From an action's arrival until the first time that a worker is given it, by that worker's pool.",
)
.by(&["pool"])
.ask("histogram_quantile(0.99, sum by (le, pool) (rate(pointsman_queue_wait_seconds_bucket[5m])))");
const EXECUTION: Family = Family::histogram(
    "execution",
    "From when a worker is given an action until it has a result, inputs and outputs included.",
)
.by(&["pool"])
.ask("histogram_quantile(0.5, sum by (le, pool) (rate(pointsman_execution_seconds_bucket[5m])))");
const ASSIGNMENTS: Family = Family::counter("assignments", "Actions given to workers, each try counted.")
    .by(&["pool"])
    .ask("sum by (pool) (rate(pointsman_assignments_total[1m]))");
const ACCEPTED: Family = Family::counter(
    "actions_accepted",
    "Execute calls that were queued (new), or joined an identical action in flight (joined).",
)
.by(&["how"])
.ask("rate(pointsman_actions_accepted_total[1m])");
const CACHED: Family = Family::counter(
    "actions_cached_on_arrival",
    "Execute calls answered from the action cache, without being queued.",
)
.ask("rate(pointsman_actions_cached_on_arrival_total[5m])");
const REFUSED: Family = Family::counter(
    "actions_refused",
    "Execute calls refused since a bound is reached: queue_full (limits.queued_actions), too_many_classes, too_many_demands.",
)
.by(&["reason"])
.ask("increase(pointsman_actions_refused_total[10m]) > 0");
const ERRORS: Family = Family::counter(
    "execute_errors",
    "Execute calls that ended with an error before anything was queued, by gRPC code; rejections by policies and the above included.",
)
.by(&["code"])
.ask("sum by (code) (rate(pointsman_execute_errors_total[5m]))");
const ENDED: Family = Family::counter(
    "actions_ended",
    "Queued actions that ended: reported by a worker, found cached while queued, cancelled, gave_up after too many tries, unschedulable, refused by a new policy.",
)
.by(&["end"])
.ask("increase(pointsman_actions_ended_total{end=~\"gave_up|unschedulable\"}[10m]) > 0");
const RETRIES: Family = Family::counter(
    "action_retries",
    "How often actions went back into the queue: worker lost, given_back, reported (a failure of the worker's own), run_again (by a policy, or on a larger size class), undelivered, exhausted (worker out of resources).",
)
.by(&["cause"])
.ask("sum by (cause) (rate(pointsman_action_retries_total[5m]))");
const OPERATIONS: Family =
    Family::gauge("operations", "Operations, those that ended lately included.").ask("pointsman_operations");
const CLASSES: Family =
    Family::gauge("classes", "Different sets of requirements among what waits and runs (limits.classes).")
        .ask("pointsman_classes");
const LANES: Family =
    Family::gauge("lanes", "Queues, as workers see them: sets of requirements that the same workers serve.")
        .ask("pointsman_lanes");
const SHAPES: Family =
    Family::gauge("shapes", "Kinds of worker that requirements can tell apart.").ask("pointsman_shapes");
const HOSTS: Family = Family::gauge("hosts", "Hosts that have workers.").ask("pointsman_hosts");
const HOSTS_PAUSED: Family = Family::gauge(
    "hosts_paused",
    "Hosts that get nothing for a while since they said that they are out of resources.",
)
.ask("pointsman_hosts_paused > 0");
const HOSTS_QUARANTINED: Family = Family::gauge(
    "hosts_quarantined",
    "Hosts where one action after another failed, and that get one at a time or none.",
)
.ask("pointsman_hosts_quarantined > 0");
const HOSTS_RESERVED: Family = Family::gauge(
    "hosts_reserved",
    "Hosts that are kept free for one action: an exclusive one, or one that asks for much (reserved_percent).",
)
.ask("pointsman_hosts_reserved / pointsman_hosts");
const RESERVATIONS: Family = Family::counter(
    "reservations",
    "How often a host was kept free for an action (made), and what came of it: met when the action began, moved to another host after timers.reservation_timeout, dropped when nobody needed it any more.",
)
.by(&["what"])
.ask("increase(pointsman_reservations_total{what=\"moved\"}[1h]) > 0");
const RESERVATION_WAIT: Family = Family::histogram(
    "reservation_wait",
    "From when a host is kept free for an action until the action begins: what the host could have done meanwhile.",
)
.ask("rate(pointsman_reservation_wait_seconds_sum[1h])");
const HOLDS: Family =
    Family::gauge("holds", "Drains and pauses of operators in force.").ask("pointsman_holds > 0");
const WORKERS_REFUSED: Family = Family::gauge(
    "workers_refused",
    "Workers refused in the last five minutes (bad properties, too many of them); `pointsman workers` says why.",
)
.ask("pointsman_workers_refused > 0");

pub(super) const FAMILIES: &[Family] = &[
    QUEUED,
    OLDEST,
    UNSERVED,
    RUNNING,
    POOL_QUEUED,
    POOL_LOAD,
    WORKERS,
    WAIT,
    EXECUTION,
    ASSIGNMENTS,
    ACCEPTED,
    CACHED,
    REFUSED,
    ERRORS,
    ENDED,
    RETRIES,
    OPERATIONS,
    CLASSES,
    LANES,
    SHAPES,
    HOSTS,
    HOSTS_PAUSED,
    HOSTS_QUARANTINED,
    HOSTS_RESERVED,
    RESERVATIONS,
    RESERVATION_WAIT,
    HOLDS,
    WORKERS_REFUSED,
];

/// Where the numbers come from.
#[derive(Debug)]
pub(super) struct SchedulerMetrics {
    pub(super) driver: Arc<Driver>,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) refused: Arc<RefusedWorkers>,
}

impl Collector for SchedulerMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = self.driver.metrics();
        let mut page = Page(encoder);
        actions(&mut page, &metrics)?;
        page.one(&CACHED, Value::Count(self.arrivals.cached()))?;
        let errors = self.arrivals.errors();
        page.each(&ERRORS, errors.iter().map(|(code, n)| ([*code], Value::Count(*n))))?;
        pools(&mut page, &metrics)?;
        workers(&mut page, &metrics)?;
        page.one(&WORKERS_REFUSED, level(self.refused.list().len()))
    }
}

fn level(count: usize) -> Value<'static> {
    Value::Level(count as f64)
}

fn actions(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    page.one(&QUEUED, level(metrics.counts.queued))?;
    page.one(&OLDEST, Value::Level(metrics.oldest_queued.as_secs_f64()))?;
    page.one(&UNSERVED, level(metrics.unserved))?;
    page.one(&RUNNING, level(metrics.counts.running))?;
    page.each(&ACCEPTED, table(&[("new", metrics.submitted), ("joined", metrics.joined)]))?;
    page.each(&REFUSED, table(&metrics.refused))?;
    page.each(&ENDED, table(&metrics.ended))?;
    page.each(&RETRIES, table(&metrics.retried))?;
    page.one(&OPERATIONS, level(metrics.counts.operations))?;
    page.one(&CLASSES, level(metrics.counts.classes))?;
    page.one(&LANES, level(metrics.counts.lanes))?;
    page.one(&SHAPES, level(metrics.counts.shapes))
}

fn table<'a>(counts: &'a [(&'static str, u64)]) -> impl Iterator<Item = ([&'a str; 1], Value<'a>)> {
    counts.iter().map(|(name, count)| ([*name], Value::Count(*count)))
}

fn workers(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    page.one(&HOSTS, level(metrics.counts.hosts))?;
    page.one(&HOSTS_PAUSED, level(metrics.hosts_paused))?;
    page.one(&HOSTS_QUARANTINED, level(metrics.hosts_quarantined))?;
    page.one(&HOSTS_RESERVED, level(metrics.hosts_reserved))?;
    page.each(&RESERVATIONS, table(&metrics.reservations))?;
    let wait = &metrics.reservation_wait;
    let buckets = buckets(wait);
    page.one(&RESERVATION_WAIT, Value::Histogram { sum: wait.sum_ms as f64 / 1e3, buckets: &buckets })?;
    page.one(&HOLDS, level(metrics.holds))
}

fn pools(page: &mut Page<'_>, metrics: &Metrics) -> fmt::Result {
    let pools = || metrics.pools.iter();
    page.each(&POOL_QUEUED, pools().map(|p| ([&*p.name], level(p.queued))))?;
    let loads = pools().filter_map(|p| Some(([&*p.name], Value::Level(p.load? as f64))));
    page.each(&POOL_LOAD, loads)?;
    let states = |p| WorkerState::ALL.into_iter().map(move |state| (p, state));
    let by_state = pools().flat_map(states);
    page.each(
        &WORKERS,
        by_state.map(|(p, state)| ([&*p.name, state.name()], level(p.workers[state as usize]))),
    )?;
    page.each(&ASSIGNMENTS, pools().map(|p| ([&*p.name], Value::Count(p.assigned))))?;
    histograms(page, &WAIT, pools().map(|p| (&*p.name, &p.wait)))?;
    histograms(page, &EXECUTION, pools().map(|p| (&*p.name, &p.execution)))
}

fn histograms<'a>(
    page: &mut Page<'_>,
    family: &Family,
    of_pools: impl Iterator<Item = (&'a str, &'a Histogram)>,
) -> fmt::Result {
    let of_pools: Vec<_> = of_pools.map(|(name, h)| (name, h.sum_ms as f64 / 1e3, buckets(h))).collect();
    let samples =
        of_pools.iter().map(|(name, sum, buckets)| ([*name], Value::Histogram { sum: *sum, buckets }));
    page.each(family, samples)
}

/// In seconds.
pub(super) fn buckets(histogram: &Histogram) -> Vec<(f64, u64)> {
    let bounds = BOUNDS_MS.iter().map(|ms| *ms as f64 / 1e3).chain([f64::INFINITY]);
    bounds.zip(histogram.buckets).collect()
}
