//! What an action used, in Buildbarn's words.
use nix::sys::signal::Signal;
use pointsman_proto::resourceusage::PosixResourceUsage;
use std::{os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration};
use wait4::ResUse;

/// Of the command and those of its descendants that were waited for. What the kernel counts beyond times
/// and memory is left at 0: clients show only these.
pub(crate) fn posix(used: &ResUse) -> PosixResourceUsage {
    PosixResourceUsage {
        user_time: Some(duration(used.rusage.utime)),
        system_time: Some(duration(used.rusage.stime)),
        maximum_resident_set_size: i64::try_from(used.rusage.maxrss).unwrap_or(i64::MAX),
        termination_signal: termination_signal(used.status),
        ..Default::default()
    }
}

/// The exit code as a shell gives it: 128 and the signal's number when a signal ended the command.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(-1)
}

/// `KILL` for SIGKILL; empty when no signal ended the command.
fn termination_signal(status: ExitStatus) -> String {
    let Some(number) = status.signal() else { return String::new() };
    match Signal::try_from(number) {
        Ok(signal) => signal.as_str().trim_start_matches("SIG").to_owned(),
        Err(_) => number.to_string(),
    }
}

pub(crate) fn duration(value: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(value.as_secs()).unwrap_or(i64::MAX),
        nanos: value.subsec_nanos() as i32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let killed = ExitStatus::from_raw(9);
        assert_eq!((exit_code(killed), termination_signal(killed).as_str()), (137, "KILL"));
        let failed = ExitStatus::from_raw(3 << 8);
        assert_eq!((exit_code(failed), termination_signal(failed).as_str()), (3, ""));
        assert_eq!(termination_signal(ExitStatus::from_raw(40)), "40");
    }
}
