//! Names of blobs: digest function, hash and size.

use std::fmt;
use std::str::FromStr;

use pointsman_proto::rev2;
use thiserror::Error;

use crate::verify::Verifier;

/// Bytes of the longest hash that is served.
const HASH_BYTES: usize = 32;

/// How a blob's hash is computed. Only functions that are served exist here; adding one is adding a variant and
/// its arms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum DigestFunction {
    /// SHA-256, the function that every client speaks.
    Sha256,
}

impl DigestFunction {
    /// Every function that is served, the default one first.
    pub const SERVED: &'static [DigestFunction] = &[DigestFunction::Sha256];

    /// Reads the `digest_function` field of a request. 0 (unset, as old clients and Pants send it) means SHA-256:
    /// a hash of another length is refused when the digest itself is read.
    pub fn from_proto(value: i32) -> Result<Self, DigestError> {
        use rev2::digest_function::Value;
        match Value::try_from(value) {
            Ok(Value::Unknown | Value::Sha256) => Ok(Self::Sha256),
            Ok(other) => Err(DigestError::FunctionNotServed { asked: other.as_str_name().to_owned() }),
            Err(_) => Err(DigestError::FunctionNotServed { asked: format!("number {value}") }),
        }
    }

    /// The protocol's value for this function.
    pub fn to_proto(self) -> rev2::digest_function::Value {
        match self {
            Self::Sha256 => rev2::digest_function::Value::Sha256,
        }
    }

    /// The name in capitals, as the protocol's enum has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SHA256",
        }
    }

    /// The name in lower case, as resource names and the embedded store's folders have it.
    pub fn path_name(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
        }
    }

    /// Hexadecimal digits of a hash.
    pub fn hash_digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
        }
    }

    /// The names of all functions that are served, for error texts: `SHA256`.
    pub fn served_names() -> String {
        Self::SERVED.iter().map(|function| function.name()).collect::<Vec<_>>().join(", ")
    }
}

/// The name of a blob. Two digests are equal when function, hash and size are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    function: DigestFunction,
    hash: [u8; HASH_BYTES],
    size_bytes: u64,
}

impl Digest {
    /// Makes a digest of a hash in lower-case hexadecimal digits and a size in bytes (0 to 2^63 - 1).
    pub fn new(function: DigestFunction, hash: &str, size_bytes: i64) -> Result<Self, DigestError> {
        let size_bytes = u64::try_from(size_bytes)
            .map_err(|_| DigestError::NegativeSize { hash: shorten(hash), size_bytes })?;
        if hash.len() != function.hash_digits() {
            return Err(DigestError::HashLength { hash: shorten(hash), length: hash.len(), function });
        }
        let mut bytes = [0; HASH_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hash.as_bytes().chunks_exact(2)) {
            match (hex_value(pair[0]), hex_value(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(DigestError::HashNotHex { hash: shorten(hash) }),
            }
        }
        Ok(Self { function, hash: bytes, size_bytes })
    }

    /// Reads a digest message.
    pub fn from_proto(function: DigestFunction, digest: &rev2::Digest) -> Result<Self, DigestError> {
        Self::new(function, &digest.hash, digest.size_bytes)
    }

    /// Reads a digest field that must be set; `field` names it in the error.
    pub fn from_field(
        function: DigestFunction,
        field: &'static str,
        digest: Option<&rev2::Digest>,
    ) -> Result<Self, DigestError> {
        Self::from_proto(function, digest.ok_or(DigestError::Unset { field })?)
    }

    /// Computes the digest of `data`.
    pub fn of(function: DigestFunction, data: &[u8]) -> Self {
        let mut hasher = Hasher::new(function);
        hasher.update(data);
        Self { function, hash: hasher.finish(), size_bytes: data.len() as u64 }
    }

    /// The protocol's message for this digest.
    pub fn to_proto(&self) -> rev2::Digest {
        rev2::Digest { hash: self.hash_hex(), size_bytes: self.size_bytes as i64 }
    }

    /// The function that the hash was computed with.
    pub fn function(&self) -> DigestFunction {
        self.function
    }

    /// The hash in lower-case hexadecimal digits.
    pub fn hash_hex(&self) -> String {
        hex(&self.hash)
    }

    /// The hash as bytes.
    pub fn hash_bytes(&self) -> &[u8] {
        &self.hash
    }

    /// Size of the blob in bytes, uncompressed; at most 2^63 - 1.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether this names the empty blob, which always exists. A digest of size 0 with another hash names nothing.
    pub fn is_empty_blob(&self) -> bool {
        self.size_bytes == 0 && Verifier::new(*self).finish().is_ok()
    }
}

/// `HASH/SIZE`, as in resource names and in what clients print.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.hash_hex(), self.size_bytes)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.function.path_name())
    }
}

/// A hash being computed.
#[derive(Clone)]
pub(crate) enum Hasher {
    Sha256(sha2::Sha256),
}

