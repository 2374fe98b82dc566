//! The yardstick: takes the same calls as a scheduler and sends the same messages back, but decides nothing.
//! Work goes to the worker that has waited longest, whoever it is.
mod executions;
mod router;
mod services;

pub use executions::Updates;

use executions::Executions;
use pointsman_proto::{
    remoteactionrouter::action_router_server::ActionRouterServer,
    remoteworker::operation_queue_server::OperationQueueServer,
    rev2::{
        capabilities_server::CapabilitiesServer,
        content_addressable_storage_server::ContentAddressableStorageServer,
        execution_server::ExecutionServer,
    },
};
use services::Blobs;
use std::{net::SocketAddr, sync::Arc};
use tonic::transport::Server;

/// As many as the scheduler allows, so that clients don't hold calls back.
const STREAMS_PER_CONNECTION: u32 = 20_000;

/// Serves until `stop` is ready.
///
/// # Errors
/// When the address is taken.
pub async fn serve(
    address: SocketAddr,
    updates: Updates,
    stop: impl Future<Output = ()>,
) -> Result<(), tonic::transport::Error> {
    let blobs = Arc::new(Blobs::default());
    let executions = Arc::new(Executions::new(Arc::clone(&blobs), updates));
    Server::builder()
        .tcp_nodelay(true)
        .max_concurrent_streams(STREAMS_PER_CONNECTION)
        .add_service(ExecutionServer::from_arc(Arc::clone(&executions)))
        .add_service(OperationQueueServer::from_arc(executions))
        .add_service(ContentAddressableStorageServer::from_arc(Arc::clone(&blobs)))
        .add_service(CapabilitiesServer::from_arc(blobs))
        .add_service(ActionRouterServer::new(router::Router))
        .serve_with_shutdown(address, stop)
        .await
}
