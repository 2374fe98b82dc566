//! `buildbarn.remoteworker.OperationQueue`: Buildbarn's workers, and the bundled one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::remoteworker::current_state::{self, WorkerState};
use pointsman_proto::remoteworker::operation_queue_server::OperationQueue;
use pointsman_proto::remoteworker::{DesiredState, SynchronizeRequest, SynchronizeResponse, desired_state};
use pointsman_proto::rev2::{self, ExecuteResponse};
use pointsman_proto::rpc;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::event::{Report, Stage, Verdict, WorkerSpec};
use pointsman_scheduler::ids::ActionDigest;
use pointsman_scheduler::properties::Schema;
use smallvec::SmallVec;
use tonic::{Request, Response, Status};

use crate::config::HostKey;
use crate::driver::{Driver, Payload, PollAnswer, WorkerCall, timestamp};
use crate::rev2::instance_name;
use crate::routing::{check_sorted, properties};
use crate::workers::refused::RefusedWorkers;

/// The service.
#[derive(Clone)]
pub struct SynchronizeService {
    inner: Arc<Inner>,
}

struct Inner {
    driver: Arc<Driver>,
    schema: Arc<Schema>,
    pools: Arc<[DeclaredPool]>,
    host_key: HostKey,
    heartbeat: Duration,
    idle_poll_max: Duration,
    /// What workers are, by identity: typing their properties with every call would be most of a call's cost.
    specs: Mutex<Specs>,
    refused: Arc<RefusedWorkers>,
}

/// A worker's name and what it is, by [`key`].
#[derive(Default)]
struct Specs {
    by_key: hashbrown::HashMap<Vec<u8>, (Arc<str>, Arc<WorkerSpec>)>,
    /// Roughly what they take.
    bytes: usize,
}

/// Bytes of identities that are kept, as [`Specs`] counts them; then all are read anew.
const SPECS_MAX_BYTES: usize = 256 << 20;
/// How often the texts of an identity are in one entry of [`Specs`], roughly.
const COPIES: usize = 4;

/// Bytes of one identity. It is kept in several places for each worker there is or was lately.
const IDENTITY_MAX_BYTES: usize = 64 << 10;

/// The pool of workers that no declared pool has.
const DEFAULT_POOL: &str = "default";

impl SynchronizeService {
    /// The service over a driver. Which workers it refuses can be read from `refused`.
    pub fn new(
        driver: Arc<Driver>,
        pools: Arc<[DeclaredPool]>,
        refused: Arc<RefusedWorkers>,
        host_key: HostKey,
        heartbeat: Duration,
        idle_poll_max: Duration,
    ) -> Self {
        let schema = driver.schema().clone();
        let specs = Mutex::default();
        let inner = Inner { driver, schema, pools, host_key, heartbeat, idle_poll_max, specs, refused };
        Self { inner: Arc::new(inner) }
    }
}

#[tonic::async_trait]
impl OperationQueue for SynchronizeService {
    async fn synchronize(
        &self,
        request: Request<SynchronizeRequest>,
    ) -> Result<Response<SynchronizeResponse>, Status> {
        let inner = &self.inner;
        let (call, prefix) = inner.call(request.into_inner())?;
        inner.answer(inner.driver.poll(call).await, &prefix).map(Response::new)
    }
}

impl Inner {
    /// What the core is told, and the caller's instance name prefix. The rest of the request does not outlive this: while
    /// the call waits it would be memory that is cold when it is freed.
    fn call(&self, request: SynchronizeRequest) -> Result<(WorkerCall, Arc<str>), Status> {
        let (worker, spec) = self.who(&request)?;
        let state = request.current_state.and_then(|s| s.worker_state);
        let state = state
            .ok_or_else(|| Status::invalid_argument("current_state is not set: say idle or executing"))?;
        let (report, response) = report(state)?;
        let prefix = spec.instance_name_prefix.clone();
        let prefer_idle = request.prefer_being_idle;
        Ok((WorkerCall { wait: self.idle_poll(), worker, spec, report, response, prefer_idle }, prefix))
    }

