//! Blobs and results with another REv2 server: as if they were here, and a clear answer when that server is down, silent,
//! full or lies.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use pointsman_proto::bytestream::byte_stream_client::ByteStreamClient;
use pointsman_proto::bytestream::byte_stream_server::{ByteStream, ByteStreamServer};
use pointsman_proto::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use pointsman_proto::rev2::{Digest, FindMissingBlobsRequest, GetActionResultRequest};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, digest_of};
use pointsman_tests::fake_worker::WorkerSpec;
use pointsman_tests::harness::Relay;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::support::{TestServer, server, server_with};

/// A server that keeps nothing itself.
async fn before(address: SocketAddr, more: &str) -> TestServer {
    server_with(&format!("storage: {{ remote: {{ address: 'grpc://{address}', patience: '1s', {more} }} }}"))
        .await
}

fn blob(size: usize) -> Bytes {
    (0..size).map(|i| (i * 31 % 251) as u8).collect()
}

async fn missing(client: &FakeClient, digest: &Digest) -> bool {
    let request = FindMissingBlobsRequest {
        instance_name: client.instance_name().to_owned(),
        blob_digests: vec![digest.clone()],
        ..FindMissingBlobsRequest::default()
    };
    let answer = client.content().find_missing_blobs(client.request(request)).await.unwrap();
    !answer.into_inner().missing_blob_digests.is_empty()
}

async fn is_cached(client: &FakeClient, action: &Digest) -> bool {
    let request = GetActionResultRequest {
        instance_name: client.instance_name().to_owned(),
        action_digest: Some(action.clone()),
        ..GetActionResultRequest::default()
    };
    match client.action_cache().get_action_result(client.request(request)).await {
        Ok(_) => true,
        Err(status) if status.code() == Code::NotFound => false,
        Err(status) => panic!("{status}"),
    }
}

#[tokio::test]
async fn blobs_small_and_large_are_kept_there() {
    let store = server().await;
    let front = before(store.address, "").await;
    for size in [0, 1, 100_000, 1 << 20, (1 << 20) + 1, 2_500_000] {
        let content = blob(size);
        let [digest] = &front.client().await.upload([content.clone()]).await.unwrap()[..] else { panic!() };
        assert!(!missing(&store.client().await, digest).await, "{size}");
        assert_eq!(store.client().await.read(digest).await.unwrap(), content, "{size}");
        assert_eq!(front.client().await.read(digest).await.unwrap(), content, "{size}");
    }
    assert!(missing(&front.client().await, &digest_of(b"never uploaded")).await);
}

#[tokio::test]
async fn a_large_upload_goes_through_in_pieces_if_it_is_right() {
    let store = server().await;
    let front = before(store.address, "").await;
    let client = front.client().await;
    let content = blob(5_000_000);
    let upload = async |content: &Bytes, claimed: &Bytes| {
        let hash = digest_of(claimed).hash;
        let name = format!("uploads/{}/blobs/{hash}/{}", uuid::Uuid::new_v4(), claimed.len());
        let starts = (0..content.len()).step_by(700_000);
        let requests: Vec<_> = starts
            .map(|start| {
                let end = content.len().min(start + 700_000);
                let (finish_write, data) = (end == content.len(), content.slice(start..end));
                WriteRequest { resource_name: name.clone(), write_offset: start as i64, finish_write, data }
            })
            .collect();
        client.byte_stream().write(stream::iter(requests)).await
    };
    let mut other = content.to_vec();
    *other.last_mut().unwrap() ^= 1;
    let wrong = upload(&other.into(), &content).await.expect_err("a wrong blob was taken");
    assert_eq!(wrong.code(), Code::InvalidArgument, "{wrong}");
    assert!(missing(&store.client().await, &digest_of(&content)).await);
    let written = upload(&content, &content).await.unwrap().into_inner();
    assert_eq!(written.committed_size, 5_000_000);
    assert!(!missing(&store.client().await, &digest_of(&content)).await);
}

