//! `ContentAddressableStorage`: look-ups, and blobs in batches.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, stream};
use pointsman_proto::rev2::content_addressable_storage_server::ContentAddressableStorage;
use pointsman_proto::rev2::{
    self, BatchReadBlobsRequest, BatchReadBlobsResponse, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse,
    FindMissingBlobsRequest, FindMissingBlobsResponse, GetTreeRequest, GetTreeResponse,
    batch_read_blobs_response, batch_update_blobs_request, batch_update_blobs_response, compressor,
};
use pointsman_storage::{Digest, DigestFunction, Storage};
use tonic::{Request, Response, Status};

use super::compression::Compressor;
use super::resource_name::Encoding;
use super::{instance_name, status, tree, upload};

/// Most bytes of blobs in one batch, as advertised: 4 MiB, the largest message that most clients take, less room for
/// digests. Reads of more are refused, since the answer would be lost at the client. Updates are taken up to the
/// limit on messages: what a client has sent is already here.
pub const BATCH_MAX_BYTES: u64 = (4 << 20) - (64 << 10);

/// Blobs of a batch that are stored or read at the same time.
const BATCH_CONCURRENCY: usize = 16;

/// Smaller blobs don't get smaller by compression.
const COMPRESS_MIN_BYTES: usize = 128;

/// The service.
#[derive(Clone)]
pub struct CasService {
    storage: Arc<dyn Storage>,
}

type TreeStream = Pin<Box<dyn Stream<Item = Result<GetTreeResponse, Status>> + Send>>;

impl CasService {
    /// The service over this storage.
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }

    fn storage(&self, instance_name: &str) -> Arc<dyn Storage> {
        self.storage.clone().for_instance(instance_name)
    }

    async fn update(
        storage: &dyn Storage,
        function: Option<DigestFunction>,
        request: batch_update_blobs_request::Request,
    ) -> batch_update_blobs_response::Response {
        let batch_update_blobs_request::Request { digest, data, compressor } = request;
        let stored = async {
            let digest = status::digest_field(function, "digest", digest.as_ref())?;
            upload::store(storage, &digest, encoding(compressor)?, data).await
        };
        let status = Some(status::to_message(&stored.await));
        batch_update_blobs_response::Response { digest, status }
    }

    async fn read(
        storage: &dyn Storage,
        digest: Digest,
        compress: bool,
    ) -> batch_read_blobs_response::Response {
        let mut response =
            batch_read_blobs_response::Response { digest: Some(digest.to_proto()), ..Default::default() };
        let read = storage.read_blob(&digest, BATCH_MAX_BYTES).await;
        let result = match read.map_err(|error| status::from_storage(&error)) {
            Ok(data) if compress && data.len() >= COMPRESS_MIN_BYTES => {
                Self::compressed(data).await.map(|(data, used)| {
                    response.data = data;
                    response.compressor = used.into();
                })
            }
            Ok(data) => {
                response.data = data;
                Ok(())
            }
            Err(status) => Err(status),
        };
        response.status = Some(status::to_message(&result));
        response
    }

    /// The data as it is sent: compressed if that makes it smaller.
    async fn compressed(data: bytes::Bytes) -> Result<(bytes::Bytes, compressor::Value), Status> {
        let (packed, _) = Compressor::new(data.len() as u64)?.push(data.clone(), true).await?;
        if packed.len() < data.len() {
            return Ok((packed, compressor::Value::Zstd));
        }
        Ok((data, compressor::Value::Identity))
    }
}

#[tonic::async_trait]
impl ContentAddressableStorage for CasService {
    type GetTreeStream = TreeStream;
    type GetChunkMappingStream =
        Pin<Box<dyn Stream<Item = Result<rev2::GetChunkMappingResponse, Status>> + Send>>;

    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let digests = digests("blob_digests", request.digest_function, &request.blob_digests)?;
        let missing = self.storage(&request.instance_name).find_missing(&digests).await;
        let missing = missing.map_err(|error| status::from_storage(&error))?;
        let missing_blob_digests = missing.iter().map(Digest::to_proto).collect();
        Ok(Response::new(FindMissingBlobsResponse { missing_blob_digests }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let storage = self.storage(&request.instance_name);
        let responses = stream::iter(request.requests).map(|blob| Self::update(&*storage, function, blob));
        let responses = responses.buffered(BATCH_CONCURRENCY).collect().await;
        Ok(Response::new(BatchUpdateBlobsResponse { responses }))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let digests = digests("digests", request.digest_function, &request.digests)?;
        let total = digests.iter().fold(0u64, |sum, digest| sum.saturating_add(digest.size_bytes()));
        if total > BATCH_MAX_BYTES {
            return Err(Status::invalid_argument(format!(
                "the batch asks for {total} bytes, at most {BATCH_MAX_BYTES} are sent in one answer: \
                 split it, or read large blobs by ByteStream"
            )));
        }
        let compress = request.acceptable_compressors.contains(&compressor::Value::Zstd.into());
        let storage = self.storage(&request.instance_name);
        let responses = stream::iter(digests).map(|digest| Self::read(&*storage, digest, compress));
        let responses = responses.buffered(BATCH_CONCURRENCY).collect().await;
        Ok(Response::new(BatchReadBlobsResponse { responses }))
    }

    async fn get_tree(&self, request: Request<GetTreeRequest>) -> Result<Response<TreeStream>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let root = status::digest_field(function, "root_digest", request.root_digest.as_ref())?;
        let storage = self.storage(&request.instance_name);
        let pages = tree::Pages::new(storage, root, request.page_size, &request.page_token)?;
        Ok(Response::new(Box::pin(pages.stream())))
    }

    async fn split_blob(
        &self,
        _: Request<rev2::SplitBlobRequest>,
    ) -> Result<Response<rev2::SplitBlobResponse>, Status> {
        Err(not_served("SplitBlob"))
    }

    async fn splice_blob(
        &self,
        _: Request<rev2::SpliceBlobRequest>,
    ) -> Result<Response<rev2::SpliceBlobResponse>, Status> {
        Err(not_served("SpliceBlob"))
    }

    async fn get_chunk_mapping(
        &self,
        _: Request<rev2::GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(not_served("GetChunkMapping"))
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<tonic::Streaming<rev2::RegisterChunkMappingRequest>>,
    ) -> Result<Response<rev2::RegisterChunkMappingResponse>, Status> {
        Err(not_served("RegisterChunkMapping"))
    }
}

fn not_served(call: &str) -> Status {
    Status::unimplemented(format!("{call} is not served, and not advertised in the capabilities"))
}

/// Reads a list of digests; the error says which one is wrong.
fn digests(field: &str, function: i32, digests: &[rev2::Digest]) -> Result<Vec<Digest>, Status> {
    let function = status::digest_function(function)?;
    let read = |(index, digest): (usize, &rev2::Digest)| {
        Digest::from_proto(function, digest)
            .map_err(|error| Status::invalid_argument(format!("{field}[{index}]: {error}")))
    };
    digests.iter().enumerate().map(read).collect()
}

fn encoding(compressor: i32) -> Result<Encoding, Status> {
    match compressor::Value::try_from(compressor) {
        Ok(compressor::Value::Identity) => Ok(Encoding::Identity),
        Ok(compressor::Value::Zstd) => Ok(Encoding::Zstd),
        Ok(other) => {
            let text = format!("compressor {} is not served; served: IDENTITY, ZSTD", other.as_str_name());
            Err(Status::invalid_argument(text))
        }
        Err(_) => Err(Status::invalid_argument(format!("compressor number {compressor} is unknown"))),
    }
}
