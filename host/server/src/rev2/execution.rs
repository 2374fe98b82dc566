//! `Execution`: from an Execute call to a queued action.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use pointsman_policy::Runtime;
use pointsman_proto::longrunning::{Operation, operation};
use pointsman_proto::rev2::execution_server::Execution;
use pointsman_proto::rev2::{self, Action, Command, ExecuteRequest, WaitExecutionRequest};
use pointsman_proto::rpc;
use pointsman_proto::{pack, unpack};
use pointsman_scheduler::ids::ActionDigest;
use pointsman_storage::{Digest, Storage, StorageError};
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

use super::action_cache::{self, Inline, inline_outputs};
use super::instance_name;
use super::metadata::{request_metadata, trace_context};
use super::status;
use crate::arrivals::Arrivals;
use crate::driver::{CacheLook, Driver, Payload, Shown, Submission, done_at_once, failed, timestamp};
use crate::ranking;
use crate::routing::{self, Arrival, Router};

/// The service.
#[derive(Clone)]
pub struct ExecutionService {
    driver: Arc<Driver>,
    policies: Arc<Runtime>,
    router: Arc<Router>,
    storage: Arc<dyn Storage>,
    command_max_bytes: u64,
    arrivals: Arc<Arrivals>,
}

/// Bytes of an Action: REv2 gives none, real ones have some hundred.
const ACTION_MAX_BYTES: u64 = 1 << 20;

type OperationStream = Pin<Box<dyn Stream<Item = Result<Operation, Status>> + Send>>;

/// Why an action isn't queued.
enum NotQueued {
    /// It is over at once, by this answer.
    Done(Box<rev2::ExecuteResponse>),
    /// The call fails.
    Failed(Status),
}

impl From<Status> for NotQueued {
    fn from(status: Status) -> Self {
        Self::Failed(status)
    }
}

impl ExecutionService {
    /// The service over these.
    pub fn new(
        driver: Arc<Driver>,
        (policies, router): (Arc<Runtime>, Arc<Router>),
        storage: Arc<dyn Storage>,
        command_max_bytes: u64,
        arrivals: Arc<Arrivals>,
    ) -> Self {
        Self { driver, policies, router, storage, command_max_bytes, arrivals }
    }

    async fn begin(&self, request: Request<ExecuteRequest>) -> Result<Response<OperationStream>, Status> {
        let (headers, _, request) = request.into_parts();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let wanted = Wanted::of(&request);
        let digest =
            status::digest_field(function, "ExecuteRequest.action_digest", request.action_digest.as_ref())?;
        match self.submission(&request, &digest, &headers).await {
            Ok(submission) => match self.driver.submit(self.ranked(submission).await?) {
                Ok(stream) if wanted.is_none() => Ok(Response::new(Box::pin(stream))),
                Ok(stream) => {
                    let storage = self.storage.clone().for_instance(&request.instance_name);
                    let inlined =
                        stream.then(move |state| inline(storage.clone(), digest, wanted.clone(), state));
                    Ok(Response::new(Box::pin(inlined)))
                }
                Err(refusal) => Err(Status::resource_exhausted(refusal.to_string())),
            },
            Err(NotQueued::Failed(status)) => Err(status),
            Err(NotQueued::Done(response)) => {
                let name = uuid::Uuid::new_v4().to_string();
                let function = digest.function().to_proto().into();
                let operation = done_at_once(&name, digest.to_proto(), function, &response);
                self.driver.keep_at_once(operation.clone());
                let storage = self.storage.clone().for_instance(&request.instance_name);
                let operation = inline(storage, digest, wanted, Ok(operation)).await;
                Ok(Response::new(Box::pin(stream::iter([operation]))))
            }
        }
    }

    async fn submission(
        &self,
        request: &ExecuteRequest,
        digest: &Digest,
        headers: &MetadataMap,
    ) -> Result<Submission, NotQueued> {
        let metadata = request_metadata(headers);
        let storage = self.storage.clone().for_instance(&request.instance_name);
        let action: Action = load(&*storage, "Action", digest, ACTION_MAX_BYTES).await?;
        self.router.check(&action)?;
        let may_be_cached = !request.skip_cache_lookup && !action.do_not_cache;
        if may_be_cached
            && let Some(found) = action_cache::look_up(&*self.storage, &request.instance_name, digest).await
        {
            self.arrivals.note_cached();
            return Err(NotQueued::Done(Box::new(found)));
        }
        let command = match self.router.wants_command(&request.instance_name, &action) {
            true => {
                let digest = status::digest_field(
                    digest.function(),
                    "Action.command_digest",
                    action.command_digest.as_ref(),
                )?;
                let command: Command = load(&*storage, "Command", &digest, self.command_max_bytes).await?;
                self.router.check_command(&command)?;
                Some(Arc::new(routing::command_facts(&command)))
            }
            false => None,
        };
        let facts = Arc::new(routing::facts(&Arrival {
            instance_name: &request.instance_name,
            digest: &digest.to_string(),
            action: &action,
            priority: request.execution_policy.as_ref().map_or(0, |p| p.priority),
            skip_cache_lookup: request.skip_cache_lookup,
            metadata: metadata.as_ref().map(|(message, _)| message),
            command: command.as_ref(),
        }));
        let routed = self.router.route_aside(&facts).await?;
        let now = self.driver.clock().now();
        Ok(Submission {
            digest: ActionDigest::new(
                digest.function().to_proto().into(),
                digest.hash_bytes(),
                digest.size_bytes() as i64,
            ),
            payload: Payload {
                instance_name: facts.instance_name.clone(),
                action: routing::routed_action(action, &routed),
                request_metadata: metadata.map(|(_, packed)| packed),
                trace_context: trace_context(headers),
                environment: routing::environment(&routed.route),
                enlarged: None,
                cache_look: if may_be_cached { CacheLook::asked(now) } else { CacheLook::forbidden() },
                shown: Arc::new(Shown {
                    action_digest: digest.to_proto(),
                    digest_function: digest.function().to_proto().into(),
                    decision: routed.decision,
                    queued_timestamp: timestamp(now),
                    instance_name: facts.instance_name.clone(),
                    target_id: facts.target_id.clone(),
                }),
                facts,
            },
            route: routed.route,
            asked: routed.asked,
            preferred: Vec::new(),
        })
    }

