//! Checks content against its digest.

use crate::digest::{Digest, Hasher};
use crate::error::InvalidBlob;

/// Checks content that arrives in pieces.
pub struct Verifier {
    expected: Digest,
    hasher: Hasher,
    seen_bytes: u64,
}

impl Verifier {
    /// Begins the check of content that is claimed to be `expected`.
    pub fn new(expected: Digest) -> Self {
        Self { expected, hasher: Hasher::new(expected.function()), seen_bytes: 0 }
    }

    /// Takes the next piece. Fails as soon as there are more bytes than the digest says.
    pub fn update(&mut self, piece: &[u8]) -> Result<(), InvalidBlob> {
        self.seen_bytes += piece.len() as u64;
        if self.seen_bytes > self.expected.size_bytes() {
            return Err(InvalidBlob::TooLong { expected: self.expected });
        }
        self.hasher.update(piece);
        Ok(())
    }

    /// Bytes seen up to now.
    pub fn seen_bytes(&self) -> u64 {
        self.seen_bytes
    }

    /// Ends the check: size first, since a truncated upload is the common mistake and has a wrong hash as well.
    pub fn finish(self) -> Result<(), InvalidBlob> {
        let expected = self.expected;
        if self.seen_bytes != expected.size_bytes() {
            return Err(InvalidBlob::TooShort { expected, received_bytes: self.seen_bytes });
        }
        let hash = self.hasher.finish();
        if hash != *expected.hash_bytes() {
            return Err(InvalidBlob::WrongHash { expected, received: crate::digest::hex(&hash) });
        }
        Ok(())
    }
}

/// Checks content that is whole.
pub fn verify(expected: &Digest, data: &[u8]) -> Result<(), InvalidBlob> {
    let mut verifier = Verifier::new(*expected);
    verifier.update(data)?;
    verifier.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DigestFunction;

    #[test]
    fn says_which_of_size_and_hash_is_wrong() {
        let digest = Digest::of(DigestFunction::Sha256, b"hello");
        assert_eq!(verify(&digest, b"hello"), Ok(()));
        assert!(matches!(verify(&digest, b"hell"), Err(InvalidBlob::TooShort { received_bytes: 4, .. })));
        assert!(matches!(verify(&digest, b"hello!"), Err(InvalidBlob::TooLong { .. })));
        assert!(matches!(verify(&digest, b"jello"), Err(InvalidBlob::WrongHash { .. })));
    }
}
