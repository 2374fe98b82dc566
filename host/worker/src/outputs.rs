//! What an action produced: the outputs that its Command lists, as an `ActionResult` and blobs to upload.
use crate::{cache::hash_file, cas::Source, error::Failure, paths::check_relative, tree::TreeBuilder};
use pointsman_digest::{Digest, DigestFunction};
use pointsman_proto::rev2::{
    ActionResult, Command, NodeProperties, OutputDirectory, OutputFile, OutputSymlink,
    command::OutputDirectoryFormat,
};
use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};
use tokio_util::sync::CancellationToken;
use tonic::Code;

/// The outputs that a Command asks for, checked.
pub(crate) struct Wanted {
    paths: Vec<WantedPath>,
    format: OutputDirectoryFormat,
    pub(crate) properties: WantedProperties,
}

struct WantedPath {
    /// As the client wrote it: it has to come back the same.
    name: String,
    clean: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// From `output_paths`.
    Any,
    /// From `output_files`.
    File,
    /// From `output_directories`.
    Directory,
}

/// Which node properties go into results.
#[derive(Clone, Copy, Default)]
pub(crate) struct WantedProperties {
    mtime: bool,
    unix_mode: bool,
}

/// Result and blobs of one action.
#[derive(Default)]
pub(crate) struct Collected {
    pub(crate) result: ActionResult,
    pub(crate) blobs: HashMap<Digest, Source>,
    /// Why an output is not what the Command says, for actions that claim success.
    pub(crate) mismatch: Option<Failure>,
}

impl Wanted {
    /// `output_paths`, else `output_files` and `output_directories`, which clients below REv2 2.1 send and
    /// newer ones add.
    #[allow(deprecated)]
    pub(crate) fn of(command: &Command) -> Result<Self, Failure> {
        let mut paths = Vec::new();
        let mut add = |names: &[String], kind| {
            for name in names {
                let clean = check_relative("the output path", name)?;
                if clean.as_os_str().is_empty() && kind == Kind::File {
                    return Err(Failure::invalid("an output file has an empty path"));
                }
                paths.push(WantedPath { name: name.clone(), clean, kind });
            }
            Ok(())
        };
        if command.output_paths.is_empty() {
            add(&command.output_files, Kind::File)?;
            add(&command.output_directories, Kind::Directory)?;
        } else {
            add(&command.output_paths, Kind::Any)?;
        }
        let mut properties = WantedProperties::default();
        for name in &command.output_node_properties {
            match name.as_str() {
                "mtime" => properties.mtime = true,
                "unix_mode" => properties.unix_mode = true,
                _ => {
                    return Err(Failure::invalid(format!(
                        "the Command wants node property {name:?} of its outputs; this worker knows mtime and unix_mode"
                    )));
                }
            }
        }
        // A format that is not known is to be read as the default (REv2, `Command.output_directory_format`).
        let format = OutputDirectoryFormat::try_from(command.output_directory_format).unwrap_or_default();
        Ok(Self { paths, format, properties })
    }

