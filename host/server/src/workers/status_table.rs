//! What the status means that a worker reports with an action's end. `COMPAT.md` has the same table for people.

use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::rpc::Code;
use pointsman_scheduler::event::Verdict;

/// What a reported status is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// It is about the action: the client gets it as it is.
    Answer,
    /// It is about the worker: the action is tried elsewhere, as often as `attempts.reported` allows.
    Attempt,
    /// The worker has no room just now: its host is spared for a while, and the action goes elsewhere. That costs an attempt
    /// only after `attempts.exhausted_forgiven` times.
    NoRoom,
}

/// Every code there is. One that is not here is an attempt.
pub const STATUS_TABLE: [(Code, Meaning); 17] = [
    // With a result. Without one the worker lies, and it is an attempt.
    (Code::Ok, Meaning::Answer),
    // The worker gave up, for the client can't have cancelled: its task would be over.
    (Code::Cancelled, Meaning::Attempt),
    (Code::Unknown, Meaning::Attempt),
    // No such program, a malformed Command, or a worker that executes nothing and says so (bb_noop_worker).
    (Code::InvalidArgument, Meaning::Answer),
    // The action's own time-out.
    (Code::DeadlineExceeded, Meaning::Answer),
    // Missing inputs are FAILED_PRECONDITION; this is something that the worker misses.
    (Code::NotFound, Meaning::Attempt),
    // Left by another action in the place where it should run.
    (Code::AlreadyExists, Meaning::Attempt),
    // The worker may not read or write the storage.
    (Code::PermissionDenied, Meaning::Attempt),
    (Code::ResourceExhausted, Meaning::NoRoom),
    // Missing inputs: the client uploads them and asks again.
    (Code::FailedPrecondition, Meaning::Answer),
    (Code::Aborted, Meaning::Attempt),
    (Code::OutOfRange, Meaning::Attempt),
    // Another worker may be newer.
    (Code::Unimplemented, Meaning::Attempt),
    (Code::Internal, Meaning::Attempt),
    // The worker can't reach its storage or its runner.
    (Code::Unavailable, Meaning::Attempt),
    (Code::DataLoss, Meaning::Attempt),
    (Code::Unauthenticated, Meaning::Attempt),
];

/// What a worker's response means for the task.
pub(super) fn verdict(response: &ExecuteResponse) -> Verdict {
    let status = response.status.as_ref().filter(|s| s.code != 0);
    let code = status.map_or(Ok(Code::Ok), |s| Code::try_from(s.code));
    let row = code.ok().and_then(|code| STATUS_TABLE.iter().find(|(c, _)| *c == code));
    let meaning = row.map_or(Meaning::Attempt, |(_, meaning)| *meaning);
    let Some(status) = status else {
        return match response.result {
            Some(_) => Verdict::Answer,
            None => Verdict::Failed("the worker reported success without a result".into()),
        };
    };
    match meaning {
        Meaning::Answer => Verdict::Answer,
        Meaning::NoRoom => Verdict::Exhausted(status.message.as_str().into()),
        Meaning::Attempt => {
            let name =
                row.map_or_else(|| format!("status {}", status.code), |(c, _)| c.as_str_name().to_owned());
            Verdict::Failed(format!("{name}: {}", status.message).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_in_the_table_once_and_in_order() {
        for (i, (code, _)) in STATUS_TABLE.iter().enumerate() {
            assert_eq!(i32::from(*code), i as i32);
        }
        let next = i32::try_from(STATUS_TABLE.len()).unwrap();
        assert!(Code::try_from(next).is_err(), "a code is missing");
    }
}
