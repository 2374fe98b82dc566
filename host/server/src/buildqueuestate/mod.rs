//! `buildbarn.buildqueuestate.BuildQueueState`: what Buildbarn's web interfaces read, and what starts and stops its workers calls.
//! Thin over the driver. How our state is shown as Buildbarn's queues is in `pointsman_scheduler::platform_queues`.

mod lists;
mod messages;
mod names;
mod tree;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_proto::buildqueuestate as proto;
use pointsman_proto::buildqueuestate::build_queue_state_server::BuildQueueState;
use pointsman_proto::buildqueuestate::kill_operations_request::filter::Type as Kill;
use pointsman_proto::rpc;
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::driver::Driver;
use crate::rev2::operations;

pub use names::platform_json;

/// How often it is looked whether workers that are to go have ended what they execute.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// The service.
#[derive(Clone, Debug)]
pub struct BuildQueueStateService {
    driver: Arc<Driver>,
    stop: CancellationToken,
}

impl BuildQueueStateService {
    /// The service over a driver, until `stop`.
    pub fn new(driver: Arc<Driver>, stop: CancellationToken) -> Self {
        Self { driver, stop }
    }

    /// Looks through much, on a thread that may take its time.
    async fn look<T: Send + 'static>(
        &self,
        look: impl FnOnce(&Driver) -> Result<T, Status> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let driver = self.driver.clone();
        let looked = tokio::task::spawn_blocking(move || look(&driver)).await;
        looked
            .unwrap_or_else(|_| Err(Status::internal("the answer could not be made; see the log")))
            .map(Response::new)
    }

    async fn drain(
        &self,
        request: proto::AddOrRemoveDrainRequest,
        add: bool,
    ) -> Result<Response<()>, Status> {
        self.look(move |driver| {
            let queue = names::queue(request.size_class_queue_name)?;
            lists::known_queue(driver, &queue)?;
            let pattern = pattern(request.worker_id_pattern).of_queue(Arc::new(queue));
            tracing::info!(%pattern, add, "an operator drains a queue (BuildQueueState)");
            match driver.hold(Hold::Drain, pattern, add) {
                outcome @ HoldOutcome::TooMany(_) => Err(Status::resource_exhausted(outcome.to_string())),
                _ => Ok(()),
            }
        })
        .await
    }
}

fn pattern(entries: HashMap<String, String>) -> Pattern {
    Pattern::new(entries.into_iter().map(|(k, v)| (k.into(), v.into())))
}

/// What clients are to be told of an operation that is killed.
fn told(status: Option<rpc::Status>) -> Result<rpc::Status, Status> {
    match status {
        Some(status) if status.code != rpc::Code::Ok as i32 => Ok(status),
        _ => Err(Status::invalid_argument(
            "status is absent or OK: clients would take that for a result; say how the operations end, for example UNAVAILABLE \
             with a text, which clients try again, or FAILED_PRECONDITION, which they do not",
        )),
    }
}

#[tonic::async_trait]
impl BuildQueueState for BuildQueueStateService {
    async fn get_operation(
        &self,
        request: Request<proto::GetOperationRequest>,
    ) -> Result<Response<proto::GetOperationResponse>, Status> {
        let name = request.into_inner().operation_name;
        let row = self.driver.operation_row(&name).ok_or_else(|| operations::unknown(&name))?;
        let operation = proto::OperationState { name: String::new(), ..messages::operation(&row)? };
        Ok(Response::new(proto::GetOperationResponse { operation: Some(operation) }))
    }

    async fn list_operations(
        &self,
        request: Request<proto::ListOperationsRequest>,
    ) -> Result<Response<proto::ListOperationsResponse>, Status> {
        let request = request.into_inner();
        self.look(move |driver| lists::operations(driver, &request)).await
    }

