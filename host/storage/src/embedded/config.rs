//! What an embedded store is opened with, what it says about itself, and why it may not open.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

use crate::error::StorageError;

/// Bounds of an embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddedConfig {
    /// The folder; created when missing. It must be empty or hold a store.
    pub folder: PathBuf,
    /// Most bytes that blobs may take on disk, uploads in progress included, each file counted in whole blocks of
    /// 4096 bytes. At the bound the least recently used blobs go; a blob that is larger than this is refused.
    pub max_bytes: u64,
    /// Most action results kept, over all instance names; each takes one or two blocks of 4096 bytes that
    /// `max_bytes` does not count. At least 1.
    pub max_action_results: usize,
    /// Most bytes of small blobs kept in memory.
    pub memory_max_bytes: u64,
    /// The largest blob that is kept in memory.
    pub memory_blob_max_bytes: u64,
}

impl EmbeddedConfig {
    /// Defaults for a laptop or one small server: 20 GiB on disk, a million action results, 128 MiB in memory for
    /// blobs of up to 256 KiB.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            max_bytes: 20 << 30,
            max_action_results: 1_000_000,
            memory_max_bytes: 128 << 20,
            memory_blob_max_bytes: 256 << 10,
        }
    }
}

/// What an embedded store holds, and what it has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EmbeddedStats {
    /// Blobs on disk.
    pub blobs: usize,
    /// Bytes that they take, in whole blocks of 4096.
    pub bytes: u64,
    /// Action results on disk.
    pub action_results: usize,
    /// Blobs kept in memory.
    pub memory_blobs: usize,
    /// Bytes that they take.
    pub memory_bytes: u64,
    /// Blobs removed since the start to make room.
    pub evicted_blobs: u64,
    /// Blobs removed since the start because they were damaged or had vanished from the disk.
    pub damaged_blobs: u64,
}

/// Why a store could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another process has the folder.
    #[error("storage folder {folder} is in use by {owner}: stop it, or give this server a folder of its own")]
    InUse {
        /// The folder asked for.
        folder: String,
        /// What is known of the other process.
        owner: String,
    },
    /// The folder holds something else. Refused because a store removes files that it does not know.
    #[error(
        "storage folder {folder} holds other files ({example}) and no pointsman storage: \
         give a new or an empty folder"
    )]
    Foreign {
        /// The folder asked for.
        folder: String,
        /// One of the files found.
        example: String,
    },
    /// The folder was written by a version with another layout.
    #[error(
        "storage folder {folder} has layout {found:?}, this version reads {expected:?}: \
         give a new folder, or run the version that wrote it"
    )]
    Layout {
        /// The folder asked for.
        folder: String,
        /// What its marker file says.
        found: String,
        /// What it should say.
        expected: String,
    },
    /// A system call failed.
    #[error("storage could not {doing}: {source}")]
    Io {
        /// What was being done, with the path.
        doing: String,
        /// What the system said.
        source: io::Error,
    },
    /// The bounds make no sense.
    #[error("storage {setting} is 0, it must be at least 1")]
    Zero {
        /// Which bound.
        setting: &'static str,
    },
    /// Any other failure.
    #[error(transparent)]
    Storage(#[from] StorageError),
}
