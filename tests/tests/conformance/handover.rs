//! What a worker is sent with an action.

use pointsman_proto::rev2::{
    ExecuteRequest, RequestMetadata, digest_function, execution_stage::Value as Stage,
};
use pointsman_proto::{unpack, v1};
use pointsman_storage::DigestFunction;
use pointsman_tests::fake_worker::{Work, exited};

use crate::steps::{execute, given, response, told_idle};
use crate::support::{TestServer, action, host, server, within};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn auxiliary_metadata_order() {
    let server = server().await;
    let metadata = RequestMetadata { tool_invocation_id: "an-invocation".to_owned(), ..Default::default() };
    let client = server.client().await.with_request_metadata(&metadata);
    let _updates = execute(&client, &action("1")).await;
    let work = given(&mut server.worker(&host("h")).await).await;
    // What Buildbarn sends, then what we add.
    let [sent, decision] = &work.auxiliary_metadata[..] else { panic!("{:?}", work.auxiliary_metadata) };
    assert_eq!(unpack::<RequestMetadata>(sent).unwrap(), metadata);
    assert_eq!(unpack::<v1::RoutingDecision>(decision).unwrap().policy_name, "default");
    let _without = execute(&server.client().await, &action("2")).await;
    let work = given(&mut server.worker(&host("h2")).await).await;
    assert_eq!(work.auxiliary_metadata.len(), 1);
}

/// What a worker is sent when the Execute call has these headers.
async fn with_headers(server: &TestServer, name: &str, headers: &[(&'static str, &str)]) -> Box<Work> {
    let client = server.client().await;
    let action_digest = Some(client.upload_action(&action(name)).await.unwrap());
    let mut request = client.request(ExecuteRequest { action_digest, ..Default::default() });
    for (key, value) in headers {
        request.metadata_mut().insert(*key, value.parse().unwrap());
    }
    let _stream = client.execution().execute(request).await.unwrap();
    given(&mut server.worker(&host(name)).await).await
}

#[tokio::test]
async fn trace_context_of_the_client() {
    let server = server().await;
    let both = with_headers(&server, "1", &[("traceparent", PARENT), ("tracestate", "a=1,b=2")]).await;
    let mut sent: Vec<_> = both.w3c_trace_context.into_iter().collect();
    sent.sort();
    let pair = |k: &str, v: &str| (k.to_owned(), v.to_owned());
    assert_eq!(sent, [pair("traceparent", PARENT), pair("tracestate", "a=1,b=2")]);
    let one = with_headers(&server, "2", &[("traceparent", PARENT)]).await;
    assert_eq!(one.w3c_trace_context.into_iter().collect::<Vec<_>>(), [pair("traceparent", PARENT)]);
    for headers in [&[][..], &[("tracestate", "a=1")], &[("traceparent", "00-nonsense")]] {
        let work = with_headers(&server, &format!("3{headers:?}"), headers).await;
        assert!(work.w3c_trace_context.is_empty(), "{:?}", work.w3c_trace_context);
    }
}

#[tokio::test]
async fn digest_and_function_are_the_clients_and_the_function_is_never_unknown() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("1").with_property("OSFamily", "linux")).await.unwrap();
    // Old clients name no function.
    let request = ExecuteRequest { action_digest: Some(digest.clone()), ..Default::default() };
    let mut updates = client.execution().execute(request).await.unwrap().into_inner();
    within(updates.message()).await.unwrap();
    let mut worker = server.worker(&host("h").with_property("OSFamily", "")).await;
    let work = given(&mut worker).await;
    assert_eq!(work.action_digest, Some(digest));
    assert_eq!(work.digest_function(), digest_function::Value::Sha256);
    let action = work.action.unwrap();
    assert_eq!(action.platform.unwrap().properties[0].name, "OSFamily");
    assert!(action.command_digest.is_some() && action.input_root_digest.is_some());
}

#[tokio::test]
async fn digest_function_of_every_kind() {
    let server = server().await;
    for function in DigestFunction::SERVED.iter().copied() {
        let client = server.client().await.with_digest_function(function);
        let updates = execute(&client, &action("1")).await;
        let mut worker = server.worker(&host(function.name())).await;
        let work = given(&mut worker).await;
        assert_eq!(work.digest_function, i32::from(function.to_proto()));
        // Its report names none.
        worker.complete(exited(&work, 0));
        told_idle(&mut worker).await;
        assert_eq!(response(updates).await.status, None, "{function:?}");
    }
}

#[tokio::test]
async fn queued_timestamp_is_of_the_arrival_also_in_a_second_attempt() {
    let server = server().await;
    let client = server.client().await;
    let mut updates = execute(&client, &action("1")).await;
    within(updates.until(Stage::Queued)).await.unwrap();
    let first = given(&mut server.worker(&host("one")).await).await;
    let second = within(async {
        let mut other = server.worker(&host("two")).await;
        loop {
            if let pointsman_tests::fake_worker::Instruction::Execute(work) =
                other.synchronize().await.unwrap()
            {
                return work;
            }
        }
    })
    .await;
    assert_eq!(first.queued_timestamp, second.queued_timestamp);
    assert!(first.queued_timestamp.is_some());
}
