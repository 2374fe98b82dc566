//! What the server says about its operations, read back through the Operations service.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use pointsman_proto::longrunning::operations_client::OperationsClient;
use pointsman_proto::longrunning::{ListOperationsRequest, Operation, operation};
use pointsman_proto::rev2::{ExecuteOperationMetadata, ExecuteResponse, RequestMetadata, execution_stage};
use pointsman_proto::{unpack, v1};
use prost_types::Timestamp;
use tonic::transport::Channel;

/// One finished operation.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Its name.
    pub name: String,
    /// The hash of its action.
    pub action: String,
    /// What its action ended with.
    pub exit_code: i32,
    /// Paths of the files that it made.
    pub outputs: Vec<String>,
    /// Whether the result came from the cache.
    pub cached: bool,
    /// When a worker took it, as seconds and nanoseconds since 1970; 0 when no worker says so.
    pub started: (i64, i32),
    /// From when to when its command ran, by the worker's clock; no time at all when no worker says so.
    pub executed: (SystemTime, SystemTime),
    /// What its client said of it, if its worker handed that back.
    pub client: RequestMetadata,
    /// The worker that ran it, as its id in JSON.
    pub worker: String,
    /// Who decided where it went.
    pub decision: v1::RoutingDecision,
}

/// All operations that are done and still known, in no order.
///
/// # Errors
/// The server does not answer, an operation failed, or one does not say who routed it.
pub async fn finished_operations(channel: Channel) -> anyhow::Result<Vec<Observed>> {
    let known = operations(channel).await?;
    known.into_iter().filter(|operation| operation.done).map(observe).collect()
}

/// All operations that are still known, in no order.
///
/// # Errors
/// The server does not answer.
pub async fn operations(channel: Channel) -> anyhow::Result<Vec<Operation>> {
    let mut client = OperationsClient::new(channel);
    let mut found = Vec::new();
    let mut page_token = String::new();
    loop {
        let request =
            ListOperationsRequest { page_size: 100, page_token, ..ListOperationsRequest::default() };
        let page = client.list_operations(request).await?.into_inner();
        found.extend(page.operations);
        if page.next_page_token.is_empty() {
            return Ok(found);
        }
        page_token = page.next_page_token;
    }
}

/// Waits until an operation is executed by a worker, and returns its name.
///
/// # Errors
/// That does not happen in a minute, or the server does not answer.
pub async fn executing(channel: Channel) -> anyhow::Result<String> {
    let found = async {
        loop {
            for operation in operations(channel.clone()).await? {
                let metadata: ExecuteOperationMetadata =
                    unpack(operation.metadata.as_ref().context("an operation without metadata")?)?;
                if metadata.stage() == execution_stage::Value::Executing {
                    return anyhow::Ok(operation.name);
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.context("nothing is executed")?
}

fn observe(operation: Operation) -> anyhow::Result<Observed> {
    let name = operation.name;
    let metadata = operation.metadata.with_context(|| format!("{name} has no metadata"))?;
    let metadata: ExecuteOperationMetadata = unpack(&metadata)?;
    let action = metadata.action_digest.clone().unwrap_or_default().hash;
    let partial =
        metadata.partial_execution_metadata.with_context(|| format!("{name} has no partial metadata"))?;
    let decision = partial
        .auxiliary_metadata
        .iter()
        .find_map(|any| unpack::<v1::RoutingDecision>(any).ok())
        .with_context(|| format!("{name} does not say who routed it"))?;
    let Some(operation::Result::Response(response)) = operation.result else {
        anyhow::bail!("{name} is done without a response: {:?}", operation.result);
    };
    let response: ExecuteResponse = unpack(&response)?;
    let result = response.result.with_context(|| format!("{name} failed: {:?}", response.status))?;
    let exit_code = result.exit_code;
    let outputs = result.output_files.into_iter().map(|file| file.path).collect();
    let execution = result.execution_metadata.unwrap_or_default();
    let time = |t: Option<Timestamp>| t.and_then(|t| SystemTime::try_from(t).ok()).unwrap_or(UNIX_EPOCH);
    let started = execution.worker_start_timestamp.unwrap_or_default();
    Ok(Observed {
        name,
        action,
        exit_code,
        outputs,
        cached: response.cached_result,
        started: (started.seconds, started.nanos),
        executed: (time(execution.execution_start_timestamp), time(execution.execution_completed_timestamp)),
        client: execution.auxiliary_metadata.iter().find_map(|any| unpack(any).ok()).unwrap_or_default(),
        worker: execution.worker,
        decision,
    })
}
