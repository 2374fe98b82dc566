//! Which gRPC status a failure of the storage or a malformed request gets. The only place that decides it.

use pointsman_proto::rpc::{self, PreconditionFailure, precondition_failure};
use pointsman_proto::{pack, rev2};
use pointsman_storage::{Digest, DigestError, DigestFunction, StorageError};
use prost_types::Any;
use tonic::{Code, Status};

/// The status for a failure of the storage.
///
/// A blob damaged while it was read is INTERNAL, not DATA_LOSS: clients try the first again, and are then told that
/// the blob is missing, from which they recover.
pub fn from_storage(error: &StorageError) -> Status {
    let code = match error {
        StorageError::NotFound { .. } => Code::NotFound,
        StorageError::TooLarge { .. } | StorageError::Invalid(_) | StorageError::Digest(_) => {
            Code::InvalidArgument
        }
        StorageError::OutOfRange { .. } => Code::OutOfRange,
        StorageError::Full { .. } => Code::ResourceExhausted,
        StorageError::Unavailable { .. } => Code::Unavailable,
        StorageError::Refused { .. } => Code::FailedPrecondition,
        StorageError::Corrupt { .. } | StorageError::Io { .. } => Code::Internal,
    };
    if matches!(code, Code::ResourceExhausted | Code::Internal) {
        tracing::warn!(%error, %code, "the storage failed a client");
    }
    Status::new(code, error.to_string())
}

/// The detail of a `FAILED_PRECONDITION` by which clients know which blob to upload (REv2, `Execution.Execute`).
pub fn missing(what: &str, digest: &Digest) -> Any {
    let violation = precondition_failure::Violation {
        r#type: "MISSING".to_owned(),
        subject: digest.path(),
        description: format!("the {what} is not in the storage"),
    };
    pack(&PreconditionFailure { violations: vec![violation] })
}

/// The status for a malformed digest.
pub fn from_digest(error: &DigestError) -> Status {
    Status::invalid_argument(error.to_string())
}

/// Reads the `digest_function` field of a request; `None` leaves it to the length of each hash.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the functions served.
pub fn digest_function(value: i32) -> Result<Option<DigestFunction>, Status> {
    DigestFunction::from_proto(value).map_err(|error| from_digest(&error))
}

/// Reads a digest field that must be set; `field` names it in the error.
///
/// # Errors
/// `INVALID_ARGUMENT` that says what is wrong with it.
pub fn digest_field(
    function: impl Into<Option<DigestFunction>>,
    field: &'static str,
    digest: Option<&rev2::Digest>,
) -> Result<Digest, Status> {
    Digest::from_field(function, field, digest).map_err(|error| match error {
        DigestError::Unset { .. } => from_digest(&error),
        other => Status::invalid_argument(format!("{field}: {other}")),
    })
}

/// The same status as a message, for answers that hold one per blob.
pub fn to_message(result: &Result<(), Status>) -> rpc::Status {
    match result {
        Ok(()) => rpc::Status::default(),
        Err(status) => rpc::Status {
            code: status.code() as i32,
            message: status.message().to_owned(),
            ..Default::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_storage::InvalidBlob;

    #[test]
    fn every_failure_has_its_code() {
        let digest = Digest::of(DigestFunction::Sha256, b"x");
        let cases = [
            (StorageError::NotFound { digest }, Code::NotFound),
            (StorageError::TooLarge { digest, max_bytes: 1 }, Code::InvalidArgument),
            (StorageError::OutOfRange { digest, offset: 9 }, Code::OutOfRange),
            (InvalidBlob::TooLong { expected: digest }.into(), Code::InvalidArgument),
            (StorageError::Full { reason: String::new() }, Code::ResourceExhausted),
            (StorageError::Unavailable { reason: String::new() }, Code::Unavailable),
            (StorageError::Refused { reason: String::new() }, Code::FailedPrecondition),
            (StorageError::Corrupt { digest, problem: String::new() }, Code::Internal),
            (StorageError::io("x", std::io::Error::from_raw_os_error(28)), Code::ResourceExhausted),
            (StorageError::io("x", std::io::Error::from_raw_os_error(13)), Code::Internal),
        ];
        for (error, code) in cases {
            assert_eq!(from_storage(&error).code(), code, "{error}");
        }
    }

    #[test]
    fn digests_that_are_wrong_name_their_field_once() {
        let read = |digest| digest_field(DigestFunction::Sha256, "action_digest", digest).unwrap_err();
        assert_eq!(read(None).message(), "action_digest is not set");
        let short = rev2::Digest { hash: "ab".into(), size_bytes: 1 };
        assert_eq!(
            read(Some(&short)).message(),
            "action_digest: hash \"ab\" has 2 characters, a SHA256 hash has 64"
        );
    }
}
