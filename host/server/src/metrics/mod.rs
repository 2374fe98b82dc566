//! What monitoring reads at `/metrics`, as OpenMetrics text.
//!
//! A registry is a value made from the parts that it asks, so that two servers in one process have two. Each part keeps
//! its own counts; here they are only named. Labels have few values: names of pools, of policies and of outcomes,
//! never what clients send.

mod buildbarn;
mod document;
mod family;
mod learning;
mod policies;
mod process;
mod router;
mod scheduler;

use std::sync::Arc;

use pointsman_policy::{Manager, Runtime};
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_storage::EmbeddedStorage;
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::registry::Registry;

use crate::arrivals::Arrivals;
use crate::decisions::Decisions;
use crate::driver::Driver;
use crate::learning::Learning;
use crate::router::Numbers;
use crate::web::Readiness;
use crate::workers::refused::RefusedWorkers;

pub use document::document;

/// What the scrape's content type is.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What is asked at each scrape.
pub struct Sources {
    /// The core.
    pub driver: Arc<Driver>,
    /// What became of Execute calls that were not queued.
    pub arrivals: Arc<Arrivals>,
    /// The policies in force.
    pub policies: Arc<Runtime>,
    /// Who puts them in force.
    pub manager: Arc<Manager>,
    /// Records of what they decide, if there are any.
    pub decisions: Option<Arc<Decisions>>,
    /// What is learned of actions.
    pub learning: Arc<Learning>,
    /// Workers that are refused.
    pub refused: Arc<RefusedWorkers>,
    /// The storage and its bound in bytes, if it is here.
    pub storage: Option<(Arc<EmbeddedStorage>, u64)>,
    /// Whether the server is ready.
    pub readiness: Readiness,
    /// Declared pools, if the counters of Buildbarn's scheduler are to be there as well (`http.buildbarn_metrics`).
    pub buildbarn: Option<Arc<[DeclaredPool]>>,
}

/// The same for a router.
pub(crate) struct RouterSources {
    pub(crate) numbers: Numbers,
    pub(crate) policies: Arc<Runtime>,
    pub(crate) manager: Arc<Manager>,
    pub(crate) decisions: Option<Arc<Decisions>>,
    pub(crate) readiness: Readiness,
}

/// All metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    /// One for each prefix.
    registries: Vec<Registry>,
}

impl Metrics {
    /// Metrics of these parts.
    pub fn new(sources: Sources) -> Self {
        let Sources { driver, arrivals, policies, manager, decisions, learning, refused, .. } = sources;
        let Sources { storage, readiness, buildbarn, .. } = sources;
        let mut registry = Registry::with_prefix(family::PREFIX);
        registry.register_collector(Box::new(process::ProcessMetrics::new(readiness)));
        let theirs = buildbarn.map(|pools| {
            let mut registry = Registry::with_prefix(buildbarn::PREFIX);
            registry.register_collector(Box::new(buildbarn::BuildbarnMetrics::new(driver.clone(), &pools)));
            registry
        });
        registry.register_collector(Box::new(scheduler::SchedulerMetrics { driver, arrivals, refused }));
        registry.register_collector(Box::new(policies::PolicyMetrics { policies, manager, decisions }));
        registry.register_collector(Box::new(learning::LearningMetrics { learning }));
        if let Some((storage, max_bytes)) = storage {
            registry.register_collector(Box::new(process::StorageMetrics { storage, max_bytes }));
        }
        Self { registries: std::iter::once(registry).chain(theirs).collect() }
    }

    /// Metrics of a router.
    pub(crate) fn of_router(sources: RouterSources) -> Self {
        let RouterSources { numbers, policies, manager, decisions, readiness } = sources;
        let mut registry = Registry::with_prefix(family::PREFIX);
        registry.register_collector(Box::new(process::ProcessMetrics::new(readiness)));
        registry.register_collector(Box::new(router::RouterMetrics { numbers }));
        registry.register_collector(Box::new(policies::PolicyMetrics { policies, manager, decisions }));
        Self { registries: vec![registry] }
    }

    /// All of them now, as OpenMetrics text. Waits for the policies' manager, so it is not for a reactor's thread.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String does not fail.
        self.registries.iter().for_each(|registry| _ = encode_registry(&mut text, registry));
        _ = encode_eof(&mut text);
        text
    }
}
