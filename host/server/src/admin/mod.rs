//! `pointsman.v1.Admin`: what operators ask and tell. Thin over the driver.

mod messages;
pub mod policies;
pub mod sizes;

use std::collections::HashMap;
use std::sync::Arc;

use pointsman_proto::v1::admin_server::Admin;
use pointsman_proto::v1::cancel_request::Which;
use pointsman_proto::v1::{self, hold};
use pointsman_proto::{rev2::Platform, unpack};
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::properties::Schema;
use pointsman_scheduler::route::{Route, SizeClass};
use tonic::{Request, Response, Status};

use crate::driver::{Driver, Payload, Selection};
use crate::rev2::{instance_name, operations};
use crate::routing;
use crate::workers::refused::RefusedWorkers;

pub(crate) use messages::count;
pub use messages::explanation;

/// The service.
#[derive(Clone, Debug)]
pub struct AdminService {
    driver: Arc<Driver>,
    schema: Arc<Schema>,
    refused: Arc<RefusedWorkers>,
}

/// Sets of requirements in one answer, if the caller doesn't say.
const QUEUE_DEFAULT: usize = 100;
/// Sets of requirements in one answer at most: each is explained under the lock.
const QUEUE_MAX: usize = 1000;

impl AdminService {
    /// The service over a driver, and the workers that its front end refuses.
    pub fn new(driver: Arc<Driver>, refused: Arc<RefusedWorkers>) -> Self {
        let schema = driver.schema().clone();
        Self { driver, schema, refused }
    }

    fn hold(&self, hold: Option<v1::Hold>, add: bool) -> Result<HoldOutcome, Status> {
        let hold = hold.ok_or_else(|| Status::invalid_argument("hold is not set"))?;
        let kind = match hold.kind() {
            hold::Kind::Drain => Hold::Drain,
            hold::Kind::Pause => Hold::Pause,
            hold::Kind::Unspecified => {
                return Err(Status::invalid_argument("hold.kind is not set: say DRAIN or PAUSE"));
            }
        };
        let pattern = pattern(hold.worker_id_pattern);
        let pattern = match hold.queue {
            None => pattern,
            Some(queue) => pattern.of_queue(Arc::new(queue_name(queue))),
        };
        tracing::info!(hold = kind.name(), %pattern, add, "an operator's word");
        if !add && pattern.queue().is_none() {
            return Ok(self.remove_from_any_queue(kind, &pattern));
        }
        match self.driver.hold(kind, pattern, add) {
            outcome @ HoldOutcome::TooMany(_) => Err(Status::resource_exhausted(outcome.to_string())),
            outcome => Ok(outcome),
        }
    }
}

impl AdminService {
    /// Removes what has these entries, whatever its queue: an operator sees them, and need not spell out queues.
    fn remove_from_any_queue(&self, kind: Hold, pattern: &Pattern) -> HoldOutcome {
        let there = self.driver.holds().into_iter();
        let meant = there.filter(|view| view.hold == kind && view.pattern.entries() == pattern.entries());
        let removed = meant.filter_map(|view| match self.driver.hold(kind, view.pattern, false) {
            HoldOutcome::Removed(workers) => Some(workers),
            _ => None,
        });
        removed.reduce(|a, b| a + b).map_or(HoldOutcome::Unknown, HoldOutcome::Removed)
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::Explanation>, Status> {
        let name = request.into_inner().operation_name;
        match self.driver.explain(&name) {
            None => Err(operations::unknown(&name)),
            Some(None) => Err(Status::failed_precondition(format!(
                "the operation '{name}' is over: GetOperation or WaitExecution have its result"
            ))),
            Some(Some((found, payload))) => Ok(Response::new(explained(&found, &payload, name))),
        }
    }

    async fn plan(&self, request: Request<v1::PlanRequest>) -> Result<Response<v1::Explanation>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let platform = routing::properties(&Platform { properties: request.platform });
        let mut route = Route {
            platform,
            pool: (!request.pool.is_empty()).then(|| request.pool.into()),
            size: request.size_class.map_or_else(SizeClass::default, SizeClass::Exactly),
            ..Route::default()
        };
        route.sort_platform();
        let asked =
            self.schema.action(&route.platform).map_err(|e| Status::failed_precondition(e.to_string()))?;
        Ok(Response::new(explanation(&self.driver.plan(&request.instance_name.into(), &route, &asked))))
    }

