//! The digest: a checked name of a blob.

use std::fmt;
use std::str::FromStr;

use pointsman_proto::rev2;

use crate::error::DigestError;
use crate::function::DigestFunction;
use crate::hasher::Hasher;

/// Bytes of the longest hash that is served.
pub(crate) const HASH_BYTES: usize = 64;

/// The name of a blob. Two digests are equal when function, hash and size are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    function: DigestFunction,
    /// Zeros follow a hash that is shorter.
    hash: [u8; HASH_BYTES],
    size_bytes: u64,
}

impl Digest {
    /// Makes a digest of a hash in lower-case hexadecimal digits and a size in bytes (0 to 2^63 - 1). Without a
    /// function, the length of the hash tells it.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn new(
        function: impl Into<Option<DigestFunction>>,
        hash: &str,
        size_bytes: i64,
    ) -> Result<Self, DigestError> {
        let size_bytes = u64::try_from(size_bytes)
            .map_err(|_| DigestError::NegativeSize { hash: shorten(hash), size_bytes })?;
        let length = hash.len();
        let function = match function.into() {
            Some(function) if function.hash_digits() != length => {
                return Err(DigestError::HashLength { hash: shorten(hash), length, function });
            }
            Some(function) => function,
            None => DigestFunction::of_length(length)
                .ok_or_else(|| DigestError::NoFunction { hash: shorten(hash), length })?,
        };
        let mut bytes = [0; HASH_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(hash.as_bytes().chunks_exact(2)) {
            match (hex_value(pair[0]), hex_value(pair[1])) {
                (Some(high), Some(low)) => *byte = high << 4 | low,
                _ => return Err(DigestError::HashNotHex { hash: shorten(hash) }),
            }
        }
        Ok(Self { function, hash: bytes, size_bytes })
    }

    pub(crate) fn of_parts(function: DigestFunction, hash: [u8; HASH_BYTES], size_bytes: u64) -> Self {
        Self { function, hash, size_bytes }
    }

    /// Reads a digest message.
    ///
    /// # Errors
    /// As [`Digest::new`].
    pub fn from_proto(
        function: impl Into<Option<DigestFunction>>,
        digest: &rev2::Digest,
    ) -> Result<Self, DigestError> {
        Self::new(function, &digest.hash, digest.size_bytes)
    }

    /// Reads a digest field that must be set; `field` names it in the error.
    ///
    /// # Errors
    /// It is not set, or as [`Digest::new`].
    pub fn from_field(
        function: impl Into<Option<DigestFunction>>,
        field: &'static str,
        digest: Option<&rev2::Digest>,
    ) -> Result<Self, DigestError> {
        Self::from_proto(function, digest.ok_or(DigestError::Unset { field })?)
    }

    /// Computes the digest of `data`.
    pub fn of(function: DigestFunction, data: &[u8]) -> Self {
        let mut hasher = Hasher::new(function);
        hasher.update(data);
        hasher.finish()
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
        hex(self.hash_bytes())
    }

    /// The hash as bytes.
    pub fn hash_bytes(&self) -> &[u8] {
        &self.hash[..self.function.hash_digits() / 2]
    }

    /// Size of the blob in bytes, uncompressed; at most 2^63 - 1.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether this names the empty blob, which always exists. A digest of size 0 with another hash names nothing.
    pub fn is_empty_blob(&self) -> bool {
        self.size_bytes == 0 && *self == Self::of(self.function, b"")
    }

    /// `blobs/[FUNCTION/]HASH/SIZE`, as in names of `ByteStream` and in `MISSING` violations: with the function when
    /// the length of the hash does not tell it (REv2, `ByteStream` resource names).
    pub fn path(&self) -> String {
        match self.function.is_told_by_length() {
            true => format!("blobs/{self}"),
            false => format!("blobs/{}/{self}", self.function.path_name()),
        }
    }

    /// `HASH-SIZE`, for files named by their content.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.hash_hex(), self.size_bytes)
    }

    /// Reads [`Digest::file_name`] back; `None` for names that it does not give.
    pub fn from_file_name(function: DigestFunction, name: &str) -> Option<Self> {
        let (hash, size) = name.split_once('-')?;
        let digest = Self::new(function, hash, size.parse().ok()?).ok()?;
        // "007" and "+7" parse as well.
        (digest.size_bytes.to_string() == size).then_some(digest)
    }
}