#[tokio::test]
async fn actions_run_and_are_cached_there() {
    let store = server().await;
    let front = before(store.address, "").await;
    let _worker = front.eager_worker(&WorkerSpec::new("h")).await;
    let client = front.client().await.with_instance_name("main");
    let action = client.upload_action(&ActionSpec::new(["true"])).await.unwrap();
    let end = client.execute(&action).await.unwrap().finish().await.unwrap();
    assert_eq!(end.response.status.unwrap_or_default().code, 0);
    // The worker that tests use caches nothing.
    let result = end.response.result.unwrap();
    let request = pointsman_proto::rev2::UpdateActionResultRequest {
        instance_name: "main".into(),
        action_digest: Some(action.clone()),
        action_result: Some(result),
        ..Default::default()
    };
    client.action_cache().update_action_result(client.request(request)).await.unwrap();
    assert!(is_cached(&store.client().await.with_instance_name("main"), &action).await);
    assert!(!is_cached(&store.client().await, &action).await, "another instance name");
    let again = client.execute(&action).await.unwrap().finish().await.unwrap();
    assert!(again.response.cached_result);
}

#[tokio::test]
async fn one_instance_name_may_stand_for_all() {
    let store = server().await;
    let front = before(store.address, "instance_name: 'all'").await;
    let client = front.client().await.with_instance_name("main");
    let action = client.upload_action(&ActionSpec::new(["true"])).await.unwrap();
    let request = pointsman_proto::rev2::UpdateActionResultRequest {
        instance_name: "main".into(),
        action_digest: Some(action.clone()),
        action_result: Some(Default::default()),
        ..Default::default()
    };
    client.action_cache().update_action_result(client.request(request)).await.unwrap();
    assert!(is_cached(&store.client().await.with_instance_name("all"), &action).await);
    assert!(!is_cached(&store.client().await.with_instance_name("main"), &action).await);
    assert!(is_cached(&client, &action).await);
}

#[tokio::test]
async fn a_store_that_is_down_is_waited_for_and_then_named() {
    let store = server().await;
    let wire = Arc::new(Relay::start(store.address.to_string()).await.unwrap());
    let front = before(wire.address().parse().unwrap(), "small_blob_cache: '0B'").await;
    let client = front.client().await;
    let action = client.upload_action(&ActionSpec::new(["true"])).await.unwrap();

    wire.down();
    let refused = client.execute(&action).await.expect_err("an answer without a store");
    assert_eq!(refused.code(), Code::Unavailable);
    let text = refused.message();
    assert!(text.contains(&format!("reading a blob at grpc://{}", wire.address())), "{text}");

    // Back within patience, nobody notices.
    let back = wire.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        back.up();
    });
    let _worker = front.eager_worker(&WorkerSpec::new("h")).await;
    let end = client.execute(&action).await.unwrap().finish().await.unwrap();
    assert_eq!(end.response.status.unwrap_or_default().code, 0);
}

#[tokio::test]
async fn a_store_that_says_nothing_is_given_up_in_time() {
    // Accepted by the kernel, answered by nobody.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = before(listener.local_addr().unwrap(), "").await;
    let client = front.client().await;
    let refused = client.execute(&digest_of(b"an action")).await.expect_err("an answer without a store");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("no answer in 1s"), "{refused}");
}

#[tokio::test]
async fn a_connection_that_went_silent_is_left_for_another() {
    let store = server().await;
    let wire = Relay::start(store.address.to_string()).await.unwrap();
    let front = before(wire.address().parse().unwrap(), "").await;
    let client = front.client().await;
    let request = || FindMissingBlobsRequest { blob_digests: vec![digest_of(b"x")], ..Default::default() };
    client.content().find_missing_blobs(request()).await.unwrap();

    wire.mute();
    let refused =
        client.content().find_missing_blobs(request()).await.expect_err("an answer over a dead wire");
    assert!(refused.message().contains("no answer in 1s"), "{refused}");
    client.content().find_missing_blobs(request()).await.unwrap();
}

