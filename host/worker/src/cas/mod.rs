//! Client of content store and action cache: every call repeated while the storage can't be reached,
//! transfers bounded in number, whatever is read verified.
mod read;
mod write;

pub(crate) use read::Sink;
pub(crate) use write::Source;

use crate::{config::WorkerConfig, error::Failure};
use pointsman_digest::{Digest, DigestFunction};
use pointsman_proto::{
    bytestream::byte_stream_client::ByteStreamClient,
    is_passing,
    rev2::{
        self, ActionResult, GetCapabilitiesRequest, UpdateActionResultRequest,
        action_cache_client::ActionCacheClient, capabilities_client::CapabilitiesClient,
        content_addressable_storage_client::ContentAddressableStorageClient,
    },
};
use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::Semaphore;
use tonic::{Status, transport::Channel};

/// A call or a message of a stream that takes longer than this counts as lost.
const STALL: Duration = Duration::from_secs(60);
/// What a blob costs in a batch beside its bytes: digest, status and framing, generously.
const BATCH_OVERHEAD: u64 = 256;
/// Blobs above this go one by one, so that a batch never holds much memory for one of them.
const SMALL_MAX: u64 = 1 << 20;
/// More blobs than this make a batch slow rather than fast.
const BATCH_BLOBS_MAX: usize = 1000;

/// The connection to the storage, shared by all threads of a worker.
pub(crate) struct Cas {
    channel: Channel,
    message_max: usize,
    patience: Duration,
    transfers: Semaphore,
    batch_max: Mutex<HashMap<String, u64>>,
}

/// The storage as one action sees it: with its instance name and digest function.
#[derive(Clone)]
pub(crate) struct Store {
    cas: Arc<Cas>,
    instance: String,
    function: DigestFunction,
    batch_max: u64,
}

impl Cas {
    pub(crate) fn new(channel: Channel, config: &WorkerConfig) -> Arc<Self> {
        Arc::new(Self {
            channel,
            message_max: config.message_max_bytes,
            patience: config.storage_patience,
            transfers: Semaphore::new(config.transfers_max),
            batch_max: Mutex::default(),
        })
    }

    pub(crate) async fn store(self: &Arc<Self>, instance: String, function: DigestFunction) -> Store {
        let batch_max = self.batch_max(&instance).await;
        Store { cas: Arc::clone(self), instance, function, batch_max }
    }

    /// Bytes of a batch: what the server advertises, within what a message may hold. A server that does
    /// not answer gets what messages allow now and is asked again for the next action.
    async fn batch_max(&self, instance: &str) -> u64 {
        let lock = || self.batch_max.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = lock().get(instance) {
            return *known;
        }
        let own = (self.message_max - (self.message_max / 16).min(1 << 16)) as u64;
        let mut client = CapabilitiesClient::new(self.channel.clone());
        let call = client.get_capabilities(GetCapabilitiesRequest { instance_name: instance.to_owned() });
        match tokio::time::timeout(Duration::from_secs(5), call).await {
            Ok(Ok(reply)) => {
                let cache = reply.into_inner().cache_capabilities.unwrap_or_default();
                let advertised = u64::try_from(cache.max_batch_total_size_bytes).unwrap_or_default();
                let max = if advertised == 0 { own } else { own.min(advertised) };
                lock().insert(instance.to_owned(), max);
                max
            }
            _ => own,
        }
    }

    fn blobs(&self) -> ContentAddressableStorageClient<Channel> {
        let limit = self.message_max.max(4 << 20) + (1 << 20);
        ContentAddressableStorageClient::new(self.channel.clone()).max_decoding_message_size(limit)
    }

    fn streams(&self) -> ByteStreamClient<Channel> {
        let limit = self.message_max.max(4 << 20) + (1 << 20);
        ByteStreamClient::new(self.channel.clone()).max_decoding_message_size(limit)
    }

    /// Repeats `attempt` with growing pauses while its failures look passing and patience lasts.
    async fn retry<T, F>(&self, what: &str, mut attempt: impl FnMut() -> F) -> Result<T, Status>
    where
        F: Future<Output = Result<T, Status>>,
    {
        let mut pauses = Pauses::new(self.patience);
        loop {
            let outcome = match tokio::time::timeout(STALL, attempt()).await {
                Ok(outcome) => outcome,
                Err(_) => Err(Status::deadline_exceeded(format!("no answer in {STALL:?}"))),
            };
            match outcome {
                Err(status) => pauses.wait(what, status).await?,
                done => return done,
            }
        }
    }
}