/// `HASH/SIZE`, as clients print it.
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

/// Reads `HASH/SIZE`, the function told by the length of the hash.
impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let malformed = || DigestError::NotHashSize { text: shorten(text) };
        let (hash, size) = text.split_once('/').ok_or_else(malformed)?;
        // Digits only: the standard parser takes a plus sign as well.
        let digits = size.bytes().all(|byte| byte.is_ascii_digit());
        let bytes = size.parse().ok().filter(|_| digits).ok_or_else(malformed)?;
        Self::new(None, hash, bytes)
    }
}

/// Lower-case hexadecimal digits of `bytes`.
fn hex(bytes: &[u8]) -> String {
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
    use crate::DigestFunction::*;

    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn error(hash: &str, size: i64) -> String {
        Digest::new(Sha256, hash, size).unwrap_err().to_string()
    }

    #[test]
    fn computes_what_the_functions_define() {
        for (function, hash) in [
            (Sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
            (Sha1, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                Sha384,
                "cb00753f45a35e8bb5a03d699ac65007272c32ab0eded1631a8b605a43ff5bed8086072ba1e7cc2358baeca134c825a7",
            ),
            (
                Sha512,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
            (Md5, "900150983cd24fb0d6963f7d28e17f72"),
            (Blake3, "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        ] {
            let digest = Digest::of(function, b"abc");
            assert_eq!((digest.hash_hex().as_str(), digest.size_bytes()), (hash, 3));
            assert_eq!(Digest::from_proto(function, &digest.to_proto()), Ok(digest));
            assert_eq!(Digest::from_file_name(function, &digest.file_name()), Some(digest));
            assert!(Digest::new(function, &Digest::of(function, b"").hash_hex(), 0).unwrap().is_empty_blob());
            let told = digest.to_string().parse::<Digest>().unwrap();
            assert_eq!(told == digest, function != Blake3);
            let path =
                if function == Blake3 { format!("blobs/blake3/{hash}/3") } else { format!("blobs/{hash}/3") };
            assert_eq!(digest.path(), path);
        }
    }

    #[test]
    fn functions_with_hashes_of_one_length_are_kept_apart() {
        let hash = "0".repeat(64);
        let [sha, blake] = [Sha256, Blake3].map(|function| Digest::new(function, &hash, 1).unwrap());
        assert_ne!(sha, blake);
        assert_eq!(Digest::new(None, &hash, 1), Ok(sha));
    }

    #[test]
    fn only_the_right_hash_of_size_zero_is_the_empty_blob() {
        assert!(Digest::new(Sha256, EMPTY, 0).unwrap().is_empty_blob());
        assert!(!Digest::new(Sha256, EMPTY, 1).unwrap().is_empty_blob());
        assert!(!Digest::new(Blake3, EMPTY, 0).unwrap().is_empty_blob());
        assert!(!Digest::new(Sha256, &"0".repeat(64), 0).unwrap().is_empty_blob());
    }

    #[test]
    fn errors_say_what_is_wrong() {
        assert_eq!(error("abc", 1), "hash \"abc\" has 3 characters, a SHA256 hash has 64");
        assert_eq!(
            Digest::new(None, "abc", 1).unwrap_err().to_string(),
            "hash \"abc\" has 3 characters, which tells no digest function; served: SHA256 64, SHA1 40, \
             SHA384 96, SHA512 128, MD5 32"
        );
        assert!(error(&EMPTY.to_uppercase(), 1).ends_with("is not made of lower-case hexadecimal digits"));
        assert!(error(EMPTY, -1).starts_with("size -1 of the blob"));
        assert!(error(&"ü".repeat(500), 1).len() < 300);
        let unset = Digest::from_field(Sha256, "action_digest", None).unwrap_err();
        assert_eq!(unset.to_string(), "action_digest is not set");
    }

    #[test]
    fn names_of_files_have_one_form() {
        let name = Digest::of(Md5, b"abc").file_name();
        assert!(Digest::from_file_name(Md5, &name.replace("-3", "-03")).is_none());
        assert!(Digest::from_file_name(Sha1, &name).is_none());
    }
}
