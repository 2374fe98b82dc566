//! Placing inputs in a build directory so that an action can't change the cache: a file shares its blocks
//! with the cached one (reflink) where the file system can, and is a copy elsewhere. Hard links would let
//! an action that runs as the worker's user, root above all, write into the cache.
use crate::{
    cache::Lease,
    cas::Sink as _,
    command::SPAWN_GATE,
    directories::{Plan, PlannedFile, PlannedSymlink},
    error::Failure,
};
use pointsman_proto::rev2::NodeProperties;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_OMIT};
use std::{
    fs, io,
    os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink},
    path::Path,
    sync::{
        PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio_util::sync::CancellationToken;

/// Places files; remembers whether the file system shares blocks.
pub(crate) struct Placer {
    reflinks: AtomicBool,
}

impl Placer {
    pub(crate) fn new() -> Self {
        Self { reflinks: AtomicBool::new(true) }
    }

    /// Makes directories and symbolic links. Links come after all directories, and both must be new, so
    /// nothing is ever made through a link.
    pub(crate) fn skeleton(&self, root: &Path, plan: &Plan) -> Result<(), Failure> {
        for directory in &plan.directories {
            if directory.path.as_os_str().is_empty() {
                continue;
            }
            fs::create_dir(root.join(&directory.path)).map_err(|e| placing(&directory.path, &e))?;
        }
        plan.symlinks.iter().try_for_each(|link| place_symlink(root, link))
    }

    /// Places files; stops early when `cancel` is set.
    pub(crate) fn files(
        &self,
        root: &Path,
        files: &[PlannedFile],
        lease: &Lease,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        for file in files {
            if cancel.is_cancelled() {
                return Ok(());
            }
            let mut placed = self.file(root, file, lease);
            if placed.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::StorageFull) {
                // The cache is the first to give way when the disk is full.
                lease.make_room();
                let _ = fs::remove_file(root.join(&file.path));
                placed = self.file(root, file, lease);
            }
            placed.map_err(|e| placing(&file.path, &e))?;
        }
        Ok(())
    }

    fn file(&self, root: &Path, planned: &PlannedFile, lease: &Lease) -> io::Result<()> {
        let path = root.join(&planned.path);
        // A process started by another thread must not inherit the open file, or running it fails with
        // "text file busy".
        let _gate = SPAWN_GATE.read().unwrap_or_else(PoisonError::into_inner);
        let mut target = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        if planned.blob.size_bytes() > 0 {
            let mut source = lease.open(&planned.blob)?;
            if !self.reflink(&source, &target) {
                let copied = io::copy(&mut source, &mut target)?;
                if copied != planned.blob.size_bytes() {
                    return Err(io::Error::other(format!("the cached file has {copied} bytes")));
                }
            }
        }
        // Without write permission, as outputs of local Bazel actions are: an action that writes to its
        // inputs shows here rather than in a wrong result.
        let mode =
            mode_of(planned.properties.as_ref()).unwrap_or(if planned.executable { 0o555 } else { 0o444 });
        target.set_permissions(fs::Permissions::from_mode(mode))?;
        if let Some(mtime) = mtime_of(planned.properties.as_ref()) {
            rustix::fs::futimens(&target, &mtime)?;
        }
        Ok(())
    }

    fn reflink(&self, source: &fs::File, target: &fs::File) -> bool {
        if !self.reflinks.load(Ordering::Relaxed) {
            return false;
        }
        let shared = rustix::fs::ioctl_ficlone(target, source).is_ok();
        if !shared {
            self.reflinks.store(false, Ordering::Relaxed);
        }
        shared
    }
}

/// Applies the properties asked for directories. Last, because whatever is made inside one changes its
/// time, and its mode may forbid making anything; children before parents for the same reason.
pub(crate) fn finish_directories(root: &Path, plan: &Plan) -> Result<(), Failure> {
    for directory in plan.directories.iter().rev() {
        let properties = directory.properties.as_ref();
        let path = root.join(&directory.path);
        let apply = || -> io::Result<()> {
            if let Some(mode) = mode_of(properties) {
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
            }
            if let Some(mtime) = mtime_of(properties) {
                rustix::fs::utimensat(CWD, &path, &mtime, AtFlags::empty())?;
            }
            Ok(())
        };
        apply().map_err(|e| placing(&directory.path, &e))?;
    }
    Ok(())
}

fn place_symlink(root: &Path, link: &PlannedSymlink) -> Result<(), Failure> {
    let path = root.join(&link.path);
    symlink(&link.target, &path).map_err(|e| placing(&link.path, &e))?;
    if let Some(mtime) = mtime_of(link.properties.as_ref()) {
        rustix::fs::utimensat(CWD, &path, &mtime, AtFlags::SYMLINK_NOFOLLOW)
            .map_err(|e| placing(&link.path, &e.into()))?;
    }
    Ok(())
}

/// Permission bits only: an input must not become set-uid root because the worker is root.
fn mode_of(properties: Option<&NodeProperties>) -> Option<u32> {
    properties.and_then(|p| p.unix_mode).map(|mode| mode & 0o777)
}

fn mtime_of(properties: Option<&NodeProperties>) -> Option<Timestamps> {
    let mtime = properties.and_then(|p| p.mtime.as_ref())?;
    Some(Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: mtime.seconds,
            tv_nsec: mtime.nanos.clamp(0, 999_999_999).into(),
        },
    })
}

fn placing(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::InvalidFilename {
        return Failure::invalid(format!("the input path {path:?} is too long for a file system"));
    }
    Failure::io(format_args!("placing input {path:?}"), error)
}
