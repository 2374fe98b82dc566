//! What a router does.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use crate::router::{LATENCY_BUCKETS_US, Numbers};

const CALLS: Family = Family::counter(
    "router_calls",
    "RouteAction calls, by how they were answered: routed; without policies, known (by the last route of such an action) or native (by the client's platform); rejected by a policy, refused (malformed, no such Command), unavailable.",
)
.by(&["outcome"])
.ask("rate(pointsman_router_calls_total{outcome=~\"known|native|unavailable\"}[5m]) > 0");
const LATENCY: Family = Family::histogram("router_latency", "How long RouteAction calls take.")
    .ask("histogram_quantile(0.99, rate(pointsman_router_latency_seconds_bucket[5m]))");
const COMMANDS: Family = Family::counter(
    "router_commands",
    "Commands that policies wanted: kept in memory, fetched from the CAS, joined to another's fetch, missing there, bad (too large, no Command), failed. Those that joined are counted once more with the fetch.",
)
.by(&["became"])
.ask("rate(pointsman_router_commands_total{became=\"failed\"}[5m]) > 0");
const DROPPED: Family = Family::counter(
    "router_edits_dropped",
    "Edits of policies that a router can't hand on, by what they set.",
)
.by(&["edit"])
.ask("increase(pointsman_router_edits_dropped_total[10m]) > 0");
const KEPT: Family = Family::gauge("router_commands_memory", "Bytes of Commands kept in memory.")
    .bytes()
    .ask("pointsman_router_commands_memory_bytes");
const KNOWN: Family = Family::gauge("router_known_routes", "Kinds of actions whose last route is kept.")
    .ask("pointsman_router_known_routes");
const KNOWN_BYTES: Family = Family::gauge("router_known_routes", "Bytes that those take.")
    .bytes()
    .ask("pointsman_router_known_routes_bytes");

pub(super) const FAMILIES: &[Family] = &[CALLS, LATENCY, COMMANDS, DROPPED, KEPT, KNOWN, KNOWN_BYTES];

/// Where the numbers come from.
#[derive(Debug)]
pub(super) struct RouterMetrics {
    pub(super) numbers: Numbers,
}

impl Collector for RouterMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counts, mut page) = (self.numbers.counts(), Page(encoder));
        let count = |(name, count): (&'static str, u64)| ([name], Value::Count(count));
        page.each(&CALLS, counts.outcomes().map(count))?;
        let (sum, buckets) = counts.latency();
        let bounds = LATENCY_BUCKETS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(buckets).collect();
        page.one(&LATENCY, Value::Histogram { sum, buckets: &buckets })?;
        page.each(&COMMANDS, counts.fetches().map(count))?;
        page.each(&DROPPED, counts.edits_dropped().map(count))?;
        page.one(&KEPT, Value::Level(self.numbers.commands().1 as f64))?;
        let (known, bytes) = self.numbers.known_routes();
        page.one(&KNOWN, Value::Level(known as f64))?;
        page.one(&KNOWN_BYTES, Value::Level(bytes as f64))
    }
}