impl Store {
    /// Splits what can go by batch into batches, and gives the rest for streams.
    fn split(&self, blobs: Vec<Digest>) -> (Vec<Vec<Digest>>, Vec<Digest>) {
        let small_max = SMALL_MAX.min(self.batch_max.saturating_sub(BATCH_OVERHEAD));
        let (mut batches, mut large) = (Vec::new(), Vec::new());
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for blob in blobs {
            if blob.size_bytes() > small_max {
                large.push(blob);
                continue;
            }
            let cost = blob.size_bytes() + BATCH_OVERHEAD;
            if !batch.is_empty() && (bytes + cost > self.batch_max || batch.len() == BATCH_BLOBS_MAX) {
                batches.push(std::mem::take(&mut batch));
                bytes = 0;
            }
            bytes += cost;
            batch.push(blob);
        }
        if !batch.is_empty() {
            batches.push(batch);
        }
        (batches, large)
    }

    /// Checks a digest that came over the wire; `what` names it in the error.
    pub(crate) fn digest(&self, what: &str, digest: Option<&rev2::Digest>) -> Result<Digest, Failure> {
        let digest = digest.ok_or_else(|| Failure::invalid(format!("{what} has no digest")))?;
        Digest::from_proto(self.function, digest)
            .map_err(|error| Failure::invalid(format!("{what}: {error}")))
    }

    /// Puts a result into the action cache.
    pub(crate) async fn update_action_result(
        &self,
        action_digest: rev2::Digest,
        result: ActionResult,
    ) -> Result<(), Failure> {
        let request = UpdateActionResultRequest {
            instance_name: self.instance.clone(),
            action_digest: Some(action_digest),
            action_result: Some(result),
            results_cache_policy: None,
            digest_function: self.function.to_proto().into(),
        };
        let doing = "writing the action cache";
        let attempt = || {
            let request = request.clone();
            async move {
                ActionCacheClient::new(self.cas.channel.clone()).update_action_result(request).await.map(drop)
            }
        };
        self.cas.retry(doing, attempt).await.map_err(|status| Failure::storage(doing, &status))
    }

    /// `INSTANCE/` or nothing.
    fn resource_prefix(&self) -> String {
        if self.instance.is_empty() { String::new() } else { format!("{}/", self.instance) }
    }
}

/// The pauses between attempts of one call: growing, random, and over when patience is.
struct Pauses {
    until: Instant,
    next: Duration,
}

impl Pauses {
    fn new(patience: Duration) -> Self {
        Self { until: Instant::now() + patience, next: Duration::from_millis(100) }
    }

    /// Waits before the next attempt, or gives the failure back when there should be none.
    async fn wait(&mut self, what: &str, status: Status) -> Result<(), Status> {
        if !is_passing(status.code()) || Instant::now() >= self.until {
            return Err(status);
        }
        tracing::debug!(what, code = %status.code(), error = status.message(), "storage call failed, trying again");
        tokio::time::sleep(self.next.mul_f64(0.5 + fastrand::f64())).await;
        self.next = (self.next * 2).min(Duration::from_secs(5));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_respect_bytes_and_count() {
        let endpoint = tonic::transport::Endpoint::from_static("http://127.0.0.1:1");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        let config = WorkerConfig::new("127.0.0.1:1", "w");
        let cas = Cas::new(endpoint.connect_lazy(), &config);
        let store =
            Store { cas, instance: String::new(), function: DigestFunction::Sha256, batch_max: 10_000 };
        let blob = |size: u64, n: u64| {
            Digest::new(DigestFunction::Sha256, &format!("{n:064x}"), size as i64).unwrap()
        };
        let (batches, large) = store.split((0..30).map(|n| blob(n * 500, n)).collect());
        assert!(large.iter().all(|b| b.size_bytes() > 10_000 - BATCH_OVERHEAD));
        assert_eq!(batches.iter().flatten().count() + large.len(), 30);
        for batch in &batches {
            assert!(batch.iter().map(|b| b.size_bytes() + BATCH_OVERHEAD).sum::<u64>() <= 10_000);
        }
        let (batches, _) = store.split((0..39 * 3).map(|n| blob(0, n)).collect());
        assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), [39, 39, 39]);
    }
}
