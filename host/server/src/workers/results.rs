//! The action cache, as work is handed out and results come back.

use std::sync::Arc;
use std::time::Duration;

use pointsman_proto::rev2::{ActionResult, ExecuteResponse};
use pointsman_scheduler::event::{Report, Verdict};
use pointsman_storage::{Digest, DigestFunction, Storage};

use crate::config::ActionCache;
use crate::driver::{Driver, Payload, WorkerCall};
use crate::rev2::action_cache;

/// Looks once more, and writes for workers that don't.
pub(super) struct Results {
    driver: Arc<Driver>,
    storage: Arc<dyn Storage>,
    config: ActionCache,
}

/// How long a worker waits for the storage to say whether it has a result: executing is always right.
const LOOK_MAX: Duration = Duration::from_secs(2);
/// How long a result waits to be written before its client gets it.
const WRITE_MAX: Duration = Duration::from_secs(5);

impl Results {
    pub(super) fn new(driver: Arc<Driver>, storage: Arc<dyn Storage>, config: ActionCache) -> Self {
        Self { driver, storage, config }
    }

    /// What a worker was given and has not heard of yet is over: its result was found in the action cache.
    pub(super) async fn answers(&self, worker: &str, payload: &Arc<Payload>) -> bool {
        let now = self.driver.clock().now();
        if !payload.cache_look.is_due(now, self.config.look_again_after) {
            return false;
        }
        let Some(digest) = action_digest(payload) else { return false };
        let look = action_cache::look_up(&*self.storage, &payload.instance_name, &digest);
        let Ok(Some(found)) = tokio::time::timeout(LOOK_MAX, look).await else { return false };
        self.driver.answer_from_cache(worker, payload, &found)
    }

    /// Writes the result that a call brings, if that is wanted and it is one to keep: a success, of an action that may be
    /// cached, by the worker that was given it.
    pub(super) async fn write(&self, call: &WorkerCall) {
        if !self.config.write_results {
            return;
        }
        let Report::Completed(digest, Verdict::Answer) = &call.report else { return };
        let Some(result) = call.response.as_ref().and_then(success) else { return };
        let Some(given) = self.driver.given_to(&call.worker, digest) else { return };
        let payload = given.payload;
        let Some(digest) = action_digest(&payload).filter(|_| !payload.action.do_not_cache) else { return };
        let write = self.storage.update_action_result(&payload.instance_name, &digest, result);
        let error = match tokio::time::timeout(WRITE_MAX, write).await {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("the storage did not answer within {WRITE_MAX:?}"),
        };
        tracing::warn!(%digest, error, "a result could not be written to the action cache; its client gets it all the same");
    }
}

fn success(response: &ExecuteResponse) -> Option<&ActionResult> {
    let failed = response.status.as_ref().is_some_and(|s| s.code != 0);
    response.result.as_ref().filter(|r| !failed && r.exit_code == 0)
}

fn action_digest(payload: &Payload) -> Option<Digest> {
    // It was read by the same rules when the action came.
    let function = DigestFunction::from_proto(payload.shown.digest_function).ok()?;
    Digest::from_proto(function, &payload.shown.action_digest).ok()
}
