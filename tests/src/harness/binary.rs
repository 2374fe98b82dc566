//! The program under test. `cargo test` does not build another package's binary, so it may be missing or stale; a test
//! of yesterday's program proves nothing.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use anyhow::{Context, bail};

use super::process::{Finished, Running};
use super::server::Server;

/// The server's binary, built in the profile of the running test.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// Finds the binary beside the running test.
    ///
    /// # Errors
    /// It is not there, or was older than a file that it is made of when this process first asked; the text says how
    /// to build it.
    pub fn find() -> anyhow::Result<Self> {
        // Once: whoever edits a file while the tests run does not want to hear of it.
        static FOUND: OnceLock<Result<Binary, String>> = OnceLock::new();
        let found = FOUND.get_or_init(|| Self::look().map_err(|error| format!("{error:#}")));
        found.clone().map_err(anyhow::Error::msg)
    }

    fn look() -> anyhow::Result<Self> {
        let test = std::env::current_exe().context("a test does not know its own file")?;
        // target/PROFILE/deps/TEST
        let folder = test.ancestors().nth(2).context("the test's file is not in a target folder")?;
        let path = folder.join("pointsman");
        let advice = format!("build it first: cargo build --profile {} --bin pointsman", profile(folder));
        let Ok(built) = modified(&path) else { bail!("{} is missing; {advice}", path.display()) };
        let parts = path.with_extension("d");
        let list = std::fs::read_to_string(&parts)
            .with_context(|| format!("{} is missing; {advice}", parts.display()))?;
        for part in parts_of(&list) {
            // A part that is gone has been deleted since.
            if modified(&part).map_or(true, |changed| changed > built) {
                bail!("{} is older than {}; {advice}", path.display(), part.display());
            }
        }
        Ok(Self { path })
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Runs the binary with these arguments to its end, for tests of the command line.
///
/// # Errors
/// As [`Binary::find`], or the program can't be started or does not end in a minute.
pub async fn cli(arguments: &[&str]) -> anyhow::Result<Finished> {
    let binary = Binary::find()?;
    let mut command = tokio::process::Command::new(binary.path());
    command.args(arguments).env_remove("POINTSMAN_LOG").env_remove("RUST_LOG");
    Running::start(command)?.finish().await
}

/// Asks a running server by the command line.
///
/// # Errors
/// As [`cli`].
pub async fn ask(server: &Server, words: &[&str]) -> anyhow::Result<Finished> {
    cli(&[words, &["--server", &server.address()]].concat()).await
}

/// Asks a running server, which has to agree, for JSON.
///
/// # Errors
/// As [`cli`], or it does not agree.
pub async fn ask_json(server: &Server, words: &[&str]) -> anyhow::Result<serde_json::Value> {
    let run = ask(server, &[words, &["--output", "json"]].concat()).await?.expect_code(0)?;
    serde_json::from_str(&run.text).with_context(|| run.text.clone())
}

/// Files that cargo names in its `.d` file: `BINARY: FILE FILE…`, spaces in names escaped.
fn parts_of(list: &str) -> Vec<PathBuf> {
    let files = list.split_once(": ").map_or("", |(_, files)| files).trim_end();
    files.replace("\\ ", "\0").split(' ').map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

fn modified(path: &Path) -> std::io::Result<SystemTime> {
    std::fs::metadata(path)?.modified()
}

fn profile(folder: &Path) -> &str {
    match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(name) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_parts_may_hold_spaces() {
        let parts = parts_of("/t/ci/pointsman: /a/b.rs /a/c\\ d.rs\n");
        assert_eq!(parts, [Path::new("/a/b.rs"), Path::new("/a/c d.rs")]);
    }
}
