//! JSON of what is known and decided about workers.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::Property;
use serde::{Deserialize, Serialize};

use super::action::pairs;
use super::{form, forms, is_default};
use crate::facts::Pool;
use crate::hooks::{Candidate, HostExclusive, Terms, WorkerFacts};

forms! {
    WorkerFacts: WorkerFactsForm,
    Terms: TermsForm,
    HostExclusive: HostExclusiveForm,
    Candidate: CandidateForm,
    Pool: PoolForm,
}

/// The time is not among the facts: `host.now` tells it.
#[derive(Serialize, Deserialize)]
#[serde(remote = "WorkerFacts", default = "WorkerFacts::default", deny_unknown_fields)]
struct WorkerFactsForm {
    #[serde(with = "pairs", skip_serializing_if = "is_default")]
    id: Vec<(Arc<str>, Arc<str>)>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    instance_name_prefix: Arc<str>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    platform: Vec<Property>,
    #[serde(skip_serializing_if = "is_default")]
    size_class: u32,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    principal: Arc<str>,
    #[serde(skip)]
    now_unix_seconds: f64,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Terms", default = "Terms::default", deny_unknown_fields)]
struct TermsForm {
    #[serde(with = "form", skip_serializing_if = "is_default")]
    platform: Vec<Property>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    pool: Option<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    size_class: u32,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    strategies: Option<Vec<Arc<str>>>,
    #[serde(skip_serializing_if = "is_default")]
    max_inflight: Option<u32>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    exclusive: HostExclusive,
    #[serde(skip_serializing_if = "is_default")]
    exclusive_below: Option<u32>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    notes: Vec<Arc<str>>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "HostExclusive", rename_all = "snake_case")]
enum HostExclusiveForm {
    Allowed,
    Never,
    #[serde(rename = "not_more_often_than_ms")]
    NotMoreOftenThan(#[serde(with = "form")] Duration),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Candidate", deny_unknown_fields)]
struct CandidateForm {
    #[serde(with = "form")]
    worker: Arc<str>,
    #[serde(default, with = "form", skip_serializing_if = "is_default")]
    pool: Arc<str>,
    #[serde(default, skip_serializing_if = "is_default")]
    executing: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    affine: bool,
    #[serde(rename = "idle_ms", default, with = "form", skip_serializing_if = "is_default")]
    idle: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Pool", deny_unknown_fields)]
struct PoolForm {
    #[serde(with = "form")]
    name: Arc<str>,
    #[serde(default, skip_serializing_if = "is_default")]
    workers: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    idle_workers: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    executing: u32,
    #[serde(default, skip_serializing_if = "is_default")]
    queued: u32,
    #[serde(rename = "oldest_queued_ms", default, with = "form", skip_serializing_if = "is_default")]
    oldest_queued: Duration,
}
