//! What the driver keeps of an action beside the core's task, and the messages made of it.

use std::sync::Arc;

use pointsman_policy::ActionFacts;
use pointsman_proto::longrunning::{Operation, operation};
use pointsman_proto::rev2::execution_stage;
use pointsman_proto::rev2::{
    Action, ActionResult, Digest, ExecuteOperationMetadata, ExecuteResponse, ExecutedActionMetadata,
};
use pointsman_proto::{pack, rpc};
use pointsman_scheduler::effect::OperationStage;
use pointsman_scheduler::route::SizeClass;
use prost_types::{Any, Timestamp};

use super::CacheLook;

/// An accepted action: all that a worker is sent, and all that deciding anew takes.
#[derive(Clone, Debug)]
pub struct Payload {
    /// What clients see of it. It stays for as long as a finished operation can be asked for; the rest goes with the
    /// task.
    pub shown: Arc<Shown>,
    /// As the client sent it.
    pub instance_name: Arc<str>,
    /// With the route's platform and timeout.
    pub action: Action,
    /// The client's `RequestMetadata` as it sent it, if it did.
    pub request_metadata: Option<Any>,
    /// Of the client's call, if it had one.
    pub trace_context: Option<Box<TraceContext>>,
    /// Whether the action cache may still answer it.
    pub cache_look: CacheLook,
    /// What its policy offers to its environment, if anything: `pointsman.v1.ActionEnvironment`.
    pub environment: Option<Any>,
    /// What the scheduler has it run on, as smaller classes were too small for it.
    pub enlarged: Option<SizeClass>,
    /// What the policy was told.
    pub facts: Arc<ActionFacts>,
}

/// W3C trace context: what spans of the worker belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// `traceparent`.
    pub parent: String,
    /// `tracestate`; may be empty.
    pub state: String,
}

/// What each state of an operation says of its action.
#[derive(Clone, Debug)]
pub struct Shown {
    /// As the client sent it; it may not match [`Payload::action`], whose platform and timeout are the route's.
    pub action_digest: Digest,
    /// REv2 `DigestFunction.Value`.
    pub digest_function: i32,
    /// Which policy decided what: `pointsman.v1.RoutingDecision`.
    pub decision: Any,
    /// When the action arrived.
    pub queued_timestamp: Timestamp,
    /// Instance name as the client sent it.
    pub instance_name: Arc<str>,
    /// What of the build it is, if the client said so (`RequestMetadata.target_id`).
    pub target_id: Arc<str>,
}

impl Shown {
    fn metadata(
        &self,
        stage: execution_stage::Value,
        worker: &str,
        more: Option<Any>,
    ) -> ExecuteOperationMetadata {
        ExecuteOperationMetadata {
            stage: stage.into(),
            action_digest: Some(self.action_digest.clone()),
            digest_function: self.digest_function,
            partial_execution_metadata: Some(ExecutedActionMetadata {
                worker: worker.to_owned(),
                queued_timestamp: Some(self.queued_timestamp),
                auxiliary_metadata: std::iter::once(self.decision.clone()).chain(more).collect(),
                ..ExecutedActionMetadata::default()
            }),
            ..ExecuteOperationMetadata::default()
        }
    }
}

/// One state of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) name: Arc<str>,
    pub(crate) shown: Arc<Shown>,
    pub(crate) progress: Progress,
}

/// How far an operation is.
#[derive(Clone, Debug)]
pub(crate) enum Progress {
    Ongoing(OperationStage),
    /// An `ExecuteResponse`, shared by all operations that one execution answers.
    Done(Arc<Any>),
}

impl Snapshot {
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.progress, Progress::Done(_))
    }

    /// The message for clients.
    pub(crate) fn operation(&self) -> Operation {
        self.operation_with(None)
    }

    /// The message for clients, with something more to tell.
    pub(crate) fn operation_with(&self, more: Option<Any>) -> Operation {
        let shown = &self.shown;
        let metadata = match &self.progress {
            Progress::Ongoing(OperationStage::Queued) => {
                shown.metadata(execution_stage::Value::Queued, "", more)
            }
            Progress::Ongoing(OperationStage::Executing { host }) => {
                shown.metadata(execution_stage::Value::Executing, host, more)
            }
            Progress::Done(response) => {
                let metadata = shown.metadata(execution_stage::Value::Completed, "", more);
                return done(&self.name, &metadata, (**response).clone());
            }
        };
        Operation { name: self.name.to_string(), metadata: Some(pack(&metadata)), done: false, result: None }
    }
}

fn done(name: &str, metadata: &ExecuteOperationMetadata, response: Any) -> Operation {
    Operation {
        name: name.to_owned(),
        metadata: Some(pack(metadata)),
        done: true,
        result: Some(operation::Result::Response(response)),
    }
}

/// An operation that was over before it was queued: a cached result, or one that can't be.
pub fn done_at_once(
    name: &str,
    action_digest: Digest,
    digest_function: i32,
    response: &ExecuteResponse,
) -> Operation {
    let metadata = ExecuteOperationMetadata {
        stage: execution_stage::Value::Completed.into(),
        action_digest: Some(action_digest),
        digest_function,
        ..ExecuteOperationMetadata::default()
    };
    done(name, &metadata, pack(response))
}

/// An answer that is an error. In the response, not as the RPC's status: only so all clients find details.
pub fn failed(code: rpc::Code, message: impl Into<String>, details: Vec<Any>) -> ExecuteResponse {
    let status = rpc::Status { code: code.into(), message: message.into(), details };
    ExecuteResponse { status: Some(status), ..ExecuteResponse::default() }
}

/// An answer from the action cache.
pub fn cached(result: ActionResult) -> ExecuteResponse {
    let message = "found in the action cache".to_owned();
    ExecuteResponse { result: Some(result), cached_result: true, message, ..ExecuteResponse::default() }
}
