//! Hashes being computed.

use sha2::Digest as _;

use crate::digest::{Digest, HASH_BYTES};
use crate::function::DigestFunction;

/// A hash being computed of content that comes in pieces.
#[derive(Clone)]
pub struct Hasher {
    function: DigestFunction,
    state: State,
    size_bytes: u64,
}

#[derive(Clone)]
enum State {
    Sha256(sha2::Sha256),
    Sha1(sha1::Sha1),
    Sha384(sha2::Sha384),
    Sha512(sha2::Sha512),
    Md5(md5::Md5),
    /// Boxed: it holds two kilobytes.
    Blake3(Box<blake3::Hasher>),
}

impl Hasher {
    /// A hash of nothing yet.
    pub fn new(function: DigestFunction) -> Self {
        let state = match function {
            DigestFunction::Sha256 => State::Sha256(sha2::Sha256::new()),
            DigestFunction::Sha1 => State::Sha1(sha1::Sha1::new()),
            DigestFunction::Sha384 => State::Sha384(sha2::Sha384::new()),
            DigestFunction::Sha512 => State::Sha512(sha2::Sha512::new()),
            DigestFunction::Md5 => State::Md5(md5::Md5::new()),
            DigestFunction::Blake3 => State::Blake3(Box::default()),
        };
        Self { function, state, size_bytes: 0 }
    }

    /// Takes the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.size_bytes += piece.len() as u64;
        match &mut self.state {
            State::Sha256(state) => state.update(piece),
            State::Sha1(state) => state.update(piece),
            State::Sha384(state) => state.update(piece),
            State::Sha512(state) => state.update(piece),
            State::Md5(state) => state.update(piece),
            State::Blake3(state) => _ = state.update(piece),
        }
    }

    /// Bytes taken up to now.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Digest {
        let mut hash = [0; HASH_BYTES];
        let mut take = |bytes: &[u8]| hash[..bytes.len()].copy_from_slice(bytes);
        match self.state {
            State::Sha256(state) => take(&state.finalize()),
            State::Sha1(state) => take(&state.finalize()),
            State::Sha384(state) => take(&state.finalize()),
            State::Sha512(state) => take(&state.finalize()),
            State::Md5(state) => take(&state.finalize()),
            State::Blake3(state) => take(state.finalize().as_bytes()),
        }
        Digest::of_parts(self.function, hash, self.size_bytes)
    }
}
