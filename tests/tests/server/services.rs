//! Servers that have execution without a cache, or a cache without execution.

use pointsman_proto::longrunning::ListOperationsRequest;
use pointsman_proto::rev2::{
    FindMissingBlobsRequest, GetActionResultRequest, GetCapabilitiesRequest, ServerCapabilities,
};
use pointsman_storage::{Digest, DigestFunction, EmbeddedConfig, EmbeddedStorage, Storage as _};
use pointsman_tests::fake_client::FakeClient;
use tonic::{Code, Status};

use crate::support::{action, host, server_in, server_with, within};

async fn capabilities(client: &FakeClient) -> ServerCapabilities {
    let request = GetCapabilitiesRequest::default();
    client.capabilities().get_capabilities(request).await.unwrap().into_inner()
}

fn assert_off(status: &Status, service: &str, others: &str) {
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    let text = status.message();
    assert!(text.contains(service) && text.contains(&format!("services: \"{others}\"")), "{text}");
}

#[tokio::test]
async fn a_cache_executes_nothing() {
    let server = server_with("services: 'cache'").await;
    let client = server.client().await;
    let found = capabilities(&client).await;
    assert!(!found.execution_capabilities.unwrap().exec_enabled);
    assert!(found.cache_capabilities.unwrap().action_cache_update_capabilities.unwrap().update_enabled);
    let digest = client.upload_action(&action("a")).await.unwrap();
    let request = GetActionResultRequest { action_digest: Some(digest.clone()), ..Default::default() };
    let missed = client.action_cache().get_action_result(request).await.unwrap_err();
    assert_eq!(missed.code(), Code::NotFound);
    assert_off(&client.execute(&digest).await.unwrap_err(), "v2.Execution", "execution");
    let listed = client.operations().list_operations(ListOperationsRequest::default()).await;
    assert_off(&listed.unwrap_err(), "Operations", "execution");
    let mut worker = server.worker(&host("h")).await;
    assert_off(&worker.synchronize().await.unwrap_err(), "OperationQueue", "execution");
}

#[tokio::test]
async fn an_executor_has_no_cache() {
    let spec = action("a");
    let folder = tempfile::tempdir().unwrap();
    let storage = EmbeddedStorage::open(EmbeddedConfig::new(folder.path().join("storage"))).await.unwrap();
    for blob in spec.blobs() {
        storage.write_blob(&Digest::of(DigestFunction::Sha256, &blob), blob).await.unwrap();
    }
    drop(storage);
    let server = server_in(folder, "services: 'execution'").await;
    let client = server.client().await;
    let found = capabilities(&client).await;
    assert!(found.execution_capabilities.unwrap().exec_enabled);
    let cache = found.cache_capabilities.unwrap();
    assert!(cache.action_cache_update_capabilities.is_none() && !cache.digest_functions.is_empty());

    let [.., bytes] = spec.blobs();
    let digest = Digest::of(DigestFunction::Sha256, &bytes).to_proto();
    let _worker = server.eager_worker(&host("h")).await;
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    assert_eq!(finished.response.result.unwrap().exit_code, 0);
    let missing = FindMissingBlobsRequest { blob_digests: vec![digest.clone()], ..Default::default() };
    let status = client.content().find_missing_blobs(missing).await.unwrap_err();
    assert_off(&status, "ContentAddressableStorage", "cache");
    let request = GetActionResultRequest { action_digest: Some(digest), ..Default::default() };
    assert_off(&client.action_cache().get_action_result(request).await.unwrap_err(), "ActionCache", "cache");
    let read = pointsman_proto::bytestream::ReadRequest::default();
    assert_off(&client.byte_stream().read(read).await.map(drop).unwrap_err(), "ByteStream", "cache");
}

#[tokio::test]
async fn an_executor_holds_thousands_of_streams_of_one_connection() {
    let folder = tempfile::tempdir().unwrap();
    let storage = EmbeddedStorage::open(EmbeddedConfig::new(folder.path().join("storage"))).await.unwrap();
    let mut actions = Vec::new();
    for index in 0..3000 {
        for blob in action(&index.to_string()).blobs() {
            let digest = Digest::of(DigestFunction::Sha256, &blob);
            storage.write_blob(&digest, blob).await.unwrap();
            actions.push(digest);
        }
    }
    drop(storage);
    let server = server_in(folder, "services: 'execution'").await;
    let client = server.client().await;
    let mut streams = Vec::new();
    // The action is the last of its three blobs.
    for digest in actions.iter().skip(2).step_by(3) {
        streams.push(client.execute(&digest.to_proto()).await.unwrap());
    }
    let workers: Vec<_> = [1, 2, 3, 4].map(|n| host(&format!("h{n}"))).to_vec();
    let mut running = Vec::new();
    for spec in &workers {
        running.push(server.eager_worker(spec).await);
    }
    for stream in streams {
        let finished = within(stream.finish()).await.unwrap();
        assert_eq!(finished.response.result.unwrap().exit_code, 0);
    }
}

#[test]
fn a_bundled_worker_needs_both() {
    let text = "{ services: 'execution', worker: { enabled: true } }";
    let error = pointsman::config::Config::parse(text, "test.json5").unwrap_err().to_string();
    assert!(error.contains("worker.enabled") && error.contains("services: \"all\""), "{error}");
}
