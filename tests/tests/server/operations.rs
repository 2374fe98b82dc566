//! `google.longrunning.Operations`: lists with filters and pages, waiting, and operations that were over at once.

use std::time::Duration;

use pointsman_proto::longrunning::{
    CancelOperationRequest, DeleteOperationRequest, GetOperationRequest, ListOperationsRequest,
    WaitOperationRequest,
};
use pointsman_proto::rev2::{
    ActionResult, RequestMetadata, UpdateActionResultRequest, execution_stage::Value as Stage,
};
use pointsman_tests::fake_client::FakeClient;
use pointsman_tests::fake_worker::exited;
use tonic::Code;

use crate::support::{action, host, server, started, within};

async fn list(client: &FakeClient, filter: &str) -> Vec<String> {
    let request = ListOperationsRequest { filter: filter.to_owned(), ..Default::default() };
    let answer = client.operations().list_operations(request).await.unwrap().into_inner();
    assert_eq!(answer.next_page_token, "");
    answer.operations.into_iter().map(|operation| operation.name).collect()
}

#[tokio::test]
async fn lists_hold_what_the_filter_takes() {
    let server = server().await;
    let client = server.client().await.with_request_metadata(&RequestMetadata {
        tool_invocation_id: "mine".to_owned(),
        ..Default::default()
    });
    let other = server.client().await;
    let mut worker = server.stuck_worker(&host("h")).await;
    let running_digest = client.upload_action(&action("running")).await.unwrap();
    let mut running = client.execute(&running_digest).await.unwrap();
    let running_name = within(running.until(Stage::Executing)).await.unwrap().name;
    started(&mut worker).await;
    let queued_digest = other.upload_action(&action("queued")).await.unwrap();
    let mut queued = other.execute(&queued_digest).await.unwrap();
    let queued_name = within(queued.until(Stage::Queued)).await.unwrap().name;

    let mut both = [running_name.clone(), queued_name.clone()];
    both.sort();
    assert_eq!(list(&client, "").await, both);
    assert_eq!(list(&client, "done=false").await, both);
    assert_eq!(list(&client, "stage=EXECUTING").await, [running_name.as_str()]);
    assert_eq!(list(&client, "stage=QUEUED AND done=false").await, [queued_name.as_str()]);
    assert_eq!(list(&client, &format!("action={}", queued_digest.hash)).await, [queued_name.as_str()]);
    assert_eq!(list(&client, "invocation=mine").await, [running_name.as_str()]);
    let request = CancelOperationRequest { name: running_name.clone() };
    client.operations().cancel_operation(request.clone()).await.unwrap();
    within(running.finish()).await.unwrap();
    assert_eq!(list(&client, "done=true").await, [running_name.as_str()]);
    // Of what is over nothing is left to cancel, which is no error.
    client.operations().cancel_operation(request).await.unwrap();

    let request = ListOperationsRequest { filter: "colour=red".to_owned(), ..Default::default() };
    let status = client.operations().list_operations(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("give stage=QUEUED|EXECUTING|COMPLETED"), "{status}");
}

