//! The storage's services as clients see them: a real server on a free port, a real storage in a temporary folder,
//! generated clients.

#![allow(clippy::unwrap_used)]

mod action_cache;
mod batches;
mod capabilities;
mod digest_functions;
mod reads;
mod resumed_uploads;
mod tree;
mod uploads;
mod uploads_gone_wrong;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use pointsman::rev2::action_cache::ActionCacheService;
use pointsman::rev2::bytestream::ByteStreamService;
use pointsman::rev2::capabilities::CapabilitiesService;
use pointsman::rev2::cas::CasService;
use pointsman_proto::bytestream::byte_stream_client::ByteStreamClient;
use pointsman_proto::bytestream::byte_stream_server::ByteStreamServer;
use pointsman_proto::bytestream::{ReadRequest, WriteRequest};
use pointsman_proto::rev2::action_cache_client::ActionCacheClient;
use pointsman_proto::rev2::action_cache_server::ActionCacheServer;
use pointsman_proto::rev2::capabilities_client::CapabilitiesClient;
use pointsman_proto::rev2::capabilities_server::CapabilitiesServer;
use pointsman_proto::rev2::content_addressable_storage_client::ContentAddressableStorageClient;
use pointsman_proto::rev2::content_addressable_storage_server::ContentAddressableStorageServer;
use pointsman_storage::{Digest, DigestFunction, EmbeddedConfig, EmbeddedStorage, Storage};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status};

/// Some upload id.
const ID: &str = "6a5fe9d0-93ab-4f54-a3a5-6d5f1ad6a9b7";

/// As the real server has it: more than the 4 MiB of gRPC.
const MESSAGE_MAX_BYTES: usize = 64 << 20;

/// Long enough to go on within a test, short enough to see it end.
const PARTIAL_UPLOADS_KEPT: Duration = Duration::from_secs(1);

/// A server with its storage; both end with it.
struct Fixture {
    folder: tempfile::TempDir,
    storage: Arc<EmbeddedStorage>,
    endpoint: Endpoint,
    channel: Channel,
    server: tokio::task::JoinHandle<()>,
}

impl Fixture {
    async fn new() -> Self {
        Self::with_bound(1 << 30).await
    }

    async fn with_bound(max_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = EmbeddedConfig::new(folder.path());
        config.max_bytes = max_bytes;
        let embedded = Arc::new(EmbeddedStorage::open(config).await.unwrap());
        let storage: Arc<dyn Storage> = embedded.clone();
        let incoming = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap().with_nodelay(Some(true));
        let address = incoming.local_addr().unwrap();
        let router = Server::builder()
            .add_service(
                ByteStreamServer::new(
                    ByteStreamService::new(storage.clone()).keeping_partial_uploads(PARTIAL_UPLOADS_KEPT),
                )
                .max_decoding_message_size(MESSAGE_MAX_BYTES),
            )
            .add_service(
                ContentAddressableStorageServer::new(CasService::new(storage.clone()))
                    .max_decoding_message_size(MESSAGE_MAX_BYTES),
            )
            .add_service(ActionCacheServer::new(ActionCacheService::new(storage)))
            .add_service(CapabilitiesServer::new(CapabilitiesService::default()));
        let server = tokio::spawn(async move { router.serve_with_incoming(incoming).await.unwrap() });
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let channel = endpoint.connect().await.unwrap();
        Self { folder, storage: embedded, endpoint, channel, server }
    }

    /// A connection of its own.
    async fn connect(&self) -> Channel {
        self.endpoint.connect().await.unwrap()
    }

    fn bytestream(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.channel.clone())
    }

    fn cas(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel.clone())
    }

    fn action_cache(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel.clone())
    }

    fn capabilities(&self) -> CapabilitiesClient<Channel> {
        CapabilitiesClient::new(self.channel.clone())
    }

    /// Puts a blob into the storage, past the services.
    async fn put(&self, content: &[u8]) -> Digest {
        let digest = digest(content);
        self.storage.write_blob(&digest, Bytes::copy_from_slice(content)).await.unwrap();
        digest
    }

    async fn has(&self, digest: &Digest) -> bool {
        self.storage.find_missing(&[*digest]).await.unwrap().is_empty()
    }

    /// Writes by the messages given; returns the committed size.
    async fn write(&self, messages: Vec<WriteRequest>) -> Result<i64, Status> {
        let written = self.bytestream().write(tokio_stream::iter(messages)).await;
        written.map(|response| response.into_inner().committed_size)
    }

    async fn read(&self, name: &str) -> Result<Vec<u8>, Status> {
        self.read_part(name, 0, 0).await
    }

    async fn read_part(&self, name: &str, offset: i64, limit: i64) -> Result<Vec<u8>, Status> {
        let request = ReadRequest { resource_name: name.to_owned(), read_offset: offset, read_limit: limit };
        let mut stream = self.bytestream().read(request).await?.into_inner();
        let mut content = Vec::new();
        while let Some(message) = stream.message().await? {
            content.extend_from_slice(&message.data);
        }
        Ok(content)
    }

    /// Waits until no upload has a file left; they are removed in the background.
    async fn assert_nothing_left_behind(&self) {
        for _ in 0..500 {
            if std::fs::read_dir(self.folder.path().join("tmp")).unwrap().count() == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a temporary file is left behind");
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn digest(content: &[u8]) -> Digest {
    Digest::of(DigestFunction::Sha256, content)
}

/// Content that a compressor gets smaller, but not to nothing.
fn content(seed: u8, bytes: usize) -> Vec<u8> {
    let mut state = u64::from(seed) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 60) as u8
    };
    (0..bytes).map(|_| next()).collect()
}

/// The messages of an upload, in pieces of so many bytes, as Bazel sends them: the name in each.
fn messages(name: &str, data: &[u8], piece_bytes: usize) -> Vec<WriteRequest> {
    let mut messages: Vec<WriteRequest> = data
        .chunks(piece_bytes)
        .enumerate()
        .map(|(index, piece)| WriteRequest {
            resource_name: name.to_owned(),
            write_offset: (index * piece_bytes) as i64,
            data: Bytes::copy_from_slice(piece),
            finish_write: false,
        })
        .collect();
    if messages.is_empty() {
        messages.push(WriteRequest { resource_name: name.to_owned(), ..Default::default() });
    }
    messages.last_mut().unwrap().finish_write = true;
    messages
}

/// The name for an upload of `digest`; `form` is `blobs` or `compressed-blobs/zstd`.
fn upload_name(form: &str, digest: &Digest) -> String {
    format!("uploads/{ID}/{}", blob_name(form, digest))
}

/// The name for reading `digest`, in the same forms.
fn blob_name(form: &str, digest: &Digest) -> String {
    digest.path().replacen("blobs", form, 1)
}

fn assert_status<T: std::fmt::Debug>(result: Result<T, Status>, code: Code, text: &str) {
    let status = result.unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(text), "{:?} is not in {:?}", text, status.message());
}
