//! Actions by every digest function, through the bundled worker.

use pointsman_proto::rev2::{ActionResult, Directory, FileNode, GetActionResultRequest, Tree};
use pointsman_proto::rpc::PreconditionFailure;
use pointsman_proto::unpack;
use pointsman_storage::{Digest, DigestFunction};
use pointsman_tests::fake_client::{ActionSpec, FakeClient};
use prost::Message as _;

use crate::support::{server, server_with, within};

/// Writes to both streams, a file and a directory, of an input.
fn spec(function: DigestFunction) -> ActionSpec {
    let script = "cat in && cp in out && mkdir -p dir/sub && cp in dir/sub/copy && echo oops >&2";
    let input = Digest::of(function, b"the input\n");
    let node = FileNode { name: "in".to_owned(), digest: Some(input.to_proto()), ..Default::default() };
    ActionSpec {
        output_paths: vec!["out".to_owned(), "dir".to_owned()],
        input_root: Directory { files: vec![node], ..Default::default() },
        salt: function.name().into(),
        ..ActionSpec::new(["/bin/sh", "-c", script])
    }
}

/// Every digest of the result, read back by the function of the action.
async fn check_outputs(client: &FakeClient, function: DigestFunction, result: &ActionResult) {
    let input = Digest::of(function, b"the input\n").to_proto();
    assert_eq!(result.stdout_digest.as_ref(), Some(&input));
    assert_eq!(result.stderr_digest, Some(Digest::of(function, b"oops\n").to_proto()));
    assert_eq!(result.output_files[0].digest.as_ref(), Some(&input));
    assert_eq!(client.read(&input).await.unwrap(), "the input\n");
    assert_eq!(client.read(result.stderr_digest.as_ref().unwrap()).await.unwrap(), "oops\n");
    let tree = client.read(result.output_directories[0].tree_digest.as_ref().unwrap()).await.unwrap();
    let tree = Tree::decode(tree).unwrap();
    let sub = &tree.children[0];
    assert_eq!(sub.files[0].digest.as_ref(), Some(&input));
    let named = tree.root.unwrap().directories[0].digest.clone().unwrap();
    assert_eq!(named, Digest::of(function, &sub.encode_to_vec()).to_proto());
}

#[tokio::test(flavor = "multi_thread")]
async fn actions_run_by_every_function() {
    let server = server_with("worker: { enabled: true, concurrency: 2 }").await;
    for function in DigestFunction::SERVED.iter().copied() {
        let client = server.client().await.with_digest_function(function);
        client.upload(["the input\n".into()]).await.unwrap();
        let action = client.upload_action(&spec(function)).await.unwrap();
        let finished = within(client.execute(&action).await.unwrap().finish()).await.unwrap();
        assert_eq!(finished.response.status.clone().unwrap_or_default().message, "", "{function:?}");
        let last = finished.updates.last().unwrap();
        assert_eq!(last.metadata.digest_function, i32::from(function.to_proto()));
        check_outputs(&client, function, finished.response.result.as_ref().unwrap()).await;

        // What the worker put into the action cache is found under the same function.
        let request = GetActionResultRequest {
            action_digest: Some(action.clone()),
            digest_function: function.to_proto().into(),
            ..Default::default()
        };
        let cached = client.action_cache().get_action_result(request).await.unwrap().into_inner();
        check_outputs(&client, function, &cached).await;
        let again = within(client.execute(&action).await.unwrap().finish()).await.unwrap();
        assert!(again.response.cached_result);
    }
}

#[tokio::test]
async fn a_missing_blob_is_named_with_its_function() {
    let server = server().await;
    for function in DigestFunction::SERVED.iter().copied() {
        let client = server.client().await.with_digest_function(function);
        let missing = Digest::of(function, b"never uploaded");
        let finished = within(client.execute(&missing.to_proto()).await.unwrap().finish()).await.unwrap();
        let status = finished.response.status.unwrap();
        let failure: PreconditionFailure = unpack(&status.details[0]).unwrap();
        assert_eq!(failure.violations[0].subject, missing.path());
    }
}
