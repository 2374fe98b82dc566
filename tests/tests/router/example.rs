//! The example, with its own configuration, asked as Buildbarn's scheduler asks for what Buck2 sends.

use std::path::Path;

use pointsman_proto::rev2::RequestMetadata;
use pointsman_tests::harness::{RouterProcess, cli};

use crate::support::{Cas, buck2, owned, scheduler};

const CAS: &str = "grpc://bb-storage:8981";

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/buildbarn-router")
}

#[tokio::test]
async fn it_is_accepted_as_it_stands() {
    let file = folder().join("router.json5");
    let checked = cli(&["router", "--check", "--config", file.to_str().unwrap()]).await.unwrap();
    checked.expect_code(0).unwrap();
}

/// Two replicas of it; nothing is different but where the CAS is, and ports and state, which are given by flags.
#[tokio::test]
async fn actions_of_buck2_get_their_queue_from_two_replicas() {
    let cas = Cas::start().await;
    let text = std::fs::read_to_string(folder().join("router.json5")).unwrap();
    assert_eq!(text.matches(CAS).count(), 1);
    let text = text.replace(CAS, &format!("grpc://{}", cas.address));
    let replicas =
        [RouterProcess::start(&text, &[]).await.unwrap(), RouterProcess::start(&text, &[]).await.unwrap()];
    let image = ("container-image", "docker://buckroot-worker");
    let big = cas.action(&buck2("host-gcc-final", &[("OSFamily", "linux"), image, ("size", "big")])).await;
    let other = cas.action(&buck2("zlib", &[("OSFamily", "linux"), image])).await;
    let metadata = RequestMetadata {
        tool_details: Some(pointsman_proto::rev2::ToolDetails {
            tool_name: "buck2".into(),
            ..Default::default()
        }),
        tool_invocation_id: "8f2e9a5c-0b7e-4f0c-9a2e-0d5f3c1b7a66".into(),
        ..RequestMetadata::default()
    };
    for router in &replicas {
        let asks = scheduler(router).await.with_metadata(metadata.clone());
        for (action, size) in [(&big, "big"), (&other, "small")] {
            let routed = asks.execute(action).await.unwrap();
            assert_eq!(routed.platform, owned(&[("OSFamily", "linux"), image, ("size", size)]));
            assert_eq!(routed.degraded, None);
            assert_eq!(
                routed.keys,
                [serde_json::json!({ "toolInvocationId": "8f2e9a5c-0b7e-4f0c-9a2e-0d5f3c1b7a66" })]
            );
        }
    }
}

#[test]
fn the_schedulers_part_names_what_it_needs_and_no_more() {
    let text = std::fs::read_to_string(folder().join("scheduler.jsonnet")).unwrap();
    let code: String =
        text.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n");
    for needed in
        ["actionRouter", "remote", "grpcClient", "initialSizeClassAnalyzer", "maximumExecutionTimeout"]
    {
        assert!(code.contains(needed), "{needed}");
    }
    assert!(!code.contains("platformKeyExtractor"));
}
