//! `ByteStream`: blobs of any size, in pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use pointsman_proto::bytestream::byte_stream_server::ByteStream;
use pointsman_proto::bytestream::{
    QueryWriteStatusRequest, QueryWriteStatusResponse, ReadRequest, ReadResponse, WriteRequest, WriteResponse,
};
use pointsman_storage::{BlobStream, Digest, Storage};
use tonic::{Request, Response, Status, Streaming};

use super::compression::Compressor;
use super::partial_uploads::PartialUploads;
use super::resource_name::{self, Encoding, ResourceName, UploadName};
use super::status;

/// A blob that is already here is received to its end up to this size: answering in the middle of it would reset
/// the stream, which costs the client more than the bytes do.
const DRAIN_MAX_BYTES: u64 = 1 << 20;

/// The service.
#[derive(Clone)]
pub struct ByteStreamService {
    storage: Arc<dyn Storage>,
    partials: PartialUploads,
}

type ReadStream = Pin<Box<dyn Stream<Item = Result<ReadResponse, Status>> + Send>>;

impl ByteStreamService {
    /// The service over this storage.
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, partials: PartialUploads::default() }
    }

    /// Keeps uploads that broke off for so long.
    pub fn keeping_partial_uploads(self, kept_for: Duration) -> Self {
        Self { partials: PartialUploads::new(kept_for), ..self }
    }

    fn storage(&self, blob: &ResourceName) -> Arc<dyn Storage> {
        self.storage.clone().for_instance(&blob.instance_name)
    }

    async fn is_here(&self, blob: &ResourceName) -> Result<bool, Status> {
        let missing = self.storage(blob).find_missing(&[blob.digest]).await;
        Ok(missing.map_err(|error| status::from_storage(&error))?.is_empty())
    }

    /// Receives an upload from its first message on; returns the number of bytes received, earlier calls included.
    async fn receive(
        &self,
        name: UploadName,
        first: WriteRequest,
        messages: &mut Streaming<WriteRequest>,
    ) -> Result<i64, Status> {
        let resource_name = first.resource_name.clone();
        let digest = name.blob.digest;
        let mut upload = self.partials.begin(&*self.storage(&name.blob), name, first.write_offset).await?;
        let mut message = first;
        loop {
            check_message(&message, &resource_name, upload.received())?;
            let last = message.finish_write;
            upload.push(message.data).await?;
            if last {
                break;
            }
            message = messages.message().await?.ok_or_else(|| unfinished(&digest, upload.received()))?;
        }
        let received = upload.received();
        upload.commit().await?;
        Ok(received)
    }
}

#[tonic::async_trait]
impl ByteStream for ByteStreamService {
    type ReadStream = ReadStream;

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadStream>, Status> {
        let request = request.into_inner();
        let name = resource_name::parse_read(&request.resource_name)?;
        let offset = u64::try_from(request.read_offset)
            .map_err(|_| Status::out_of_range(format!("read_offset {} is negative", request.read_offset)))?;
        let limit = match u64::try_from(request.read_limit) {
            Ok(0) => None,
            Ok(limit) => Some(limit),
            Err(_) => {
                return Err(Status::invalid_argument(format!(
                    "read_limit {} is negative",
                    request.read_limit
                )));
            }
        };
        if limit.is_some() && name.encoding == Encoding::Zstd {
            let text =
                "read_limit must be 0 for compressed-blobs: compressed bytes can't be counted beforehand";
            return Err(Status::invalid_argument(text));
        }
        let content = self.storage(&name).read(&name.digest, offset, limit).await;
        let content = content.map_err(|error| status::from_storage(&error))?;
        match name.encoding {
            Encoding::Identity => Ok(Response::new(Box::pin(content.map(|piece| match piece {
                Ok(data) => Ok(ReadResponse { data }),
                Err(error) => Err(status::from_storage(&error)),
            })))),
            Encoding::Zstd => {
                let remaining = name.digest.size_bytes() - offset;
                Ok(Response::new(compressed(content, remaining)?))
            }
        }
    }

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> Result<Response<WriteResponse>, Status> {
        let mut messages = request.into_inner();
        let first = messages.message().await?;
        let first =
            first.ok_or_else(|| Status::invalid_argument("a write without any message names no blob"))?;
        let name = resource_name::parse_write(&first.resource_name)?;
        let digest = name.blob.digest;
        let committed_size = if self.is_here(&name.blob).await? {
            drain(first, &mut messages, &digest).await;
            match name.blob.encoding {
                Encoding::Identity => digest.size_bytes() as i64,
                // How large the blob would be when compressed nobody knows; REv2 has this value for it.
                Encoding::Zstd => -1,
            }
        } else {
            self.receive(name, first, &mut messages).await?
        };
        Ok(Response::new(WriteResponse { committed_size }))
    }