    /// Identity and description of the caller. The same `worker_id` with another prefix, platform or size class is
    /// another worker, as in Buildbarn.
    fn who(&self, request: &SynchronizeRequest) -> Result<(Arc<str>, Arc<WorkerSpec>), Status> {
        let key = key(request);
        if let Some(known) = self.specs().by_key.get(&key) {
            return Ok(known.clone());
        }
        let id: BTreeMap<&str, &str> =
            request.worker_id.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let name = name(request, &id);
        if name.len() > IDENTITY_MAX_BYTES {
            return Err(Status::invalid_argument(format!(
                "worker_id, instance_name_prefix and platform have {} bytes together, at most {IDENTITY_MAX_BYTES} \
                 are allowed",
                name.len()
            )));
        }
        let spec = self.describe(request, &id).inspect_err(|e| self.refused.note(&id, e.message()))?;
        self.refused.forget(&id);
        let who: (Arc<str>, _) = (name.into(), Arc::new(spec));
        let mut specs = self.specs();
        specs.bytes += COPIES * key.len();
        if specs.bytes > SPECS_MAX_BYTES {
            *specs = Specs { bytes: COPIES * key.len(), ..Specs::default() };
        }
        specs.by_key.insert(key, who.clone());
        Ok(who)
    }

    fn specs(&self) -> std::sync::MutexGuard<'_, Specs> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn describe(
        &self,
        request: &SynchronizeRequest,
        id: &BTreeMap<&str, &str>,
    ) -> Result<WorkerSpec, Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("worker_id is empty: workers can't be told apart"));
        }
        instance_name::validate(&request.instance_name_prefix)
            .map_err(|e| Status::invalid_argument(format!("instance_name_prefix: {}", e.message())))?;
        let platform = request.platform.clone().unwrap_or_default();
        check_sorted(&platform).map_err(|text| Status::invalid_argument(format!("platform: {text}")))?;
        let properties = properties(&platform);
        let offered = self.schema.worker(&properties).map_err(|error| {
            Status::invalid_argument(format!(
                "Bad Property: {error}; correct the worker's platform, or declare the key in the scheduler's \
                 supported_platform_properties"
            ))
        })?;
        let host: BTreeMap<&str, &str> = match &self.host_key {
            HostKey::AllButThread => {
                id.iter().filter(|(k, _)| **k != "thread").map(|(k, v)| (*k, *v)).collect()
            }
            HostKey::Only(keys) => {
                keys.iter().filter_map(|k| id.get_key_value(k.as_str())).map(|(k, v)| (*k, *v)).collect()
            }
        };
        let (prefix, size) = (&request.instance_name_prefix, request.size_class);
        let pool = self.pools.iter().find(|pool| pool.has(prefix, size, &offered));
        // A worker whose id has none of the configured keys is a host of its own.
        let host = if host.is_empty() { id.clone() } else { host };
        Ok(WorkerSpec {
            id: id.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            host: json(&host).into(),
            instance_name_prefix: request.instance_name_prefix.as_str().into(),
            properties,
            offered,
            size_class: request.size_class,
            pool: pool.map_or_else(|| DEFAULT_POOL.into(), |pool| pool.name.clone()),
            max_inflight_tasks: pool.map_or(0, |pool| pool.max_inflight_tasks),
        })
    }

    /// Between half and all of the time that is allowed, so that workers which started together don't call together.
    fn idle_poll(&self) -> Duration {
        let half = self.idle_poll_max / 2;
        half + half.mul_f64(fastrand::f64())
    }

    fn answer(&self, answer: PollAnswer, prefix: &str) -> Result<SynchronizeResponse, Status> {
        let now = self.driver.clock().now();
        let later = Some(timestamp(now + self.heartbeat));
        let desired = |state| Some(DesiredState { worker_state: Some(state) });
        Ok(match answer {
            PollAnswer::Execute(payload) => SynchronizeResponse {
                next_synchronization_at: later,
                desired_state: desired(desired_state::WorkerState::Executing(work(&payload, prefix))),
            },
            PollAnswer::Continue => {
                SynchronizeResponse { next_synchronization_at: later, desired_state: None }
            }
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

/// All that makes a worker another one, one text after another with its length before it.
fn key(request: &SynchronizeRequest) -> Vec<u8> {
    // The map has no order of its own.
    let mut id: SmallVec<[_; 4]> = request.worker_id.iter().collect();
    id.sort_unstable();
    let id = id.into_iter().flat_map(|(k, v)| [k, v]);
    let platform = request.platform.iter().flat_map(|p| &p.properties).flat_map(|p| [&p.name, &p.value]);
    let mut key = Vec::with_capacity(256);
    for text in id.chain([&request.instance_name_prefix]).chain(platform) {
        key.extend_from_slice(&text.len().to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend_from_slice(&request.size_class.to_le_bytes());
    // Where the id ends and the platform begins.
    key.extend_from_slice(&request.worker_id.len().to_le_bytes());
    key
}

/// The same for people.
fn name(request: &SynchronizeRequest, id: &BTreeMap<&str, &str>) -> String {
    let mut name = json(id);
    name.push('\n');
    name.push_str(&request.instance_name_prefix);
    for property in request.platform.iter().flat_map(|p| &p.properties) {
        name.extend(["\n", &property.name, "\0", &property.value]);
    }
    name.push_str(&format!("\n{}", request.size_class));
    name
}

/// What a worker is sent. Its fields are those that the protocol promises: digest as the client sent it, an action with
/// a timeout, the digest function spelled out.
fn work(payload: &Payload, prefix: &str) -> desired_state::Executing {
    let suffix = payload.instance_name.strip_prefix(prefix).unwrap_or(&payload.instance_name);
    let auxiliary_metadata =
        payload.request_metadata.iter().chain([&payload.shown.decision]).cloned().collect();
    desired_state::Executing {
        action_digest: Some(payload.shown.action_digest.clone()),
        action: Some(payload.action.clone()),
        queued_timestamp: Some(payload.shown.queued_timestamp),
        auxiliary_metadata,
        instance_name_suffix: suffix.trim_start_matches('/').to_owned(),
        w3c_trace_context: Default::default(),
        digest_function: payload.shown.digest_function,
    }
}

fn report(state: WorkerState) -> Result<(Report, Option<ExecuteResponse>), Status> {
    let executing = match state {
        WorkerState::Idle(()) => return Ok((Report::Idle, None)),
        WorkerState::Executing(executing) => executing,
    };
    let current_state::Executing { action_digest, execution_state } = executing;
    let digest = digest(action_digest.as_ref())?;
    let stage = match execution_state {
        Some(ExecutionState::Completed(response)) => {
            let verdict = verdict(&response);
            return Ok((Report::Completed(digest, verdict), Some(response)));
        }
        // The reference ignores which it is, and takes a missing one for "executing".
        Some(ExecutionState::Started(())) | None => Stage::Started,
        Some(ExecutionState::FetchingInputs(())) => Stage::FetchingInputs,
        Some(ExecutionState::Running(())) => Stage::Running,
        Some(ExecutionState::UploadingOutputs(())) => Stage::UploadingOutputs,
    };
    Ok((Report::Executing(digest, stage), None))
}

/// The protocol has hash and size only, and the core compares no more.
fn digest(digest: Option<&rev2::Digest>) -> Result<ActionDigest, Status> {
    let digest =
        digest.ok_or_else(|| Status::invalid_argument("current_state.executing.action_digest is not set"))?;
    let hex = digest.hash.as_bytes();
    let nibble = |b: u8| char::from(b).to_digit(16);
    let hash: Option<SmallVec<[u8; 32]>> = match hex.len() % 2 {
        0 => hex.chunks(2).map(|p| Some((nibble(p[0])? << 4 | nibble(p[1])?) as u8)).collect(),
        _ => None,
    };
    let hash = hash.ok_or_else(|| {
        Status::invalid_argument(format!(
            "current_state.executing.action_digest: hash '{}' is not hexadecimal",
            digest.hash
        ))
    })?;
    Ok(ActionDigest::new(rev2::digest_function::Value::Unknown.into(), &hash, digest.size_bytes))
}

/// Is it the action's result, or the worker's trouble? Missing inputs, a malformed action and a time-out are the client's
/// to know. One that is out of resources is to be spared for a while. All other errors say that this worker could not, and
/// another should.
fn verdict(response: &ExecuteResponse) -> Verdict {
    let Some(status) = response.status.as_ref().filter(|s| s.code != 0) else {
        return match response.result {
            Some(_) => Verdict::Answer,
            None => Verdict::Failed("the worker reported success without a result".into()),
        };
    };
    match rpc::Code::try_from(status.code) {
        Ok(rpc::Code::InvalidArgument | rpc::Code::FailedPrecondition | rpc::Code::DeadlineExceeded) => {
            Verdict::Answer
        }
        Ok(rpc::Code::ResourceExhausted) => Verdict::Exhausted(status.message.as_str().into()),
        Ok(code) => Verdict::Failed(format!("{}: {}", code.as_str_name(), status.message).into()),
        Err(_) => Verdict::Failed(format!("status {}: {}", status.code, status.message).into()),
    }
}

fn json(map: &BTreeMap<&str, &str>) -> String {
    // A map of strings always has a JSON form.
    serde_json::to_string(map).unwrap_or_default()
}