#[tokio::test]
async fn an_upload_ends_soon_after_its_store() {
    let store = server().await;
    let wire = Arc::new(Relay::start(store.address.to_string()).await.unwrap());
    let front = before(wire.address().parse().unwrap(), "").await;
    let digest = digest_of(&blob(3_000_000));
    let resource_name =
        format!("uploads/6a5fe9d0-93ab-4f54-a3a5-6d5f1ad6a9b7/blobs/{}/{}", digest.hash, 100_000_000);
    // It never ends, so an answer can only come while it goes on.
    let messages = stream::unfold(0, move |sent: i64| {
        let (wire, resource_name) = (wire.clone(), resource_name.clone());
        async move {
            match sent {
                3_000_000 => wire.down(),
                90_000_000.. => return std::future::pending().await,
                _ => {}
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            let data = vec![0; 1_000_000].into();
            let message = WriteRequest { resource_name, write_offset: sent, finish_write: false, data };
            Some((message, sent + 1_000_000))
        }
    });
    let mut client = ByteStreamClient::connect(format!("http://{}", front.address)).await.unwrap();
    let written = tokio::time::timeout(Duration::from_secs(30), client.write(messages)).await;
    let refused = written.expect("it goes on without a store").expect_err("an upload to nowhere");
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(refused.message().contains("writing a blob at grpc://"), "{refused}");
}

#[tokio::test]
async fn a_store_that_is_full_says_so() {
    let store = server_with("storage: { embedded: { max_size: '1MB', small_blob_cache: '1kB' } }").await;
    let front = before(store.address, "").await;
    let error = front.client().await.upload([blob(3_000_000)]).await.expect_err("it can't fit");
    let text = format!("{error:#}");
    assert!(text.contains("storage is full: writing a blob at grpc://"), "{text}");
}

/// A store that answers everything with the same bytes.
struct Liar;

#[tonic::async_trait]
impl ByteStream for Liar {
    type ReadStream = Pin<Box<dyn Stream<Item = Result<ReadResponse, Status>> + Send>>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let size =
            request.get_ref().resource_name.rsplit('/').next().and_then(|s| s.parse().ok()).unwrap_or(0);
        let pieces = vec![b'x'; size];
        let pieces: Vec<_> =
            pieces.chunks(1000).map(|p| Ok(ReadResponse { data: p.to_vec().into() })).collect();
        Ok(Response::new(Box::pin(stream::iter(pieces))))
    }

    async fn write(&self, _: Request<Streaming<WriteRequest>>) -> Result<Response<WriteResponse>, Status> {
        Err(Status::permission_denied("this store is read-only"))
    }

    async fn query_write_status(
        &self,
        _: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        Err(Status::unimplemented("no"))
    }
}

async fn liar() -> (SocketAddr, AbortOnDropHandle<()>) {
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = incoming.local_addr().unwrap();
    let server = tonic::transport::Server::builder().add_service(ByteStreamServer::new(Liar));
    let task = tokio::spawn(async move { server.serve_with_incoming(incoming).await.unwrap() });
    (address, AbortOnDropHandle::new(task))
}

#[tokio::test]
async fn a_store_that_lies_is_found_out_before_the_last_byte() {
    let (address, _task) = liar().await;
    let front = before(address, "").await;
    let client = front.client().await;
    let refused = client.execute(&digest_of(b"an action")).await.expect_err("it believed the store");
    assert_eq!(refused.code(), Code::Internal, "{refused}");
    assert!(refused.message().contains("answered with something else"), "{refused}");

    let digest = digest_of(&blob(2500));
    let request =
        ReadRequest { resource_name: format!("blobs/{}/2500", digest.hash), ..ReadRequest::default() };
    let mut pieces = client.byte_stream().read(request).await.unwrap().into_inner();
    let (mut received, mut end) = (0, None);
    while end.is_none() {
        match pieces.message().await {
            Ok(Some(piece)) => received += piece.data.len(),
            Ok(None) => panic!("{received} wrong bytes were served as right"),
            Err(status) => end = Some(status),
        }
    }
    assert!(received < 2500, "{received}");
    assert_eq!(end.unwrap().code(), Code::Internal);
}

#[tokio::test]
async fn what_a_store_refuses_is_told_in_its_words() {
    let (address, _task) = liar().await;
    let front = before(address, "").await;
    let resource_name = format!("uploads/{}/blobs/{}/4", uuid::Uuid::new_v4(), digest_of(b"data").hash);
    let request = WriteRequest { resource_name, write_offset: 0, finish_write: true, data: "data".into() };
    let client = front.client().await;
    let refused = client.byte_stream().write(stream::iter([request])).await.expect_err("it is read-only");
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(
        refused.message().contains("storage refuses: asking which blobs are missing at grpc://"),
        "{refused}"
    );
}
