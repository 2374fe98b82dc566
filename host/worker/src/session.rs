//! One thread of a worker as its scheduler sees it: the client side of `OperationQueue.Synchronize`.
//!
//! Rules, of which schedulers rely on each: it waits only while an action runs; idle or with a result it
//! calls at once and lets the scheduler hold the call. A result is sent until an answer comes. After a call
//! whose answer was lost the scheduler may believe that the thread is executing (`believed_until`), so it
//! asks to be told that it is idle before it counts as such.
use crate::{
    action::{Executor, Stage},
    pace::{IdlePace, Pauses},
    strategy::STRATEGIES_HEADER,
    workdir::BuildDir,
};
use pointsman_proto::{
    remoteworker::{
        CurrentState, SynchronizeRequest, SynchronizeResponse, current_state,
        current_state::executing::ExecutionState, desired_state,
        operation_queue_client::OperationQueueClient,
    },
    rev2::{Digest, ExecuteResponse, Platform},
    rpc,
};
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{sync::watch, task::JoinHandle, time::Instant};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{
    Code, Request, Status,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

/// How long a scheduler waits for a silent worker before it gives up on its action.
const SILENCE: Duration = Duration::from_secs(60);
/// Longest pause between calls while executing, whatever the scheduler's clock says: both clocks may differ.
const HEARTBEAT_MAX: Duration = Duration::from_secs(20);
/// Shortest, for the same reason; changes of state do not wait for it.
const HEARTBEAT_MIN: Duration = Duration::from_millis(100);
/// A stage that is over within this time is not worth a call.
const LINGER: Duration = Duration::from_millis(20);
/// Answers to a busy thread come at once.
const BUSY_CALL_MAX: Duration = Duration::from_secs(30);
/// A waiting call without an answer for so long is taken for lost; schedulers hold one for two minutes.
const WAITING_CALL_MAX: Duration = Duration::from_secs(300);

/// Who a thread is; the same in each call.
pub(crate) struct Identity {
    pub(crate) worker_id: HashMap<String, String>,
    /// The id as JSON, as results carry it.
    pub(crate) worker_json: String,
    pub(crate) instance_name_prefix: String,
    pub(crate) platform: Platform,
    pub(crate) size_class: u32,
    /// What it says of its strategies.
    pub(crate) strategies: Option<MetadataValue<Ascii>>,
}

/// One thread.
pub(crate) struct Session {
    client: OperationQueueClient<Channel>,
    executor: Arc<Executor>,
    identity: Identity,
    dir: BuildDir,
    shutdown: CancellationToken,
    state: State,
    next_synchronization: Instant,
    /// Until when the scheduler may believe that this thread executes; `None` when it knows better.
    believed_until: Option<Instant>,
    pauses: Pauses,
    idle_pace: IdlePace,
}

enum State {
    Idle,
    Executing(Running),
    Completed { action_digest: Option<Digest>, response: Box<ExecuteResponse> },
}

struct Running {
    action_digest: Option<Digest>,
    stage: watch::Receiver<Stage>,
    task: JoinHandle<ExecuteResponse>,
    cancel: DropGuard,
}

impl Session {
    pub(crate) fn new(
        client: OperationQueueClient<Channel>,
        executor: Arc<Executor>,
        identity: Identity,
        dir: BuildDir,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            client,
            executor,
            identity,
            dir,
            shutdown,
            state: State::Idle,
            next_synchronization: Instant::now(),
            believed_until: None,
            pauses: Pauses::new(),
            idle_pace: IdlePace::default(),
        }
    }

    /// Serves until shutdown, and then until the current action is done and the scheduler has its result,
    /// or must have given up on it.
    pub(crate) async fn run(mut self) {
        loop {
            if self.shutdown.is_cancelled() && self.believed_until.is_none_or(|until| Instant::now() > until)
            {
                break;
            }
            if let Err(error) = self.get_ready().await {
                let directory = self.dir.path().display();
                tracing::warn!(
                    worker = self.identity.worker_json,
                    %directory,
                    %error,
                    "the build directory can't be removed, so no work is asked for: remove it, or what keeps it"
                );
                self.pauses.wait(&self.shutdown).await;
                continue;
            }
            self.wait_for_news().await;
            let called = Instant::now();
            let reply = match self.call().await {
                Ok(reply) => self.apply(reply).await,
                Err(status) => Err(status),
            };
            match reply {
                Ok(()) => {
                    self.pauses.reset(&self.identity.worker_json);
                    if matches!(self.state, State::Idle) {
                        self.idle_pace.answered(called.elapsed(), &self.shutdown).await;
                    }
                }
                Err(status) => self.failed(&status).await,
            }
        }
        self.stop().await;
    }

    /// A thread whose build directory can't be cleared would fail each action it gets: it rather asks for
    /// none and so vanishes from the scheduler.
    async fn get_ready(&self) -> std::io::Result<()> {
        if !matches!(self.state, State::Idle) || self.believed_until.is_some() {
            return Ok(());
        }
        let dir = self.dir.clone();
        tokio::task::spawn_blocking(move || dir.clear()).await.map_err(std::io::Error::other)?
    }

    /// While an action runs: waits for a change or for the time to call. All changes until the call make
    /// one report.
    async fn wait_for_news(&mut self) {
        let State::Executing(running) = &mut self.state else { return };
        let mut until = self.next_synchronization;
        loop {
            tokio::select! {
                biased;
                done = &mut running.task => {
                    let response = done.unwrap_or_else(|error| panicked(&error));
                    let action_digest = running.action_digest.take();
                    self.state = State::Completed { action_digest, response: Box::new(response) };
                    return;
                }
                Ok(()) = running.stage.changed() => until = until.min(Instant::now() + LINGER),
                () = tokio::time::sleep_until(until) => return,
            }
        }
    }

    async fn call(&mut self) -> Result<SynchronizeResponse, Status> {
        let prefer_being_idle = self.prefers_being_idle();
        let request = SynchronizeRequest {
            worker_id: self.identity.worker_id.clone(),
            instance_name_prefix: self.identity.instance_name_prefix.clone(),
            platform: Some(self.identity.platform.clone()),
            current_state: Some(CurrentState { worker_state: Some(self.state.report()) }),
            size_class: self.identity.size_class,
            prefer_being_idle,
        };
        let mut request = Request::new(request);
        if let Some(strategies) = &self.identity.strategies {
            request.metadata_mut().insert(STRATEGIES_HEADER, strategies.clone());
        }
        let waits = !prefer_being_idle && !matches!(self.state, State::Executing(_));
        let limit = if waits { WAITING_CALL_MAX } else { BUSY_CALL_MAX };
        let call = tokio::time::timeout(limit, self.client.synchronize(request));
        let reply = tokio::select! {
            reply = call => match reply {
                Ok(reply) => reply.map(tonic::Response::into_inner),
                Err(_) => Err(Status::deadline_exceeded(format!("the scheduler did not answer in {limit:?}"))),
            },
            () = self.shutdown.cancelled(), if waits => Err(Status::cancelled(SHUTTING_DOWN)),
        };
        // The answer that was lost may have been work. Of a thread that is busy the scheduler believes what
        // it believed before, and no longer.
        if reply.is_err() && (waits || self.believed_until.is_none()) {
            self.believe();
        }
        reply
    }

    fn prefers_being_idle(&self) -> bool {
        let unwell = match &self.state {
            State::Idle => self.believed_until.is_some(),
            State::Executing(_) => false,
            // The failure may be this machine's: look at it before taking more.
            State::Completed { response, .. } => response.status.as_ref().is_some_and(|s| s.code != 0),
        };
        unwell || self.shutdown.is_cancelled()
    }

    fn believe(&mut self) {
        self.believed_until = Some(self.next_synchronization.max(Instant::now()) + SILENCE);
    }

    async fn apply(&mut self, reply: SynchronizeResponse) -> Result<(), Status> {
        let at = reply
            .next_synchronization_at
            .and_then(|at| SystemTime::try_from(at).ok())
            .ok_or_else(|| Status::internal("the scheduler sent no valid next_synchronization_at"))?;
        let pause = at.duration_since(SystemTime::now()).unwrap_or_default();
        self.next_synchronization = Instant::now() + pause.clamp(HEARTBEAT_MIN, HEARTBEAT_MAX);
        match reply.desired_state.map(|desired| desired.worker_state) {
            None if matches!(self.state, State::Executing(_)) => self.believe(),
            None => {
                self.believed_until = None;
                if matches!(self.state, State::Completed { .. }) {
                    // It is sent again, and needs another answer.
                    self.believe();
                    return Err(Status::internal("the scheduler did not say what follows the result"));
                }
            }
            Some(None) => {
                return Err(Status::internal("the scheduler wants a state that this worker does not know"));
            }
            Some(Some(desired_state::WorkerState::Idle(()))) => {
                self.stop().await;
                self.believed_until = None;
            }
            Some(Some(desired_state::WorkerState::Executing(desired))) => {
                self.stop().await;
                self.believe();
                self.idle_pace.worked();
                self.start(desired);
            }
        }
        Ok(())
    }

    fn start(&mut self, desired: desired_state::Executing) {
        let action_digest = desired.action_digest.clone();
        let (sender, stage) = watch::channel(Stage::Started);
        let cancel = CancellationToken::new();
        let (executor, dir, token) = (Arc::clone(&self.executor), self.dir.clone(), cancel.clone());
        let worker = self.identity.worker_json.clone();
        tracing::debug!(
            worker,
            action = action_digest.as_ref().map(|digest| digest.hash.as_str()),
            "action started"
        );
        let task =
            tokio::spawn(async move { executor.execute(desired, &dir, worker, &sender, &token).await });
        self.state = State::Executing(Running { action_digest, stage, task, cancel: cancel.drop_guard() });
    }

    /// Cancels what runs and waits until it is gone; forgets a result.
    async fn stop(&mut self) {
        if let State::Executing(running) = std::mem::replace(&mut self.state, State::Idle) {
            drop(running.cancel);
            if let Err(error) = running.task.await {
                tracing::error!(%error, "a cancelled action did not end well");
            }
        }
    }

    async fn failed(&mut self, status: &Status) {
        if status.code() == Code::Cancelled && status.message() == SHUTTING_DOWN {
            return;
        }
        self.pauses.log(&self.identity.worker_json, status);
        self.pauses.wait(&self.shutdown).await;
    }
}

