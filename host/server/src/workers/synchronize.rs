//! `buildbarn.remoteworker.OperationQueue`: Buildbarn's workers, and the bundled one.

use std::sync::Arc;
use std::time::Duration;

use pointsman_policy::Runtime;
use pointsman_proto::pack;
use pointsman_proto::remoteworker::operation_queue_server::OperationQueue;
use pointsman_proto::remoteworker::{DesiredState, SynchronizeRequest, SynchronizeResponse, desired_state};
use pointsman_proto::rev2::command::EnvironmentVariable;
use pointsman_proto::v1::{ActionEnvironment, ExecutionStrategy};
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::event::Report;
use pointsman_storage::Storage;
use pointsman_worker::{SIZE_CLASS_VARIABLE, STRATEGIES_HEADER};
use prost_types::Any;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::identity::{Who, Workers};
use super::judge::Judge;
use super::report::report;
use super::results::Results;
use crate::config::Config;
use crate::driver::{Driver, Payload, PollAnswer, WorkerCall, timestamp};
use crate::routing::Router;
use crate::workers::refused::RefusedWorkers;

/// The service.
#[derive(Clone)]
pub struct SynchronizeService {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    workers: Workers,
    judge: Arc<Judge>,
    results: Results,
    idle_poll_max: Duration,
}

impl SynchronizeService {
    /// The service over a driver. Which workers it refuses can be read from `refused`.
    pub fn new(
        driver: Arc<Driver>,
        pools: Arc<[DeclaredPool]>,
        refused: Arc<RefusedWorkers>,
        storage: Arc<dyn Storage>,
        (policies, router): (Arc<Runtime>, Arc<Router>),
        config: &Config,
    ) -> Self {
        let (schema, host_key) = (driver.schema().clone(), config.host_key.clone());
        let workers = Workers::new(schema, pools, policies.clone(), refused, host_key);
        let (rerun, max_attempts) = (config.sizes.rerun.clone(), config.max_attempts as usize);
        let judge = Arc::new(Judge::new(driver.clone(), policies, router, rerun, max_attempts));
        let results = Results::new(driver.clone(), storage, config.action_cache);
        let idle_poll_max = config.timers.idle_poll;
        Self { inner: Arc::new(Inner { driver, workers, judge, results, idle_poll_max }) }
    }
}

#[tonic::async_trait]
impl OperationQueue for SynchronizeService {
    async fn synchronize(
        &self,
        request: Request<SynchronizeRequest>,
    ) -> Result<Response<SynchronizeResponse>, Status> {
        let inner = &self.inner;
        let said = strategies_said(request.metadata())?;
        let (call, caller) = inner.call(request.into_inner(), said.as_deref())?;
        let call = inner.judge.judge_aside(call).await?;
        inner.results.write(&call).await;
        inner.answer(inner.poll(call).await, &caller).map(Response::new)
    }
}

/// What the worker says of the execution strategies that it offers; see [`STRATEGIES_HEADER`].
fn strategies_said(metadata: &MetadataMap) -> Result<Option<String>, Status> {
    let Some(value) = metadata.get(STRATEGIES_HEADER) else { return Ok(None) };
    let text = value.to_str().map_err(|_| {
        Status::invalid_argument(format!("{STRATEGIES_HEADER} is not ASCII: give names with commas between them"))
    })?;
    Ok(Some(text.to_owned()))
}

/// Who calls, as far as the answer depends on it.
struct Caller {
    prefix: Arc<str>,
    /// The size class that a policy has admitted it with, if that is not the one it believes to have.
    size_class: Option<u32>,
}

impl Caller {
    /// What it is to tell its actions of itself, as it can't know that.
    fn environment(&self) -> Option<Any> {
        let (name, value) = (SIZE_CLASS_VARIABLE.to_owned(), self.size_class?.to_string());
        let variables = vec![EnvironmentVariable { name, value }];
        Some(pack(&ActionEnvironment { variables }))
    }
}

