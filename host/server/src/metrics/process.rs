//! What is true of the program, and of the storage inside of it.

use std::fmt;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pointsman_storage::EmbeddedStorage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;

use super::family::{Family, Page, Value};
use crate::web::Readiness;

const BUILD: Family = Family::gauge("build_info", "Always 1; its label says which version runs.")
    .by(&["version"])
    .ask("count by (version) (pointsman_build_info)");
const STARTED: Family =
    Family::gauge("start_time", "When the server started, in seconds since the Unix epoch.")
        .seconds()
        .ask("time() - pointsman_start_time_seconds");
const READY: Family =
    Family::gauge("ready", "1 while `/readyz` says so, else 0.").ask("pointsman_ready == 0");

const BLOBS: Family = Family::gauge("storage_blobs", "Blobs on disk.").ask("pointsman_storage_blobs");
const BYTES: Family = Family::gauge("storage_blobs", "Bytes that they take, in whole blocks of 4096.")
    .bytes()
    .ask("pointsman_storage_blobs_bytes / pointsman_storage_limit_bytes");
const LIMIT: Family = Family::gauge("storage_limit", "Bytes that they may take (storage.embedded.max_size).")
    .bytes()
    .ask("pointsman_storage_limit_bytes");
const RESULTS: Family = Family::gauge("storage_action_results", "Action results on disk.")
    .ask("pointsman_storage_action_results");
const EVICTED: Family = Family::counter("storage_blobs_evicted", "Blobs removed to make room.")
    .ask("rate(pointsman_storage_blobs_evicted_total[5m])");
const DAMAGED: Family = Family::counter(
    "storage_blobs_damaged",
    "Blobs removed since they were damaged or had vanished from the disk.",
)
.ask("increase(pointsman_storage_blobs_damaged_total[1h]) > 0");
const MEMORY: Family = Family::gauge("storage_memory", "Bytes of small blobs kept in memory.")
    .bytes()
    .ask("pointsman_storage_memory_bytes");

pub(super) const PROCESS: &[Family] = &[BUILD, STARTED, READY];
pub(super) const STORAGE: &[Family] = &[BLOBS, BYTES, LIMIT, RESULTS, EVICTED, DAMAGED, MEMORY];

/// The program.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    started: f64,
    readiness: Readiness,
}

impl ProcessMetrics {
    pub(super) fn new(readiness: Readiness) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Self { started, readiness }
    }
}

impl Collector for ProcessMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.each(&BUILD, [([env!("CARGO_PKG_VERSION")], Value::Level(1.0))])?;
        page.one(&STARTED, Value::Level(self.started))?;
        page.one(&READY, Value::Level(f64::from(u8::from(self.readiness.is_ready()))))
    }
}

/// The embedded storage.
pub(super) struct StorageMetrics {
    pub(super) storage: Arc<EmbeddedStorage>,
    pub(super) max_bytes: u64,
}

impl fmt::Debug for StorageMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StorageMetrics").finish_non_exhaustive()
    }
}

impl Collector for StorageMetrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let stats = self.storage.stats();
        let mut page = Page(encoder);
        page.one(&BLOBS, Value::Level(stats.blobs as f64))?;
        page.one(&BYTES, Value::Level(stats.bytes as f64))?;
        page.one(&LIMIT, Value::Level(self.max_bytes as f64))?;
        page.one(&RESULTS, Value::Level(stats.action_results as f64))?;
        page.one(&EVICTED, Value::Count(stats.evicted_blobs))?;
        page.one(&DAMAGED, Value::Count(stats.damaged_blobs))?;
        page.one(&MEMORY, Value::Level(stats.memory_bytes as f64))
    }
}
