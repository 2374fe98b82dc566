//! The one error type of the storage.

use std::io;

use pointsman_digest::{Digest, DigestError};
use thiserror::Error;

/// Why the storage could not do what was asked. The server maps each variant to one gRPC code, in one place.
#[derive(Debug, Error)]
pub enum StorageError {
    /// The blob is not here (never uploaded, evicted, or found damaged and removed).
    #[error("blob {digest} not found: upload it first")]
    NotFound {
        /// What was asked for.
        digest: Digest,
    },
    /// A blob that was to be read whole is larger than the reader takes.
    #[error("blob {digest} is larger than {max_bytes} bytes, the most that is read at once")]
    TooLarge {
        /// What was asked for.
        digest: Digest,
        /// The reader's limit in bytes.
        max_bytes: u64,
    },
    /// A read begins behind the end of the blob.
    #[error("offset {offset} is behind the end of blob {digest}")]
    OutOfRange {
        /// What was asked for.
        digest: Digest,
        /// The offset asked for, in bytes.
        offset: u64,
    },
    /// An upload is not the blob that it claims to be.
    #[error(transparent)]
    Invalid(#[from] InvalidBlob),
    /// A digest inside a message is malformed.
    #[error(transparent)]
    Digest(#[from] DigestError),
    /// There is no room: the disk or the quota is used up, or the blob is larger than the whole store may be.
    #[error("storage is full: {reason}")]
    Full {
        /// What is full, and what to do.
        reason: String,
    },
    /// Content got damaged while it was being read, after part of it was handed out.
    #[error("blob {digest} is damaged on disk: {problem}; it is no longer served, upload it again")]
    Corrupt {
        /// What was being read.
        digest: Digest,
        /// How the damage showed.
        problem: String,
    },
    /// A remote store can't be reached now; trying again may help.
    #[error("storage is unavailable: {reason}")]
    Unavailable {
        /// What failed.
        reason: String,
    },
    /// A remote store refuses what it is asked, and would again.
    #[error("storage refuses: {reason}")]
    Refused {
        /// What was asked, and its words.
        reason: String,
    },
    /// The operating system refused something.
    #[error("storage failed to {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
}

/// How an upload differs from the blob that it claims to be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidBlob {
    /// Fewer bytes than the digest says.
    #[error("wrong size: blob {expected} was uploaded with only {received_bytes} bytes")]
    TooShort {
        /// What was claimed.
        expected: Digest,
        /// Bytes that came.
        received_bytes: u64,
    },
    /// More bytes than the digest says.
    #[error("wrong size: blob {expected} was uploaded with more bytes than its digest says")]
    TooLong {
        /// What was claimed.
        expected: Digest,
    },
    /// The right number of bytes, with another hash.
    #[error("wrong hash: content uploaded as {expected} has the hash {received}")]
    WrongHash {
        /// What was claimed.
        expected: Digest,
        /// The hash of what came, in hexadecimal digits.
        received: String,
    },
}

impl StorageError {
    /// Wraps an error of the system. Running out of space is its own kind, since the answer to it differs.
    pub fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let doing = doing.into();
        match source.kind() {
            io::ErrorKind::StorageFull => Self::Full {
                reason: format!(
                    "no space left on the disk ({doing}); free some or lower the storage's bound"
                ),
            },
            io::ErrorKind::QuotaExceeded => Self::Full {
                reason: format!("disk quota used up ({doing}); raise it or lower the storage's bound"),
            },
            io::ErrorKind::FileTooLarge => Self::Full {
                reason: format!("the file system or a process limit allows no file that large ({doing})"),
            },
            _ => Self::Io { doing, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_of_space_is_full_and_nothing_else_is() {
        // Numbers of Linux: ENOSPC, EDQUOT, EFBIG; EACCES for contrast.
        for (number, text) in [(28, "no space left"), (122, "quota"), (27, "no file that large")] {
            let error = StorageError::io("write x", io::Error::from_raw_os_error(number));
            assert!(matches!(&error, StorageError::Full { reason } if reason.contains(text)), "{error}");
        }
        let error = StorageError::io("write x", io::Error::from_raw_os_error(13));
        assert!(matches!(error, StorageError::Io { .. }));
    }
}
