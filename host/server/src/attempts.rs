//! What policies are told of an action's attempts.

use std::sync::Arc;
use std::time::Duration;

use pointsman_learning::{Ended, Run};
use pointsman_policy::{ActionFacts, Attempt, Outcome};
use pointsman_proto::resourceusage::PosixResourceUsage;
use pointsman_proto::rev2::{ExecuteResponse, ExecutedActionMetadata};
use pointsman_proto::{rpc, unpack};
use pointsman_scheduler::task::{self, Failure};
use prost::Name as _;
use prost_types::Timestamp;

use crate::driver::Given;

/// The facts with all attempts so far. They have those that had a result; those that failed are added here, so that
/// nobody need do so while the core is locked.
pub fn with_attempts(facts: &Arc<ActionFacts>, tried: &[task::Attempt]) -> Arc<ActionFacts> {
    let known = facts.attempts.len();
    if known >= tried.len() {
        return facts.clone();
    }
    let mut facts = ActionFacts::clone(facts);
    facts.attempts.extend(tried[known..].iter().map(failed));
    Arc::new(facts)
}

/// An attempt that ended without a result.
fn failed(attempt: &task::Attempt) -> Attempt {
    let outcome = match attempt.failure {
        Failure::Lost | Failure::GivenBack => Outcome::WorkerLost,
        Failure::Reported | Failure::RunAgain => Outcome::InfrastructureError,
    };
    Attempt {
        outcome,
        exit_code: 0,
        signal: None,
        size_class: attempt.size_class,
        worker: attempt.host.clone(),
        strategy: attempt.strategy.clone(),
        wall: attempt.ended.since(attempt.began),
        cores: None,
        peak_memory_mib: None,
    }
}

/// An attempt that ended with this. Times and resources are the worker's word; without it, it took no time.
pub fn ended(response: &ExecuteResponse, given: &Given) -> Attempt {
    let result = response.result.as_ref();
    let metadata = result.and_then(|r| r.execution_metadata.as_ref());
    let usage = metadata.and_then(usage);
    let signal = usage.as_ref().map(|u| u.termination_signal.as_str()).filter(|s| !s.is_empty());
    let exit_code = result.map_or(0, |r| r.exit_code);
    let wall = metadata.map(wall).unwrap_or_default();
    Attempt {
        outcome: outcome(response, signal, exit_code),
        exit_code,
        signal: signal.map(Into::into),
        size_class: given.spec.size_class,
        worker: given.host.clone(),
        strategy: given.route.strategy_on(given.spec.strategies()).cloned(),
        wall,
        cores: usage.as_ref().and_then(|u| cores(u, wall)),
        peak_memory_mib: usage.as_ref().and_then(peak_memory_mib),
    }
}

/// What an attempt that ended with this teaches; `None`: nothing, as it did not run, or not here.
pub fn run(response: &ExecuteResponse, size_class: u32) -> Option<Run> {
    if response.cached_result {
        return None;
    }
    let result = response.result.as_ref();
    let metadata = result.and_then(|r| r.execution_metadata.as_ref());
    let usage = metadata.and_then(usage);
    let signal = usage.as_ref().map(|u| u.termination_signal.as_str()).filter(|s| !s.is_empty());
    let wall = metadata.map(wall).unwrap_or_default();
    let ended = match outcome(response, signal, result.map_or(0, |r| r.exit_code)) {
        Outcome::Succeeded => Ended::Succeeded,
        Outcome::Failed => Ended::Failed,
        Outcome::Killed => Ended::Killed,
        Outcome::TimedOut => Ended::TimedOut,
        Outcome::WorkerLost | Outcome::InfrastructureError => return None,
    };
    Some(Run {
        ended,
        size_class,
        wall,
        cores: usage.as_ref().and_then(|u| cores(u, wall)),
        peak_memory_mib: usage.as_ref().and_then(peak_memory_mib),
    })
}

/// How an attempt ended, as it is written.
pub fn name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Succeeded => "succeeded",
        Outcome::Failed => "failed",
        Outcome::TimedOut => "timed-out",
        Outcome::Killed => "killed",
        Outcome::WorkerLost => "worker-lost",
        Outcome::InfrastructureError => "infrastructure-error",
    }
}

/// Exit code of what SIGKILL ended, as shells give it.
const KILLED: i32 = 128 + 9;

/// SIGKILL is what the kernel ends a process with when memory is out. Other signals are how programs fail.
fn outcome(response: &ExecuteResponse, signal: Option<&str>, exit_code: i32) -> Outcome {
    let status = response.status.as_ref().map_or(0, |s| s.code);
    if status == i32::from(rpc::Code::DeadlineExceeded) {
        Outcome::TimedOut
    } else if status != 0 {
        // Missing inputs, no such program: the worker could not run it.
        Outcome::InfrastructureError
    } else if exit_code == 0 {
        Outcome::Succeeded
    } else if signal.map_or(exit_code == KILLED, |signal| signal == "KILL") {
        Outcome::Killed
    } else {
        Outcome::Failed
    }
}

