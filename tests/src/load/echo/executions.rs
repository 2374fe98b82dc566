//! From Execute to a worker and back.
use super::services::{Blobs, not_offered};
use pointsman_proto::{
    longrunning::{Operation, operation},
    pack,
    remoteworker::{
        CurrentState, DesiredState, SynchronizeRequest, SynchronizeResponse, current_state,
        current_state::executing::ExecutionState, desired_state, operation_queue_server::OperationQueue,
    },
    rev2::{
        Action, Digest, ExecuteOperationMetadata, ExecuteRequest, ExecuteResponse, WaitExecutionRequest,
        digest_function, execution_server::Execution, execution_stage::Value as Stage,
    },
};
use prost::Message as _;
use prost_types::Timestamp;
use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};
use uuid::Uuid;

/// How long an idle worker is kept waiting.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);

/// When a worker with work has to call again.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// Timeout of actions that bring none.
const DEFAULT_TIMEOUT: prost_types::Duration = prost_types::Duration { seconds: 1800, nanos: 0 };

/// What clients are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Updates {
    /// First the state that the action is in once it has been given out, then changes: `QUEUED` is not seen when
    /// a worker waits.
    Current,
    /// `QUEUED`, `EXECUTING` and `COMPLETED` for each action.
    All,
}

/// An action with its open Execute stream.
#[derive(Debug)]
struct Job {
    name: String,
    digest: Digest,
    action: Action,
    queued: Timestamp,
    /// Has room for all updates of a job, so that sending never waits.
    client: mpsc::Sender<Result<Operation, Status>>,
}

impl Job {
    fn tell(&self, stage: Stage, response: Option<&ExecuteResponse>) {
        let metadata = ExecuteOperationMetadata {
            stage: stage.into(),
            action_digest: Some(self.digest.clone()),
            digest_function: digest_function::Value::Sha256.into(),
            ..Default::default()
        };
        let operation = Operation {
            name: self.name.clone(),
            metadata: Some(pack(&metadata)),
            done: response.is_some(),
            result: response.map(|r| operation::Result::Response(pack(r))),
        };
        // A client that has gone does not want to know.
        drop(self.client.try_send(Ok(operation)));
    }

    fn desired_state(&self) -> DesiredState {
        let timeout = self.action.timeout.unwrap_or(DEFAULT_TIMEOUT);
        let executing = desired_state::Executing {
            action_digest: Some(self.digest.clone()),
            action: Some(Action { timeout: Some(timeout), ..self.action.clone() }),
            queued_timestamp: Some(self.queued),
            digest_function: digest_function::Value::Sha256.into(),
            ..Default::default()
        };
        DesiredState { worker_state: Some(desired_state::WorkerState::Executing(executing)) }
    }
}

/// Jobs without a worker, or workers without a job, and who has what.
#[derive(Debug, Default)]
struct Queues {
    jobs: VecDeque<Job>,
    workers: VecDeque<oneshot::Sender<Job>>,
    running: HashMap<String, Job>,
}

/// The state of the echo server.
#[derive(Debug)]
pub(super) struct Executions {
    blobs: Arc<Blobs>,
    updates: Updates,
    queues: Mutex<Queues>,
}

impl Executions {
    pub(super) fn new(blobs: Arc<Blobs>, updates: Updates) -> Self {
        Self { blobs, updates, queues: Mutex::default() }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job to the worker that has waited longest, or keeps it.
    fn submit(&self, mut job: Job) {
        if self.updates == Updates::All {
            job.tell(Stage::Queued, None);
        }
        let mut queues = self.queues();
        while let Some(worker) = queues.workers.pop_front() {
            match worker.send(job) {
                Ok(()) => return,
                // Its call has ended; the next one, then.
                Err(back) => job = back,
            }
        }
        if self.updates == Updates::Current {
            job.tell(Stage::Queued, None);
        }
        queues.jobs.push_back(job);
    }

    /// The job that has waited longest, or one to come.
    async fn next_job(&self) -> Option<Job> {
        let waiting = {
            let mut queues = self.queues();
            if let Some(job) = queues.jobs.pop_front() {
                return Some(job);
            }
            let (sender, receiver) = oneshot::channel();
            queues.workers.push_back(sender);
            receiver
        };
        timeout(IDLE_TIME_MAX, waiting).await.ok()?.ok()
    }

    async fn next_state(&self, worker: String) -> DesiredState {
        let Some(job) = self.next_job().await else {
            return DesiredState { worker_state: Some(desired_state::WorkerState::Idle(())) };
        };
        job.tell(Stage::Executing, None);
        let state = job.desired_state();
        self.queues().running.insert(worker, job);
        state
    }

    fn complete(&self, worker: &str, response: &ExecuteResponse) {
        if let Some(job) = self.queues().running.remove(worker) {
            job.tell(Stage::Completed, Some(response));
        }
    }
}

#[tonic::async_trait]
impl Execution for Executions {
    type ExecuteStream = ReceiverStream<Result<Operation, Status>>;
    type WaitExecutionStream = ReceiverStream<Result<Operation, Status>>;

    async fn execute(
        &self,
        request: Request<ExecuteRequest>,
    ) -> Result<Response<Self::ExecuteStream>, Status> {
        let digest = request.into_inner().action_digest.unwrap_or_default();
        let blob = self.blobs.get(&digest);
        let blob =
            blob.ok_or_else(|| Status::failed_precondition(format!("no action {digest:?} in the store")))?;
        let action = Action::decode(blob);
        let action = action.map_err(|e| Status::invalid_argument(format!("{digest:?} is no action: {e}")))?;
        let (client, updates) = mpsc::channel(3);
        let (name, queued) = (Uuid::new_v4().to_string(), SystemTime::now().into());
        self.submit(Job { name, digest, action, queued, client });
        Ok(Response::new(ReceiverStream::new(updates)))
    }

    async fn wait_execution(
        &self,
        _: Request<WaitExecutionRequest>,
    ) -> Result<Response<Self::WaitExecutionStream>, Status> {
        Err(not_offered())
    }
}

#[tonic::async_trait]
impl OperationQueue for Executions {
    async fn synchronize(
        &self,
        request: Request<SynchronizeRequest>,
    ) -> Result<Response<SynchronizeResponse>, Status> {
        let request = request.into_inner();
        let worker = worker_name(&request);
        let state = request.current_state.and_then(|CurrentState { worker_state }| worker_state);
        let busy = match &state {
            Some(current_state::WorkerState::Executing(executing)) => match &executing.execution_state {
                Some(ExecutionState::Completed(response)) => {
                    self.complete(&worker, response);
                    false
                }
                _ => true,
            },
            _ => false,
        };
        let desired_state = match (busy, request.prefer_being_idle) {
            (true, _) => None,
            (false, true) => Some(DesiredState { worker_state: Some(desired_state::WorkerState::Idle(())) }),
            (false, false) => Some(self.next_state(worker).await),
        };
        let next = (SystemTime::now() + HEARTBEAT).into();
        Ok(Response::new(SynchronizeResponse { next_synchronization_at: Some(next), desired_state }))
    }
}

/// One name for the map of names and values that a worker is known by.
fn worker_name(request: &SynchronizeRequest) -> String {
    let mut parts: Vec<_> = request.worker_id.iter().collect();
    parts.sort();
    parts.into_iter().flat_map(|(k, v)| [k.as_str(), "=", v, ","]).collect()
}
