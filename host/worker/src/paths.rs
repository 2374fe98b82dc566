//! Paths that clients give: checked before they touch the file system.
use crate::error::Failure;
use std::path::{Path, PathBuf};

/// Checks the name of one node of a directory: one path component and nothing clever.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let bad = matches!(name, "" | "." | "..") || name.contains(['/', '\0']);
    if bad {
        return Err(Failure::invalid(format!(
            "an input has the name {name:?}, which is not a plain file name"
        )));
    }
    Ok(())
}

/// Checks a path relative to the working directory or the input root and drops its `.` components, so that
/// `""` and `"."` are the same (rev2 allows both for the working directory).
pub(crate) fn check_relative(what: &str, path: &str) -> Result<PathBuf, Failure> {
    let refuse = |why: &str| Err(Failure::invalid(format!("{what} {path:?} {why}")));
    if path.starts_with('/') {
        return refuse("is absolute; it has to be relative");
    }
    if path.contains('\0') {
        return refuse("contains a NUL byte");
    }
    let mut clean = PathBuf::new();
    for component in path.split('/') {
        match component {
            ".." => return refuse("contains `..`, which could leave the input root"),
            "" | "." => {}
            name => clean.push(name),
        }
    }
    Ok(clean)
}

/// Makes `path` and all above it below `root`, which is canonical. Refuses to follow a symbolic link of the
/// input tree out of the root: the worker's own rights must not create directories elsewhere.
pub(crate) fn create_dirs(root: &Path, path: &Path) -> Result<(), Failure> {
    let mut full = root.to_owned();
    for component in path {
        full.push(component);
        match std::fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_dir() => {}
            Ok(meta) if meta.is_symlink() => {
                let real = std::fs::canonicalize(&full).map_err(|e| parent_failure(path, &e))?;
                if !real.starts_with(root) {
                    return Err(Failure::invalid(format!(
                        "directory {path:?} of an output leads out of the input root through a symbolic link"
                    )));
                }
            }
            Ok(_) => return Err(parent_failure(path, &std::io::ErrorKind::NotADirectory.into())),
            Err(_) => std::fs::create_dir(&full).map_err(|e| parent_failure(path, &e))?,
        }
    }
    Ok(())
}

fn parent_failure(path: &Path, error: &std::io::Error) -> Failure {
    match error.kind() {
        std::io::ErrorKind::NotADirectory | std::io::ErrorKind::AlreadyExists => Failure::invalid(format!(
            "directory {path:?} of an output can't be made, because an input that is not a directory is in its place"
        )),
        std::io::ErrorKind::InvalidFilename => Failure::invalid(format!("path {path:?} is too long")),
        _ => Failure::io(format_args!("making directory {path:?}"), error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic::Code;

    #[test]
    fn names_are_single_components() {
        assert!(check_name("a..b").is_ok());
        for bad in ["", ".", "..", "a/b", "/", "a\0"] {
            assert!(check_name(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn relative_paths_stay_inside() {
        assert_eq!(check_relative("x", "").unwrap(), PathBuf::new());
        assert_eq!(check_relative("x", ".").unwrap(), PathBuf::new());
        assert_eq!(check_relative("x", "a/./b").unwrap(), PathBuf::from("a/b"));
        for bad in ["/a", "..", "a/../b", "a/..", "a\0"] {
            assert_eq!(check_relative("x", bad).unwrap_err().code, Code::InvalidArgument, "{bad:?}");
        }
    }

    #[test]
    fn directories_are_not_made_through_links_that_lead_out() {
        let tmp = tempfile::tempdir().unwrap();
        let base = tmp.path().canonicalize().unwrap();
        let root = base.join("root");
        std::fs::create_dir_all(root.join("real")).unwrap();
        std::fs::write(root.join("file"), "").unwrap();
        std::os::unix::fs::symlink("real", root.join("inner")).unwrap();
        std::os::unix::fs::symlink(&base, root.join("outer")).unwrap();
        create_dirs(&root, Path::new("a/b/c")).unwrap();
        create_dirs(&root, Path::new("a/b/c")).unwrap();
        create_dirs(&root, Path::new("inner/x/y")).unwrap();
        assert!(root.join("real/x/y").is_dir());
        assert!(create_dirs(&root, Path::new("outer/x/y")).is_err());
        assert!(!base.join("x").exists());
        assert_eq!(create_dirs(&root, Path::new("file/x")).unwrap_err().code, Code::InvalidArgument);
    }
}
