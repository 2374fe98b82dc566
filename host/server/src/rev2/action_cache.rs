//! `ActionCache`: results of actions, by instance name.

use std::sync::Arc;

use bytes::Bytes;
use pointsman_proto::rev2::action_cache_server::ActionCache;
use pointsman_proto::rev2::{self, ActionResult, GetActionResultRequest, UpdateActionResultRequest};
use pointsman_storage::{Digest, DigestFunction, Storage, StorageError};
use prost::Message as _;
use tonic::{Request, Response, Status};

use super::cas::BATCH_MAX_BYTES;
use super::{instance_name, status};
use crate::driver::cached;

/// Most bytes of outputs put into one answer: with a result as large as real ones it is far below the 4 MiB that clients
/// take. A larger result leaves less room.
const INLINE_MAX_BYTES: u64 = 1 << 20;

/// The service.
#[derive(Clone)]
pub struct ActionCacheService {
    storage: Arc<dyn Storage>,
}

impl ActionCacheService {
    /// The service over this storage.
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage }
    }
}

#[tonic::async_trait]
impl ActionCache for ActionCacheService {
    async fn get_action_result(
        &self,
        request: Request<GetActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let action = status::digest_field(function, "action_digest", request.action_digest.as_ref())?;
        let found = self.storage.get_action_result(&request.instance_name, &action).await;
        let Some(mut result) = found.map_err(|error| status::from_storage(&error))? else {
            let text = format!("no result of action {action} in instance name {:?}", request.instance_name);
            return Err(Status::not_found(text));
        };
        let inline = Inline {
            stdout: request.inline_stdout,
            stderr: request.inline_stderr,
            output_files: &request.inline_output_files,
        };
        let storage = self.storage.clone().for_instance(&request.instance_name);
        inline_outputs(&*storage, action.function(), &mut result, &inline).await?;
        Ok(Response::new(result))
    }

    async fn update_action_result(
        &self,
        request: Request<UpdateActionResultRequest>,
    ) -> Result<Response<ActionResult>, Status> {
        let request = request.into_inner();
        instance_name::validate(&request.instance_name)?;
        let function = status::digest_function(request.digest_function)?;
        let action = status::digest_field(function, "action_digest", request.action_digest.as_ref())?;
        let result =
            request.action_result.ok_or_else(|| Status::invalid_argument("action_result is not set"))?;
        let stored = self.storage.update_action_result(&request.instance_name, &action, &result).await;
        stored.map_err(|error| match error {
            StorageError::Digest(error) => Status::invalid_argument(format!("action_result: {error}")),
            other => status::from_storage(&other),
        })?;
        Ok(Response::new(result))
    }
}

/// A result that may answer an Execute, if there is one.
pub async fn look_up(
    storage: &dyn Storage,
    instance_name: &str,
    action: &Digest,
) -> Option<rev2::ExecuteResponse> {
    match storage.get_action_result(instance_name, action).await {
        // Clients ignore a cached failure, so it is executed again.
        Ok(found) => found.filter(|result| result.exit_code == 0).map(cached),
        Err(error) => {
            // A cache that can't be read costs an execution, not a build.
            tracing::warn!(digest = %action, %error, "the action cache could not be read; the action is executed");
            None
        }
    }
}

/// Which outputs a client wants inside the result, to save it a read each.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline<'a> {
    /// Standard output.
    pub stdout: bool,
    /// Standard error.
    pub stderr: bool,
    /// Output files, by the paths that the result has.
    pub output_files: &'a [String],
}

/// Puts what a client wants into a result, as far as it is small: 1 MiB in all, in the order stdout, stderr, files.
/// The protocol makes it a hint, so an output that is larger or gone is simply not put in.
///
/// # Errors
/// The storage failed, or a digest in the result is malformed.
pub async fn inline_outputs(
    storage: &dyn Storage,
    function: DigestFunction,
    result: &mut ActionResult,
    wanted: &Inline<'_>,
) -> Result<(), Status> {
    let room = BATCH_MAX_BYTES.saturating_sub(result.encoded_len() as u64);
    let mut budget = INLINE_MAX_BYTES.min(room);
    let streams = [
        (wanted.stdout, &result.stdout_digest, &mut result.stdout_raw),
        (wanted.stderr, &result.stderr_digest, &mut result.stderr_raw),
    ];
    for (wanted, digest, raw) in streams {
        if wanted && raw.is_empty() {
            *raw = small_blob(storage, function, digest.as_ref(), &mut budget).await?;
        }
    }
    for file in &mut result.output_files {
        if file.contents.is_empty() && wanted.output_files.contains(&file.path) {
            file.contents = small_blob(storage, function, file.digest.as_ref(), &mut budget).await?;
        }
    }
    Ok(())
}

/// A blob that fits what is left of the budget; otherwise nothing.
async fn small_blob(
    storage: &dyn Storage,
    function: DigestFunction,
    digest: Option<&rev2::Digest>,
    budget: &mut u64,
) -> Result<Bytes, Status> {
    let Some(digest) = digest else { return Ok(Bytes::new()) };
    let digest = Digest::from_proto(function, digest).map_err(|error| status::from_digest(&error))?;
    match storage.read_blob(&digest, *budget).await {
        Ok(data) => {
            *budget -= data.len() as u64;
            Ok(data)
        }
        Err(StorageError::TooLarge { .. } | StorageError::NotFound { .. }) => Ok(Bytes::new()),
        Err(error) => Err(status::from_storage(&error)),
    }
}
