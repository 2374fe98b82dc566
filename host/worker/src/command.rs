//! Running a command: own process group, the Command's environment and nothing else, output into files,
//! a time limit that ends the whole group.
use crate::{error::Failure, sandbox::Walls, sweep};
use nix::{
    sys::{
        signal::{Signal, killpg},
        wait::{Id, WaitPidFlag, waitid},
    },
    unistd::Pid,
};
use std::{
    ffi::OsString,
    fs::File,
    io,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant, SystemTime},
};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use wait4::{ResUse, Wait4 as _};

/// Held for reading while an input file is open for writing and for writing while a process is started: a
/// child between fork and exec holds all open files, and a program that someone has open for writing can't
/// be run ("text file busy"). Actions that start programs among their own inputs can't be retried, so it
/// must not happen at all.
pub(crate) static SPAWN_GATE: RwLock<()> = RwLock::new(());

/// Used when the Command has no `PATH`; REv2 leaves the choice to the worker.
pub(crate) const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin";

/// A command ready to run.
pub(crate) struct Spec {
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    /// Absolute; must exist.
    pub(crate) directory: PathBuf,
    /// Input root and capture files are below it: whatever still works there at the end is killed.
    pub(crate) territory: PathBuf,
    pub(crate) stdout: PathBuf,
    pub(crate) stderr: PathBuf,
    /// `None` is no limit.
    pub(crate) timeout: Option<Duration>,
    /// What it runs in; `None`: this machine as it is.
    pub(crate) walls: Option<Walls>,
}

/// How a command ended.
pub(crate) struct Outcome {
    pub(crate) used: ResUse,
    pub(crate) ended_by: EndedBy,
    pub(crate) started_at: SystemTime,
    pub(crate) completed_at: SystemTime,
    pub(crate) wall: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    Itself,
    Timeout,
    Cancel,
}

/// Runs a command to its end. When it returns, the group and what it left in its territory are killed and
/// the command is reaped, also after time-out and cancellation.
pub(crate) async fn run(spec: Spec, cancel: &CancellationToken) -> Result<Outcome, Failure> {
    let (timeout, territory) = (spec.timeout, spec.territory.clone());
    let spec = Arc::new(spec);
    let spawned = Arc::clone(&spec);
    let spawning = tokio::task::spawn_blocking(move || spawn(&spawned));
    let child = spawning.await.map_err(|e| Failure::join("starting the command", &e))??;
    let (started, started_at) = (Instant::now(), SystemTime::now());
    let group = Group::new(&child);
    let _guard = KillOnDrop(Arc::clone(&group));

    let waiter = Arc::clone(&group);
    let mut wait = tokio::task::spawn_blocking(move || waiter.wait(child, &territory));
    let limit = async {
        match timeout {
            Some(timeout) => tokio::time::sleep(timeout).await,
            None => std::future::pending().await,
        }
    };
    let (ended_by, early) = tokio::select! {
        biased;
        done = &mut wait => (EndedBy::Itself, Some(done)),
        () = cancel.cancelled() => (EndedBy::Cancel, None),
        () = limit => (EndedBy::Timeout, None),
    };
    let done = match early {
        Some(done) => done,
        None => {
            group.kill();
            wait.await
        }
    };
    let used = done
        .map_err(|e| Failure::join("waiting for the command", &e))?
        .map_err(|e| Failure::io("waiting for the command", &e))?;
    if let (EndedBy::Itself, Some(walls)) = (ended_by, &spec.walls) {
        walls.check(&spec.stderr)?;
    }
    Ok(Outcome { used, ended_by, started_at, completed_at: SystemTime::now(), wall: started.elapsed() })
}

/// The process group of a running command. Its id is kept only as long as the leader is not reaped: until
/// then no other process can get it.
struct Group {
    leader: Mutex<Option<Pid>>,
}

impl Group {
    fn new(child: &Child) -> Arc<Self> {
        let leader = i32::try_from(child.id()).ok().map(Pid::from_raw);
        Arc::new(Self { leader: Mutex::new(leader) })
    }

    fn kill(&self) {
        let leader = self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(leader) = *leader {
            // Fails only when nobody is left.
            let _ = killpg(leader, Signal::SIGKILL);
        }
    }

