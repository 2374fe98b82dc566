//! JSON of what a policy decides.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::{Affinity, Exclusivity, Property, Route, Scope, SizeClass};
use serde::{Deserialize, Serialize};

use super::action::pairs;
use super::{form, forms, is_default};
use crate::decision::{Code, Hook, PolicyId, Rejection};
use crate::hooks::Next;

forms! {
    Route: RouteForm,
    SizeClass: SizeClassForm,
    Exclusivity: ExclusivityForm,
    Scope: ScopeForm,
    Affinity: AffinityForm,
    Rejection: RejectionForm,
    Code: CodeForm,
    Next: NextForm,
    Hook: HookForm,
    PolicyId: PolicyIdForm,
}

/// `shared` is what almost all routes are, so that only its absence is told.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Route", default = "plain", deny_unknown_fields)]
struct RouteForm {
    #[serde(with = "form", skip_serializing_if = "is_default")]
    platform: Vec<Property>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    pool: Option<Arc<str>>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    size: SizeClass,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    exclusivity: Exclusivity,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    strategies: Option<Vec<Arc<str>>>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    invocation_keys: Vec<Arc<str>>,
    #[serde(skip_serializing_if = "is_default")]
    priority: i32,
    #[serde(rename = "timeout_ms", with = "form", skip_serializing_if = "is_default")]
    timeout: Option<Duration>,
    #[serde(skip_serializing_if = "Clone::clone")]
    shared: bool,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    affinity: Option<Affinity>,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    learning_key: Option<Arc<str>>,
    #[serde(with = "pairs", skip_serializing_if = "is_default")]
    environment: Vec<(Arc<str>, Arc<str>)>,
    #[serde(skip_serializing_if = "is_default")]
    rank_candidates: u32,
    #[serde(with = "form", skip_serializing_if = "is_default")]
    notes: Vec<Arc<str>>,
}

fn plain() -> Route {
    Route { shared: true, ..Route::default() }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SizeClass", rename_all = "snake_case")]
enum SizeClassForm {
    Learned,
    Smallest,
    Largest,
    Exactly(u32),
    AtLeast(u32),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Exclusivity", rename_all = "snake_case", deny_unknown_fields)]
enum ExclusivityForm {
    Shared,
    Host,
    Group {
        #[serde(with = "form")]
        name: Arc<str>,
        #[serde(with = "form")]
        scope: Scope,
        at_most: u32,
    },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Scope", rename_all = "snake_case")]
enum ScopeForm {
    Host,
    Pool,
    Cluster,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Affinity", deny_unknown_fields)]
struct AffinityForm {
    #[serde(with = "form")]
    key: Arc<str>,
    #[serde(rename = "wait_ms", with = "form")]
    wait: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Rejection", deny_unknown_fields)]
struct RejectionForm {
    #[serde(with = "form")]
    code: Code,
    reason: String,
    #[serde(default, skip_serializing_if = "is_default")]
    help: Option<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Code", rename_all = "snake_case")]
enum CodeForm {
    InvalidArgument,
    FailedPrecondition,
    PermissionDenied,
    ResourceExhausted,
    Unavailable,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Next", rename_all = "snake_case")]
enum NextForm {
    Accept,
    Again(#[serde(with = "form")] Route),
    Fail(#[serde(with = "form")] Rejection),
}

#[allow(clippy::enum_variant_names, reason = "the names of the interfaces")]
#[derive(Serialize, Deserialize)]
#[serde(remote = "Hook", rename_all = "kebab-case")]
enum HookForm {
    OnAction,
    OnWorker,
    OnResult,
    OnAssignment,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "PolicyId", deny_unknown_fields)]
struct PolicyIdForm {
    #[serde(with = "form")]
    name: Arc<str>,
    #[serde(with = "form")]
    version: Arc<str>,
    #[serde(rename = "sha256", with = "form")]
    digest_hex: Arc<str>,
}
