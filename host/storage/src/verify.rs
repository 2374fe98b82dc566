//! Checks content against its digest.

use pointsman_digest::{Digest, Hasher};

use crate::error::InvalidBlob;

/// Checks content that arrives in pieces.
pub struct Verifier {
    expected: Digest,
    hasher: Hasher,
}

impl Verifier {
    /// Begins the check of content that is claimed to be `expected`.
    pub fn new(expected: Digest) -> Self {
        Self { expected, hasher: Hasher::new(expected.function()) }
    }

    /// Takes the next piece. Fails as soon as there are more bytes than the digest says.
    pub fn update(&mut self, piece: &[u8]) -> Result<(), InvalidBlob> {
        if self.seen_bytes() + piece.len() as u64 > self.expected.size_bytes() {
            return Err(InvalidBlob::TooLong { expected: self.expected });
        }
        self.hasher.update(piece);
        Ok(())
    }

    /// Bytes seen up to now.
    pub fn seen_bytes(&self) -> u64 {
        self.hasher.size_bytes()
    }

    /// Ends the check: size first, since a truncated upload is the common mistake and has a wrong hash as well.
    pub fn finish(self) -> Result<(), InvalidBlob> {
        let expected = self.expected;
        let received = self.hasher.finish();
        if received.size_bytes() != expected.size_bytes() {
            return Err(InvalidBlob::TooShort { expected, received_bytes: received.size_bytes() });
        }
        if received != expected {
            return Err(InvalidBlob::WrongHash { expected, received: received.hash_hex() });
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