    async fn list_queue(
        &self,
        request: Request<v1::ListQueueRequest>,
    ) -> Result<Response<v1::ListQueueResponse>, Status> {
        let limit = match request.into_inner().limit as usize {
            0 => QUEUE_DEFAULT,
            n => n.min(QUEUE_MAX),
        };
        let (classes, counts) = (self.driver.queue(limit), self.driver.counts());
        let class = |(view, payload): &(pointsman_scheduler::views::ClassView, Arc<Payload>)| {
            let names: Vec<String> = view.operations.iter().map(|o| o.to_string()).collect();
            v1::list_queue_response::Class {
                actions: count(view.count),
                oldest_ms: messages::ms(view.explanation.age),
                explanation: Some(explained(
                    &view.explanation,
                    payload,
                    names.first().cloned().unwrap_or_default(),
                )),
                operation_names: names,
                instance_name: payload.instance_name.to_string(),
                platform: payload.action.platform.as_ref().map(|p| p.properties.clone()).unwrap_or_default(),
            }
        };
        Ok(Response::new(v1::ListQueueResponse {
            classes: classes.iter().map(class).collect(),
            queued: count(counts.queued),
            running: count(counts.running),
        }))
    }

    async fn list_workers(
        &self,
        _: Request<v1::ListWorkersRequest>,
    ) -> Result<Response<v1::ListWorkersResponse>, Status> {
        let workers = self.driver.workers().iter().map(messages::worker).collect();
        let refused = self.refused.list().into_iter().map(messages::refused).collect();
        Ok(Response::new(v1::ListWorkersResponse { workers, refused }))
    }

    async fn add_hold(
        &self,
        request: Request<v1::AddHoldRequest>,
    ) -> Result<Response<v1::AddHoldResponse>, Status> {
        let text = self.hold(request.into_inner().hold, true)?.to_string();
        Ok(Response::new(v1::AddHoldResponse { text }))
    }

    async fn remove_hold(
        &self,
        request: Request<v1::RemoveHoldRequest>,
    ) -> Result<Response<v1::RemoveHoldResponse>, Status> {
        let text = self.hold(request.into_inner().hold, false)?.to_string();
        Ok(Response::new(v1::RemoveHoldResponse { text }))
    }

    async fn list_holds(
        &self,
        _: Request<v1::ListHoldsRequest>,
    ) -> Result<Response<v1::ListHoldsResponse>, Status> {
        let hold = |view: &pointsman_scheduler::views::HoldView| {
            let kind = match view.hold {
                Hold::Drain => hold::Kind::Drain,
                Hold::Pause => hold::Kind::Pause,
            };
            let entries = view.pattern.entries().iter();
            v1::Hold {
                kind: kind.into(),
                worker_id_pattern: entries
                    .map(|(k, v)| (k.to_string(), v.to_string()))
                    .collect::<HashMap<_, _>>(),
                queue: view.pattern.queue().map(|queue| v1::HoldQueue {
                    instance_name_prefix: queue.prefix.to_string(),
                    platform: routing::platform(&queue.platform).properties,
                    size_class: queue.size_class,
                }),
                age_ms: messages::ms(view.age),
                workers: count(view.workers),
                busy: count(view.busy),
            }
        };
        Ok(Response::new(v1::ListHoldsResponse { holds: self.driver.holds().iter().map(hold).collect() }))
    }

    async fn release(
        &self,
        request: Request<v1::ReleaseRequest>,
    ) -> Result<Response<v1::ReleaseResponse>, Status> {
        let pattern = pattern(request.into_inner().worker_id_pattern);
        tracing::info!(%pattern, "an operator releases hosts");
        let hosts = self.driver.release(pattern).iter().map(ToString::to_string).collect();
        Ok(Response::new(v1::ReleaseResponse { hosts }))
    }

    async fn cancel(
        &self,
        request: Request<v1::CancelRequest>,
    ) -> Result<Response<v1::CancelResponse>, Status> {
        let which = request.into_inner().which;
        let which =
            which.ok_or_else(|| Status::invalid_argument("say which operations are to be cancelled"))?;
        let (selection, name) = match which {
            Which::OperationName(name) => (Selection::One(name.clone()), Some(name)),
            Which::LikeOperationName(name) => (Selection::Alike(name.clone()), Some(name)),
            Which::InvocationKey(key) => (Selection::Invocation(key), None),
        };
        tracing::info!(?selection, "an operator cancels operations");
        let operation_names = self.driver.cancel_selected(&selection);
        match name.filter(|_| operation_names.is_empty()) {
            Some(name) => Err(operations::unknown(&name)),
            None => Ok(Response::new(v1::CancelResponse { operation_names })),
        }
    }
}

fn queue_name(queue: v1::HoldQueue) -> QueueName {
    let platform = routing::properties(&Platform { properties: queue.platform });
    QueueName::new(queue.size_class, queue.instance_name_prefix.into(), platform)
}

fn pattern(entries: HashMap<String, String>) -> Pattern {
    Pattern::new(entries.into_iter().map(|(k, v)| (k.into(), v.into())))
}

fn explained(
    found: &pointsman_scheduler::explain::Explanation,
    payload: &Payload,
    name: String,
) -> v1::Explanation {
    // Whoever made the decision packed it as what it is.
    v1::Explanation {
        operation_name: name,
        decision: unpack(&payload.shown.decision).ok(),
        ..explanation(found)
    }
}