    /// The directories that must exist before the action runs, relative to the working directory: those
    /// *above* the outputs, as REv2 says, and what `output_directories` names. REv2 leaves the latter to the
    /// action, but the old clients that send nothing else make it themselves when they run an action, so their
    /// actions count on it; Buildbarn's workers make it too.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &Path> {
        self.paths.iter().filter_map(|path| match path.kind {
            Kind::Directory => Some(path.clean.as_path()),
            Kind::Any | Kind::File => path.clean.parent(),
        })
    }

    /// Looks for all outputs below `directory`, the working directory, and hashes them. What is not there
    /// is left out. Blocks: one thread per action, as many actions hash at the same time. A file that costs no
    /// disk may take days to read, so it stops in the middle of one when `cancel` is set.
    pub(crate) fn collect(
        &self,
        directory: &Path,
        function: DigestFunction,
        cancel: &CancellationToken,
    ) -> Result<Collected, Failure> {
        let mut collected = Collected::default();
        for wanted in &self.paths {
            let path = directory.join(&wanted.clean);
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                    continue;
                }
                Err(e) => return Err(Failure::io(format_args!("looking at output {:?}", wanted.name), &e)),
            };
            self.add(&mut collected, wanted, &path, &meta, function, cancel)?;
        }
        Ok(collected)
    }

    fn add(
        &self,
        collected: &mut Collected,
        wanted: &WantedPath,
        path: &Path,
        meta: &fs::Metadata,
        function: DigestFunction,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let failing = |e: &io::Error| Failure::io(format_args!("reading output {:?}", wanted.name), e);
        let found = if meta.is_symlink() {
            return self.add_symlink(collected, wanted, path, meta).map_err(|e| failing(&e));
        } else if meta.is_dir() {
            Kind::Directory
        } else if meta.is_file() {
            Kind::File
        } else {
            collected.mismatch(wanted, "is neither a file nor a directory nor a symbolic link");
            return Ok(());
        };
        if wanted.kind != Kind::Any && wanted.kind != found {
            collected.mismatch(wanted, if found == Kind::File { "is a file" } else { "is a directory" });
            return Ok(());
        }
        if found == Kind::File {
            let blob = hash_output(path, meta, function, cancel).map_err(|e| failing(&e))?;
            collected.blobs.insert(blob, Source::File(path.to_owned()));
            collected.result.output_files.push(OutputFile {
                path: wanted.name.clone(),
                digest: Some(blob.to_proto()),
                is_executable: is_executable(meta),
                contents: Default::default(),
                node_properties: self.properties.of(meta),
            });
            return Ok(());
        }
        let with_tree = self.format != OutputDirectoryFormat::DirectoryOnly;
        let builder = TreeBuilder::new(function, self.properties, cancel);
        let tree = builder.build(path, &wanted.name)?;
        collected.blobs.extend(tree.blobs);
        let tree_digest = with_tree.then(|| {
            let blob = Digest::of(function, &tree.encoded);
            collected.blobs.insert(blob, Source::Bytes(tree.encoded));
            blob.to_proto()
        });
        collected.result.output_directories.push(OutputDirectory {
            path: wanted.name.clone(),
            is_topologically_sorted: tree_digest.is_some(),
            tree_digest,
            root_directory_digest: (self.format != OutputDirectoryFormat::TreeOnly)
                .then(|| tree.root.to_proto()),
        });
        Ok(())
    }

    /// A link is reported, not followed. Clients of REv2 2.0 read `output_file_symlinks` and
    /// `output_directory_symlinks`, some of those that send `output_paths` too; those that read all three
    /// lists accept the repetition.
    #[allow(deprecated)]
    fn add_symlink(
        &self,
        collected: &mut Collected,
        wanted: &WantedPath,
        path: &Path,
        meta: &fs::Metadata,
    ) -> io::Result<()> {
        let target = fs::read_link(path)?;
        let Some(target) = target.to_str() else {
            collected.mismatch(wanted, "is a symbolic link whose target is not UTF-8");
            return Ok(());
        };
        let to_directory = fs::metadata(path).ok().map(|target| target.is_dir());
        match (wanted.kind, to_directory) {
            (Kind::File, Some(true)) => collected.mismatch(wanted, "is a symbolic link to a directory"),
            (Kind::Directory, Some(false)) => collected.mismatch(wanted, "is a symbolic link to a file"),
            _ => {}
        }
        let link = OutputSymlink {
            path: wanted.name.clone(),
            target: target.to_owned(),
            node_properties: self.properties.of(meta),
        };
        let result = &mut collected.result;
        if wanted.kind == Kind::Any {
            result.output_symlinks.push(link.clone());
        }
        if wanted.kind == Kind::Directory || to_directory == Some(true) {
            result.output_directory_symlinks.push(link);
        } else {
            result.output_file_symlinks.push(link);
        }
        Ok(())
    }
}

impl Collected {
    fn mismatch(&mut self, wanted: &WantedPath, what: &str) {
        let list = match wanted.kind {
            Kind::Any => "output_paths",
            Kind::File => "output_files",
            Kind::Directory => "output_directories",
        };
        let message = format!("output {:?}, which the Command lists in {list}, {what}", wanted.name);
        self.mismatch.get_or_insert(Failure::new(Code::FailedPrecondition, message));
    }

    /// Adds a file that is no listed output, such as captured output.
    pub(crate) fn add_capture(
        &mut self,
        path: &Path,
        function: DigestFunction,
        cancel: &CancellationToken,
    ) -> Result<Digest, Failure> {
        let blob = hash_file(path, function, cancel).map_err(|e| match e.kind() {
            // It would do so anywhere.
            io::ErrorKind::NotFound => Failure::new(
                Code::FailedPrecondition,
                "the command removed the file that its output was written to: it must stay in its input root",
            ),
            _ => Failure::io("reading the captured output", &e),
        })?;
        if blob.size_bytes() > 0 {
            self.blobs.insert(blob, Source::File(path.to_owned()));
        }
        Ok(blob)
    }
}

impl WantedProperties {
    pub(crate) fn of(self, meta: &fs::Metadata) -> Option<NodeProperties> {
        if !self.mtime && !self.unix_mode {
            return None;
        }
        let mtime = prost_types::Timestamp { seconds: meta.mtime(), nanos: meta.mtime_nsec() as i32 };
        Some(NodeProperties {
            properties: Vec::new(),
            mtime: self.mtime.then_some(mtime),
            unix_mode: self.unix_mode.then_some(meta.mode() & 0o7777),
        })
    }
}

pub(crate) fn is_executable(meta: &fs::Metadata) -> bool {
    meta.mode() & 0o111 != 0
}

/// Hashes an output. One that the action made unreadable is made readable: it is still an output, and the
/// upload has to read it too.
pub(crate) fn hash_output(
    path: &Path,
    meta: &fs::Metadata,
    function: DigestFunction,
    cancel: &CancellationToken,
) -> io::Result<Digest> {
    match hash_file(path, function, cancel) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(meta.mode() & 0o777 | 0o400))?;
            hash_file(path, function, cancel)
        }
        done => done,
    }
}
