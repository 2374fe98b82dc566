//! Output directories as `Tree` messages.
use crate::{
    cas::Source,
    error::Failure,
    outputs::{WantedProperties, hash_output, is_executable},
};
use bytes::{BufMut as _, Bytes, BytesMut};
use pointsman_digest::{Digest, DigestFunction};
use pointsman_proto::rev2::{Directory, DirectoryNode, FileNode, SymlinkNode};
use prost::Message as _;
use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::Path,
};
use tokio_util::sync::CancellationToken;

/// Deeper output directories are refused; paths are limited to 4,096 bytes anyway.
const DEPTH_MAX: usize = 512;

/// An output directory ready for upload.
pub(crate) struct Tree {
    /// The `Tree` message: root first, each directory once, parents before children.
    pub(crate) encoded: Bytes,
    pub(crate) root: Digest,
    /// Files below it, and its `Directory` messages. Those are of no use to most clients, but some stores take a result
    /// whose Tree has a directory that is no blob for incomplete (buildbox-casd).
    pub(crate) blobs: HashMap<Digest, Source>,
}

/// Reads one output directory.
pub(crate) struct TreeBuilder<'a> {
    function: DigestFunction,
    properties: WantedProperties,
    blobs: HashMap<Digest, Source>,
    /// Children before parents, each once.
    done: Vec<Bytes>,
    seen: HashSet<Digest>,
    cancel: &'a CancellationToken,
}

impl<'a> TreeBuilder<'a> {
    pub(crate) fn new(
        function: DigestFunction,
        properties: WantedProperties,
        cancel: &'a CancellationToken,
    ) -> Self {
        Self { function, properties, blobs: HashMap::new(), done: Vec::new(), seen: HashSet::new(), cancel }
    }

    /// `name` names the output in errors.
    pub(crate) fn build(mut self, path: &Path, name: &str) -> Result<Tree, Failure> {
        let root = self.directory(path, name, 0)?;
        // Written record by record: the order of the encoding is part of the promise made by
        // `is_topologically_sorted`. Backwards, children-first is parents-first.
        let mut encoded = BytesMut::new();
        for (index, directory) in self.done.iter().rev().enumerate() {
            encoded.put_u8(if index == 0 { 0x0a } else { 0x12 });
            prost::encoding::encode_varint(directory.len() as u64, &mut encoded);
            encoded.put_slice(directory);
        }
        Ok(Tree { encoded: encoded.freeze(), root, blobs: self.blobs })
    }

    fn directory(&mut self, path: &Path, name: &str, depth: usize) -> Result<Digest, Failure> {
        let failing = |e: &io::Error| Failure::io(format_args!("reading output {name:?}"), e);
        if depth > DEPTH_MAX {
            return Err(Failure::invalid(format!("output {name:?} has more than {DEPTH_MAX} levels")));
        }
        let mut directory = Directory::default();
        let meta = fs::metadata(path).map_err(|e| failing(&e))?;
        directory.node_properties = self.properties.of(&meta);
        for entry in list(path).map_err(|e| failing(&e))? {
            let file_name = entry.file_name();
            let node = file_name.to_str().ok_or_else(|| {
                Failure::invalid(format!("output {name:?} contains {file_name:?}, which is not UTF-8"))
            })?;
            let (node, child) = (node.to_owned(), entry.path());
            let meta = fs::symlink_metadata(&child).map_err(|e| failing(&e))?;
            if meta.is_dir() {
                let digest = Some(self.directory(&child, name, depth + 1)?.to_proto());
                directory.directories.push(DirectoryNode { name: node, digest });
            } else if meta.is_symlink() {
                let target = fs::read_link(&child).map_err(|e| failing(&e))?;
                let target = target.to_str().ok_or_else(|| {
                    Failure::invalid(format!(
                        "output {name:?} contains a link to {target:?}, which is not UTF-8"
                    ))
                })?;
                let node_properties = self.properties.of(&meta);
                directory.symlinks.push(SymlinkNode {
                    name: node,
                    target: target.to_owned(),
                    node_properties,
                });
            } else if meta.is_file() {
                let blob = hash_output(&child, &meta, self.function, self.cancel).map_err(|e| failing(&e))?;
                self.blobs.insert(blob, Source::File(child));
                directory.files.push(FileNode {
                    name: node,
                    digest: Some(blob.to_proto()),
                    is_executable: is_executable(&meta),
                    node_properties: self.properties.of(&meta),
                });
            }
            // Sockets, pipes and devices have no form in REv2 and are left out.
        }
        Ok(self.finish(directory))
    }

    fn finish(&mut self, directory: Directory) -> Digest {
        let encoded = Bytes::from(directory.encode_to_vec());
        let blob = Digest::of(self.function, &encoded);
        if self.seen.insert(blob) {
            self.blobs.insert(blob, Source::Bytes(encoded.clone()));
            self.done.push(encoded);
        }
        blob
    }
}

/// Entries by name, bytewise, as the canonical form wants them. One that the action made unreadable is made
/// readable.
fn list(path: &Path) -> io::Result<Vec<fs::DirEntry>> {
    let read = match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            fs::read_dir(path)?
        }
        read => read?,
    };
    let mut entries = read.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    Ok(entries)
}
