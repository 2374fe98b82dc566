//! What a worker says of itself, for the core.

use pointsman_proto::remoteworker::current_state::executing::ExecutionState;
use pointsman_proto::remoteworker::current_state::{self, WorkerState};
use pointsman_proto::rev2::{self, ExecuteResponse};
use pointsman_scheduler::event::{Report, Stage};
use pointsman_scheduler::ids::ActionDigest;
use smallvec::SmallVec;
use tonic::Status;

use super::status_table::verdict;

/// Reads a worker's state, and takes the result out of it, if it has one.
///
/// # Errors
/// `INVALID_ARGUMENT` that names the field.
pub(super) fn report(state: WorkerState) -> Result<(Report, Option<ExecuteResponse>), Status> {
    let executing = match state {
        WorkerState::Idle(()) => return Ok((Report::Idle, None)),
        WorkerState::Executing(executing) => executing,
    };
    let current_state::Executing { action_digest, execution_state } = executing;
    let digest = digest(action_digest.as_ref())?;
    let stage = match execution_state {
        Some(ExecutionState::Completed(response)) => {
            let verdict = verdict(&response);
            return Ok((Report::Completed(digest, verdict), Some(response)));
        }
        // The reference ignores which it is, and takes a missing one for "executing".
        Some(ExecutionState::Started(())) | None => Stage::Started,
        Some(ExecutionState::FetchingInputs(())) => Stage::FetchingInputs,
        Some(ExecutionState::Running(())) => Stage::Running,
        Some(ExecutionState::UploadingOutputs(())) => Stage::UploadingOutputs,
    };
    Ok((Report::Executing(digest, stage), None))
}

/// The protocol has hash and size only, and the core compares no more.
fn digest(digest: Option<&rev2::Digest>) -> Result<ActionDigest, Status> {
    let digest =
        digest.ok_or_else(|| Status::invalid_argument("current_state.executing.action_digest is not set"))?;
    let hex = digest.hash.as_bytes();
    let nibble = |b: u8| char::from(b).to_digit(16);
    let hash: Option<SmallVec<[u8; 32]>> = match hex.len() % 2 {
        0 => hex.chunks(2).map(|p| Some((nibble(p[0])? << 4 | nibble(p[1])?) as u8)).collect(),
        _ => None,
    };
    let hash = hash.ok_or_else(|| {
        Status::invalid_argument(format!(
            "current_state.executing.action_digest: hash '{}' is not hexadecimal",
            digest.hash
        ))
    })?;
    Ok(ActionDigest::new(rev2::digest_function::Value::Unknown.into(), &hash, digest.size_bytes))
}