fn usage(metadata: &ExecutedActionMetadata) -> Option<PosixResourceUsage> {
    let name = PosixResourceUsage::full_name();
    let any = metadata.auxiliary_metadata.iter().find(|any| any.type_url.ends_with(&name))?;
    unpack(any).ok()
}

/// How long the command ran; how long the worker had the action where it doesn't say that.
fn wall(metadata: &ExecutedActionMetadata) -> Duration {
    let ran = between(metadata.execution_start_timestamp, metadata.execution_completed_timestamp);
    let had = || between(metadata.worker_start_timestamp, metadata.worker_completed_timestamp);
    ran.or_else(had).unwrap_or_default()
}

fn between(from: Option<Timestamp>, to: Option<Timestamp>) -> Option<Duration> {
    let nanos = |t: Timestamp| i128::from(t.seconds) * 1_000_000_000 + i128::from(t.nanos);
    // A clock that was set back says nothing.
    let nanos = u64::try_from(nanos(to?) - nanos(from?)).ok()?;
    Some(Duration::from_nanos(nanos))
}

fn cores(usage: &PosixResourceUsage, wall: Duration) -> Option<f64> {
    let time = |t: &Option<prost_types::Duration>| t.and_then(|t| Duration::try_from(t).ok());
    let cpu = time(&usage.user_time)? + time(&usage.system_time)?;
    (!wall.is_zero()).then(|| cpu.as_secs_f64() / wall.as_secs_f64())
}

/// Rounded up; `None` where the worker doesn't say.
fn peak_memory_mib(usage: &PosixResourceUsage) -> Option<u32> {
    let bytes = u64::try_from(usage.maximum_resident_set_size).ok().filter(|bytes| *bytes > 0)?;
    Some(u32::try_from(bytes.div_ceil(1 << 20)).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_proto::pack;
    use pointsman_proto::rev2::ActionResult;

    fn result(exit_code: i32) -> ExecuteResponse {
        let result = ActionResult { exit_code, ..ActionResult::default() };
        ExecuteResponse { result: Some(result), ..ExecuteResponse::default() }
    }

    #[test]
    fn only_what_is_often_out_of_memory_is_killed() {
        let outcomes = [
            (result(0), None, Outcome::Succeeded),
            (result(1), None, Outcome::Failed),
            (result(137), None, Outcome::Killed),
            (result(137), Some("KILL"), Outcome::Killed),
            (result(143), None, Outcome::Failed),
            (result(139), Some("SEGV"), Outcome::Failed),
        ];
        for (response, signal, wanted) in outcomes {
            let exit_code = response.result.as_ref().unwrap().exit_code;
            assert_eq!(outcome(&response, signal, exit_code), wanted, "{exit_code} {signal:?}");
        }
        for (code, wanted) in [
            (rpc::Code::DeadlineExceeded, Outcome::TimedOut),
            (rpc::Code::InvalidArgument, Outcome::InfrastructureError),
            (rpc::Code::FailedPrecondition, Outcome::InfrastructureError),
        ] {
            let status = rpc::Status { code: code.into(), ..rpc::Status::default() };
            let response = ExecuteResponse { status: Some(status), ..result(0) };
            assert_eq!(outcome(&response, None, 0), wanted);
        }
    }

    #[test]
    fn what_it_took_is_the_workers_word() {
        let at = |seconds, nanos| Some(Timestamp { seconds, nanos });
        let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 500_000_000 });
        let used = PosixResourceUsage {
            user_time: seconds(1),
            system_time: seconds(3),
            maximum_resident_set_size: (5 << 20) + 1,
            ..PosixResourceUsage::default()
        };
        let metadata = ExecutedActionMetadata {
            worker_start_timestamp: at(0, 0),
            worker_completed_timestamp: at(99, 0),
            execution_start_timestamp: at(10, 250_000_000),
            execution_completed_timestamp: at(12, 750_000_000),
            auxiliary_metadata: vec![pack(&result(1)), pack(&used)],
            ..ExecutedActionMetadata::default()
        };
        let (usage, wall) = (usage(&metadata).unwrap(), wall(&metadata));
        assert_eq!((wall, cores(&usage, wall)), (Duration::from_millis(2500), Some(2.0)));
        assert_eq!(peak_memory_mib(&usage), Some(6));
        let silent = PosixResourceUsage::default();
        assert_eq!((cores(&silent, wall), peak_memory_mib(&silent)), (None, None));
        assert_eq!(between(at(5, 0), at(4, 0)), None);
    }
}
