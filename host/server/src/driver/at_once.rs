//! Operations that were over before they were queued: cached results above all. They are no tasks of the core's, and
//! still can be asked for by name for a while.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use pointsman_proto::longrunning::Operation;

/// So many are kept, newest first to stay: enough for clients that ask again after seconds.
const KEPT_MAX: usize = 1000;

/// Encoded bytes of one that is kept: the results of actions with very many outputs are not worth it.
const KEPT_MAX_BYTES: usize = 64 << 10;

/// The operations kept, oldest first.
#[derive(Debug, Default)]
pub(super) struct AtOnce(Mutex<VecDeque<Operation>>);

impl AtOnce {
    pub(super) fn keep(&self, operation: Operation) {
        if prost::Message::encoded_len(&operation) > KEPT_MAX_BYTES {
            return;
        }
        let oldest = {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push_back(operation);
            if kept.len() > KEPT_MAX { kept.pop_front() } else { None }
        };
        drop(oldest);
    }

    pub(super) fn find(&self, name: &str) -> Option<Operation> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().rev().find(|operation| operation.name == name).cloned()
    }
}
