//! The counters of Buildbarn's scheduler under Buildbarn's names, so that dashboards and autoscalers that were made for it go on.
//! There are no gauges among them: what there is is what one has counted less what another has.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::metrics::Histogram;
use pointsman_scheduler::task_metrics::{
    InvocationCounts, Outcome, PoolTasks, RETRIES_BOUNDS, RunResult, Runs,
};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use super::scheduler::buckets;
use crate::buildqueuestate::platform_json;
use crate::driver::Driver;

/// What all names begin with.
pub(super) const PREFIX: &str = "buildbarn_builder_in_memory_build_queue";

/// The platform under which is counted what no declared pool has: as much a platform as others, to whoever parses it.
const OTHERS: &str = r#"{"properties":[{"name":"pointsman-pool","value":"other"}]}"#;

const QUEUE: [&str; 3] = ["instance_name_prefix", "platform", "size_class"];

const SCHEDULED: Family = Family::counter(
    "tasks_scheduled",
    "Actions that entered the queue: given to a worker at once (Worker) or not (Queue).",
)
.of(PREFIX)
.by(&[QUEUE[0], QUEUE[1], QUEUE[2], "assignment", "do_not_cache"])
.ask("sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_tasks_scheduled_total) - sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count)");
const QUEUED: Family =
    Family::histogram("tasks_queued_duration", "How long actions were in the queue, when they leave it.")
        .of(PREFIX)
        .by(&QUEUE)
        .ask("sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_tasks_scheduled_total) - sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_tasks_queued_duration_seconds_count)");
const EXECUTING: Family = Family::histogram(
    "tasks_executing_duration",
    "How long workers had actions, when they have them no more; NotExecuted: they ended in the queue, were found cached, or workers of another pool took them.",
)
.of(PREFIX)
.by(&[QUEUE[0], QUEUE[1], QUEUE[2], "result", "grpc_code"])
.ask("sum by (result) (rate(buildbarn_builder_in_memory_build_queue_tasks_executing_duration_seconds_count[5m]))");
const EXECUTING_RETRIES: Family = Family::plain_histogram(
    "tasks_executing_retries",
    "How often actions were sent again to a worker that did not say that it had them, when it has them no more.",
)
.of(PREFIX)
.by(&[QUEUE[0], QUEUE[1], QUEUE[2], "result", "grpc_code"])
.ask("increase(buildbarn_builder_in_memory_build_queue_tasks_executing_retries_sum[1h]) > 0");
const COMPLETED: Family = Family::histogram(
    "tasks_completed_duration",
    "How long actions were kept after their end, when they are forgotten.",
)
.of(PREFIX)
.by(&QUEUE)
.ask("rate(buildbarn_builder_in_memory_build_queue_tasks_completed_duration_seconds_count[5m])");
const DEDUPLICATIONS: Family = Family::counter(
    "in_flight_deduplications",
    "Execute calls of actions that may be shared: joined one in flight of the SameInvocation, of OtherInvocation, or New.",
)
.of(PREFIX)
.by(&[QUEUE[0], QUEUE[1], QUEUE[2], "outcome"])
.ask("rate(buildbarn_builder_in_memory_build_queue_in_flight_deduplications_total{outcome!=\"New\"}[5m])");
const WORKERS_CREATED: Family = Family::counter("workers_created", "Worker threads that came.")
    .of(PREFIX)
    .by(&QUEUE)
    .ask("sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_workers_created_total) - sum by (platform, size_class) (buildbarn_builder_in_memory_build_queue_workers_removed_total)");
const WORKERS_TERMINATING: Family =
    Family::counter("workers_terminating", "Worker threads that were told to go, or were lost.")
        .of(PREFIX)
        .by(&QUEUE)
        .ask("rate(buildbarn_builder_in_memory_build_queue_workers_terminating_total[5m])");
