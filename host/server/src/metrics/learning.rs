//! What is learned of actions.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use crate::learning::Learning;

const KEYS: Family = Family::gauge("learning_keys", "Learning keys of which something is known.")
    .ask("pointsman_learning_keys");
const RUNS: Family =
    Family::counter("learning_runs", "Runs of actions with a learning key that were taken in.")
        .ask("rate(pointsman_learning_runs_total[5m])");
const SIZED: Family = Family::counter(
    "learning_sized",
    "Routes that were given a size class by what is known, those that were decided again included.",
)
.ask("rate(pointsman_learning_sized_total[5m])");
const DROPPED: Family = Family::counter(
    "learning_dropped",
    "Records that were dropped, since others were used more recently (least_used) or a line of the file was broken (broken).",
)
.by(&["cause"])
.ask("increase(pointsman_learning_dropped_total{cause=\"least_used\"}[1h]) > 0");
const FLUSH_ERRORS: Family = Family::counter(
    "learning_flush_errors",
    "Times that what was learned could not be written; it is written when that works again.",
)
.ask("increase(pointsman_learning_flush_errors_total[10m]) > 0");

pub(super) const LEARNING: &[Family] = &[KEYS, RUNS, SIZED, DROPPED, FLUSH_ERRORS];

/// What is learned.
#[derive(Debug)]
pub(super) struct LearningMetrics {
    pub(super) learning: Arc<Learning>,
}

impl Collector for LearningMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let ((keys, dropped), counts) = (self.learning.keys(), self.learning.counts());
        let mut page = Page(encoder);
        page.one(&KEYS, Value::Level(keys as f64))?;
        page.one(&RUNS, Value::Count(counts.runs.load(Relaxed)))?;
        page.one(&SIZED, Value::Count(counts.sized.load(Relaxed)))?;
        let dropped = [(["least_used"], dropped), (["broken"], counts.broken.load(Relaxed))];
        page.each(&DROPPED, dropped.map(|(cause, count)| (cause, Value::Count(count))))?;
        page.one(&FLUSH_ERRORS, Value::Count(counts.flush_errors.load(Relaxed)))
    }
}
