//! Blobs in memory, and what the server says about itself.
use bytes::Bytes;
use pointsman_proto::rev2::{
    BatchReadBlobsRequest, BatchReadBlobsResponse, BatchUpdateBlobsRequest, BatchUpdateBlobsResponse,
    CacheCapabilities, Digest, ExecutionCapabilities, FindMissingBlobsRequest, FindMissingBlobsResponse,
    GetCapabilitiesRequest, GetChunkMappingRequest, GetChunkMappingResponse, GetTreeRequest, GetTreeResponse,
    RegisterChunkMappingRequest, RegisterChunkMappingResponse, ServerCapabilities, SpliceBlobRequest,
    SpliceBlobResponse, SplitBlobRequest, SplitBlobResponse, batch_read_blobs_response,
    batch_update_blobs_response::Response as Stored, capabilities_server::Capabilities,
    content_addressable_storage_server::ContentAddressableStorage, digest_function,
};
use pointsman_proto::{rpc, semver::SemVer};
use std::{
    collections::HashMap,
    sync::{PoisonError, RwLock},
};
use tokio_stream::Empty;
use tonic::{Code, Request, Response, Status, Streaming};

/// Blobs by hash. Nothing is checked: the only client is the load generator.
#[derive(Debug, Default)]
pub(super) struct Blobs(RwLock<HashMap<String, Bytes>>);

impl Blobs {
    pub(super) fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&digest.hash).cloned()
    }
}

#[tonic::async_trait]
impl ContentAddressableStorage for Blobs {
    type GetTreeStream = Empty<Result<GetTreeResponse, Status>>;
    type GetChunkMappingStream = Empty<Result<GetChunkMappingResponse, Status>>;

    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        let mut missing_blob_digests = request.into_inner().blob_digests;
        missing_blob_digests.retain(|digest| self.get(digest).is_none());
        Ok(Response::new(FindMissingBlobsResponse { missing_blob_digests }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        let mut blobs = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let responses = request.into_inner().requests.into_iter().map(|blob| {
            let digest = blob.digest.unwrap_or_default();
            blobs.insert(digest.hash.clone(), blob.data);
            Stored { digest: Some(digest), status: Some(rpc::Status::default()) }
        });
        Ok(Response::new(BatchUpdateBlobsResponse { responses: responses.collect() }))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        let responses = request.into_inner().digests.into_iter().map(|digest| {
            let blob = self.get(&digest);
            let code = if blob.is_some() { Code::Ok } else { Code::NotFound };
            batch_read_blobs_response::Response {
                digest: Some(digest),
                data: blob.unwrap_or_default(),
                status: Some(rpc::Status { code: code.into(), ..Default::default() }),
                ..Default::default()
            }
        });
        Ok(Response::new(BatchReadBlobsResponse { responses: responses.collect() }))
    }

    async fn get_tree(&self, _: Request<GetTreeRequest>) -> Result<Response<Self::GetTreeStream>, Status> {
        Err(not_offered())
    }

    async fn split_blob(&self, _: Request<SplitBlobRequest>) -> Result<Response<SplitBlobResponse>, Status> {
        Err(not_offered())
    }

    async fn get_chunk_mapping(
        &self,
        _: Request<GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(not_offered())
    }

    async fn splice_blob(
        &self,
        _: Request<SpliceBlobRequest>,
    ) -> Result<Response<SpliceBlobResponse>, Status> {
        Err(not_offered())
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<Streaming<RegisterChunkMappingRequest>>,
    ) -> Result<Response<RegisterChunkMappingResponse>, Status> {
        Err(not_offered())
    }
}

#[tonic::async_trait]
impl Capabilities for Blobs {
    async fn get_capabilities(
        &self,
        _: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        let sha256 = digest_function::Value::Sha256.into();
        let version = |minor| Some(SemVer { major: 2, minor, ..Default::default() });
        Ok(Response::new(ServerCapabilities {
            cache_capabilities: Some(CacheCapabilities {
                digest_functions: vec![sha256],
                ..Default::default()
            }),
            execution_capabilities: Some(ExecutionCapabilities {
                digest_function: sha256,
                digest_functions: vec![sha256],
                exec_enabled: true,
                ..Default::default()
            }),
            deprecated_api_version: version(0),
            low_api_version: version(0),
            high_api_version: version(3),
        }))
    }
}

pub(super) fn not_offered() -> Status {
    Status::unimplemented("the echo server only serves the calls that the load generator makes")
}