    /// Waits for the leader, kills what it left behind, then reaps it. Blocks.
    fn wait(&self, child: Child, territory: &Path) -> io::Result<ResUse> {
        let pid = *self.leader.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pid) = pid {
            let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
            while waitid(Id::Pid(pid), flags) == Err(nix::errno::Errno::EINTR) {}
        }
        self.kill();
        sweep::kill_inside(territory);
        *self.leader.lock().unwrap_or_else(PoisonError::into_inner) = None;
        child.wait4()
    }
}

/// Whoever stops waiting ends the command: a runtime that is shut down drops this future, and then waits for the
/// thread that waits for the command.
struct KillOnDrop(Arc<Group>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

fn spawn(spec: &Spec) -> Result<Child, Failure> {
    let (name, rest) = spec
        .arguments
        .split_first()
        .ok_or_else(|| Failure::invalid("the Command has no arguments, so there is nothing to run"))?;
    if spec.arguments.iter().any(|argument| argument.contains('\0')) {
        return Err(Failure::invalid("an argument of the Command contains a NUL byte"));
    }
    for (key, value) in &spec.environment {
        if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
            return Err(Failure::invalid(format!(
                "the environment variable {key:?} of the Command is malformed"
            )));
        }
    }
    let program = find_program(name, spec)?;
    let capture =
        |path: &Path| File::create(path).map_err(|e| Failure::io("making a file for the output", &e));
    let (stdout, stderr) = (capture(&spec.stdout)?, capture(&spec.stderr)?);
    let mut command = match &spec.walls {
        None => {
            let mut command = Command::new(&program);
            command.arg0(name);
            command
        }
        Some(walls) => {
            let mut command = walls.command(&spec.directory)?;
            command.arg(&program);
            command
        }
    };
    command
        .args(rest)
        .env_clear()
        .envs(spec.environment.iter().map(|(key, value)| (key, value)))
        .current_dir(&spec.directory)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0);
    let _gate = SPAWN_GATE.write().unwrap_or_else(PoisonError::into_inner);
    command.spawn().map_err(|e| spawn_failure(name, &program, &e))
}

/// Where the program is (REv2 2.3, `Command.arguments`): a name with a slash is taken as it is, relative to
/// the working directory; one without is looked up in the Command's `PATH`, whose relative entries are
/// relative to the working directory too.
fn find_program(name: &str, spec: &Spec) -> Result<OsString, Failure> {
    if name.contains('/') {
        return Ok(name.into());
    }
    let path =
        spec.environment.iter().find(|(key, _)| key == "PATH").map_or(DEFAULT_PATH, |(_, value)| value);
    let found = look_up(name, path, &spec.directory);
    match found {
        Some(program) => Ok(program.into()),
        None => Err(Failure::invalid(format!(
            "could not start {name:?}: no executable of this name in PATH {path:?}; name it with a path, or set PATH in the action's environment"
        ))),
    }
}

/// The first executable file of this name in a `PATH`, whose relative entries are relative to `directory`.
pub(crate) fn look_up(name: &str, path: &str, directory: &Path) -> Option<PathBuf> {
    let entries = path.split(':').filter(|_| !name.is_empty());
    entries.map(|entry| Path::new(if entry.is_empty() { "." } else { entry }).join(name)).find(|candidate| {
        let full = directory.join(candidate);
        full.is_file() && nix::unistd::access(&full, nix::unistd::AccessFlags::X_OK).is_ok()
    })
}

/// What can't be started for its own reasons is `INVALID_ARGUMENT`, as with Buildbarn's runner: it would
/// fail everywhere in the same way, and an exit code of 127 could not be told from the command's own.
fn spawn_failure(name: &str, program: &OsString, error: &io::Error) -> Failure {
    let text =
        format!("could not start {name:?} (as {program:?}, relative to the working directory): {error}");
    match error.kind() {
        io::ErrorKind::NotFound
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::ArgumentListTooLong
        | io::ErrorKind::InvalidInput
        | io::ErrorKind::InvalidFilename => Failure::invalid(text),
        _ if error.raw_os_error() == Some(nix::errno::Errno::ENOEXEC as i32) => Failure::invalid(text),
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Failure::new(Code::ResourceExhausted, text),
        _ => Failure::new(Code::Internal, text),
    }
}
