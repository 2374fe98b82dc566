//! Who may run what: instance names and property lists.

use pointsman_proto::remoteworker::SynchronizeRequest;
use pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient;
use pointsman_proto::rev2::{Action, Platform, platform::Property};
use pointsman_tests::fake_client::{connect, digest_of};
use pointsman_tests::fake_worker::WorkerSpec;
use prost::Message as _;
use tonic::Code;

use crate::steps::{execute, given, told_idle};
use crate::support::{action, host, server, server_with, within};

fn serving(name: &str, prefix: &str) -> WorkerSpec {
    WorkerSpec { instance_name_prefix: prefix.to_owned(), ..host(name) }
}

#[tokio::test]
async fn prefix_matching_and_suffixes() {
    let server = server().await;
    for (n, (prefix, instance, suffix)) in
        [("", "", ""), ("", "a/b", "a/b"), ("a", "a", ""), ("a/b", "a/b/c", "c"), ("a", "a/b/c", "b/c")]
            .into_iter()
            .enumerate()
    {
        let client = server.client().await.with_instance_name(instance);
        let _updates = execute(&client, &action(&n.to_string())).await;
        let mut worker = server.worker(&serving(&n.to_string(), prefix)).await;
        let work = given(&mut worker).await;
        assert_eq!(work.instance_name_suffix, suffix, "{prefix:?} serves {instance:?}");
    }
}

#[tokio::test]
async fn prefixes_are_compared_by_whole_components() {
    for (prefix, instance) in [("a", "ab"), ("a/b", "a"), ("a", ""), ("a", "b/a")] {
        let server = server().await;
        let client = server.client().await.with_instance_name(instance);
        let _updates = execute(&client, &action("1")).await;
        told_idle(&mut server.worker(&serving("h", prefix)).await).await;
    }
}

#[tokio::test]
async fn all_prefixes_serve_when_properties_are_typed() {
    let server = server().await;
    let client = server.client().await.with_instance_name("a/b/c");
    let mut near = server.worker(&serving("near", "a/b")).await;
    told_idle(&mut near).await;
    let _updates = execute(&client, &action("1")).await;
    // Buildbarn would let it wait for the worker with the longer prefix.
    assert_eq!(given(&mut server.worker(&serving("far", "a")).await).await.instance_name_suffix, "b/c");
}

#[tokio::test]
async fn the_longest_prefix_serves_when_lists_are_exact() {
    let server = server_with("matching: 'exact_set'").await;
    let client = server.client().await.with_instance_name("a/b/c");
    let mut near = server.worker(&serving("near", "a/b")).await;
    told_idle(&mut near).await;
    let _updates = execute(&client, &action("1")).await;
    told_idle(&mut server.worker(&serving("far", "a")).await).await;
    assert_eq!(given(&mut near).await.instance_name_suffix, "c");
}

#[tokio::test]
async fn an_extra_property_is_another_queue_only_when_lists_are_exact() {
    for (config, serves) in [("matching: 'exact_set'", false), ("", true)] {
        let server = server_with(config).await;
        let client = server.client().await;
        let _updates = execute(&client, &action("1").with_property("OSFamily", "linux")).await;
        let more = host("h").with_property("OSFamily", "linux").with_property("Pool", "x");
        let mut worker = server.worker(&more).await;
        match serves {
            true => _ = given(&mut worker).await,
            false => told_idle(&mut worker).await,
        }
    }
}

#[tokio::test]
async fn unsorted_platform_on_both_sides_is_refused() {
    let server = server().await;
    let client = server.client().await;
    let property = |name: &str, value: &str| Property { name: name.into(), value: value.into() };
    let sorted_wrongly = [
        vec![property("b", "1"), property("a", "2")],
        vec![property("a", "2"), property("a", "1")],
        vec![property("a", "1"), property("a", "1")],
    ];
    for properties in sorted_wrongly {
        let platform = Some(Platform { properties });
        let bytes = Action { platform: platform.clone(), ..Default::default() }.encode_to_vec();
        client.upload([bytes.clone().into()]).await.unwrap();
        let of_client = client.execute(&digest_of(&bytes)).await.unwrap_err();
        let mut queue = OperationQueueClient::new(connect(server.address).await.unwrap());
        let request = server.worker(&host("h")).await.request().clone();
        let of_worker =
            within(queue.synchronize(SynchronizeRequest { platform, ..request })).await.unwrap_err();
        for status in [of_client, of_worker] {
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains("must be sorted"), "{status}");
        }
    }
}

#[tokio::test]
async fn malformed_prefixes_of_workers_are_refused() {
    let server = server().await;
    for prefix in ["/a", "a/", "a//b", "a/uploads", "operations"] {
        let status = within(server.worker(&serving("h", prefix)).await.synchronize()).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{prefix}");
    }
}
