//! One thread of a Buildbarn worker as the scheduler sees it, without the part that runs commands.
//!
//! [`FakeWorker`] makes single calls, for tests that want each step in their own hands; [`FakeWorker::serve`]
//! is the loop of a real worker: it calls again at once while idle or completed, at the appointed time while
//! executing, repeats what a lost answer left open, and asks to be idle before it stops.
mod serve;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

pub use serve::{Event, RunningWorker, Work};

use crate::fake_client::platform;
use pointsman_proto::{
    pack,
    remoteworker::{
        CurrentState, DesiredState, SynchronizeRequest, current_state,
        current_state::executing::ExecutionState, desired_state,
        operation_queue_client::OperationQueueClient,
    },
    resourceusage::PosixResourceUsage,
    rev2::{ActionResult, ExecuteResponse, ExecutedActionMetadata, digest_function},
};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};
use tokio::time::Instant;
use tonic::{Status, transport::Channel};

/// How long after the appointed time the scheduler may still count on a silent worker.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// Who a worker thread is.
#[derive(Clone, Debug, Default)]
pub struct WorkerSpec {
    /// `worker_id`; by convention with a `thread` when a host has several.
    pub id: BTreeMap<String, String>,
    /// Instance names served: this one and those below.
    pub instance_name_prefix: String,
    /// Properties, in any order.
    pub platform: Vec<(String, String)>,
    /// Size class; 0 where there are none.
    pub size_class: u32,
}

impl WorkerSpec {
    /// A worker of one thread on a host of this name.
    pub fn new(hostname: &str) -> Self {
        Self { id: [("hostname".to_owned(), hostname.to_owned())].into(), ..Self::default() }
    }

    /// Adds a platform property.
    pub fn with_property(mut self, name: &str, value: &str) -> Self {
        self.platform.push((name.to_owned(), value.to_owned()));
        self
    }

    /// One of several threads of the same host.
    pub fn thread(&self, index: usize) -> Self {
        let mut spec = self.clone();
        spec.id.insert("thread".to_owned(), format!("{index:03}"));
        spec
    }
}

/// What an answer told the worker to do; its state has changed accordingly.
#[derive(Clone, Debug, PartialEq)]
pub enum Instruction {
    /// Go on as before.
    Continue,
    /// Give up what runs.
    Idle,
    /// Give up what runs and begin this.
    Execute(Box<desired_state::Executing>),
}

/// A worker thread between two calls.
#[derive(Clone, Debug)]
pub struct FakeWorker {
    client: OperationQueueClient<Channel>,
    /// The next request; holds the current state.
    request: SynchronizeRequest,
    /// Time of the next call while executing.
    next_call: Instant,
    /// Until then the scheduler may believe that the worker executes something.
    believed_busy_until: Option<Instant>,
    /// After a failed call: a random time up to this.
    error_pause_max: Duration,
}

impl FakeWorker {
    /// An idle worker thread that has made no call yet.
    pub fn new(channel: Channel, spec: &WorkerSpec) -> Self {
        let request = SynchronizeRequest {
            worker_id: spec.id.clone().into_iter().collect(),
            instance_name_prefix: spec.instance_name_prefix.clone(),
            platform: Some(platform(&spec.platform)),
            current_state: Some(idle()),
            size_class: spec.size_class,
            prefer_being_idle: false,
        };
        Self {
            client: OperationQueueClient::new(channel),
            request,
            next_call: Instant::now(),
            believed_busy_until: None,
            error_pause_max: Duration::from_secs(5),
        }
    }

    /// Waits less than the 5 s of a real worker after a failed call.
    pub fn with_error_pause_max(self, pause: Duration) -> Self {
        Self { error_pause_max: pause, ..self }
    }

    /// What the next call will say.
    pub fn request(&self) -> &SynchronizeRequest {
        &self.request
    }

    /// Reports progress at the next call. Without effect unless the worker is executing.
    pub fn report(&mut self, state: ExecutionState) {
        if let Some(executing) = self.executing() {
            executing.execution_state = Some(state);
        }
    }

    /// Reports the end of the action at the next call. Without effect unless the worker is executing.
    pub fn complete(&mut self, response: ExecuteResponse) {
        self.report(ExecutionState::Completed(response));
    }

    /// Sets whether the next calls ask for no new work.
    pub fn prefer_being_idle(&mut self, prefer: bool) {
        self.request.prefer_being_idle = prefer;
    }

