//! `google.longrunning.Operations` over the operations that the driver knows.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use pointsman_proto::longrunning::operations_server::Operations;
use pointsman_proto::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest,
};
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::operation_filter::Filter;
use crate::driver::Driver;

/// The service.
#[derive(Clone)]
pub struct OperationsService {
    driver: Arc<Driver>,
}

/// Operations in one page, if the client doesn't say.
const PAGE_DEFAULT: usize = 100;
/// Operations in one page at most.
const PAGE_MAX: usize = 1000;
/// A page that has this many bytes is sent: clients take 4 MiB.
const PAGE_MAX_BYTES: usize = 1 << 20;
/// Operations looked up under one hold of the core's lock.
const BATCH: usize = 256;
/// So many of them for one page; it is then sent with what was found, which may be nothing.
const BATCHES_MAX: usize = 64;

impl OperationsService {
    /// The service over a driver.
    pub fn new(driver: Arc<Driver>) -> Self {
        Self { driver }
    }

    /// Operations after `after` that the filter takes, up to a page of them, and the token for the next page.
    async fn page(&self, filter: &Filter, mut after: String, page_size: usize) -> (Vec<Operation>, String) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for _ in 0..BATCHES_MAX {
            let batch = self.driver.operations(&after, BATCH);
            let last = batch.len() < BATCH;
            for (name, operation) in batch {
                after = name.to_string();
                let Some(operation) = operation.filter(|operation| filter.takes(operation)) else { continue };
                bytes += operation.encoded_len();
                page.push(operation);
                if page.len() == page_size || bytes >= PAGE_MAX_BYTES {
                    return (page, after);
                }
            }
            if last {
                return (page, String::new());
            }
            tokio::task::yield_now().await;
        }
        (page, after)
    }
}

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let request = request.into_inner();
        let filter = Filter::parse(&request.filter)?;
        let page_size = match usize::try_from(request.page_size) {
            Ok(0) => PAGE_DEFAULT,
            Ok(n) => n.min(PAGE_MAX),
            Err(_) => return Err(Status::invalid_argument("page_size is negative")),
        };
        // The token is the last name looked at.
        let (operations, next_page_token) = self.page(&filter, request.page_token, page_size).await;
        Ok(Response::new(ListOperationsResponse { operations, next_page_token, ..Default::default() }))
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = request.into_inner().name;
        let operation = self.driver.operation(&name).ok_or_else(|| unknown(&name))?;
        Ok(Response::new(operation))
    }

    /// REv2 has no use for it: what a client has lost interest in is forgotten by itself.
    async fn delete_operation(&self, _: Request<DeleteOperationRequest>) -> Result<Response<()>, Status> {
        Err(Status::unimplemented("operations are forgotten by themselves; to end one, call CancelOperation"))
    }

    async fn cancel_operation(
        &self,
        request: Request<CancelOperationRequest>,
    ) -> Result<Response<()>, Status> {
        let name = request.into_inner().name;
        if self.driver.cancel(&name) { Ok(Response::new(())) } else { Err(unknown(&name)) }
    }

    /// Waits until the operation is over or the time is; the answer is the latest state either way.
    async fn wait_operation(
        &self,
        request: Request<WaitOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let WaitOperationRequest { name, timeout } = request.into_inner();
        let timeout = timeout.map(Duration::try_from).transpose();
        let timeout = timeout.map_err(|_| Status::invalid_argument("timeout is negative or malformed"))?;
        let Some(mut states) = self.driver.watch(&name) else {
            return self.driver.over_at_once(&name).map(Response::new).ok_or_else(|| unknown(&name));
        };
        let over = async {
            loop {
                match states.next().await {
                    Some(Ok(state)) if state.done => return Ok(state),
                    Some(Ok(_)) => {}
                    Some(Err(status)) => return Err(status),
                    None => return Err(unknown(&name)),
                }
            }
        };
        let ended = match timeout {
            Some(timeout) => tokio::time::timeout(timeout, over).await.ok(),
            None => Some(over.await),
        };
        let operation = match ended {
            Some(ended) => ended?,
            None => self.driver.operation(&name).ok_or_else(|| unknown(&name))?,
        };
        Ok(Response::new(operation))
    }
}

/// No such operation. Bazel then executes anew.
pub(crate) fn unknown(name: &str) -> Status {
    Status::not_found(format!(
        "there is no operation '{name}': it was never there, or it ended or lost its last client too long ago \
         (timers.completed_retention, timers.abandoned)"
    ))
}
