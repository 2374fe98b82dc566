//! On what terms policies let workers join.

use std::sync::Arc;

use pointsman_policy::{Admission, Hook, PolicyId, Rejection, Runtime, WorkerFacts};
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::event::{Terms, WorkerSpec};
use pointsman_scheduler::properties::{Offered, Schema};
use pointsman_scheduler::route::Property;
use tonic::Status;

use super::identity::strategies_of;
use crate::routing;

/// Asks policies about workers.
pub(super) struct Admissions {
    policies: Arc<Runtime>,
    schema: Arc<Schema>,
    pools: Arc<[DeclaredPool]>,
}

/// What became of it.
pub(super) struct Admitted {
    /// What the worker is, or why it is refused.
    pub(super) spec: Result<Arc<WorkerSpec>, Status>,
    /// A policy failed: it may do better if it is asked again.
    pub(super) in_doubt: bool,
}

impl Admissions {
    pub(super) fn new(policies: Arc<Runtime>, schema: Arc<Schema>, pools: Arc<[DeclaredPool]>) -> Self {
        Self { policies, schema, pools }
    }

    /// Number of the generation that admits workers of that prefix; `None`: nobody there wants to be asked.
    pub(super) fn generation(&self, prefix: &str) -> Option<u64> {
        self.policies.has_hook(prefix, Hook::OnWorker).then(|| self.policies.in_force().number())
    }

    /// What a worker is on the terms of the policies of its prefix. `said` are the execution strategies that it says it can
    /// do, `bad` is what is wrong with its properties, should they stay as they are.
    pub(super) fn admit(
        &self,
        offered: &Arc<WorkerSpec>,
        said: Option<&[Arc<str>]>,
        bad: Option<&Status>,
    ) -> Admitted {
        let worker = Arc::new(WorkerFacts {
            id: offered.id.clone(),
            instance_name_prefix: offered.instance_name_prefix.clone(),
            platform: offered.properties.clone(),
            size_class: offered.size_class,
            principal: Arc::default(),
            now_unix_seconds: routing::now(),
        });
        let offer = pointsman_policy::Terms {
            platform: offered.properties.clone(),
            size_class: offered.size_class,
            ..pointsman_policy::Terms::default()
        };
        let Admission { terms, rejection, by, failures, .. } = self.policies.admit(&worker, offer);
        for failure in &failures {
            tracing::warn!(worker = &*offered.host, failure, "a policy failed at a worker");
        }
        let in_doubt = !failures.is_empty();
        let spec = match (rejection, by) {
            (Some(rejection), by) => Err(refused(&rejection, by.as_deref())),
            (None, by) if bad.is_some() && terms.platform == offered.properties => {
                let by = by.map(|by| format!("; policy {by} left it as it is")).unwrap_or_default();
                let bad = bad.map_or("", Status::message);
                Err(Status::invalid_argument(format!("{bad}{by}")))
            }
            (None, None) => Ok(offered.clone()),
            (None, Some(by)) => self.on_terms(offered, said, terms, &by, failures).map(Arc::new),
        };
        Admitted { spec, in_doubt }
    }

    fn on_terms(
        &self,
        offered: &WorkerSpec,
        said: Option<&[Arc<str>]>,
        terms: pointsman_policy::Terms,
        by: &PolicyId,
        failures: Vec<String>,
    ) -> Result<WorkerSpec, Status> {
        let pointsman_policy::Terms { platform, pool, size_class, max_inflight, .. } = terms;
        let typed = self.typed(offered, &platform, by)?;
        let prefix = &offered.instance_name_prefix;
        // A pool that a policy names may be one that nobody has declared.
        let declared = match &pool {
            Some(name) => self.pools.iter().find(|pool| pool.name == *name),
            None => self.pools.iter().find(|pool| pool.has(prefix, size_class, &typed)),
        };
        let default =
            || declared.map_or_else(|| super::identity::DEFAULT_POOL.into(), |pool| pool.name.clone());
        let mut notes = terms.notes;
        notes.extend(failures.into_iter().map(Arc::from));
        let strategies = match terms.strategies {
            Some(wanted) => Some(possible(wanted, said, &mut notes)),
            None => said.map(<[_]>::to_vec).or_else(|| declared.and_then(strategies_of)),
        };
        Ok(WorkerSpec {
            id: offered.id.clone(),
            host: offered.host.clone(),
            instance_name_prefix: prefix.clone(),
            properties: platform,
            offered: typed,
            size_class,
            pool: pool.unwrap_or_else(default),
            max_inflight_tasks: max_inflight
                .unwrap_or_else(|| declared.map_or(0, |pool| pool.max_inflight_tasks)),
            terms: Terms {
                strategies,
                exclusive: terms.exclusive,
                exclusive_below: terms.exclusive_below,
                notes,
                by: Some(by.to_string().into()),
            },
        })
    }

    fn typed(&self, offered: &WorkerSpec, platform: &[Property], by: &PolicyId) -> Result<Offered, Status> {
        if platform == offered.properties {
            return Ok(offered.offered.clone());
        }
        self.schema.worker(platform).map_err(|error| {
            Status::failed_precondition(format!(
                "Bad Property: {error}; it is among the terms set by policy {by}: correct the policy, or declare the key \
                 in the scheduler's supported_platform_properties"
            ))
        })
    }
}

/// Of the strategies that a policy wants a worker to offer, those that it says it can do, if it says.
fn possible(wanted: Vec<Arc<str>>, said: Option<&[Arc<str>]>, notes: &mut Vec<Arc<str>>) -> Vec<Arc<str>> {
    let Some(said) = said else { return wanted };
    let (kept, others): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|strategy| said.contains(strategy));
    if !others.is_empty() {
        let text = format!("it can't do {}, only {}", others.join(", "), said.join(", "));
        notes.push(text.into());
    }
    kept
}

fn refused(rejection: &Rejection, by: Option<&PolicyId>) -> Status {
    let by = by.map(|by| format!(" {by}")).unwrap_or_default();
    let text = format!("rejected by policy{by}: {rejection}");
    Status::new(rejection.code.grpc().into(), text)
}