const WORKERS_REMOVED: Family = Family::counter(
    "workers_removed",
    "Worker threads that went: Idle or Executing.",
)
.of(PREFIX)
.by(&[QUEUE[0], QUEUE[1], QUEUE[2], "state"])
.ask("increase(buildbarn_builder_in_memory_build_queue_workers_removed_total{state=\"Executing\"}[10m]) > 0");
const INVOCATIONS_CREATED: Family = Family::counter(
    "invocations_created",
    "Groups of actions (invocations) that came, by depth; of all pools together.",
)
.of(PREFIX)
.by(&["depth"])
.ask("rate(buildbarn_builder_in_memory_build_queue_invocations_created_total[5m])");
const INVOCATIONS_ACTIVATED: Family = Family::counter("invocations_activated", "Invocations that began to have actions.")
    .of(PREFIX)
    .by(&["depth"])
    .ask("sum by (depth) (buildbarn_builder_in_memory_build_queue_invocations_activated_total) - sum by (depth) (buildbarn_builder_in_memory_build_queue_invocations_deactivated_total)");
const INVOCATIONS_DEACTIVATED: Family =
    Family::counter("invocations_deactivated", "Invocations that ceased to have actions.")
        .of(PREFIX)
        .by(&["depth"])
        .ask("rate(buildbarn_builder_in_memory_build_queue_invocations_deactivated_total[5m])");
const INVOCATIONS_REMOVED: Family =
    Family::counter("invocations_removed", "Invocations that were forgotten.")
        .of(PREFIX)
        .by(&["depth"])
        .ask("rate(buildbarn_builder_in_memory_build_queue_invocations_removed_total[5m])");

pub(super) const FAMILIES: &[Family] = &[
    SCHEDULED,
    QUEUED,
    EXECUTING,
    EXECUTING_RETRIES,
    COMPLETED,
    DEDUPLICATIONS,
    WORKERS_CREATED,
    WORKERS_TERMINATING,
    WORKERS_REMOVED,
    INVOCATIONS_CREATED,
    INVOCATIONS_ACTIVATED,
    INVOCATIONS_DEACTIVATED,
    INVOCATIONS_REMOVED,
];

/// Instance name prefix, platform and size class.
type Labels = [String; 3];

/// Where the numbers come from.
#[derive(Debug)]
pub(super) struct BuildbarnMetrics {
    driver: Arc<Driver>,
    /// Of all that no declared pool has, then of declared pools.
    labels: Vec<Labels>,
}

impl BuildbarnMetrics {
    pub(super) fn new(driver: Arc<Driver>, pools: &[DeclaredPool]) -> Self {
        let others = [String::new(), OTHERS.to_owned(), "0".to_owned()];
        let of_pool = |pool: &DeclaredPool| {
            let queue = pool.queue_name();
            [queue.prefix.to_string(), platform_json(&queue.platform), queue.size_class.to_string()]
        };
        Self { driver, labels: std::iter::once(others).chain(pools.iter().map(of_pool)).collect() }
    }
}

impl Collector for BuildbarnMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics = self.driver.task_metrics();
        // Pools that differ in name only are one to Buildbarn.
        let mut pools: BTreeMap<&Labels, PoolTasks> = BTreeMap::new();
        for (labels, pool) in self.labels.iter().zip(&metrics.pools) {
            pools.entry(labels).or_default().add(pool);
        }
        let pools: Vec<(&Labels, PoolTasks)> = pools.into_iter().collect();
        let mut page = Page(encoder);
        tasks(&mut page, &pools)?;
        executions(&mut page, &pools)?;
        workers(&mut page, &pools)?;
        invocations(&mut page, &metrics.invocations)
    }
}

type Pools<'a> = [(&'a Labels, PoolTasks)];

fn label<'a, const N: usize>(
    [prefix, platform, size_class]: &'a Labels,
    more: [&'static str; N],
) -> Vec<&'a str> {
    [prefix.as_str(), platform, size_class].into_iter().chain(more).collect()
}

