//! `pointsman bazel`: files that it writes, faults that it finds, and what a real Bazel makes of either.

mod explain;
mod flags;
mod lint;
mod real;

use std::path::Path;

/// Writes a file, with its folders.
fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<String> {
    let path = folder.join(name);
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}