impl Inner {
    /// What the core is told, and what the answer depends on. The rest of the request does not outlive this: while
    /// the call waits it would be memory that is cold when it is freed.
    fn call(
        &self,
        request: SynchronizeRequest,
        strategies: Option<&str>,
    ) -> Result<(WorkerCall, Caller), Status> {
        let Who { name: worker, spec } = self.workers.who(&request, strategies)?;
        let mut prefer_idle = request.prefer_being_idle;
        let spec = match spec {
            Ok(spec) => spec,
            // What it has been given before policies turned it away it ends, and gets nothing more.
            Err(status) => match self.driver.busy_as(&worker) {
                Some(spec) => {
                    prefer_idle = true;
                    spec
                }
                None => {
                    self.workers.turned_away(&request, &status);
                    return Err(status);
                }
            },
        };
        let state = request.current_state.and_then(|s| s.worker_state);
        let state = state
            .ok_or_else(|| Status::invalid_argument("current_state is not set: say idle or executing"))?;
        let (report, response) = report(state)?;
        let caller = Caller {
            prefix: spec.instance_name_prefix.clone(),
            size_class: (spec.size_class != request.size_class).then_some(spec.size_class),
        };
        let wait = self.idle_poll();
        let (ran, rerun) = (None, None);
        Ok((WorkerCall { worker, spec, report, response, ran, rerun, prefer_idle, wait }, caller))
    }

    /// Hands the call to the core, until it has something whose result the action cache doesn't have.
    async fn poll(&self, call: WorkerCall) -> PollAnswer {
        let (worker, spec) = (call.worker.clone(), call.spec.clone());
        let mut answer = self.driver.poll(call).await;
        while let PollAnswer::Execute { payload, .. } = &answer {
            if !self.results.answers(&worker, payload).await {
                payload.cache_look.handed_over();
                break;
            }
            let (worker, spec, wait) = (worker.clone(), spec.clone(), self.idle_poll());
            let (report, response, ran, rerun) = (Report::Idle, None, None, None);
            let next = WorkerCall { worker, spec, report, response, ran, rerun, prefer_idle: false, wait };
            answer = self.driver.poll(next).await;
        }
        answer
    }

    /// Between half and all of the time that is allowed, so that workers which started together don't call together.
    fn idle_poll(&self) -> Duration {
        let half = self.idle_poll_max / 2;
        half + half.mul_f64(fastrand::f64())
    }

    fn answer(&self, answer: PollAnswer, caller: &Caller) -> Result<SynchronizeResponse, Status> {
        let now = self.driver.clock().now();
        let desired = |state| Some(DesiredState { worker_state: Some(state) });
        Ok(match answer {
            PollAnswer::Execute { payload, strategy, heartbeat } => {
                let work = work(&payload, strategy.as_deref(), caller);
                SynchronizeResponse {
                    next_synchronization_at: Some(timestamp(now + heartbeat)),
                    desired_state: desired(desired_state::WorkerState::Executing(work)),
                }
            }
            PollAnswer::Continue { heartbeat } => SynchronizeResponse {
                next_synchronization_at: Some(timestamp(now + heartbeat)),
                desired_state: None,
            },
            PollAnswer::Idle => SynchronizeResponse {
                next_synchronization_at: Some(timestamp(now)),
                desired_state: desired(desired_state::WorkerState::Idle(())),
            },
            PollAnswer::Superseded => {
                return Err(Status::resource_exhausted(
                    "a worker with the same worker_id has called since: give each worker, and each thread, an id of its own",
                ));
            }
            PollAnswer::TooManyWorkers => {
                return Err(Status::resource_exhausted(
                    "the scheduler has as many workers as it takes; stop some, or raise limits.workers in its configuration",
                ));
            }
        })
    }
}

/// What a worker is sent. Its fields are those that the protocol promises: digest as the client sent it, an action with
/// a timeout, the digest function spelled out.
fn work(payload: &Payload, strategy: Option<&str>, caller: &Caller) -> desired_state::Executing {
    let suffix = payload.instance_name.strip_prefix(&*caller.prefix).unwrap_or(&payload.instance_name);
    let metadata = payload.request_metadata.iter().chain([&payload.shown.decision]).cloned();
    let strategy = strategy.map(|name| pack(&ExecutionStrategy { name: name.to_owned() }));
    let told = caller.environment().into_iter().chain(payload.environment.clone()).chain(strategy);
    let auxiliary_metadata = metadata.chain(told).collect();
    let trace =
        payload.trace_context.iter().flat_map(|t| [("traceparent", &t.parent), ("tracestate", &t.state)]);
    let w3c_trace_context =
        trace.filter(|(_, v)| !v.is_empty()).map(|(k, v)| (k.to_owned(), v.clone())).collect();
    desired_state::Executing {
        action_digest: Some(payload.shown.action_digest.clone()),
        action: Some(payload.action.clone()),
        queued_timestamp: Some(payload.shown.queued_timestamp),
        auxiliary_metadata,
        instance_name_suffix: suffix.trim_start_matches('/').to_owned(),
        w3c_trace_context,
        digest_function: payload.shown.digest_function,
    }
}
