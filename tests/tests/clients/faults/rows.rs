//! What there is to know: each fault, and what each client makes of it.

use pointsman_proto::rpc;
use pointsman_tests::harness::Fault;
use tonic::Code;

use super::raised::Raised;
use super::{Cause, Row};

type Outcomes = [&'static str; 6];

const AGAIN: &str = "Execute, ok";
const ASKS: &str = "WaitExecution, ok";
const ASKS_THEN_AGAIN: &str = "WaitExecution, Execute, ok";
const ASKS_AND_FAILS: &str = "WaitExecution, fails";
const UPLOADS_AT_ONCE: &str = "BatchUpdateBlobs, Execute, ok";
const UPLOADS: &str = "FindMissingBlobs, Execute, ok";

/// All faults, those of the proxy first.
pub(super) fn rows() -> Vec<Row> {
    [injected(), by_code(), in_responses(), raised()].into_iter().flatten().collect()
}

fn row(title: &str, cause: Cause, outcomes: Outcomes) -> Row {
    Row { title: title.to_owned(), cause, outcomes, on_demand: false }
}

fn by_proxy(title: &str, faults: &[(&'static str, usize, Fault)], outcomes: Outcomes) -> Row {
    row(title, Cause::Injected(faults.to_vec()), outcomes)
}

fn execute(title: &str, fault: Fault, outcomes: Outcomes) -> Row {
    by_proxy(title, &[("Execute", 1, fault)], outcomes)
}

fn injected() -> Vec<Row> {
    let broken = Fault::End(1, Code::Unavailable);
    let lost = [("Execute", 1, broken.clone()), ("WaitExecution", 1, Fault::Refuse(Code::NotFound))];
    vec![
        by_proxy(
            "UNAVAILABLE, twice",
            &[("Execute", 2, Fault::Refuse(Code::Unavailable))],
            [AGAIN, AGAIN, AGAIN, "fails", AGAIN, AGAIN],
        ),
        execute(
            "stream ends UNAVAILABLE after its first operation",
            broken,
            [ASKS, ASKS, ASKS, "fails", ASKS, AGAIN],
        ),
        by_proxy(
            "stream ends UNAVAILABLE, WaitExecution NOT_FOUND",
            &lost,
            [ASKS_THEN_AGAIN, ASKS_THEN_AGAIN, ASKS_AND_FAILS, "fails", ASKS_AND_FAILS, ""],
        ),
        execute(
            "stream ends OK before done",
            Fault::End(1, Code::Ok),
            [ASKS, ASKS, "fails", "fails", "fails", ASKS],
        ),
        execute(
            "FAILED_PRECONDITION with MISSING",
            Fault::RefuseMissing,
            [UPLOADS, UPLOADS, "fails", "fails", "fails", "fails"],
        ),
        execute(
            "FAILED_PRECONDITION with MISSING in the response",
            Fault::RespondMissing,
            [UPLOADS, UPLOADS, "fails", "fails", "fails", UPLOADS_AT_ONCE],
        ),
    ]
}

/// All of a kind of client do the same with a code.
fn by_kind(bazel: &'static str, buildbox: &'static str, pants: &'static str) -> Outcomes {
    [bazel, bazel, buildbox, buildbox, buildbox, pants]
}

/// The call fails with a code and nothing else.
fn by_code() -> Vec<Row> {
    let known = [
        (Code::FailedPrecondition, "fails", "fails"),
        (Code::InvalidArgument, "fails", "fails"),
        (Code::ResourceExhausted, AGAIN, AGAIN),
        (Code::Internal, AGAIN, AGAIN),
        (Code::Unknown, AGAIN, AGAIN),
        (Code::Aborted, AGAIN, AGAIN),
        (Code::Cancelled, AGAIN, "fails"),
        (Code::DeadlineExceeded, AGAIN, "fails"),
    ];
    let each = known.into_iter().enumerate().map(|(number, (code, bazel, pants))| {
        let row = execute(name(code), Fault::Refuse(code), by_kind(bazel, "fails", pants));
        Row { on_demand: number > 2, ..row }
    });
    // Where a Bazel of the time thinks of its credentials, and tries them once more.
    let denied = [AGAIN, "fails", "fails", "fails", "fails", "fails"];
    each.chain([execute("PERMISSION_DENIED", Fault::Refuse(Code::PermissionDenied), denied)]).collect()
}

/// The operation is done with a code and no result.
fn in_responses() -> Vec<Row> {
    let known = [
        (Code::Unavailable, AGAIN, AGAIN),
        (Code::DeadlineExceeded, "times out", "fails"),
        (Code::FailedPrecondition, "fails", "fails"),
        (Code::Cancelled, AGAIN, "fails"),
        (Code::Internal, AGAIN, AGAIN),
        (Code::Unknown, AGAIN, AGAIN),
        (Code::ResourceExhausted, AGAIN, AGAIN),
    ];
    let each = known.into_iter().enumerate().map(|(number, (code, bazel, pants))| {
        let title = format!("{} in the response", name(code));
        let row = execute(&title, Fault::Respond(code), by_kind(bazel, "fails", pants));
        Row { on_demand: number > 3, ..row }
    });
    each.collect()
}

fn name(code: Code) -> &'static str {
    rpc::Code::try_from(i32::from(code)).map_or("?", |code| code.as_str_name())
}

fn raised() -> Vec<Row> {
    let known = [
        (
            "killed in an action, back at once",
            Raised::Killed,
            [ASKS_THEN_AGAIN, ASKS_THEN_AGAIN, ASKS_AND_FAILS, "fails", ASKS_AND_FAILS, ""],
        ),
        (
            "stopped with the action queued, back at once",
            Raised::Stopped,
            [ASKS_THEN_AGAIN, ASKS_THEN_AGAIN, "", "fails", "", AGAIN],
        ),
        ("queue full for a moment", Raised::QueueFull, [AGAIN, AGAIN, "fails", "fails", "fails", AGAIN]),
        (
            "queue full",
            Raised::QueueStaysFull,
            ["Execute, fails", "Execute, fails", "fails", "fails", "fails", "Execute, fails"],
        ),
        ("storage down for a moment", Raised::StorageDown, [AGAIN, AGAIN, AGAIN, "fails", AGAIN, AGAIN]),
        (
            "storage lost after the upload",
            Raised::StorageLost,
            [UPLOADS, UPLOADS, "fails", "fails", "fails", UPLOADS_AT_ONCE],
        ),
        ("time limit of the action", Raised::TimeLimit, ["times out", "times out", "fails", "", "", ""]),
        ("time limit over the maximum", Raised::Malformed, ["fails", "fails", "fails", "", "", ""]),
    ];
    known.into_iter().map(|(title, raised, outcomes)| row(title, Cause::Raised(raised), outcomes)).collect()
}