    /// Of an upload that nothing is known of, nothing is here. NOT_FOUND would say so as well, but then Bazel goes on with
    /// the offset that it had.
    async fn query_write_status(
        &self,
        request: Request<QueryWriteStatusRequest>,
    ) -> Result<Response<QueryWriteStatusResponse>, Status> {
        let name = resource_name::parse_write(&request.get_ref().resource_name)?;
        let digest = name.blob.digest;
        let complete = self.is_here(&name.blob).await?;
        let committed_size = match complete {
            true => digest.size_bytes() as i64,
            false => self.partials.received(&name).unwrap_or(0),
        };
        Ok(Response::new(QueryWriteStatusResponse { committed_size, complete }))
    }
}

fn check_message(message: &WriteRequest, resource_name: &str, received: i64) -> Result<(), Status> {
    if !message.resource_name.is_empty() && message.resource_name != resource_name {
        let text = "resource_name differs from that of the first message of this write";
        return Err(Status::invalid_argument(text));
    }
    if message.write_offset != received {
        let offset = message.write_offset;
        return Err(Status::invalid_argument(format!("write_offset is {offset}, {received} was expected")));
    }
    Ok(())
}

fn unfinished(digest: &Digest, received: i64) -> Status {
    let text =
        format!("upload of blob {digest} ended after {received} bytes without finish_write: go on there");
    Status::invalid_argument(text)
}

/// Receives the rest of an upload that is not needed, if it is short. Its errors don't matter any more.
async fn drain(first: WriteRequest, messages: &mut Streaming<WriteRequest>, digest: &Digest) {
    let mut last = first.finish_write || digest.size_bytes() > DRAIN_MAX_BYTES;
    let mut received = first.data.len() as u64;
    while !last && received <= DRAIN_MAX_BYTES {
        match messages.message().await {
            Ok(Some(message)) => {
                received += message.data.len() as u64;
                last = message.finish_write;
            }
            Ok(None) | Err(_) => return,
        }
    }
}

/// Compresses a stream of `remaining` bytes piece by piece.
fn compressed(content: BlobStream, remaining: u64) -> Result<ReadStream, Status> {
    struct State {
        content: BlobStream,
        compressor: Option<Compressor>,
        remaining: u64,
    }
    let state = State { content, compressor: Some(Compressor::new(remaining)?), remaining };
    Ok(Box::pin(stream::try_unfold(state, |mut state| async move {
        // Gone after the last piece: the frame is complete.
        while let Some(compressor) = state.compressor.take() {
            let piece = match state.content.next().await {
                Some(piece) => piece.map_err(|error| status::from_storage(&error))?,
                None => Default::default(),
            };
            let ended = piece.is_empty();
            state.remaining = state.remaining.saturating_sub(piece.len() as u64);
            let last = ended || state.remaining == 0;
            let (data, compressor) = compressor.push(piece, last).await?;
            state.compressor = (!last).then_some(compressor);
            // Some pieces go into the compressor whole.
            if !data.is_empty() {
                return Ok(Some((ReadResponse { data }, state)));
            }
        }
        Ok(None)
    })))
}