    /// Makes one call and takes over what the answer says.
    ///
    /// # Errors
    /// The error of the call, or `INTERNAL` when a real worker would not accept the answer. The state stays as
    /// it was, so that the next call repeats it.
    pub async fn synchronize(&mut self) -> Result<Instruction, Status> {
        self.believed_busy_until = Some(self.next_call.max(Instant::now()) + SILENCE_MAX);
        let answer = self.client.synchronize(self.request.clone()).await?.into_inner();
        let at = answer.next_synchronization_at.ok_or_else(|| bad("no next_synchronization_at"))?;
        let at = SystemTime::try_from(at).map_err(|e| bad(&format!("next_synchronization_at: {e}")))?;
        self.next_call = Instant::now() + at.duration_since(SystemTime::now()).unwrap_or_default();
        match answer.desired_state {
            None => Ok(self.go_on()),
            Some(DesiredState { worker_state: None }) => Err(bad("desired_state without a worker_state")),
            Some(DesiredState { worker_state: Some(desired_state::WorkerState::Idle(())) }) => {
                self.request.current_state = Some(idle());
                self.believed_busy_until = None;
                Ok(Instruction::Idle)
            }
            Some(DesiredState { worker_state: Some(desired_state::WorkerState::Executing(work)) }) => {
                self.accept(work)
            }
        }
    }

    fn go_on(&mut self) -> Instruction {
        if !self.is_running() {
            self.believed_busy_until = None;
        }
        Instruction::Continue
    }

    fn accept(&mut self, work: desired_state::Executing) -> Result<Instruction, Status> {
        check(&work)?;
        let executing = current_state::Executing {
            action_digest: work.action_digest.clone(),
            execution_state: Some(ExecutionState::Started(())),
        };
        let state = current_state::WorkerState::Executing(executing);
        self.request.current_state = Some(CurrentState { worker_state: Some(state) });
        self.believed_busy_until = Some(self.next_call + SILENCE_MAX);
        Ok(Instruction::Execute(Box::new(work)))
    }

    fn executing(&mut self) -> Option<&mut current_state::Executing> {
        match self.request.current_state.as_mut()?.worker_state.as_mut()? {
            current_state::WorkerState::Executing(executing) => Some(executing),
            current_state::WorkerState::Idle(()) => None,
        }
    }

    /// The end that it reports, if any.
    fn completed(&mut self) -> Option<&ExecuteResponse> {
        match &self.executing()?.execution_state {
            Some(ExecutionState::Completed(response)) => Some(response),
            _ => None,
        }
    }

    fn is_running(&mut self) -> bool {
        self.executing().is_some() && self.completed().is_none()
    }

    fn is_idle(&mut self) -> bool {
        self.executing().is_none()
    }
}

/// Refuses work that a real worker would refuse.
fn check(work: &desired_state::Executing) -> Result<(), Status> {
    if work.action_digest.is_none() {
        return Err(bad("work without an action digest"));
    }
    let Some(action) = &work.action else { return Err(bad("work without an action")) };
    if action.timeout.is_none() {
        return Err(bad("an action without a timeout"));
    }
    if work.digest_function() == digest_function::Value::Unknown {
        return Err(bad("work without a digest function"));
    }
    let suffix = &work.instance_name_suffix;
    if suffix.starts_with('/') || suffix.ends_with('/') || suffix.contains("//") {
        return Err(bad(&format!("instance name suffix {suffix:?}")));
    }
    Ok(())
}

fn bad(what: &str) -> Status {
    Status::internal(format!("a real worker would not accept the answer: {what}"))
}

fn idle() -> CurrentState {
    CurrentState { worker_state: Some(current_state::WorkerState::Idle(())) }
}

/// The response of a worker whose command ended with this code and neither output nor delay. Like a real
/// worker it hands the scheduler's auxiliary metadata back.
pub fn exited(work: &desired_state::Executing, exit_code: i32) -> ExecuteResponse {
    let now = Some(SystemTime::now().into());
    let metadata = ExecutedActionMetadata {
        worker: "fake".to_owned(),
        queued_timestamp: work.queued_timestamp,
        worker_start_timestamp: now,
        worker_completed_timestamp: now,
        input_fetch_start_timestamp: now,
        input_fetch_completed_timestamp: now,
        execution_start_timestamp: now,
        execution_completed_timestamp: now,
        output_upload_start_timestamp: now,
        output_upload_completed_timestamp: now,
        virtual_execution_duration: Some(prost_types::Duration::default()),
        auxiliary_metadata: work.auxiliary_metadata.clone(),
    };
    let result = ActionResult { exit_code, execution_metadata: Some(metadata), ..Default::default() };
    ExecuteResponse { result: Some(result), ..Default::default() }
}

/// The same response of a command that ran for so long, used so many processors on average, and so much memory at most.
pub fn took(response: ExecuteResponse, wall: Duration, cores: f64, peak_memory_mib: u32) -> ExecuteResponse {
    let mut response = response;
    let Some(metadata) = response.result.as_mut().and_then(|r| r.execution_metadata.as_mut()) else {
        return response;
    };
    let end = SystemTime::now();
    metadata.execution_start_timestamp = Some((end - wall).into());
    metadata.execution_completed_timestamp = Some(end.into());
    let usage = PosixResourceUsage {
        user_time: prost_types::Duration::try_from(wall.mul_f64(cores)).ok(),
        system_time: Some(prost_types::Duration::default()),
        maximum_resident_set_size: i64::from(peak_memory_mib) << 20,
        ..PosixResourceUsage::default()
    };
    metadata.auxiliary_metadata.push(pack(&usage));
    response
}
