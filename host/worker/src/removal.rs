//! Removing what an action left, whatever it left.
//!
//! A tree is taken apart at its top: the subdirectories of each directory move up to the top before the
//! directory goes. So nothing here recurses or holds a file descriptor per level, and no path gets long: a
//! test that makes directories inside each other until the disk is full must not end the worker too.
use rustix::{
    fd::{AsFd as _, BorrowedFd, OwnedFd},
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fchmod, openat, renameat, statat, unlinkat},
    io::Errno,
};
use std::{
    ffi::{CStr, CString},
    io,
    path::Path,
};

/// Attempts for a tree into which a dying process still writes.
const ATTEMPTS: usize = 4;

/// Removes a tree, also one whose directories forbid it. One that is not there is no error. Blocks.
pub(crate) fn remove_tree(path: &Path) -> io::Result<()> {
    let mut outcome = Ok(());
    for _ in 0..ATTEMPTS {
        outcome = attempt(path);
        match outcome {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
            done => return Ok(done?),
        }
    }
    Ok(outcome?)
}

fn attempt(path: &Path) -> Result<(), Errno> {
    let top = match open(CWD, path) {
        Ok(top) => top,
        Err(Errno::NOENT) => return Ok(()),
        // It is a file or a link.
        Err(Errno::NOTDIR | Errno::LOOP) => return unlinkat(CWD, path, AtFlags::empty()),
        Err(error) => return Err(error),
    };
    let mut directories = unlink_files(top.as_fd())?;
    let mut names = Names::avoiding(&directories);
    while !directories.is_empty() {
        for name in &directories {
            take_apart(top.as_fd(), name, &mut names)?;
        }
        directories = unlink_files(top.as_fd())?;
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR)
}

/// Removes one directory; what was a directory in it is one in `top` afterwards.
fn take_apart(top: BorrowedFd<'_>, name: &CStr, names: &mut Names) -> Result<(), Errno> {
    let directory = open(top, name)?;
    for inner in unlink_files(directory.as_fd())? {
        let target = names.next();
        match renameat(&directory, &inner, top, &target) {
            // A directory can move only if it may be written to.
            Err(Errno::ACCESS) => {
                open(directory.as_fd(), &*inner)?;
                renameat(&directory, &inner, top, &target)?;
            }
            done => done?,
        }
    }
    unlinkat(top, name, AtFlags::REMOVEDIR)
}

/// Opens a directory, never through a symbolic link, and makes it one that can be emptied.
fn open(at: BorrowedFd<'_>, name: impl rustix::path::Arg + Copy) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(at, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // Unreadable, so it can't be changed by way of an open file; a link can't be here, since those
            // are not refused this way.
            rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
            openat(at, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    // Best effort: whoever may not do this may not empty it either, and hears of that.
    let _ = fchmod(&directory, Mode::RWXU);
    Ok(directory)
}

/// Removes all that is no directory; gives the names of the directories.
fn unlink_files(directory: BorrowedFd<'_>) -> Result<Vec<CString>, Errno> {
    let mut directories = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if is_directory(directory, &entry)? {
            directories.push(name.to_owned());
        } else {
            unlinkat(directory, name, AtFlags::empty())?;
        }
    }
    Ok(directories)
}

fn is_directory(at: BorrowedFd<'_>, entry: &rustix::fs::DirEntry) -> Result<bool, Errno> {
    match entry.file_type() {
        // Some file systems don't say.
        FileType::Unknown => {
            let meta = statat(at, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
            Ok(FileType::from_raw_mode(meta.st_mode).is_dir())
        }
        kind => Ok(kind.is_dir()),
    }
}

/// Names for directories on their way to the top, none of which is taken there.
struct Names {
    prefix: String,
    next: u64,
}

impl Names {
    fn avoiding(taken: &[CString]) -> Self {
        loop {
            let prefix = format!("{:016x}.", fastrand::u64(..));
            if !taken.iter().any(|name| name.as_bytes().starts_with(prefix.as_bytes())) {
                return Self { prefix, next: 0 };
            }
        }
    }

    fn next(&mut self) -> String {
        self.next += 1;
        format!("{}{}", self.prefix, self.next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::mkdirat;
    use std::fs;

    /// Directories inside each other, each with a file, far deeper than any path or call stack goes.
    fn dig(root: &Path, levels: usize, mode: Mode) {
        let mut at = open(CWD, root).unwrap();
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            drop(openat(&at, "f", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap());
            let inner = openat(&at, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
            fchmod(&at, mode).unwrap();
            at = inner;
        }
    }

    #[test]
    fn a_bottomless_tree_goes_with_a_small_stack_and_few_files() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().join("root");
        fs::create_dir(&root).unwrap();
        dig(&root, 3000, Mode::RWXU);
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small.spawn(move || remove_tree(&root)).unwrap().join().unwrap().unwrap();
        assert_eq!(fs::read_dir(tmp.path()).unwrap().count(), 0);
    }

    #[test]
    fn directories_that_forbid_it_and_wide_ones_go() {
        let tmp = tempfile::tempdir().unwrap();
        let root = tmp.path().join("root");
        fs::create_dir(&root).unwrap();
        for name in ["a", "b", "c"] {
            let sub = root.join(name);
            fs::create_dir_all(sub.join("x/y")).unwrap();
            (0..200).for_each(|n| fs::create_dir(sub.join(n.to_string())).unwrap());
            dig(&sub.join("x/y"), 5, Mode::empty());
        }
        remove_tree(&root).unwrap();
        assert!(!root.exists());
        remove_tree(&root).unwrap();
    }

    #[test]
    fn what_links_point_to_stays() {
        let tmp = tempfile::tempdir().unwrap();
        let (root, other) = (tmp.path().join("root"), tmp.path().join("other"));
        fs::create_dir_all(root.join("sub")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("f"), "").unwrap();
        std::os::unix::fs::symlink(&other, root.join("link")).unwrap();
        std::os::unix::fs::symlink(&other, root.join("sub/link")).unwrap();
        remove_tree(&root).unwrap();
        std::os::unix::fs::symlink(&other, &root).unwrap();
        remove_tree(&root).unwrap();
        assert!(!root.is_symlink() && other.join("f").exists());
    }
}
