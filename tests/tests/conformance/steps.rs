//! What most scenarios are made of.

use std::time::Duration;

use pointsman_proto::longrunning::CancelOperationRequest;
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::rpc;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, Updates};
use pointsman_tests::fake_worker::{FakeWorker, Instruction, Work};
use tokio::task::JoinHandle;
use tonic::Status;

use crate::support::within;

/// Uploads an action and asks for it.
pub(crate) async fn execute(client: &FakeClient, spec: &ActionSpec) -> Updates {
    client.execute(&client.upload_action(spec).await.unwrap()).await.unwrap()
}

/// One call of a worker, which has to be given something.
pub(crate) async fn given(worker: &mut FakeWorker) -> Box<Work> {
    match within(worker.synchronize()).await.unwrap() {
        Instruction::Execute(work) => work,
        other => panic!("told {other:?} instead of given something"),
    }
}

/// One call of a worker, which has to be told to do nothing.
pub(crate) async fn told_idle(worker: &mut FakeWorker) {
    let told = within(worker.synchronize()).await.unwrap();
    assert!(matches!(told, Instruction::Idle), "told {told:?}");
}

/// One call of a worker, which has to be told to go on.
pub(crate) async fn told_to_go_on(worker: &mut FakeWorker) {
    let told = within(worker.synchronize()).await.unwrap();
    assert!(matches!(told, Instruction::Continue), "told {told:?}");
}

/// A call that is under way, and the worker that makes it.
pub(crate) type Call = JoinHandle<(FakeWorker, Result<Instruction, Status>)>;

/// A call whose answer may take a while; the server has it when this returns.
pub(crate) async fn calling(mut worker: FakeWorker) -> Call {
    let call = tokio::spawn(async move {
        let told = worker.synchronize().await;
        (worker, told)
    });
    tokio::time::sleep(Duration::from_millis(100)).await;
    call
}

/// What came of an action.
pub(crate) async fn response(updates: Updates) -> ExecuteResponse {
    within(updates.finish()).await.unwrap().response
}

/// The code of a response, and its text.
pub(crate) async fn status(updates: Updates) -> (rpc::Code, String) {
    let status = response(updates).await.status.unwrap_or_default();
    (rpc::Code::try_from(status.code).unwrap(), status.message)
}

/// A worker's response without a result.
pub(crate) fn failed(code: i32, message: &str) -> ExecuteResponse {
    let status = rpc::Status { code, message: message.to_owned(), details: Vec::new() };
    ExecuteResponse { status: Some(status), ..Default::default() }
}

/// The name of an operation.
pub(crate) async fn name(updates: &mut Updates) -> String {
    within(updates.next()).await.unwrap().unwrap().name
}

/// What an operator, or a client, does to an operation.
pub(crate) async fn cancel(client: &FakeClient, name: &str) {
    let request = CancelOperationRequest { name: name.to_owned() };
    client.operations().cancel_operation(request).await.unwrap();
}

/// Waits until that is so.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    within(async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}
