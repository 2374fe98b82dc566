//! Which `.bazelrc`, and how Bazel would be started.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use pointsman_bazel::model::Os;
use pointsman_bazel::rc::{self, Rc};
use pointsman_bazel::{Label, Version};

use super::super::Failure;

/// The version of Bazel: what is given, else what the workspace's `.bazelversion` says, else the newest whose rules are known.
///
/// A `.bazelversion` with something else than a version (`latest`, a fork) is passed over: it is for Bazelisk to understand.
pub(super) fn version(given: Option<Version>, workspace: Option<&Path>) -> Version {
    let said = || {
        let text = std::fs::read_to_string(workspace?.join(".bazelversion")).ok()?;
        text.lines().next()?.trim().parse().ok()
    };
    given.or_else(said).unwrap_or(Version::ALLOW_LISTS)
}

#[derive(Debug, Args)]
pub(super) struct RcArgs {
    /// The .bazelrc of the workspace. Those of the system and of users are not looked at.
    #[arg(long, value_name = "FILE")]
    pub(super) bazelrc: PathBuf,
    /// The top of the workspace, which %workspace% stands for [default: the folder of the .bazelrc].
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// The version of Bazel [default: that of .bazelversion in the workspace, else 9.0.0].
    #[arg(long, value_name = "VERSION")]
    bazel: Option<Version>,
    /// The system that Bazel runs on [default: this one].
    #[arg(long, value_enum)]
    os: Option<System>,
    /// A --config=NAME on Bazel's command line.
    #[arg(long = "rc-config", value_name = "NAME")]
    pub(super) configs: Vec<String>,
}

/// The systems that differ in their strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum System {
    Linux,
    Darwin,
    Windows,
}

impl RcArgs {
    /// Reads the file with all that it imports.
    pub(super) fn read(&self) -> Result<Rc, Failure> {
        rc::read(&self.bazelrc, self.workspace()).map_err(|error| Failure::Usage(error.to_string()))
    }

    fn workspace(&self) -> &Path {
        let folder = self.bazelrc.parent().unwrap_or(Path::new(""));
        self.workspace.as_deref().unwrap_or(folder)
    }

    pub(super) fn version(&self) -> Version {
        version(self.bazel, Some(self.workspace()))
    }

    pub(super) fn os(&self) -> Os {
        match self.os {
            Some(System::Linux) => Os::Linux,
            Some(System::Darwin) => Os::Darwin,
            Some(System::Windows) => Os::Windows,
            None if cfg!(target_os = "macos") => Os::Darwin,
            None if cfg!(windows) => Os::Windows,
            None => Os::Linux,
        }
    }
}

/// A label of a flag.
pub(super) fn label(text: &str) -> Result<Label, String> {
    Label::parse(text).map_err(|why| format!("{why}; give one such as //platforms:linux"))
}
