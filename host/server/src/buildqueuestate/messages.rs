//! What the driver shows, as messages.

use std::collections::HashMap;

use pointsman_proto::buildqueuestate::{
    DrainState, InvocationName, OperationState, WorkerState, operation_state,
};
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::unpack;
use pointsman_scheduler::holds::Pattern;
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::queue_views::{Member, OperationPhase};
use pointsman_scheduler::time::Time;
use prost_types::Duration;
use tonic::Status;

use super::names::{key_message, queue_message};
use crate::driver::{OperationRow, timestamp};

/// An operation.
///
/// # Errors
/// Its response can't be read, which is a bug.
pub(super) fn operation(row: &OperationRow) -> Result<OperationState, Status> {
    let (view, shown) = (&row.view, row.shown.as_deref());
    let stage = match (view.phase, &row.response) {
        (_, Some(response)) => {
            let response: ExecuteResponse = unpack(response)
                .map_err(|error| Status::internal(format!("a response that can't be read: {error}")))?;
            operation_state::Stage::Completed(response)
        }
        (OperationPhase::Queued, None) => operation_state::Stage::Queued(()),
        // Its result is known, and will be there in an instant.
        (OperationPhase::Executing | OperationPhase::Completed, None) => {
            operation_state::Stage::Executing(())
        }
    };
    let suffix = |queue: &QueueName| {
        let name = shown.map_or("", |shown| &*shown.instance_name);
        name.strip_prefix(&*queue.prefix).unwrap_or(name).trim_start_matches('/').to_owned()
    };
    let queue = view.queue.as_deref();
    Ok(OperationState {
        name: view.name.to_string(),
        invocation_name: Some(InvocationName {
            size_class_queue_name: queue.map(queue_message),
            ids: view.invocation.iter().map(|key| key_message(key)).collect(),
        }),
        queued_timestamp: shown.map(|shown| shown.queued_timestamp),
        action_digest: shown.map(|shown| shown.action_digest.clone()),
        timeout: view.goes_at.map(timestamp),
        stage: Some(stage),
        target_id: shown.map(|shown| shown.target_id.to_string()).unwrap_or_default(),
        priority: view.priority,
        instance_name_suffix: queue.map(suffix).unwrap_or_default(),
        expected_duration: view.expected.and_then(|expected| Duration::try_from(expected).ok()),
        digest_function: shown.map_or(0, |shown| shown.digest_function),
    })
}

/// A worker, and what it executes.
///
/// # Errors
/// As [`operation`].
pub(super) fn worker(member: &Member, executes: Option<&OperationRow>) -> Result<WorkerState, Status> {
    let without = |operation| OperationState { invocation_name: None, stage: None, ..operation };
    Ok(WorkerState {
        id: id(&member.spec.id),
        timeout: member.lost_at.map(timestamp),
        current_operation: executes.map(|row| operation(row).map(without)).transpose()?,
        drained: member.is_held,
    })
}

/// A drain.
pub(super) fn drain((pattern, since): &(Pattern, Time)) -> DrainState {
    DrainState { worker_id_pattern: id(pattern.entries()), created_timestamp: Some(timestamp(*since)) }
}

fn id(entries: &[(std::sync::Arc<str>, std::sync::Arc<str>)]) -> HashMap<String, String> {
    entries.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}
