//! The way from the runtime to blocking file access.

use tokio::task::{JoinError, JoinHandle};

use crate::error::StorageError;

/// Runs `job` on the blocking pool.
pub(super) async fn run<T: Send + 'static>(
    job: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T, StorageError> {
    finish(tokio::task::spawn_blocking(job)).await
}

/// Waits for a job started earlier.
pub(super) async fn finish<T>(job: JoinHandle<Result<T, StorageError>>) -> Result<T, StorageError> {
    job.await.unwrap_or_else(|error| Err(job_failed(error)))
}

/// A job that panicked, or that the runtime dropped on its way down.
pub(super) fn job_failed(error: JoinError) -> StorageError {
    StorageError::io("finish a job on the blocking pool", std::io::Error::other(error))
}
