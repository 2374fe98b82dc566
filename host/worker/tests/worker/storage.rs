//! A content store and action cache in memory, with faults on demand.
use bytes::Bytes;
use pointsman_proto::{
    bytestream::{
        QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest,
        WriteResponse, byte_stream_server::ByteStream,
    },
    rev2::{
        action_cache_server::ActionCache, capabilities_server::Capabilities,
        content_addressable_storage_server::ContentAddressableStorage, *,
    },
    rpc,
};
use std::{
    collections::HashMap,
    pin::Pin,
    sync::{Arc, Mutex},
};
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Code, Request, Response, Status, Streaming};

#[derive(Clone, Default)]
pub(crate) struct Storage(pub(crate) Arc<Mutex<Inner>>);

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) blobs: HashMap<String, Bytes>,
    pub(crate) results: HashMap<(String, String), ActionResult>,
    /// Calls by method.
    pub(crate) calls: HashMap<&'static str, usize>,
    /// Calls of a method that shall fail, and how.
    pub(crate) faults: HashMap<&'static str, (Code, usize)>,
    /// Instance names seen.
    pub(crate) instances: Vec<String>,
    pub(crate) batch_max: i64,
}

pub(crate) fn digest_of(data: &[u8]) -> Digest {
    pointsman_digest::Digest::of(pointsman_digest::DigestFunction::Sha256, data).to_proto()
}

impl Storage {
    pub(crate) fn put(&self, data: impl Into<Bytes>) -> Digest {
        let data = data.into();
        let digest = digest_of(&data);
        self.0.lock().unwrap().blobs.insert(digest.hash.clone(), data);
        digest
    }

    pub(crate) fn get(&self, digest: &Digest) -> Bytes {
        self.0.lock().unwrap().blobs[&digest.hash].clone()
    }

    pub(crate) fn calls(&self, method: &str) -> usize {
        self.0.lock().unwrap().calls.get(method).copied().unwrap_or_default()
    }

    pub(crate) fn fail(&self, method: &'static str, code: Code, times: usize) {
        self.0.lock().unwrap().faults.insert(method, (code, times));
    }

    fn call(&self, method: &'static str, instance: &str) -> Result<(), Status> {
        let mut inner = self.0.lock().unwrap();
        *inner.calls.entry(method).or_default() += 1;
        inner.instances.push(instance.to_owned());
        match inner.faults.get_mut(method) {
            Some((code, times)) if *times > 0 => {
                *times -= 1;
                Err(Status::new(*code, "injected"))
            }
            _ => Ok(()),
        }
    }
}

