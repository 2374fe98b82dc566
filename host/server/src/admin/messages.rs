//! The core's views as messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_proto::v1;
use pointsman_proto::v1::explanation::mismatch::Value;
use pointsman_proto::v1::explanation::{Attempt, Count, Mismatch, Shortage};
use pointsman_scheduler::event::{HostExclusive, Stage};
use pointsman_scheduler::explain::{Explanation, Subject};
use pointsman_scheduler::properties::PropertyType;
use pointsman_scheduler::views::{Activity, WorkerView};

use crate::routing;
use crate::workers::refused::Refusal;

/// An explanation, without the name and the decision of its operation.
pub fn explanation(e: &Explanation) -> v1::Explanation {
    v1::Explanation {
        reason: e.reason.code().to_owned(),
        text: e.to_string(),
        age_ms: ms(e.age),
        host: match &e.subject {
            Subject::Running(host) => host.to_string(),
            Subject::Queued | Subject::Planned => String::new(),
        },
        workers: count(e.workers),
        counts: e
            .counts
            .iter()
            .map(|(o, n)| Count { obstacle: o.code().to_owned(), workers: count(*n) })
            .collect(),
        mismatches: e.mismatches.iter().map(mismatch).collect(),
        shortages: e
            .shortages
            .iter()
            .map(|s| Shortage {
                key: s.key.to_string(),
                asked: s.asked,
                most_free: s.most_free,
                most_total: s.most_total,
            })
            .collect(),
        position: count(e.position),
        alike: count(e.alike),
        attempts: e
            .attempts
            .iter()
            .map(|a| Attempt {
                host: a.host.to_string(),
                cause: a.cause.to_string(),
                ended_unix_ms: a.ended.0,
            })
            .collect(),
        remedy: e.remedy().unwrap_or_default(),
        never: e.reason.is_never(),
        kept_host: e.kept.as_deref().unwrap_or_default().to_owned(),
        declared_pool: e.declared.as_deref().unwrap_or_default().to_owned(),
        decision: None,
        operation_name: String::new(),
    }
}

fn mismatch(m: &pointsman_scheduler::explain::Mismatch) -> Mismatch {
    let kind = match m.kind {
        Some(PropertyType::Exact) => "exact",
        Some(PropertyType::Minimum) => "minimum",
        Some(PropertyType::Priority) => "priority",
        Some(PropertyType::Ignore) => "ignore",
        None => "",
    };
    Mismatch {
        key: m.key.to_string(),
        r#type: kind.to_owned(),
        asked: m.asked.to_string(),
        candidates: count(m.candidates),
        workers: count(m.workers),
        values: m.values.iter().map(|(v, n)| Value { value: v.to_string(), workers: count(*n) }).collect(),
        nearly: m.nearly.as_deref().unwrap_or_default().to_owned(),
    }
}

/// A number of things; there are not four thousand million of anything here.
pub(crate) fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// A length of time, in milliseconds.
pub(super) fn ms(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// A worker that is refused.
pub(super) fn refused(
    (id, refusal): (BTreeMap<String, String>, Refusal),
) -> v1::list_workers_response::Refused {
    v1::list_workers_response::Refused {
        id: id.into_iter().collect(),
        last_ms: ms(refusal.last.elapsed()),
        reason: refusal.reason,
        calls: refusal.calls,
    }
}

/// A worker.
pub(super) fn worker(view: &WorkerView) -> v1::list_workers_response::Worker {
    let (state, operation, stage, since) = match &view.activity {
        Activity::Waiting => ("waiting", None, "", Duration::ZERO),
        Activity::NotCalling => ("not-calling", None, "", Duration::ZERO),
        Activity::Executing { operation, stage, since } => {
            let stage = match stage {
                None => "",
                Some(Stage::Started) => "started",
                Some(Stage::FetchingInputs) => "fetching-inputs",
                Some(Stage::Running) => "running",
                Some(Stage::UploadingOutputs) => "uploading-outputs",
            };
            ("executing", operation.as_deref(), stage, *since)
        }
    };
    let text = |t: &Option<Arc<str>>| t.as_deref().unwrap_or_default().to_owned();
    let (exclusive, interval) = match view.spec.terms.exclusive {
        HostExclusive::Allowed => ("allowed", Duration::ZERO),
        HostExclusive::Never => ("never", Duration::ZERO),
        HostExclusive::NotMoreOftenThan(interval) => ("not-more-often-than", interval),
    };
    v1::list_workers_response::Worker {
        id: view.spec.id.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect(),
        host: view.spec.host.to_string(),
        instance_name_prefix: view.spec.instance_name_prefix.to_string(),
        platform: routing::platform(&view.spec.properties).properties,
        size_class: view.spec.size_class,
        pool: view.spec.pool.to_string(),
        state: state.to_owned(),
        operation_name: operation.unwrap_or_default().to_owned(),
        drained: view.drained,
        terminating: view.terminating,
        paused: text(&view.paused),
        quarantined: text(&view.quarantined),
        reserved_for: text(&view.reserved_for),
        exclusive_there: view.exclusive,
        amounts: view
            .amounts
            .iter()
            .map(|a| v1::list_workers_response::Amount {
                key: a.key.to_string(),
                free: a.free,
                total: a.total,
            })
            .collect(),
        inflight: count(view.inflight),
        inflight_max: count(view.inflight_max),
        stage: stage.to_owned(),
        executing_ms: ms(since),
        admitted_by: text(&view.spec.terms.by),
        strategies: view.spec.terms.strategies.iter().flatten().map(|s| s.to_string()).collect(),
        has_strategies: view.spec.terms.strategies.is_some(),
        exclusive: exclusive.to_owned(),
        exclusive_interval_ms: ms(interval),
        exclusive_below: view.spec.terms.exclusive_below,
        notes: view.spec.terms.notes.iter().map(|n| n.to_string()).collect(),
    }
}
