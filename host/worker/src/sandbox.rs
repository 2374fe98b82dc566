//! `sandboxed`: a command in namespaces of its own, made by bubblewrap.
//!
//! The machine is there to be read, except for what other actions have. Written may be the input root (not its files: they
//! have no write permission, and the command has no capability to pass over that, not even as root), and a private `/tmp`.
//! There is no network but a loopback of its own, unless the action's platform has [`NETWORK`]. All processes end with the
//! command, daemons too: they have a PID namespace.
//!
//! bubblewrap reports in a file, so that an exit code of the command is told from a failure of bubblewrap itself.
use crate::{
    command::{DEFAULT_PATH, look_up},
    error::{Failure, WorkerError},
    workdir::BuildDir,
};
use command_fds::{CommandFdExt as _, FdMapping};
use pointsman_proto::rev2::Platform;
use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tonic::Code;

/// The property, as name and value, by which an action asks for the machine's network.
pub(crate) const NETWORK: (&str, &str) = ("network", "external");

/// The program of the package `bubblewrap`.
const PROGRAM: &str = "bwrap";

/// Where bubblewrap reports: a number that it is told.
const STATUS_FD: i32 = 3;

/// The action asks for the machine's network.
pub(crate) fn wants_network(platform: Option<&Platform>) -> bool {
    let (name, value) = NETWORK;
    platform.iter().flat_map(|p| &p.properties).any(|p| p.name == name && p.value == value)
}

/// What makes sandboxes on this machine.
#[derive(Clone, Debug)]
pub(crate) struct Sandbox {
    program: PathBuf,
    /// The worker's own directory, which no action sees.
    work_dir: PathBuf,
}

/// The sandbox of one command.
pub(crate) struct Walls {
    sandbox: Sandbox,
    dir: BuildDir,
    network: bool,
}

impl Sandbox {
    /// Finds bubblewrap and tries it out, in `dir`. Blocks.
    ///
    /// # Errors
    /// Why there can be none.
    pub(crate) fn find(work_dir: &Path, dir: &BuildDir) -> Result<Self, WorkerError> {
        let path = std::env::var("PATH").unwrap_or_else(|_| DEFAULT_PATH.to_owned());
        let fail = |reason: String| WorkerError::Sandbox { reason };
        let program = look_up(PROGRAM, &path, Path::new("/"))
            .ok_or_else(|| fail(format!("there is no {PROGRAM} in the PATH {path:?}")))?;
        let sandbox = Self { program, work_dir: work_dir.to_owned() };
        sandbox.try_out(dir).map_err(fail)?;
        // What is left behind is removed with the first action.
        _ = dir.clear();
        Ok(sandbox)
    }

    fn try_out(&self, dir: &BuildDir) -> Result<(), String> {
        dir.create().map_err(|e| e.message().to_owned())?;
        let walls = self.walls(dir, false);
        let mut command = walls.command(&dir.root()).map_err(|e| e.message().to_owned())?;
        let shell = look_up("true", DEFAULT_PATH, Path::new("/")).ok_or("there is no program `true`")?;
        let tried = command.arg(shell).env_clear().stdin(Stdio::null()).output();
        let tried = tried.map_err(|e| format!("{} can't be started: {e}", self.program.display()))?;
        match tried.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&tried.stderr).trim().to_owned()),
        }
    }

    pub(crate) fn walls(&self, dir: &BuildDir, network: bool) -> Walls {
        Walls { sandbox: self.clone(), dir: dir.clone(), network }
    }
}

impl Walls {
    /// bubblewrap, to which a program and its arguments are to be given, working in `directory`.
    pub(crate) fn command(&self, directory: &Path) -> Result<Command, Failure> {
        let Self { sandbox, dir, network } = self;
        let status = File::create(dir.status())
            .map_err(|e| Failure::io("making a file for bubblewrap's report", &e))?;
        let (root, tmp) = (dir.root(), dir.tmp());
        let mut command = Command::new(&sandbox.program);
        command
            .args(["--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"])
            .args((!network).then_some("--unshare-net"))
            .args(["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
            // The worker may have been started from a terminal, which is nothing to type into.
            .args(["--dev-bind", "/dev/null", "/dev/tty"]);
        for place in ["/tmp", "/var/tmp"] {
            if Path::new(place).is_dir() {
                command.arg("--bind").args([&*tmp, Path::new(place)]);
            }
        }
        // In this order: each may be inside of the one before.
        command.arg("--tmpfs").arg(&sandbox.work_dir).arg("--bind").args([&root, &root]);
        command.arg("--chdir").arg(directory).args(["--json-status-fd", &STATUS_FD.to_string(), "--"]);
        let mapping = FdMapping { parent_fd: status.into(), child_fd: STATUS_FD };
        command.fd_mappings(vec![mapping]).map_err(|e| Failure::new(Code::Internal, e.to_string()))?;
        Ok(command)
    }

    /// Looks at how a command ended that ended by itself.
    ///
    /// # Errors
    /// It never began: the program is none (`INVALID_ARGUMENT`), or bubblewrap failed.
    pub(crate) fn check(&self, stderr: &Path) -> Result<(), Failure> {
        let report = fs::read_to_string(self.dir.status()).unwrap_or_default();
        if report.contains("\"exit-code\"") {
            return Ok(());
        }
        let said = fs::read_to_string(stderr).unwrap_or_default();
        let said = said.trim();
        let code = if said.contains("execvp") { Code::InvalidArgument } else { Code::Internal };
        Err(Failure::new(code, format!("the command could not be started in its sandbox: {said}")))
    }
}