#[tokio::test]
async fn long_lists_come_in_pages() {
    let server = server().await;
    let client = server.client().await;
    let mut streams = Vec::new();
    for index in 0..600 {
        let digest = client.upload_action(&action(&index.to_string())).await.unwrap();
        streams.push(client.execute(&digest).await.unwrap());
    }
    for (page_size, pages) in [(0, 6), (250, 3), (100_000, 1)] {
        let (mut names, mut token, mut count) = (Vec::new(), String::new(), 0);
        loop {
            let request = ListOperationsRequest { page_size, page_token: token, ..Default::default() };
            let answer = client.operations().list_operations(request).await.unwrap().into_inner();
            names.extend(answer.operations.into_iter().map(|operation| operation.name));
            token = answer.next_page_token;
            count += 1;
            if token.is_empty() {
                break;
            }
        }
        assert!(names.is_sorted() && names.len() == 600, "{page_size}: {}", names.len());
        // A page that ends with the list may be followed by an empty one.
        assert!(count == pages || count == pages + 1, "{page_size}: {count}");
    }
    let negative = ListOperationsRequest { page_size: -1, ..Default::default() };
    let status = client.operations().list_operations(negative).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_operation_is_waited_for_as_long_as_asked() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let mut updates = client.execute(&digest).await.unwrap();
    let name = within(updates.until(Stage::Queued)).await.unwrap().name;
    let wait = |millis: Option<u64>| {
        let timeout = millis.map(|m| Duration::from_millis(m).try_into().unwrap());
        let request = WaitOperationRequest { name: name.clone(), timeout };
        let mut operations = client.operations();
        async move { operations.wait_operation(request).await.unwrap().into_inner() }
    };
    assert!(!within(wait(Some(50))).await.done);
    let worker = server.worker(&host("h")).await;
    let _worker = worker.start(|work| async move {
        tokio::time::sleep(Duration::from_millis(100)).await;
        exited(&work, 0)
    });
    assert!(within(wait(None)).await.done);
    assert!(within(wait(Some(0))).await.done);
    let unknown = WaitOperationRequest { name: "no-such".to_owned(), timeout: None };
    assert_eq!(client.operations().wait_operation(unknown).await.unwrap_err().code(), Code::NotFound);
    let delete = client.operations().delete_operation(DeleteOperationRequest { name }).await.unwrap_err();
    assert_eq!(delete.code(), Code::Unimplemented);
    assert!(delete.message().contains("CancelOperation"), "{delete}");
}

#[tokio::test]
async fn a_cached_result_can_be_asked_for_by_name_afterwards() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let request = UpdateActionResultRequest {
        action_digest: Some(digest.clone()),
        action_result: Some(ActionResult { stdout_raw: "cached".into(), ..Default::default() }),
        ..Default::default()
    };
    client.action_cache().update_action_result(request).await.unwrap();
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    let name = finished.updates[0].name.clone();
    let again = within(client.wait_execution(&name).await.unwrap().finish()).await.unwrap();
    assert_eq!(again.response.result.unwrap().stdout_raw, "cached");
    let got = client.operations().get_operation(GetOperationRequest { name: name.clone() }).await.unwrap();
    assert!(got.into_inner().done);
    let waited = client.operations().wait_operation(WaitOperationRequest { name, timeout: None }).await;
    assert!(waited.unwrap().into_inner().done);
}

#[tokio::test]
async fn a_client_that_leaves_after_the_last_message_cancels_nothing() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let _worker = server.eager_worker(&host("h")).await;
    let mut updates = client.execute(&digest).await.unwrap();
    let name = within(updates.until(Stage::Completed)).await.unwrap().name;
    // Pants: the stream is reset, not read to its end.
    drop(updates);
    tokio::time::sleep(Duration::from_millis(800)).await;
    let again = within(client.wait_execution(&name).await.unwrap().finish()).await.unwrap();
    assert_eq!(again.response.status, None);
    assert_eq!(again.response.result.unwrap().exit_code, 0);
}

#[tokio::test]
async fn metadata_counts_under_both_names_of_its_header() {
    let server = server().await;
    let client = server.client().await;
    let headers = [
        "build.bazel.remote.execution.v2.requestmetadata-bin",
        "google.devtools.remoteexecution.v1test.requestmetadata-bin",
    ];
    for (index, header) in headers.into_iter().enumerate() {
        for id in ["", "capabilities", "ab", "ab/3"] {
            let metadata = RequestMetadata {
                tool_invocation_id: format!("{index}{id}"),
                action_id: id.to_owned(),
                ..Default::default()
            };
            let digest = client.upload_action(&action(&format!("{index}{id}"))).await.unwrap();
            let execute =
                pointsman_proto::rev2::ExecuteRequest { action_digest: Some(digest), ..Default::default() };
            let mut request = tonic::Request::new(execute);
            let value = prost::Message::encode_to_vec(&metadata);
            let value = tonic::metadata::MetadataValue::from_bytes(&value);
            request.metadata_mut().insert_bin(header, value);
            let mut stream = client.execution().execute(request).await.unwrap().into_inner();
            let name = stream.message().await.unwrap().unwrap().name;
            assert_eq!(list(&client, &format!("invocation={index}{id}")).await, [name]);
        }
    }
}
