//! One call, made again while that may help, and what its failure means.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder, Retryable as _};
use pointsman_digest::Digest;
use pointsman_proto::is_passing;
use tonic::{Code, Status};

use super::RemoteStorage;
use crate::error::StorageError;

impl RemoteStorage {
    /// Makes a call until it succeeds, fails for good, or patience is over.
    pub(super) async fn call<T, F>(&self, doing: &str, attempt: impl FnMut() -> F) -> Result<T, StorageError>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let patience = self.remote.config.patience;
        let attempts = attempt.retry(self.backoff()).when(|status| is_passing(status.code())).notify(|status, pause| {
            tracing::debug!(doing, code = %status.code(), error = status.message(), ?pause, "trying again");
        });
        match tokio::time::timeout(patience, attempts).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(status)) => Err(self.failure(doing, &status)),
            Err(_) => Err(self.silence(doing)),
        }
    }

    /// The pauses between attempts; patience is measured beside them.
    pub(super) fn pauses(&self) -> impl Iterator<Item = Duration> + Send + use<> {
        self.backoff().build()
    }

    fn backoff(&self) -> ExponentialBuilder {
        ExponentialBuilder::default()
            .with_min_delay(Duration::from_millis(50))
            .with_max_delay(Duration::from_secs(2))
            .without_max_times()
            .with_total_delay(Some(self.remote.config.patience))
            .with_jitter()
    }

    /// What a status of the store means to those who asked us.
    pub(super) fn failure(&self, doing: &str, status: &Status) -> StorageError {
        let address = &self.remote.config.address;
        let reason = format!("{doing} at {address}: {:?}: {}", status.code(), status.message());
        match status.code() {
            // Of a store: its disk is full, or a quota is used up.
            Code::ResourceExhausted => StorageError::Full { reason },
            code if is_passing(code) => StorageError::Unavailable { reason },
            _ => StorageError::Refused { reason },
        }
    }

    pub(super) fn failure_of(&self, digest: &Digest, doing: &str, status: &Status) -> StorageError {
        match status.code() {
            Code::NotFound => StorageError::NotFound { digest: *digest },
            _ => self.failure(doing, status),
        }
    }

    /// Nothing came within patience.
    pub(super) fn silence(&self, doing: &str) -> StorageError {
        let config = &self.remote.config;
        self.remote.connection.was_silent();
        let reason = format!("{doing} at {}: no answer in {:?}", config.address, config.patience);
        StorageError::Unavailable { reason }
    }
}
