//! Digests: what names a blob, and how one is computed.
use crate::error::Failure;
use bytes::Bytes;
use pointsman_proto::rev2::{self, digest_function::Value};
use sha2::{Digest as _, Sha256, Sha384, Sha512};
use std::{fmt::Write as _, sync::Arc};

/// A checked digest: the hash is lower-case hexadecimal of the right length, so it can be part of a path.
/// Hashes of the functions served differ in length, so a blob needs no function beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Blob {
    hash: Arc<str>,
    pub(crate) size: u64,
}

impl Blob {
    pub(crate) fn hash(&self) -> &str {
        &self.hash
    }

    /// `blobs/HASH/SIZE`, as in resource names and `MISSING` violations.
    pub(crate) fn path(&self) -> String {
        format!("blobs/{}/{}", self.hash, self.size)
    }

    pub(crate) fn to_proto(&self) -> rev2::Digest {
        rev2::Digest { hash: self.hash.to_string(), size_bytes: self.size as i64 }
    }

    /// A blob from the name of a cache file, `None` when it is not one.
    pub(crate) fn from_parts(hash: &str, size: u64) -> Option<Self> {
        let hex = hash.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let known = [64, 96, 128].contains(&hash.len());
        (hex && known).then(|| Self { hash: hash.into(), size })
    }
}

/// The digest functions that this worker can compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Sha256,
    Sha384,
    Sha512,
}

impl Function {
    pub(crate) fn from_proto(value: i32) -> Result<Self, Failure> {
        match Value::try_from(value) {
            Ok(Value::Sha256) => Ok(Self::Sha256),
            Ok(Value::Sha384) => Ok(Self::Sha384),
            Ok(Value::Sha512) => Ok(Self::Sha512),
            other => {
                let name = other.map_or_else(|_| value.to_string(), |v| v.as_str_name().to_owned());
                Err(Failure::invalid(format!(
                    "the action uses digest function {name}, but this worker computes SHA256, SHA384 and SHA512"
                )))
            }
        }
    }

    pub(crate) fn to_proto(self) -> i32 {
        match self {
            Self::Sha256 => Value::Sha256 as i32,
            Self::Sha384 => Value::Sha384 as i32,
            Self::Sha512 => Value::Sha512 as i32,
        }
    }

    fn hex_len(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha384 => 96,
            Self::Sha512 => 128,
        }
    }

    /// The function that made a checked hash.
    pub(crate) fn of_hash(hash: &str) -> Self {
        match hash.len() {
            96 => Self::Sha384,
            128 => Self::Sha512,
            _ => Self::Sha256,
        }
    }

    pub(crate) fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher::Sha256(Sha256::new()),
            Self::Sha384 => Hasher::Sha384(Sha384::new()),
            Self::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }

    pub(crate) fn blob(self, data: &[u8]) -> Blob {
        let mut hasher = self.hasher();
        hasher.update(data);
        Blob { hash: hasher.finish().into(), size: data.len() as u64 }
    }

    /// Checks a digest that came over the wire; `what` names it in the error.
    pub(crate) fn check(self, what: &str, digest: Option<&rev2::Digest>) -> Result<Blob, Failure> {
        let digest = digest.ok_or_else(|| Failure::invalid(format!("{what} has no digest")))?;
        let size = u64::try_from(digest.size_bytes).ok();
        match Blob::from_parts(&digest.hash, size.unwrap_or_default()) {
            Some(blob) if size.is_some() && digest.hash.len() == self.hex_len() => Ok(blob),
            _ => Err(Failure::invalid(format!(
                "{what} has digest {:?}/{}, but a {self:?} digest is {} lower-case hexadecimal digits and a size",
                digest.hash,
                digest.size_bytes,
                self.hex_len()
            ))),
        }
    }
}

/// A hash being computed.
pub(crate) enum Hasher {
    Sha256(Sha256),
    Sha384(Sha384),
    Sha512(Sha512),
}

impl Hasher {
    pub(crate) fn update(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(h) => h.update(data),
            Self::Sha384(h) => h.update(data),
            Self::Sha512(h) => h.update(data),
        }
    }

    pub(crate) fn finish(self) -> String {
        match self {
            Self::Sha256(h) => hex(&h.finalize()),
            Self::Sha384(h) => hex(&h.finalize()),
            Self::Sha512(h) => hex(&h.finalize()),
        }
    }

    pub(crate) fn finish_blob(self, size: u64) -> Blob {
        Blob { hash: self.finish().into(), size }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether `data` is what `blob` names.
pub(crate) fn matches(blob: &Blob, data: &Bytes) -> bool {
    data.len() as u64 == blob.size && Function::of_hash(blob.hash()).blob(data) == *blob
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn computes_known_digests() {
        let blob = Function::Sha256.blob(b"abc");
        assert_eq!(blob.hash(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(blob.path(), format!("blobs/{}/3", blob.hash()));
        assert_eq!(Function::Sha384.blob(b"").hash().len(), 96);
        assert!(matches(&blob, &Bytes::from_static(b"abc")));
        assert!(!matches(&blob, &Bytes::from_static(b"abd")));
    }

    #[test]
    fn refuses_what_is_no_digest() {
        let good = Function::Sha256.blob(b"x").to_proto();
        let check = |hash: String, size_bytes| {
            Function::Sha256.check("it", Some(&rev2::Digest { hash, size_bytes })).map_err(|e| e.code)
        };
        assert!(check(good.hash.clone(), 1).is_ok());
        for (hash, size) in [
            (good.hash.clone(), -1),
            (good.hash.to_uppercase(), 1),
            (good.hash[1..].to_owned(), 1),
            (format!("../{}", &good.hash[3..]), 1),
            (Function::Sha512.blob(b"x").hash().to_owned(), 1),
        ] {
            assert_eq!(check(hash, size), Err(tonic::Code::InvalidArgument));
        }
        assert!(Function::from_proto(Value::Blake3 as i32).is_err());
        assert!(Function::from_proto(0).is_err());
    }
}