type Boxed<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl ContentAddressableStorage for Storage {
    async fn find_missing_blobs(
        &self,
        request: Request<FindMissingBlobsRequest>,
    ) -> Result<Response<FindMissingBlobsResponse>, Status> {
        let request = request.into_inner();
        self.call("FindMissingBlobs", &request.instance_name)?;
        let inner = self.0.lock().unwrap();
        let missing =
            request.blob_digests.into_iter().filter(|d| !inner.blobs.contains_key(&d.hash)).collect();
        Ok(Response::new(FindMissingBlobsResponse { missing_blob_digests: missing }))
    }

    async fn batch_update_blobs(
        &self,
        request: Request<BatchUpdateBlobsRequest>,
    ) -> Result<Response<BatchUpdateBlobsResponse>, Status> {
        let request = request.into_inner();
        self.call("BatchUpdateBlobs", &request.instance_name)?;
        let responses = request
            .requests
            .into_iter()
            .map(|r| {
                assert_eq!(r.digest.as_ref().unwrap(), &digest_of(&r.data));
                self.put(r.data);
                batch_update_blobs_response::Response { digest: r.digest, status: None }
            })
            .collect();
        Ok(Response::new(BatchUpdateBlobsResponse { responses }))
    }

    async fn batch_read_blobs(
        &self,
        request: Request<BatchReadBlobsRequest>,
    ) -> Result<Response<BatchReadBlobsResponse>, Status> {
        let request = request.into_inner();
        self.call("BatchReadBlobs", &request.instance_name)?;
        let inner = self.0.lock().unwrap();
        let total: i64 = request.digests.iter().map(|d| d.size_bytes).sum();
        assert!(inner.batch_max == 0 || total <= inner.batch_max, "batch of {total} bytes");
        let responses = request
            .digests
            .into_iter()
            .map(|digest| {
                let data = inner.blobs.get(&digest.hash).cloned();
                let code = if data.is_some() { Code::Ok } else { Code::NotFound };
                batch_read_blobs_response::Response {
                    digest: Some(digest),
                    data: data.unwrap_or_default(),
                    compressor: 0,
                    status: Some(rpc::Status { code: code as i32, ..Default::default() }),
                }
            })
            .collect();
        Ok(Response::new(BatchReadBlobsResponse { responses }))
    }

    type GetTreeStream = Boxed<GetTreeResponse>;
    async fn get_tree(&self, _: Request<GetTreeRequest>) -> Result<Response<Self::GetTreeStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn split_blob(&self, _: Request<SplitBlobRequest>) -> Result<Response<SplitBlobResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    type GetChunkMappingStream = Boxed<GetChunkMappingResponse>;
    async fn get_chunk_mapping(
        &self,
        _: Request<GetChunkMappingRequest>,
    ) -> Result<Response<Self::GetChunkMappingStream>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn splice_blob(
        &self,
        _: Request<SpliceBlobRequest>,
    ) -> Result<Response<SpliceBlobResponse>, Status> {
        Err(Status::unimplemented(""))
    }

    async fn register_chunk_mapping(
        &self,
        _: Request<Streaming<RegisterChunkMappingRequest>>,
    ) -> Result<Response<RegisterChunkMappingResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[tonic::async_trait]
impl ByteStream for Storage {
    type ReadStream = Boxed<ReadResponse>;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let parts: Vec<_> = request.resource_name.rsplitn(4, '/').collect();
        let (hash, instance) = (parts[1], parts.get(3).copied().unwrap_or_default());
        self.call("Read", instance)?;
        let data = self.0.lock().unwrap().blobs.get(hash).cloned();
        let data = data.ok_or_else(|| Status::not_found(""))?;
        let cut = self.call("ReadCut", instance).is_err();
        let rest = data.slice(request.read_offset as usize..);
        let mut pieces: Vec<Result<ReadResponse, Status>> =
            rest.chunks(100_000).map(|c| Ok(ReadResponse { data: Bytes::copy_from_slice(c) })).collect();
        if cut {
            pieces.truncate(1);
            pieces.push(Err(Status::unavailable("cut")));
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        self.call("Write", "")?;
        let mut stream = request.into_inner();
        let (mut data, mut name, mut finished) = (Vec::new(), String::new(), false);
        while let Some(piece) = stream.next().await {
            let piece = piece?;
            assert_eq!(piece.write_offset as usize, data.len());
            if name.is_empty() {
                name = piece.resource_name;
            }
            data.extend_from_slice(&piece.data);
            finished = piece.finish_write;
        }
        assert!(finished);
        let digest = self.put(data);
        assert!(name.ends_with(&format!("/blobs/{}/{}", digest.hash, digest.size_bytes)), "{name}");
        Ok(Response::new(WriteResponse { committed_size: digest.size_bytes }))
    }

    async fn query_write_status(
        &self,
        _: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        Err(Status::unimplemented(""))
    }
}

#[tonic::async_trait]
impl ActionCache for Storage {
    async fn get_action_result(
        &self,
        _: Request<GetActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        Err(Status::not_found(""))
    }

    async fn update_action_result(
        &self,
        request: Request<UpdateActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        let request = request.into_inner();
        self.call("UpdateActionResult", &request.instance_name)?;
        let result = request.action_result.unwrap();
        let key = (request.instance_name, request.action_digest.unwrap().hash);
        self.0.lock().unwrap().results.insert(key, result.clone());
        Ok(Response::new(result))
    }
}

#[tonic::async_trait]
impl Capabilities for Storage {
    async fn get_capabilities(
        &self,
        _: Request<GetCapabilitiesRequest>,
    ) -> Result<Response<ServerCapabilities>, Status> {
        let cache = CacheCapabilities {
            max_batch_total_size_bytes: self.0.lock().unwrap().batch_max,
            ..Default::default()
        };
        Ok(Response::new(ServerCapabilities { cache_capabilities: Some(cache), ..Default::default() }))
    }
}