    /// With the hosts in order that policies would have it run on, if the route asks for that.
    async fn ranked(&self, mut submission: Submission) -> Result<Submission, Status> {
        if submission.route.rank_candidates == 0 {
            return Ok(submission);
        }
        let slow = self.policies.is_slow(&submission.payload.instance_name);
        let (driver, policies) = (self.driver.clone(), self.policies.clone());
        let ranked = self.router.aside().run(slow, move || {
            ranking::rank(&driver, &policies, &mut submission);
            submission
        });
        ranked.await.ok_or_else(|| Status::internal("the thread that asked the policies ended; see the log"))
    }
}

async fn load<M: Message + Default>(
    storage: &dyn Storage,
    what: &str,
    digest: &Digest,
    max_bytes: u64,
) -> Result<M, NotQueued> {
    let bytes = match storage.read_blob(digest, max_bytes).await {
        Ok(bytes) => bytes,
        Err(StorageError::NotFound { .. }) => {
            return Err(NotQueued::Done(Box::new(missing(what, digest))));
        }
        Err(StorageError::TooLarge { .. }) => {
            let text = format!("the {what} {digest} is larger than {max_bytes} bytes, the most that is read");
            return Err(Status::invalid_argument(text).into());
        }
        Err(error) => return Err(status::from_storage(&error).into()),
    };
    M::decode(bytes).map_err(|error| {
        Status::invalid_argument(format!("the blob {digest} is not a valid {what} message: {error}")).into()
    })
}

#[tonic::async_trait]
impl Execution for ExecutionService {
    type ExecuteStream = OperationStream;
    type WaitExecutionStream = OperationStream;

    async fn execute(&self, request: Request<ExecuteRequest>) -> Result<Response<OperationStream>, Status> {
        self.begin(request).await.inspect_err(|status| self.arrivals.note_error(status.code()))
    }

    async fn wait_execution(
        &self,
        request: Request<WaitExecutionRequest>,
    ) -> Result<Response<OperationStream>, Status> {
        let name = request.into_inner().name;
        if let Some(stream) = self.driver.watch(&name) {
            return Ok(Response::new(Box::pin(stream)));
        }
        let over = self.driver.over_at_once(&name).ok_or_else(|| super::operations::unknown(&name))?;
        Ok(Response::new(Box::pin(stream::iter([Ok(over)]))))
    }
}

/// Which outputs the client wants inside the response.
#[derive(Clone, Debug)]
struct Wanted {
    stdout: bool,
    stderr: bool,
    output_files: Arc<[String]>,
}

impl Wanted {
    fn of(request: &ExecuteRequest) -> Self {
        Self {
            stdout: request.inline_stdout,
            stderr: request.inline_stderr,
            output_files: request.inline_output_files.as_slice().into(),
        }
    }

    fn is_none(&self) -> bool {
        !self.stdout && !self.stderr && self.output_files.is_empty()
    }
}

/// Puts outputs into the last state of an operation. An operation is shared, so that is done for each client by itself.
/// It is a hint: when the storage fails, the client reads the outputs and hears of it then.
async fn inline(
    storage: Arc<dyn Storage>,
    action: Digest,
    wanted: Wanted,
    state: Result<Operation, Status>,
) -> Result<Operation, Status> {
    let mut operation = state?;
    if wanted.is_none() {
        return Ok(operation);
    }
    let Some(operation::Result::Response(packed)) = &mut operation.result else { return Ok(operation) };
    let Ok(mut response) = unpack::<rev2::ExecuteResponse>(packed) else { return Ok(operation) };
    let Some(result) = &mut response.result else { return Ok(operation) };
    let files = &wanted.output_files;
    let asked = Inline { stdout: wanted.stdout, stderr: wanted.stderr, output_files: files };
    match inline_outputs(&*storage, action.function(), result, &asked).await {
        Ok(()) => *packed = pack(&response),
        Err(error) => tracing::debug!(%action, %error, "outputs could not be put into the response"),
    }
    Ok(operation)
}

/// A blob is missing. In the response, the one place where all clients look: they upload it and ask again.
fn missing(what: &str, digest: &Digest) -> rev2::ExecuteResponse {
    let text = format!("the {what} {digest} is not in the storage: upload it and execute again");
    failed(rpc::Code::FailedPrecondition, text, vec![status::missing(what, digest)])
}
