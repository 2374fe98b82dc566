//! `google.longrunning.Operations` over the operations that the driver knows.

use std::sync::Arc;

use pointsman_proto::longrunning::operations_server::Operations;
use pointsman_proto::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    ListOperationsResponse, Operation, WaitOperationRequest,
};
use tonic::{Request, Response, Status};

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

impl OperationsService {
    /// The service over a driver.
    pub fn new(driver: Arc<Driver>) -> Self {
        Self { driver }
    }
}

#[tonic::async_trait]
impl Operations for OperationsService {
    async fn list_operations(
        &self,
        request: Request<ListOperationsRequest>,
    ) -> Result<Response<ListOperationsResponse>, Status> {
        let request = request.into_inner();
        if !request.filter.is_empty() {
            return Err(Status::unimplemented("ListOperations knows no filters; leave the field empty"));
        }
        let page = match usize::try_from(request.page_size) {
            Ok(0) => PAGE_DEFAULT,
            Ok(n) => n.min(PAGE_MAX),
            Err(_) => return Err(Status::invalid_argument("page_size is negative")),
        };
        // The token is the last name of the page before.
        let found = self.driver.operations(&request.page_token, page);
        let next_page_token = match found.last() {
            Some(last) if found.len() == page => last.name.clone(),
            _ => String::new(),
        };
        Ok(Response::new(ListOperationsResponse { operations: found, next_page_token, ..Default::default() }))
    }

    async fn get_operation(
        &self,
        request: Request<GetOperationRequest>,
    ) -> Result<Response<Operation>, Status> {
        let name = request.into_inner().name;
        let operation = self.driver.operation(&name).ok_or_else(|| unknown(&name))?;
        Ok(Response::new(operation))
    }

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

    async fn wait_operation(&self, _: Request<WaitOperationRequest>) -> Result<Response<Operation>, Status> {
        Err(Status::unimplemented("to wait for an operation, call Execution.WaitExecution"))
    }
}

/// No such operation. Bazel then executes anew.
pub(crate) fn unknown(name: &str) -> Status {
    Status::not_found(format!(
        "there is no operation '{name}': it was never there, or it ended or lost its last client too long ago \
         (timers.completed_retention, timers.abandoned)"
    ))
}