fn counters<const N: usize>(
    page: &mut Page<'_>,
    family: &Family,
    pools: &Pools<'_>,
    counts: impl Fn(&PoolTasks) -> Vec<([&'static str; N], u64)>,
) -> fmt::Result {
    let of = |(labels, pool)| {
        counts(pool).into_iter().map(move |(more, n)| (label(labels, more), Value::Count(n)))
    };
    page.each(family, pools.iter().map(|(labels, pool)| (*labels, pool)).flat_map(of))
}

fn histograms(
    page: &mut Page<'_>,
    family: &Family,
    pools: &Pools<'_>,
    histogram: impl Fn(&PoolTasks) -> &Histogram,
) -> fmt::Result {
    let of = pools.iter().map(|(labels, pool)| (labels, histogram(pool).sum_ms, buckets(histogram(pool))));
    let of: Vec<_> = of.collect();
    let samples = of.iter().map(|(labels, sum_ms, buckets)| {
        (label(labels, []), Value::Histogram { sum: *sum_ms as f64 / 1e3, buckets })
    });
    page.each(family, samples)
}

fn tasks(page: &mut Page<'_>, pools: &Pools<'_>) -> fmt::Result {
    counters(page, &SCHEDULED, pools, |pool| {
        let by_caching = |assignment, [cached, uncached]: [u64; 2]| {
            [([assignment, "false"], cached), ([assignment, "true"], uncached)]
        };
        let [at_once, queued] = pool.scheduled;
        [by_caching("Worker", at_once), by_caching("Queue", queued)].concat()
    })?;
    histograms(page, &QUEUED, pools, |pool| &pool.queued)?;
    histograms(page, &COMPLETED, pools, |pool| &pool.completed)?;
    counters(page, &DEDUPLICATIONS, pools, |pool| {
        let [same, other, new] = pool.sharing;
        vec![(["SameInvocation"], same), (["OtherInvocation"], other), (["New"], new)]
    })
}

/// Each pool has those that went well, were there none so far: a difference with nothing is nothing.
fn executions(page: &mut Page<'_>, pools: &Pools<'_>) -> fmt::Result {
    let well = Outcome::new(RunResult::Success, 0);
    let of = |(labels, pool): &(&Labels, PoolTasks)| {
        let mut executed = pool.executed.clone();
        executed.entry(well).or_default();
        let labels = (*labels).clone();
        executed.into_iter().map(move |(outcome, runs)| (labels.clone(), outcome, runs)).collect::<Vec<_>>()
    };
    let runs: Vec<(Labels, Outcome, Runs)> = pools.iter().flat_map(of).collect();
    let names = |labels, outcome: &Outcome| label(labels, [outcome.result.name(), code(outcome.code)]);
    let lengths: Vec<_> = runs.iter().map(|(_, _, runs)| buckets(&runs.length)).collect();
    let samples = runs.iter().zip(&lengths).map(|((labels, outcome, runs), buckets)| {
        (names(labels, outcome), Value::Histogram { sum: runs.length.sum_ms as f64 / 1e3, buckets })
    });
    page.each(&EXECUTING, samples)?;
    let bounds = || RETRIES_BOUNDS.iter().map(|bound| *bound as f64).chain([f64::INFINITY]);
    let retries: Vec<Vec<(f64, u64)>> =
        runs.iter().map(|(_, _, runs)| bounds().zip(runs.retries).collect()).collect();
    let samples = runs.iter().zip(&retries).map(|((labels, outcome, runs), buckets)| {
        (names(labels, outcome), Value::Histogram { sum: runs.retries_sum as f64, buckets })
    });
    page.each(&EXECUTING_RETRIES, samples)
}

fn workers(page: &mut Page<'_>, pools: &Pools<'_>) -> fmt::Result {
    counters(page, &WORKERS_CREATED, pools, |pool| vec![([], pool.workers_created)])?;
    counters(page, &WORKERS_TERMINATING, pools, |pool| vec![([], pool.workers_terminating)])?;
    counters(page, &WORKERS_REMOVED, pools, |pool| {
        let [idle, executing] = pool.workers_removed;
        vec![(["Idle"], idle), (["Executing"], executing)]
    })
}

fn invocations(page: &mut Page<'_>, counts: &InvocationCounts) -> fmt::Result {
    for (family, counts) in [
        (&INVOCATIONS_CREATED, &counts.created),
        (&INVOCATIONS_ACTIVATED, &counts.activated),
        (&INVOCATIONS_DEACTIVATED, &counts.deactivated),
        (&INVOCATIONS_REMOVED, &counts.removed),
    ] {
        // The root neither comes nor goes.
        let depths: Vec<(String, u64)> =
            counts.iter().enumerate().skip(1).map(|(depth, n)| (depth.to_string(), *n)).collect();
        page.each(family, depths.iter().map(|(depth, n)| ([depth.as_str()], Value::Count(*n))))?;
    }
    Ok(())
}

/// A gRPC code as Go writes it.
fn code(code: u8) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    NAMES.get(usize::from(code)).copied().unwrap_or("Unknown")
}
