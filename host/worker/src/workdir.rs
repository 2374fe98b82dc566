//! The work directory: locked by one worker, with one build directory for each of its threads.
use crate::{error::Failure, error::WorkerError, removal::remove_tree, sweep};
use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

/// The directory of one worker, held until dropped.
pub(crate) struct WorkDir {
    path: PathBuf,
    _lock: fs::File,
}

impl WorkDir {
    /// Makes the directory if need be, locks it, and ends and removes what an earlier run left behind.
    /// Blocks.
    pub(crate) fn open(path: &Path) -> Result<Self, WorkerError> {
        let failing = |step: &'static str, path: &Path| {
            let path = path.to_owned();
            move |source| WorkerError::WorkDir { step, path, source }
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failing("making", path))?;
        // Processes are recognised by real paths, see `sweep`.
        let path = &path.canonicalize().map_err(failing("resolving", path))?;
        let lock_path = path.join("lock");
        let lock = fs::File::create(&lock_path).map_err(failing("making", &lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => return Err(WorkerError::InUse { path: path.clone() }),
            Err(fs::TryLockError::Error(e)) => return Err(failing("locking", &lock_path)(e)),
        }
        let builds = path.join("build");
        sweep::kill_inside(&builds);
        remove_tree(&builds).map_err(failing("clearing", &builds))?;
        fs::DirBuilder::new().mode(0o700).create(&builds).map_err(failing("making", &builds))?;
        Ok(Self { path: path.clone(), _lock: lock })
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.path.join("cache")
    }

    /// All of it.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The build directory of a thread. Its name does not depend on the action, and is short: compilers
    /// write it into their output, and socket paths are limited to about a hundred bytes.
    pub(crate) fn build_dir(&self, thread: usize) -> BuildDir {
        BuildDir { path: self.path.join("build").join(thread.to_string()) }
    }
}

/// Where one thread runs its actions, one after another.
#[derive(Clone)]
pub(crate) struct BuildDir {
    path: PathBuf,
}

impl BuildDir {
    /// All of it, absolute and without symbolic links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The input root.
    pub(crate) fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    pub(crate) fn stdout(&self) -> PathBuf {
        self.path.join("stdout")
    }

    pub(crate) fn stderr(&self) -> PathBuf {
        self.path.join("stderr")
    }

    /// What is `/tmp` in a sandbox.
    pub(crate) fn tmp(&self) -> PathBuf {
        self.path.join("tmp")
    }

    /// Where a sandbox reports.
    pub(crate) fn status(&self) -> PathBuf {
        self.path.join("status")
    }

    /// Makes it, empty. Blocks.
    pub(crate) fn create(&self) -> Result<(), Failure> {
        let anybodys = fs::Permissions::from_mode(0o1777);
        self.clear()
            .and_then(|()| fs::create_dir_all(self.root()))
            .and_then(|()| fs::create_dir_all(self.tmp()))
            .and_then(|()| fs::set_permissions(self.tmp(), anybodys))
            .map_err(|e| Failure::io(format_args!("making the build directory {}", self.path.display()), &e))
    }

    /// Removes it with all in it. Blocks.
    pub(crate) fn clear(&self) -> io::Result<()> {
        remove_tree(&self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_worker_at_a_time() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("w");
        let first = WorkDir::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        assert!(matches!(WorkDir::open(&path), Err(WorkerError::InUse { .. })));
        drop(first);
        WorkDir::open(&path).unwrap();
    }

    #[test]
    fn a_build_directory_starts_empty() {
        let tmp = tempfile::tempdir().unwrap();
        let dir = WorkDir::open(tmp.path()).unwrap().build_dir(0);
        dir.create().unwrap();
        let locked = dir.root().join("a/b");
        fs::create_dir_all(&locked).unwrap();
        fs::write(locked.join("f"), "").unwrap();
        fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
        dir.create().unwrap();
        assert_eq!(fs::read_dir(dir.root()).unwrap().count(), 0);
        dir.clear().unwrap();
        dir.clear().unwrap();
    }
}
