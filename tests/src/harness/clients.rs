//! The root that real clients live in, for one test at a time.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context, bail};
use tokio::process::Command;

use super::bazel::{Bazel, BazelVersion};
use super::binary::Binary;
use super::process::{Finished, Running};

/// Set to make an absent client a failure instead of a suite that is "not run".
const REQUIRE: &str = "POINTSMAN_REQUIRE_CLIENTS";

/// What `clients.sh has` ends with when `setup` would leave the client out, so that nobody can be required to have it.
const IMPOSSIBLE: i32 = 3;

/// The clients' root, held by this test alone until dropped: Bazel's server and its workspace are one per root, and two
/// builds at once would only measure each other.
#[derive(Debug)]
pub struct Clients {
    root: PathBuf,
    _held: File,
}

/// There is that client; else there is a "not run" line.
///
/// # Errors
/// It is absent and `POINTSMAN_REQUIRE_CLIENTS` is set.
pub async fn has_client(suite: &str, client: &str) -> anyhow::Result<bool> {
    let status = script(&["has", client]).status().await.context("clients.sh can't be run")?;
    match status.code() {
        Some(0) => Ok(true),
        Some(IMPOSSIBLE) => {
            say_not_run(&format!("{suite}: this machine can't have {client}")).map(|()| false)
        }
        _ => absent(suite, client).map(|()| false),
    }
}

/// Prometheus with these arguments; see [`has_client`].
pub fn prometheus(arguments: &[&str]) -> Command {
    script(&[&["prometheus"], arguments].concat())
}

impl Clients {
    /// Waits for the root, which must have these clients; `None` after a "not run" line when it has not.
    ///
    /// # Errors
    /// A client is absent and `POINTSMAN_REQUIRE_CLIENTS` is set, or the root can't be used.
    pub async fn take(suite: &str, clients: &[&str]) -> anyhow::Result<Option<Self>> {
        for client in clients {
            if !has_client(suite, client).await? {
                return Ok(None);
            }
        }
        let output = script(&["root"]).output().await?;
        let root = PathBuf::from(String::from_utf8(output.stdout)?.trim());
        let held = File::create(root.join(".in-use"))
            .context("the clients' root can't be written; root's rights are needed")?;
        let held = tokio::task::spawn_blocking(move || held.lock().map(|()| held)).await??;
        Ok(Some(Self { root, _held: held }))
    }

    /// The same folder in the root, as seen from outside.
    pub fn outside(&self, inside: &str) -> PathBuf {
        self.root.join(inside.trim_start_matches('/'))
    }

    /// A new folder in the root; its path from outside, to be deleted when dropped, and from inside.
    ///
    /// # Errors
    /// It can't be made.
    pub fn folder(&self) -> anyhow::Result<(tempfile::TempDir, String)> {
        let parent = self.root.join("w");
        std::fs::create_dir_all(&parent)?;
        let folder = tempfile::Builder::new().prefix("run-").tempdir_in(parent)?;
        let name =
            folder.path().file_name().and_then(|name| name.to_str()).context("a folder without a name")?;
        let inside = format!("/w/{name}");
        Ok((folder, inside))
    }

    /// Puts the binary into the root, once per build of it, and returns its path in there.
    ///
    /// # Errors
    /// It can't be found (see [`Binary::find`]) or copied.
    pub fn install(&self) -> anyhow::Result<String> {
        let binary = Binary::find()?;
        let built = std::fs::metadata(binary.path())?.modified()?.duration_since(UNIX_EPOCH)?;
        let inside = format!("/w/bin/pointsman-{}", built.as_nanos());
        let outside = self.outside(&inside);
        if !outside.exists() {
            let folder = outside.parent().context("a path without a folder")?;
            // Earlier builds are of no more use.
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder)?;
            std::fs::copy(binary.path(), outside.with_extension("part"))?;
            std::fs::rename(outside.with_extension("part"), &outside)?;
        }
        Ok(inside)
    }

    /// A command in the root.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = script(&["in"]);
        command.args(words);
        command
    }

    /// Pants in a workspace, which [`Clients::workspace`] has made.
    pub fn pants(&self, workspace: &str, words: &[&str]) -> Command {
        let mut command = script(&["pants", workspace]);
        command.args(words);
        command
    }

    /// Runs a command in the root to its end.
    ///
    /// # Errors
    /// It can't be started, or does not end in time.
    pub async fn run(&self, words: &[&str]) -> anyhow::Result<Finished> {
        Running::start(self.command(words))?.finish().await
    }

    /// A fresh copy of a sample workspace, as a path in the root.
    ///
    /// # Errors
    /// It can't be made.
    pub async fn workspace(&self, name: &str) -> anyhow::Result<String> {
        Running::start(script(&["workspace", name]))?.finish().await?.expect_code(0)?;
        Ok(format!("/w/{name}"))
    }

    /// Bazel in a fresh copy of its sample workspace, with nothing built.
    ///
    /// # Errors
    /// The workspace can't be made, or Bazel does not start.
    pub async fn bazel(&self, version: BazelVersion) -> anyhow::Result<Bazel<'_>> {
        self.workspace(version.workspace()).await?;
        let bazel = Bazel::new(self, version);
        bazel.run(&["clean"]).await?.expect_code(0)?;
        Ok(bazel)
    }
}

/// `clients.sh` with these words.
pub(super) fn script(words: &[&str]) -> Command {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/clients.sh");
    let mut command = Command::new(path);
    command.args(words);
    command
}

fn absent(suite: &str, client: &str) -> anyhow::Result<()> {
    not_run(&format!("{suite}: {client} is absent; tests/clients/clients.sh setup {client} installs it"))
}

/// Lists a suite as not run, unless everything is required.
pub(super) fn not_run(line: &str) -> anyhow::Result<()> {
    if std::env::var_os(REQUIRE).is_some() {
        bail!("{line}, and {REQUIRE} is set");
    }
    say_not_run(line)
}

fn say_not_run(line: &str) -> anyhow::Result<()> {
    // Past the capture of the test runner, which hides what passing tests print.
    writeln!(std::io::stderr(), "not run: {line}").context("standard error can't be written")
}
