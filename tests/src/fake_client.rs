//! A REv2 client for tests: everything that Bazel does around one action, one call at a time.
mod action;
mod updates;

pub(crate) use action::platform;
pub use action::{ActionSpec, digest_of};
pub use updates::{Finished, Update, Updates};

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use pointsman_proto::{
    bytestream::byte_stream_client::ByteStreamClient,
    longrunning::operations_client::OperationsClient,
    rev2::{
        BatchReadBlobsRequest, BatchUpdateBlobsRequest, Digest, ExecuteRequest, RequestMetadata,
        WaitExecutionRequest, action_cache_client::ActionCacheClient,
        batch_update_blobs_request::Request as Blob, capabilities_client::CapabilitiesClient,
        content_addressable_storage_client::ContentAddressableStorageClient,
        execution_client::ExecutionClient,
    },
};
use pointsman_storage::DigestFunction;
use prost::Message as _;
use std::net::SocketAddr;
use tonic::{
    Request, Status,
    metadata::{Binary, MetadataValue},
    transport::{Channel, Endpoint},
};

/// Header in which clients say whom a call is for.
const REQUEST_METADATA: &str = "build.bazel.remote.execution.v2.requestmetadata-bin";

/// Bytes of blobs in one upload; gRPC's default limit of a message is 4 MiB.
const UPLOAD_BYTES_MAX: usize = 3 << 20;

/// A client on one HTTP/2 connection; clones share it.
#[derive(Clone, Debug)]
pub struct FakeClient {
    channel: Channel,
    instance_name: String,
    metadata: Option<MetadataValue<Binary>>,
    function: DigestFunction,
}

