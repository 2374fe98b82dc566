//! Zstandard on the way to and from clients, in pieces, so that neither a large blob nor a small upload that unpacks
//! to a huge one is ever held in memory whole.

use std::io;

use bytes::Bytes;
use pointsman_storage::{BlobWriter, Digest};
use tonic::Status;
use zstd::stream::raw::{self, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe::{CParameter, DParameter};

use super::status;

/// The fastest level: the network of a build is fast, and the server's cores have other work.
const LEVEL: i32 = 1;

/// Bytes decompressed at a time.
const PIECE_BYTES: usize = 128 << 10;

/// The largest window an upload may ask for, as a power of two: 8 MiB, which the format's specification recommends
/// every decoder to support. It bounds the memory of an upload.
const WINDOW_LOG_MAX: u32 = 23;

/// Below this many bytes compressing takes less time than moving to another thread.
const INLINE_MAX_BYTES: usize = 32 << 10;

/// Compresses one blob.
pub(super) struct Compressor(raw::Encoder<'static>);

impl Compressor {
    /// For content of `size_bytes`: known beforehand, it makes tables for tiny blobs tiny.
    pub(super) fn new(size_bytes: u64) -> Result<Self, Status> {
        let mut encoder = raw::Encoder::new(LEVEL).map_err(failed)?;
        encoder.set_parameter(CParameter::ContentSizeFlag(true)).map_err(failed)?;
        encoder.set_pledged_src_size(Some(size_bytes)).map_err(failed)?;
        Ok(Self(encoder))
    }

    /// Compresses a piece; `last` ends the frame. Large pieces are compressed on the blocking pool.
    pub(super) async fn push(mut self, piece: Bytes, last: bool) -> Result<(Bytes, Self), Status> {
        if piece.len() <= INLINE_MAX_BYTES {
            return Ok((self.run(&piece, last)?, self));
        }
        let job = tokio::task::spawn_blocking(move || Ok((self.run(&piece, last)?, self)));
        job.await.unwrap_or_else(|error| Err(failed(io::Error::other(error))))
    }

    fn run(&mut self, piece: &[u8], last: bool) -> Result<Bytes, Status> {
        let mut output = Vec::with_capacity(zstd::zstd_safe::compress_bound(piece.len()));
        let mut input = InBuffer::around(piece);
        loop {
            output.reserve(1 << 10);
            let written = output.len();
            let mut buffer = OutBuffer::around_pos(&mut output, written);
            let pending = if input.pos < piece.len() {
                self.0.run(&mut input, &mut buffer).map_err(failed)?
            } else if last {
                self.0.finish(&mut buffer, true).map_err(failed)?
            } else {
                0
            };
            if input.pos == piece.len() && (!last || pending == 0) {
                return Ok(output.into());
            }
        }
    }
}

/// Decompresses one upload.
pub(super) struct Decompressor {
    decoder: raw::Decoder<'static>,
    expected: Digest,
    scratch: Vec<u8>,
    inside_frame: bool,
}

impl Decompressor {
    /// For an upload of `expected`.
    pub(super) fn new(expected: Digest) -> Result<Self, Status> {
        let mut decoder = raw::Decoder::new().map_err(failed)?;
        decoder.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(failed)?;
        // One more than the blob has, so that too many bytes show.
        let capacity = expected.size_bytes().saturating_add(1).min(PIECE_BYTES as u64);
        Ok(Self { decoder, expected, scratch: Vec::with_capacity(capacity as usize), inside_frame: false })
    }

    /// Unpacks `data`, which may begin and end anywhere in a frame, into `writer`, which refuses more bytes than
    /// the blob has.
    pub(super) async fn unpack(&mut self, data: &[u8], writer: &mut dyn BlobWriter) -> Result<(), Status> {
        let mut input = InBuffer::around(data);
        loop {
            let (piece, more) = self.next_piece(&mut input)?;
            if !piece.is_empty() {
                writer.write(piece).await.map_err(|error| status::from_storage(&error))?;
            }
            if !more {
                return Ok(());
            }
            // A small message may unpack to very many pieces.
            tokio::task::yield_now().await;
        }
    }

    /// Unpacks until the piece is full or `input` used up; also says whether there is more to come from it.
    fn next_piece(&mut self, input: &mut InBuffer<'_>) -> Result<(Bytes, bool), Status> {
        self.scratch.clear();
        let capacity = self.scratch.capacity();
        let mut output = OutBuffer::around(&mut self.scratch);
        loop {
            let unpacked = self.decoder.run(input, &mut output);
            let pending = unpacked.map_err(|error| invalid(&self.expected, &error.to_string()))?;
            self.inside_frame = pending != 0;
            let full = output.pos() == capacity;
            let used_up = input.pos == input.src.len();
            if full || used_up {
                // With a full buffer the decoder may hold back the rest of a frame, but nothing of an ended one.
                let more = !used_up || full && self.inside_frame;
                return Ok((Bytes::copy_from_slice(output.as_slice()), more));
            }
        }
    }

    /// Checks that the upload did not end inside a frame.
    pub(super) fn finish(&self) -> Result<(), Status> {
        if self.inside_frame { Err(invalid(&self.expected, "it ends inside a frame")) } else { Ok(()) }
    }
}

fn invalid(expected: &Digest, problem: &str) -> Status {
    Status::invalid_argument(format!("upload of blob {expected} is not valid zstd: {problem}"))
}

fn failed(error: io::Error) -> Status {
    Status::internal(format!("zstd failed: {error}"))
}