impl Hasher {
    pub(crate) fn new(function: DigestFunction) -> Self {
        match function {
            DigestFunction::Sha256 => Self::Sha256(sha2::Digest::new()),
        }
    }

    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(hasher) => sha2::Digest::update(hasher, data),
        }
    }

    pub(crate) fn finish(self) -> [u8; HASH_BYTES] {
        match self {
            Self::Sha256(hasher) => sha2::Digest::finalize(hasher).into(),
        }
    }
}

/// What is wrong with a digest that a client sent.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum DigestError {
    /// The request names a digest function that is not served.
    #[error("digest function {asked} is not served; served: {}", DigestFunction::served_names())]
    FunctionNotServed {
        /// What the request says.
        asked: String,
    },
    /// A digest field that must be set is not.
    #[error("{field} is not set")]
    Unset {
        /// The field's name.
        field: &'static str,
    },
    /// The hash is too long or too short for its function.
    #[error("hash {hash:?} has {length} characters, a {} hash has {}", function.name(), function.hash_digits())]
    HashLength {
        /// The hash as sent, shortened when very long.
        hash: String,
        /// Its length in bytes.
        length: usize,
        /// The function it is read with.
        function: DigestFunction,
    },
    /// The hash has other characters than 0-9 and a-f.
    #[error("hash {hash:?} is not made of lower-case hexadecimal digits")]
    HashNotHex {
        /// The hash as sent, shortened when very long.
        hash: String,
    },
    /// The size is below zero.
    #[error("size {size_bytes} of the blob with hash {hash:?} is negative")]
    NegativeSize {
        /// The hash as sent, shortened when very long.
        hash: String,
        /// The size as sent.
        size_bytes: i64,
    },
    /// A text is not of the form `HASH/SIZE`.
    #[error("{text:?} is not of the form HASH/SIZE")]
    NotHashSize {
        /// The text as given, shortened when very long.
        text: String,
    },
}

/// Reads `HASH/SIZE`, hash by SHA-256.
impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let malformed = || DigestError::NotHashSize { text: shorten(text) };
        let (hash, size) = text.split_once('/').ok_or_else(malformed)?;
        // Digits only: the standard parser takes a plus sign as well.
        let digits = size.bytes().all(|byte| byte.is_ascii_digit());
        let bytes = size.parse().ok().filter(|_| digits).ok_or_else(malformed)?;
        Self::new(DigestFunction::Sha256, hash, bytes)
    }
}

/// Lower-case hexadecimal digits of `bytes`.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(DIGITS[usize::from(byte >> 4)] as char);
        text.push(DIGITS[usize::from(byte & 15)] as char);
    }
    text
}

fn hex_value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A client's text, cut so that it can't fill a log line.
fn shorten(text: &str) -> String {
    const MAX_CHARS: usize = 80;
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn error(hash: &str, size: i64) -> String {
        Digest::new(DigestFunction::Sha256, hash, size).unwrap_err().to_string()
    }

    #[test]
    fn computes_and_prints() {
        let digest = Digest::of(DigestFunction::Sha256, b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad/3";
        assert_eq!(digest.to_string(), text);
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert_eq!(Digest::from_proto(DigestFunction::Sha256, &digest.to_proto()).unwrap(), digest);
    }

    #[test]
    fn only_the_right_hash_of_size_zero_is_the_empty_blob() {
        assert!(Digest::new(DigestFunction::Sha256, EMPTY, 0).unwrap().is_empty_blob());
        assert!(!Digest::new(DigestFunction::Sha256, EMPTY, 1).unwrap().is_empty_blob());
        assert!(!Digest::new(DigestFunction::Sha256, &"0".repeat(64), 0).unwrap().is_empty_blob());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(error("abc", 1), "hash \"abc\" has 3 characters, a SHA256 hash has 64");
        assert!(error(&EMPTY.to_uppercase(), 1).ends_with("is not made of lower-case hexadecimal digits"));
        assert!(error(EMPTY, -1).starts_with("size -1 of the blob"));
        assert!(error(&"ü".repeat(500), 1).len() < 300);
        assert_eq!(
            Digest::from_field(DigestFunction::Sha256, "action_digest", None).unwrap_err().to_string(),
            "action_digest is not set"
        );
        assert_eq!(
            DigestFunction::from_proto(2).unwrap_err().to_string(),
            "digest function SHA1 is not served; served: SHA256"
        );
        assert_eq!(
            DigestFunction::from_proto(77).unwrap_err().to_string(),
            "digest function number 77 is not served; served: SHA256"
        );
    }

    #[test]
    fn an_unset_function_is_sha256() {
        assert_eq!(DigestFunction::from_proto(0), Ok(DigestFunction::Sha256));
        assert_eq!(DigestFunction::from_proto(1), Ok(DigestFunction::Sha256));
    }
}
