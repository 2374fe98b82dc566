//! Why a worker could not start, and why an action could not be carried out.
use crate::query::QueryError;
use pointsman_digest::Digest;
use pointsman_proto::{pack, rpc};
use std::{io, path::PathBuf};
use tonic::Code;

/// Why a worker could not start. Nothing that happens later ends a worker but its shutdown.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The address of the scheduler or of the storage is of no use.
    #[error("address {address:?} of the {role} can't be used: {reason}; give HOST:PORT or grpc://HOST:PORT")]
    Address {
        /// `scheduler` or `storage`.
        role: &'static str,
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting is outside its range.
    #[error("{key} is {value}, which is not {wanted}")]
    Setting {
        /// Name of the setting.
        key: &'static str,
        /// What was given.
        value: String,
        /// What would do.
        wanted: &'static str,
    },
    /// The work directory could not be prepared.
    #[error("{step} {} failed: {source}; the worker needs a directory of its own that it may write to", path.display())]
    WorkDir {
        /// What was tried.
        step: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another worker uses the work directory.
    #[error("work directory {} is in use by another worker; give each worker its own", path.display())]
    InUse {
        /// The directory.
        path: PathBuf,
    },
    /// Actions can't be run in a sandbox here, and the settings say that they are to be.
    #[error(
        "the strategy sandboxed can't be offered: {reason}; install bubblewrap and let it make user namespaces, or don't \
         name sandboxed among the worker's strategies"
    )]
    Sandbox {
        /// What is in the way.
        reason: String,
    },
    /// A command that was to tell a platform property did not.
    #[error(transparent)]
    Query(#[from] QueryError),
}

/// Why an action has no proper end: becomes `ExecuteResponse.status`.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    message: String,
    missing: Vec<Digest>,
    /// This machine's disk is full: freeing some of it may help.
    pub(crate) disk_full: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), missing: Vec::new(), disk_full: false }
    }

    /// The fault of who wrote the action: running it elsewhere would not help.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidArgument, message)
    }

    /// Blobs that the client has to upload (again).
    pub(crate) fn missing(missing: Vec<Digest>) -> Self {
        let first = missing.first().map(|blob| blob.path()).unwrap_or_default();
        let message = match missing.len() {
            1 => format!("{first} is not in the content store; upload it and execute again"),
            n => format!(
                "{n} blobs are not in the content store, first {first}; upload them and execute again"
            ),
        };
        Self { code: Code::FailedPrecondition, message, missing, disk_full: false }
    }

    /// A file operation of the worker itself went wrong. A full disk is told apart, because there another
    /// worker can do better.
    pub(crate) fn io(doing: impl std::fmt::Display, error: &io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::OutOfMemory => {
                Code::ResourceExhausted
            }
            _ => Code::Internal,
        };
        let disk_full = error.kind() == io::ErrorKind::StorageFull;
        Self { disk_full, ..Self::new(code, format!("{doing} on the worker failed: {error}")) }
    }

    /// A call to the storage failed for good. Codes that clients take for a verdict on the action itself
    /// (they would not try again) become `INTERNAL`; a full or absent storage keeps its code.
    pub(crate) fn storage(doing: &str, status: &tonic::Status) -> Self {
        let code = match status.code() {
            code @ (Code::ResourceExhausted | Code::Unavailable) => code,
            Code::DeadlineExceeded | Code::Cancelled | Code::Aborted | Code::Unknown => Code::Unavailable,
            _ => Code::Internal,
        };
        Self::new(code, format!("{doing} failed: storage says {}: {}", status.code(), status.message()))
    }

    /// A blocking part of the worker panicked or was stopped with the runtime.
    pub(crate) fn join(doing: &str, error: &tokio::task::JoinError) -> Self {
        Self::new(Code::Internal, format!("{doing} on the worker failed: {error}"))
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// As clients read it: `MISSING` violations with subject `blobs/HASH/SIZE` (REv2, `Execution.Execute`).
    pub(crate) fn into_status(self) -> rpc::Status {
        let violation = |blob: &Digest| rpc::precondition_failure::Violation {
            r#type: "MISSING".into(),
            subject: blob.path(),
            description: String::new(),
        };
        let violations: Vec<_> = self.missing.iter().map(violation).collect();
        let details = if violations.is_empty() {
            Vec::new()
        } else {
            vec![pack(&rpc::PreconditionFailure { violations })]
        };
        rpc::Status { code: self.code as i32, message: clipped(self.message), details }
    }
}

/// Messages hold names that clients gave, of any length. They are for people, and a header of a client may be
/// as small as 8 KiB.
fn clipped(mut message: String) -> String {
    if message.len() > MESSAGE_MAX_BYTES {
        message.truncate(message.floor_char_boundary(MESSAGE_MAX_BYTES));
        message.push('…');
    }
    message
}

const MESSAGE_MAX_BYTES: usize = 2000;
