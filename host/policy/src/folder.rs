//! A folder that only this server can have written to: what lies in it is believed, or even run.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use rustix::fs::OFlags;

/// Names of files that are being written.
const TEMPORARY: &str = ".tmp-";

/// What another server writes at this moment is not older than that.
const LEFT_BEHIND_AFTER: Duration = Duration::from_secs(600);

/// Appended to the name of a file that can't be read.
const DAMAGED: &str = ".damaged";

/// Bits of a mode by which others than the owner may write.
const OTHERS_WRITE: u32 = 0o022;

/// A file or folder that can't be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", .path.display())]
pub struct FolderError {
    /// Which one.
    pub path: PathBuf,
    /// What is wrong with it, and what to do about it.
    pub problem: String,
}

/// Does a write have to be on the disk before it counts?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    Yes,
    /// It can be made again.
    No,
}

/// A file of the folder.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) modified: SystemTime,
}

#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// Makes the folder, for its owner alone, or looks at the one that is there. It must be ours, no symbolic link and
    /// not writable by others.
    pub(crate) fn open(path: &Path) -> Result<Self, FolderError> {
        let folder = Self { path: path.to_owned() };
        let failed = |what: &str, error: io::Error| folder.error(None, format!("{what}: {error}"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(|error| failed("can't make this folder", error))?;
        let metadata =
            fs::symlink_metadata(path).map_err(|error| failed("can't look at this folder", error))?;
        let (mode, owner, we) =
            (metadata.mode() & 0o7777, metadata.uid(), rustix::process::geteuid().as_raw());
        let problem = if metadata.is_symlink() {
            "it is a symbolic link, and could lead to files of others; put a real folder there".into()
        } else if !metadata.is_dir() {
            "it is not a folder; move it away".into()
        } else if owner != we {
            format!("it belongs to user {owner}, and this server is user {we}; give it to user {we}")
        } else if mode & OTHERS_WRITE != 0 {
            format!(
                "others may write to it (mode {mode:04o}), and so could plant policies; run `chmod 700` on it"
            )
        } else {
            folder.drop_left_behind();
            return Ok(folder);
        };
        Err(folder.error(None, problem))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// A folder in this one.
    pub(crate) fn folder(&self, name: &str) -> Result<Self, FolderError> {
        Self::open(&self.path.join(name))
    }

    fn error(&self, name: Option<&str>, problem: impl Into<String>) -> FolderError {
        let path = name.map_or_else(|| self.path.clone(), |name| self.path.join(name));
        FolderError { path, problem: problem.into() }
    }

    /// Reads a file whole. `None`: there is none. One that is no plain file, not ours, writable by others or larger
    /// than `bytes_max` is an error.
    pub(crate) fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, FolderError> {
        let failed = |error: io::Error| self.error(Some(name), format!("can't read it: {error}"));
        // Without NONBLOCK the opening of a pipe would never end.
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(self.path.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                return Err(self.error(Some(name), "it is a symbolic link, and this server makes none here"));
            }
            Err(error) => return Err(failed(error)),
        };
        let metadata = file.metadata().map_err(failed)?;
        let (mode, owner, we) =
            (metadata.mode() & 0o7777, metadata.uid(), rustix::process::geteuid().as_raw());
        let problem = if !metadata.is_file() {
            "it is not a plain file".into()
        } else if owner != we {
            format!("it belongs to user {owner}, and this server is user {we}")
        } else if mode & OTHERS_WRITE != 0 {
            format!("others may write to it (mode {mode:04o})")
        } else if metadata.len() > bytes_max {
            format!("it has {} bytes, allowed are {bytes_max}", metadata.len())
        } else {
            let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or_default());
            // It may have grown since.
            file.take(bytes_max).read_to_end(&mut bytes).map_err(failed)?;
            return Ok(Some(bytes));
        };
        Err(self.error(Some(name), problem))
    }

    /// Puts a file in place in one step: whoever reads sees the old one or the new one, also after a crash when it is
    /// durable. After an error the old one is still there.
    pub(crate) fn write(&self, name: &str, bytes: &[u8], durable: Durable) -> Result<(), FolderError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Relaxed);
        let temporary = self.path.join(format!("{TEMPORARY}{}-{number}", std::process::id()));
        let result = write_new(&temporary, bytes, durable)
            .and_then(|()| fs::rename(&temporary, self.path.join(name)))
            .and_then(|()| self.sync(durable));
        result.map_err(|error| {
            // It is not there when it could not be made.
            let _ = fs::remove_file(&temporary);
            self.error(Some(name), format!("can't write it: {error}"))
        })
    }

    fn sync(&self, durable: Durable) -> io::Result<()> {
        if durable == Durable::Yes { File::open(&self.path)?.sync_all() } else { Ok(()) }
    }

    /// Removes a file, if it is there.
    pub(crate) fn remove(&self, name: &str) -> Result<(), FolderError> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.error(Some(name), format!("can't remove it: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Moves a file out of the way, so that somebody can look at it. Gives its new path.
    pub(crate) fn set_aside(&self, name: &str) -> Result<PathBuf, FolderError> {
        let aside = self.path.join(format!("{name}{DAMAGED}"));
        fs::rename(self.path.join(name), &aside)
            .map_err(|error| self.error(Some(name), format!("can't move it out of the way: {error}")))?;
        Ok(aside)
    }

    /// Notes that a file was used now.
    pub(crate) fn touch(&self, name: &str) -> io::Result<()> {
        File::open(self.path.join(name))?.set_modified(SystemTime::now())
    }

    /// All plain files that are whole, by name.
    pub(crate) fn list(&self) -> Result<Vec<Entry>, FolderError> {
        let mut entries = self.entries(|name| !name.starts_with(TEMPORARY))?;
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn entries(&self, wanted: impl Fn(&str) -> bool) -> Result<Vec<Entry>, FolderError> {
        let failed = |error: io::Error| self.error(None, format!("can't list it: {error}"));
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // What is gone by now is not in the folder.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_file() && wanted(&name) {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push(Entry { name, bytes: metadata.len(), modified });
            }
        }
        Ok(entries)
    }

    /// Removes what a crash has left half-written.
    fn drop_left_behind(&self) {
        let now = SystemTime::now();
        let old = |entry: &Entry| now.duration_since(entry.modified).is_ok_and(|age| age > LEFT_BEHIND_AFTER);
        let temporary = self.entries(|name| name.starts_with(TEMPORARY)).unwrap_or_default();
        for entry in temporary.iter().filter(|entry| old(entry)) {
            if let Err(error) = self.remove(&entry.name) {
                tracing::warn!("can't remove what was left half-written: {error}");
            }
        }
    }
}

