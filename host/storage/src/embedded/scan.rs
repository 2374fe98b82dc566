//! Reads names and times of all files at start.

use std::fs::{self, Metadata};
use std::io;
use std::path::Path;
use std::time::SystemTime;

use pointsman_digest::{Digest, DigestFunction};
use tracing::warn;

use super::config::OpenError;
use super::layout::{Layout, failed};

/// All blobs, those used longest ago first. Files of a wrong size are removed: what a power cut leaves.
pub(super) fn blobs(layout: &Layout) -> Result<Vec<Digest>, OpenError> {
    let mut found = Vec::new();
    for function in DigestFunction::SERVED {
        for shard in layout.shards() {
            visit(&layout.blob_shard(*function, shard), |path, name, metadata| {
                let Some(digest) =
                    Digest::from_file_name(*function, name).filter(|it| it.hash_bytes()[0] == shard)
                else {
                    warn!(path = %path.display(), "file in the storage folder is no blob, it is left alone");
                    return;
                };
                if metadata.len() == digest.size_bytes() {
                    found.push((last_use(metadata), digest));
                } else {
                    warn!(%digest, bytes = metadata.len(), "blob on disk has a wrong size, removed");
                    remove(path);
                }
            })?;
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, digest)| digest).collect())
}

/// The keys of all action results, those used longest ago first.
pub(super) fn actions(layout: &Layout) -> Result<Vec<[u8; 32]>, OpenError> {
    let mut found = Vec::new();
    for shard in layout.shards() {
        visit(&layout.action_shard(shard), |path, name, metadata| {
            // A key is written like a SHA-256 hash.
            match Digest::new(DigestFunction::Sha256, name, 0) {
                Ok(key) if key.hash_bytes()[0] == shard => {
                    let mut bytes = [0; 32];
                    bytes.copy_from_slice(key.hash_bytes());
                    found.push((last_use(metadata), bytes));
                }
                _ => {
                    warn!(path = %path.display(), "file in the storage folder is no action result, it is left alone");
                }
            }
        })?;
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, key)| key).collect())
}

fn visit(folder: &Path, mut each: impl FnMut(&Path, &str, &Metadata)) -> Result<(), OpenError> {
    let entries = match fs::read_dir(folder) {
        // Nothing was stored there yet.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed("list", folder))?,
    };
    for entry in entries {
        let entry = entry.map_err(failed("list", folder))?;
        let path = entry.path();
        let metadata = entry.metadata().map_err(failed("look at", &path))?;
        let name = entry.file_name();
        each(&path, if metadata.is_file() { name.to_str().unwrap_or_default() } else { "" }, &metadata);
    }
    Ok(())
}

/// The later of the two times: a disk mounted without access times still tells when a file was written.
fn last_use(metadata: &Metadata) -> SystemTime {
    let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    metadata.accessed().unwrap_or(SystemTime::UNIX_EPOCH).max(modified)
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        warn!(path = %path.display(), %error, "damaged file can't be removed");
    }
}
