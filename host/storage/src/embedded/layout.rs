//! Where things are in the folder, and whose folder it is.
//!
//! ```text
//! pointsman-storage        marker: layout version
//! lock                     locked while a process uses the folder; says which
//! tmp/                     files being written; emptied at start
//! cas/sha256/ab/HASH-SIZE  blobs, by digest function
//! ac/ab/KEY                action results
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use pointsman_digest::{Digest, DigestFunction};
use tempfile::NamedTempFile;

use super::config::OpenError;
use crate::error::StorageError;

const MARKER: &str = "pointsman-storage";
const MARKER_TEXT: &str = "pointsman storage, layout 1\n";
const LOCK: &str = "lock";
const TEMPORARY: &str = "tmp";

/// The folder, locked.
pub(super) struct Layout {
    root: PathBuf,
    /// Holds the lock; the system lets go of it when the process ends, however it ends.
    _lock: File,
}

impl Layout {
    /// Creates what is missing, locks the folder and removes the temporary files of a process that died.
    pub(super) fn open(root: &Path) -> Result<Self, OpenError> {
        create_folder(root)?;
        refuse_foreign(root)?;
        let lock = lock(root)?;
        check_marker(root)?;
        let layout = Self { root: root.to_owned(), _lock: lock };
        let temporary = root.join(TEMPORARY);
        if temporary.exists() {
            fs::remove_dir_all(&temporary).map_err(failed("empty", &temporary))?;
        }
        create_folder(&temporary)?;
        Ok(layout)
    }

    /// The names of the folders that files are spread over.
    pub(super) fn shards(&self) -> impl Iterator<Item = u8> + use<> {
        0..=u8::MAX
    }

    pub(super) fn blob_shard(&self, function: DigestFunction, shard: u8) -> PathBuf {
        self.root.join("cas").join(function.path_name()).join(format!("{shard:02x}"))
    }

    pub(super) fn blob(&self, digest: &Digest) -> PathBuf {
        self.blob_shard(digest.function(), digest.hash_bytes()[0]).join(digest.file_name())
    }

    pub(super) fn action_shard(&self, shard: u8) -> PathBuf {
        self.root.join("ac").join(format!("{shard:02x}"))
    }

    pub(super) fn action(&self, key: &[u8; 32]) -> PathBuf {
        let name: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.action_shard(key[0]).join(name)
    }

    /// A new file that is removed again unless it is given its final name.
    pub(super) fn temporary(&self) -> Result<NamedTempFile, StorageError> {
        let folder = self.root.join(TEMPORARY);
        NamedTempFile::new_in(&folder)
            .map_err(|error| StorageError::io(format!("create a file in {}", folder.display()), error))
    }
}

/// Gives a complete file its final name, creating the folder when it is the first one there.
pub(super) fn persist(file: NamedTempFile, path: &Path) -> io::Result<()> {
    let file = match file.persist(path) {
        Ok(_) => return Ok(()),
        Err(error) if error.error.kind() == io::ErrorKind::NotFound => error.file,
        Err(error) => return Err(error.error),
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Refuses a folder with files of somebody else, before anything in it is touched.
fn refuse_foreign(root: &Path) -> Result<(), OpenError> {
    if root.join(MARKER).exists() {
        return Ok(());
    }
    for entry in fs::read_dir(root).map_err(failed("list", root))? {
        let name = entry.map_err(failed("list", root))?.file_name();
        // A lock alone is a start that was killed early; the other is in every fresh ext4 file system. The marker
        // is looked for once more: another process may be creating the store at this moment.
        if name != LOCK && name != "lost+found" && !root.join(MARKER).exists() {
            let example = name.to_string_lossy().into_owned();
            return Err(OpenError::Foreign { folder: root.display().to_string(), example });
        }
    }
    Ok(())
}

fn lock(root: &Path) -> Result<File, OpenError> {
    let path = root.join(LOCK);
    let mut options = OpenOptions::new();
    let options = options.read(true).write(true).create(true).truncate(false);
    let mut file = options.open(&path).map_err(failed("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut owner = String::new();
            let known = file.read_to_string(&mut owner).is_ok() && !owner.is_empty();
            let owner = if known { owner.trim().to_owned() } else { "another process".to_owned() };
            return Err(OpenError::InUse { folder: root.display().to_string(), owner });
        }
        Err(TryLockError::Error(error)) => return Err(failed("lock", &path)(error)),
    }
    let text = format!("process {}\n", std::process::id());
    let written = file.set_len(0).and_then(|()| file.write_all(text.as_bytes()));
    written.map_err(failed("write", &path))?;
    Ok(file)
}

/// Reads the marker, or writes it into a folder that is new.
fn check_marker(root: &Path) -> Result<(), OpenError> {
    let path = root.join(MARKER);
    match fs::read_to_string(&path) {
        Ok(text) if text == MARKER_TEXT => Ok(()),
        // Empty: the process that created it was killed before it wrote. Nothing else exists then.
        Ok(text) if !text.is_empty() => Err(OpenError::Layout {
            folder: root.display().to_string(),
            found: text.trim().chars().take(80).collect(),
            expected: MARKER_TEXT.trim().to_owned(),
        }),
        Ok(_) => fs::write(&path, MARKER_TEXT).map_err(failed("write", &path)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::write(&path, MARKER_TEXT).map_err(failed("write", &path))
        }
        Err(error) => Err(failed("read", &path)(error)),
    }
}

fn create_folder(path: &Path) -> Result<(), OpenError> {
    fs::create_dir_all(path).map_err(failed("create folder", path))
}

/// Says what failed, in the shape that `map_err` takes.
pub(super) fn failed(verb: &str, path: &Path) -> impl FnOnce(io::Error) -> OpenError {
    let doing = format!("{verb} {}", path.display());
    move |source| OpenError::Io { doing, source }
}
