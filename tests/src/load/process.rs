//! Processor time and memory of a process.
use anyhow::{Context as _, Result};
use std::{fs, time::Duration};

/// Unit of the times in `/proc/PID/stat`: hundredths of a second on every architecture that we run on.
const TICK: Duration = Duration::from_millis(10);

/// The name of this process under `/proc`.
pub const OWN_PROCESS: &str = "self";

/// Reads how much processor time a process has used, all threads together, in user and kernel mode.
#[derive(Clone, Debug)]
pub struct CpuClock {
    path: String,
}

impl CpuClock {
    /// For a process id, or [`OWN_PROCESS`].
    pub fn new(process: &str) -> Self {
        Self { path: format!("/proc/{process}/stat") }
    }

    /// Time used since the process began; precise to 10 ms.
    ///
    /// # Errors
    /// When the process is gone.
    pub fn now(&self) -> Result<Duration> {
        let stat = fs::read_to_string(&self.path).with_context(|| format!("cannot read {}", self.path))?;
        ticks(&stat)
            .map(|t| TICK * t)
            .with_context(|| format!("unexpected content of {}: {stat:?}", self.path))
    }
}

/// Resident memory of a process, in bytes.
///
/// # Errors
/// It has ended.
pub fn resident_bytes(id: u32) -> Result<u64> {
    let path = format!("/proc/{id}/status");
    let status = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    resident(&status).with_context(|| format!("no VmRSS in {path}"))
}

/// The kernel counts it in KiB, which it calls kB.
fn resident(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Fields 14 and 15, counted from 1: `utime` and `stime`. The second field is a name in parentheses that may
/// itself hold blanks and parentheses.
fn ticks(stat: &str) -> Option<u32> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut times = after_name.split_whitespace().skip(11);
    let (user, system) = (times.next()?.parse::<u32>().ok()?, times.next()?.parse::<u32>().ok()?);
    user.checked_add(system)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn finds_times_after_an_odd_name() {
        assert_eq!(ticks("17 (a ) b) S 1 17 17 0 -1 4194560 9 8 7 6 120 34 0 0 20 0 1"), Some(154));
        assert_eq!(ticks("17 (a) S 1"), None);
    }

    #[test]
    fn finds_the_resident_memory() {
        assert_eq!(resident("VmHWM:\t 9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
    }

    #[test]
    fn own_time_passes() {
        let clock = CpuClock::new(OWN_PROCESS);
        let before = clock.now().unwrap();
        while clock.now().unwrap() < before + TICK * 3 {}
    }
}