impl FakeClient {
    /// Connects without TLS.
    ///
    /// # Errors
    /// When nothing listens there.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        Ok(Self::new(connect(address).await?))
    }

    /// Uses a connection that exists.
    pub fn new(channel: Channel) -> Self {
        Self { channel, instance_name: String::new(), metadata: None, function: DigestFunction::Sha256 }
    }

    /// Uses this instance name in every call, in place of the empty one.
    pub fn with_instance_name(self, name: impl Into<String>) -> Self {
        Self { instance_name: name.into(), ..self }
    }

    /// Computes digests with this function, in place of SHA-256.
    pub fn with_digest_function(self, function: DigestFunction) -> Self {
        Self { function, ..self }
    }

    /// Sends this along with every call, as build tools do.
    pub fn with_request_metadata(self, metadata: &RequestMetadata) -> Self {
        Self { metadata: Some(MetadataValue::from_bytes(&metadata.encode_to_vec())), ..self }
    }

    /// The same client on another connection.
    pub fn over(&self, channel: Channel) -> Self {
        Self { channel, ..self.clone() }
    }

    /// The instance name of its calls.
    pub fn instance_name(&self) -> &str {
        &self.instance_name
    }

    /// A request with the metadata of this client.
    pub fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some(metadata) = &self.metadata {
            request.metadata_mut().insert_bin(REQUEST_METADATA, metadata.clone());
        }
        request
    }

    /// For calls to `Execution` that [`FakeClient`] has no method for.
    pub fn execution(&self) -> ExecutionClient<Channel> {
        ExecutionClient::new(self.channel.clone())
    }

    /// For calls to `ContentAddressableStorage`.
    pub fn content(&self) -> ContentAddressableStorageClient<Channel> {
        ContentAddressableStorageClient::new(self.channel.clone())
    }

    /// For calls to `ActionCache`.
    pub fn action_cache(&self) -> ActionCacheClient<Channel> {
        ActionCacheClient::new(self.channel.clone())
    }

    /// For calls to `Capabilities`.
    pub fn capabilities(&self) -> CapabilitiesClient<Channel> {
        CapabilitiesClient::new(self.channel.clone())
    }

    /// For calls to `Operations`.
    pub fn operations(&self) -> OperationsClient<Channel> {
        OperationsClient::new(self.channel.clone())
    }

    /// For calls to `ByteStream`.
    pub fn byte_stream(&self) -> ByteStreamClient<Channel> {
        ByteStreamClient::new(self.channel.clone())
    }

    /// Stores blobs by as few `BatchUpdateBlobs` as their sizes allow. Each blob has to be smaller than
    /// 3 MiB.
    ///
    /// # Errors
    /// When a call fails, or the server refuses one of the blobs.
    pub async fn upload(&self, blobs: impl IntoIterator<Item = Bytes>) -> Result<Vec<Digest>> {
        let (mut digests, mut batch, mut bytes) = (Vec::new(), Vec::new(), 0);
        for data in blobs {
            // Digests and framing take about 100 bytes of each.
            let size = data.len() + 100;
            if bytes + size > UPLOAD_BYTES_MAX {
                self.upload_batch(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
            bytes += size;
            let digest = pointsman_storage::Digest::of(self.function, &data).to_proto();
            digests.push(digest.clone());
            batch.push(Blob { digest: Some(digest), data, compressor: 0 });
        }
        self.upload_batch(batch).await?;
        Ok(digests)
    }

    async fn upload_batch(&self, requests: Vec<Blob>) -> Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let asked = requests.len();
        let request = BatchUpdateBlobsRequest {
            instance_name: self.instance_name.clone(),
            requests,
            digest_function: self.function.to_proto().into(),
        };
        let answer = self.content().batch_update_blobs(self.request(request)).await?.into_inner();
        ensure!(
            answer.responses.len() == asked,
            "uploaded {asked} blobs, got {} answers",
            answer.responses.len()
        );
        for response in answer.responses {
            let status = response.status.unwrap_or_default();
            ensure!(status.code == 0, "upload of {:?} refused: {}", response.digest, status.message);
        }
        Ok(())
    }

    /// Reads one small blob by `BatchReadBlobs`.
    ///
    /// # Errors
    /// When the call fails or the blob is not there.
    pub async fn read(&self, digest: &Digest) -> Result<Bytes> {
        let request = BatchReadBlobsRequest {
            instance_name: self.instance_name.clone(),
            digests: vec![digest.clone()],
            digest_function: self.function.to_proto().into(),
            ..Default::default()
        };
        let answer = self.content().batch_read_blobs(self.request(request)).await?.into_inner();
        let blob =
            answer.responses.into_iter().next().with_context(|| format!("no answer for {digest:?}"))?;
        let status = blob.status.unwrap_or_default();
        ensure!(status.code == 0, "read of {digest:?} refused: {}", status.message);
        Ok(blob.data)
    }

    /// Stores an action with its command and input root, and returns the action's digest.
    ///
    /// # Errors
    /// As [`FakeClient::upload`].
    pub async fn upload_action(&self, spec: &ActionSpec) -> Result<Digest> {
        let blobs = spec.blobs_by(self.function);
        let digests = self.upload(blobs).await?;
        digests.into_iter().next_back().context("no digest of the action")
    }

    /// Runs an action that the server already holds.
    ///
    /// # Errors
    /// Those of the call itself; later ones come out of [`Updates`].
    pub async fn execute(&self, action: &Digest) -> Result<Updates, Status> {
        self.execute_request(ExecuteRequest { action_digest: Some(action.clone()), ..Default::default() })
            .await
    }

    /// Like [`FakeClient::execute`], with a say in all fields but the instance name and the digest function.
    ///
    /// # Errors
    /// As [`FakeClient::execute`].
    pub async fn execute_request(&self, request: ExecuteRequest) -> Result<Updates, Status> {
        let request = ExecuteRequest {
            instance_name: self.instance_name.clone(),
            digest_function: self.function.to_proto().into(),
            ..request
        };
        Ok(Updates::new(self.execution().execute(self.request(request)).await?.into_inner()))
    }

    /// Follows an operation that an earlier call began.
    ///
    /// # Errors
    /// `NOT_FOUND` when the server does not know it.
    pub async fn wait_execution(&self, name: &str) -> Result<Updates, Status> {
        let request = self.request(WaitExecutionRequest { name: name.to_owned() });
        Ok(Updates::new(self.execution().wait_execution(request).await?.into_inner()))
    }
}

/// A plain-text HTTP/2 connection without Nagle's delay.
///
/// # Errors
/// When nothing listens there.
pub async fn connect(address: SocketAddr) -> Result<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))?.tcp_nodelay(true);
    endpoint.connect().await.with_context(|| format!("cannot connect to {address}"))
}