fn write_new(path: &Path, bytes: &[u8], durable: Durable) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    // A mask of the process could have taken away more.
    file.set_permissions(Permissions::from_mode(0o600))?;
    file.write_all(bytes)?;
    if durable == Durable::Yes { file.sync_all() } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    #[track_caller]
    fn assert_refused(path: &Path, text: &str) {
        let error = Folder::open(path).unwrap_err().to_string();
        assert!(error.starts_with(&*path.to_string_lossy()), "{error}");
        assert!(error.contains(text), "{error}");
    }

    #[test]
    fn made_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state/policies");
        Folder::open(&path).unwrap().write("file", b"text", Durable::Yes).unwrap();
        let bits = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((bits(&path), bits(&path.join("file"))), (0o700, 0o600));
        Folder::open(&path).unwrap();
    }

    #[test]
    fn folders_of_others_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().join("real");
        Folder::open(&real).unwrap();
        let link = dir.path().join("link");
        symlink(&real, &link).unwrap();
        assert_refused(&link, "it is a symbolic link");
        mode(&real, 0o770);
        assert_refused(
            &real,
            "others may write to it (mode 0770), and so could plant policies; run `chmod 700`",
        );
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        assert_refused(&file, "can't make this folder");
        if rustix::process::geteuid().is_root() {
            mode(&real, 0o700);
            std::os::unix::fs::chown(&real, Some(4711), None).unwrap();
            assert_refused(&real, "it belongs to user 4711, and this server is user 0");
        }
    }

    #[test]
    fn files_of_others_are_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(&dir.path().join("folder")).unwrap();
        let refused = |text: &str| {
            let error = folder.read("file", 100).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        };
        assert!(folder.read("file", 100).unwrap().is_none());
        folder.write("file", b"text", Durable::No).unwrap();
        assert_eq!(folder.read("file", 4).unwrap().unwrap(), b"text");
        assert!(folder.read("file", 3).unwrap_err().to_string().contains("4 bytes, allowed are 3"));
        let path = folder.path().join("file");
        mode(&path, 0o620);
        refused("others may write to it (mode 0620)");
        fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        symlink(dir.path().join("elsewhere"), &path).unwrap();
        refused("it is a symbolic link");
        fs::remove_file(&path).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        refused("it is not a plain file");
        folder.write("file", b"again", Durable::No).unwrap();
        assert_eq!(folder.read("file", 100).unwrap().unwrap(), b"again", "it was replaced, not written to");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(4711), None).unwrap();
            refused("it belongs to user 4711, and this server is user 0");
        }
    }

    #[test]
    fn what_a_crash_left_goes_when_it_is_old() {
        let dir = tempfile::tempdir().unwrap();
        for (name, age) in [(".tmp-1-1", 700), (".tmp-1-2", 10), ("whole", 7000)] {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
        let folder = Folder::open(dir.path()).unwrap();
        let names: Vec<String> = folder.list().unwrap().into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["whole"]);
        assert_eq!(folder.entries(|_| true).unwrap().len(), 2);
    }
}
