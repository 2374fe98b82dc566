//! Policies built the way their authors build them.

use std::path::{Path, PathBuf};

use anyhow::Context;
use tokio::process::Command;

use super::clients::not_run;
use super::process::Running;

/// What policies are built for.
const TARGET: &str = "wasm32-unknown-unknown";

/// Runs a policy's `build.sh` (its path from the top of the repository) and returns the file it built; `None` after a
/// "not run" line when this machine's Rust lacks the target.
///
/// # Errors
/// It does not build, or the target is absent and `POINTSMAN_REQUIRE_CLIENTS` is set.
pub async fn build_policy(suite: &str, script: &str) -> anyhow::Result<Option<PathBuf>> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().await.context("no rustc")?;
    let root = PathBuf::from(String::from_utf8(output.stdout)?.trim());
    if !root.join("lib/rustlib").join(TARGET).is_dir() {
        not_run(&format!("{suite}: {TARGET} is absent; rustup target add {TARGET} installs it"))?;
        return Ok(None);
    }
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(script));
    // What cargo tells this test about its own profile is not meant for the cargo that it starts.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            command.env_remove(name);
        }
    }
    let built =
        Running::start(command)?.finish_within(std::time::Duration::from_secs(600)).await?.expect_code(0)?;
    let path = built.text.lines().last().context("the script prints no path")?;
    Ok(Some(PathBuf::from(path)))
}