const SHUTTING_DOWN: &str = "the worker shuts down";

impl State {
    fn report(&self) -> current_state::WorkerState {
        let (action_digest, execution_state) = match self {
            Self::Idle => return current_state::WorkerState::Idle(()),
            Self::Executing(running) => {
                let state = match *running.stage.borrow() {
                    Stage::Started => ExecutionState::Started(()),
                    Stage::FetchingInputs => ExecutionState::FetchingInputs(()),
                    Stage::Running => ExecutionState::Running(()),
                    Stage::UploadingOutputs => ExecutionState::UploadingOutputs(()),
                };
                (running.action_digest.clone(), state)
            }
            Self::Completed { action_digest, response } => {
                (action_digest.clone(), ExecutionState::Completed((**response).clone()))
            }
        };
        let executing = current_state::Executing { action_digest, execution_state: Some(execution_state) };
        current_state::WorkerState::Executing(executing)
    }
}

fn panicked(error: &tokio::task::JoinError) -> ExecuteResponse {
    tracing::error!(%error, "the worker failed at an action");
    let status = rpc::Status {
        code: Code::Internal as i32,
        message: format!("the worker failed at the action: {error}"),
        details: Vec::new(),
    };
    ExecuteResponse { status: Some(status), ..Default::default() }
}
