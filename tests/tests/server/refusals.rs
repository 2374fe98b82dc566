//! Bad input: each is refused with a text that says what was wrong.

use std::time::Duration;

use bytes::Bytes;
use pointsman_proto::rev2::{Action, Digest, ExecuteRequest, Platform, platform::Property};
use pointsman_proto::rpc::{self, PreconditionFailure};
use pointsman_proto::unpack;
use pointsman_tests::fake_client::{ActionSpec, FakeClient, digest_of};
use prost::Message as _;
use tonic::{Code, Status};

use crate::support::{action, server, server_with, within};

async fn refused(client: &FakeClient, spec: &ActionSpec) -> Status {
    let digest = client.upload_action(spec).await.unwrap();
    client.execute(&digest).await.unwrap_err()
}

#[tokio::test]
async fn missing_blobs_are_named_inside_the_response() {
    let server = server().await;
    let client = server.client().await;
    let mut spec = action("a").with_property("OSFamily", "linux");
    spec.platform_in_command_only = true;
    let [_, command, action] = spec.blobs();
    for (uploaded, missing) in [(vec![], &action), (vec![action.clone()], &command)] {
        client.upload(uploaded).await.unwrap();
        let response =
            within(client.execute(&digest_of(&action)).await.unwrap().finish()).await.unwrap().response;
        let status = response.status.unwrap();
        assert_eq!(status.code, i32::from(rpc::Code::FailedPrecondition));
        let details: PreconditionFailure = unpack(&status.details[0]).unwrap();
        let digest = digest_of(missing);
        assert_eq!(details.violations[0].r#type, "MISSING");
        assert_eq!(details.violations[0].subject, format!("blobs/{}/{}", digest.hash, digest.size_bytes));
    }
}

#[tokio::test]
async fn an_unsorted_platform_is_refused_with_both_properties() {
    let server = server().await;
    let client = server.client().await;
    let property = |name: &str, value: &str| Property { name: name.into(), value: value.into() };
    let action = Action {
        platform: Some(Platform { properties: vec![property("b", "1"), property("a", "2")] }),
        ..Default::default()
    };
    let bytes: Bytes = action.encode_to_vec().into();
    client.upload([bytes.clone()]).await.unwrap();
    let status = client.execute(&digest_of(&bytes)).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("'b'='1'") && status.message().contains("'a'='2'"),
        "{}",
        status.message()
    );
}

#[tokio::test]
async fn malformed_requests_say_what_is_malformed() {
    let server = server().await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let garbage: Bytes = Bytes::from_static(b"\xff\xff no protobuf");
    client.upload([garbage.clone()]).await.unwrap();
    let request = |digest: Option<Digest>, function: i32| ExecuteRequest {
        action_digest: digest,
        digest_function: function,
        ..Default::default()
    };
    let short = Digest { hash: "abc".to_owned(), size_bytes: 1 };
    let cases = [
        ("a//b", request(Some(digest.clone()), 0), "a//b"),
        ("a/blobs/b", request(Some(digest.clone()), 0), "blobs"),
        ("", request(None, 0), "action_digest"),
        ("", request(Some(short), 0), "abc"),
        ("", request(Some(digest.clone()), 3), "MD5"),
        ("", request(Some(digest.clone()), 8), "SHA256TREE is not served"),
        ("", request(Some(digest_of(&garbage)), 0), "not a valid Action"),
    ];
    for (instance, mut request, part) in cases {
        request.instance_name = instance.to_owned();
        let status = client.execution().execute(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{part}: {status}");
        assert!(status.message().contains(part), "{part} is not in: {}", status.message());
    }
}

#[tokio::test]
async fn errors_fit_into_the_headers_that_clients_take() {
    let server = server().await;
    let client = server.client().await;
    let status = client.wait_execution(&"é".repeat(30_000)).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert!(status.message().ends_with('é') && status.message().len() < 4096, "{status}");
}

#[tokio::test]
async fn a_timeout_over_the_maximum_is_refused() {
    let server = server().await;
    let client = server.client().await;
    let mut spec = action("a");
    spec.timeout = Some(Duration::from_secs(3601));
    let status = refused(&client, &spec).await;
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(
        status.message().contains("1h 1s") && status.message().contains("maximum_action_timeout"),
        "{status}"
    );
}

#[tokio::test]
async fn a_full_queue_refuses_and_loses_nothing() {
    let server = server_with("limits: { queued_actions: 1 }").await;
    let client = server.client().await;
    let digest = client.upload_action(&action("a")).await.unwrap();
    let queued = client.execute(&digest).await.unwrap();
    let status = refused(&client, &action("b")).await;
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("queued_actions"), "{status}");
    let _worker = server.eager_worker(&crate::support::host("h")).await;
    within(queued.finish()).await.unwrap();
}

#[tokio::test]
async fn ten_thousand_properties_are_refused_wherever_they_stand() {
    let server = server().await;
    let client = server.client().await;
    for in_command_only in [false, true] {
        let mut spec = action("a");
        spec.platform = (0..10_000).map(|i| (format!("key {i:05}"), "x".to_owned())).collect();
        spec.platform_in_command_only = in_command_only;
        let status = refused(&client, &spec).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        for part in ["10000 platform properties", "100 are allowed", "limits.properties_per_action"] {
            assert!(status.message().contains(part), "{part} is not in: {status}");
        }
    }
    let mut many = crate::support::host("h");
    many.platform = (0..10_000).map(|i| (format!("key {i:05}"), "x".to_owned())).collect();
    let status = within(server.worker(&many).await.synchronize()).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("bytes"), "{status}");
}

#[tokio::test]
async fn a_minimum_that_is_no_whole_number_is_refused_on_both_sides() {
    let server = server().await;
    let client = server.client().await;
    for value in ["18446744073709551616", "-1", " 4", "4 ", "", "+4", "0x4", "4.0", "1e3", "\u{664}", "many"]
    {
        let asks = refused(&client, &action("a").with_property("cpu_count", value)).await;
        assert_eq!(asks.code(), Code::FailedPrecondition, "{value:?}");
        let offers = crate::support::host("h").with_property("cpu_count", value);
        let offers = within(server.worker(&offers).await.synchronize()).await.unwrap_err();
        assert_eq!(offers.code(), Code::InvalidArgument, "{value:?}");
        assert!(offers.message().starts_with("Bad Property: "), "{offers}");
        // A message is percent-encoded where it isn't ASCII, which tonic undoes.
        for status in [asks, offers] {
            let wanted = format!("whole number from 0 to 2^64-1, not '{value}'");
            assert!(status.message().contains(&wanted), "{wanted:?} is not in: {status}");
        }
    }
    let counts = server.server.driver.counts();
    assert_eq!((counts.queued, counts.workers), (0, 0));
}

#[tokio::test]
async fn the_largest_number_is_a_number() {
    let server = server().await;
    let client = server.client().await;
    let most = u64::MAX.to_string();
    let spec = crate::support::host("h").with_property("cpu_count", &most);
    let mut workers = Vec::new();
    for thread in 0..2 {
        workers.push(server.eager_worker(&spec.thread(thread)).await);
    }
    let mut running = Vec::new();
    for (name, cpus) in [("a", &*most), ("b", "1"), ("c", &*most)] {
        let spec = action(name).with_property("cpu_count", cpus);
        running.push(client.execute(&client.upload_action(&spec).await.unwrap()).await.unwrap());
    }
    for updates in running {
        within(updates.finish()).await.unwrap();
    }
}