    async fn kill_operations(
        &self,
        request: Request<proto::KillOperationsRequest>,
    ) -> Result<Response<()>, Status> {
        let proto::KillOperationsRequest { filter, status } = request.into_inner();
        let filter = filter.and_then(|filter| filter.r#type).ok_or_else(|| {
            Status::invalid_argument(
                "filter is not set: say operation_name, or size_class_queue_without_workers for all that waits there",
            )
        })?;
        let status = told(status)?;
        self.look(move |driver| match filter {
            Kill::OperationName(name) => {
                tracing::info!(name, code = status.code, text = status.message, "an operator kills an operation");
                match driver.kill_operation(&name, &status) {
                    true => Ok(()),
                    // One that is over already is as it should be.
                    false if driver.operation_row(&name).is_some() => Ok(()),
                    false => Err(operations::unknown(&name)),
                }
            }
            Kill::SizeClassQueueWithoutWorkers(queue) => {
                let queue = names::queue(Some(queue))?;
                if driver.has_workers(&queue) {
                    return Err(Status::failed_precondition(format!(
                        "the queue {} has workers, which will serve what waits there: only what waits in a queue without \
                         any is killed; drain and stop them, or kill single operations by name",
                        names::described(&queue)
                    )));
                }
                lists::known_queue(driver, &queue)?;
                let killed = driver.kill_waiting(&queue, &status);
                tracing::info!(
                    queue = names::described(&queue),
                    killed,
                    code = status.code,
                    text = status.message,
                    "an operator kills what waits in a queue without workers"
                );
                Ok(())
            }
        })
        .await
    }

    async fn list_platform_queues(
        &self,
        _: Request<()>,
    ) -> Result<Response<proto::ListPlatformQueuesResponse>, Status> {
        self.look(lists::platform_queues).await
    }

    async fn list_invocation_children(
        &self,
        request: Request<proto::ListInvocationChildrenRequest>,
    ) -> Result<Response<proto::ListInvocationChildrenResponse>, Status> {
        let request = request.into_inner();
        self.look(move |driver| lists::invocation_children(driver, request)).await
    }

    async fn list_queued_operations(
        &self,
        request: Request<proto::ListQueuedOperationsRequest>,
    ) -> Result<Response<proto::ListQueuedOperationsResponse>, Status> {
        let request = request.into_inner();
        self.look(move |driver| lists::queued_operations(driver, request)).await
    }

    async fn list_workers(
        &self,
        request: Request<proto::ListWorkersRequest>,
    ) -> Result<Response<proto::ListWorkersResponse>, Status> {
        let request = request.into_inner();
        self.look(move |driver| lists::workers(driver, request)).await
    }

    /// Workers that are known now; those that come later under the same id are others.
    async fn terminate_workers(
        &self,
        request: Request<proto::TerminateWorkersRequest>,
    ) -> Result<Response<()>, Status> {
        let pattern = pattern(request.into_inner().worker_id_pattern);
        let text = pattern.to_string();
        let (workers, mut busy) = self.driver.terminate(pattern);
        tracing::info!(pattern = text, workers, busy = busy.len(), "workers are told to go");
        while !busy.is_empty() {
            tokio::select! {
                () = tokio::time::sleep(LOOK_AGAIN) => {}
                () = self.stop.cancelled() => return Err(Status::unavailable(format!(
                    "the scheduler stops while {} workers execute something; call again when it is back",
                    busy.len()
                ))),
            }
            busy = self.driver.still_busy(busy);
        }
        Ok(Response::new(()))
    }

    async fn list_drains(
        &self,
        request: Request<proto::ListDrainsRequest>,
    ) -> Result<Response<proto::ListDrainsResponse>, Status> {
        let name = request.into_inner().size_class_queue_name;
        self.look(move |driver| {
            let queue = names::queue(name)?;
            lists::known_queue(driver, &queue)?;
            let drains = driver.drains_of(&queue).iter().map(messages::drain).collect();
            Ok(proto::ListDrainsResponse { drains })
        })
        .await
    }

    async fn add_drain(
        &self,
        request: Request<proto::AddOrRemoveDrainRequest>,
    ) -> Result<Response<()>, Status> {
        self.drain(request.into_inner(), true).await
    }

    async fn remove_drain(
        &self,
        request: Request<proto::AddOrRemoveDrainRequest>,
    ) -> Result<Response<()>, Status> {
        self.drain(request.into_inner(), false).await
    }
}
