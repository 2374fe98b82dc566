//! Processes that outlive their action.
//!
//! Killing the process group gets all that stay in it. A process that left it (`setsid`, a shell with job
//! control) is recognised by what it inherited: its working directory, or a standard stream that is a file
//! of the build directory. A daemon that changed all of these gets away; only a PID namespace would hold
//! it. Whoever looks around in a build directory with a shell is taken for one of them. `PR_SET_CHILD_SUBREAPER` is not used: it is a property of the whole process, so with several threads
//! (or inside the server) it would hand us orphans without telling whose they were.
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{fs, path::Path, time::Duration};

/// Rounds after which a tree that forks faster than it is killed is left alone.
const ROUNDS_MAX: usize = 100;

/// Kills all processes that work inside `territory`, an absolute path without symbolic links. Blocks.
pub(crate) fn kill_inside(territory: &Path) {
    for _ in 0..ROUNDS_MAX {
        if kill_once(territory) == 0 {
            return;
        }
        // The killed need a moment until they are gone.
        std::thread::sleep(Duration::from_millis(2));
    }
    tracing::warn!(directory = %territory.display(), "processes of an action could not be killed");
}

fn kill_once(territory: &Path) -> usize {
    let Ok(entries) = fs::read_dir("/proc") else { return 0 };
    let own = std::process::id();
    let mut killed = 0;
    for entry in entries.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        if pid as u32 == own || !works_inside(&entry.path(), territory) {
            continue;
        }
        if kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
            killed += 1;
        }
    }
    killed
}

fn works_inside(process: &Path, territory: &Path) -> bool {
    let inherited = ["cwd", "fd/0", "fd/1", "fd/2"];
    inherited
        .iter()
        .any(|link| fs::read_link(process.join(link)).is_ok_and(|target| target.starts_with(territory)))
}
