//! Which blobs an action result needs.

use bytes::Bytes;
use pointsman_digest::{Digest, DigestError, DigestFunction};
use pointsman_proto::rev2::{ActionResult, Directory, Tree};
use prost::Message;
use tracing::warn;

use crate::Storage;
use crate::error::StorageError;

/// The largest Tree or Directory that a look-up reads. A result with a larger one is a miss: nothing vouches for
/// the files in it.
const TREE_MAX_BYTES: u64 = 128 << 20;

/// What an action result refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Blobs that stand for themselves: output files, stdout, stderr, root directories.
    pub blobs: Vec<Digest>,
    /// Tree messages, whose files are needed as well.
    pub trees: Vec<Digest>,
    /// Root Directory messages of output directories that have no Tree; all below them is needed as well.
    pub roots: Vec<Digest>,
}

/// Lists what `result` refers to; fails when one of its digests is malformed or a file has none.
pub fn references_of_result(
    function: DigestFunction,
    result: &ActionResult,
) -> Result<References, DigestError> {
    let mut references = References::default();
    for file in &result.output_files {
        let digest = Digest::from_field(function, "digest of an output file", file.digest.as_ref())?;
        references.blobs.push(digest);
    }
    for directory in &result.output_directories {
        let root = directory.root_directory_digest.as_ref();
        let root = root.map(|digest| Digest::from_proto(function, digest)).transpose()?;
        match (&directory.tree_digest, root) {
            (None, Some(root)) => references.roots.push(root),
            (tree, root) => {
                let field = "tree_digest of an output directory";
                references.trees.push(Digest::from_field(function, field, tree.as_ref())?);
                references.blobs.extend(root);
            }
        }
    }
    for digest in [&result.stdout_digest, &result.stderr_digest].into_iter().flatten() {
        references.blobs.push(Digest::from_proto(function, digest)?);
    }
    Ok(references)
}

/// Lists the files in a Tree.
pub fn references_of_tree(function: DigestFunction, tree: &Tree) -> Result<Vec<Digest>, DigestError> {
    let files = tree.root.iter().chain(&tree.children).flat_map(|directory| &directory.files);
    files
        .map(|file| Digest::from_field(function, "digest of a file in a tree", file.digest.as_ref()))
        .collect()
}

/// Whether everything that `result` refers to is in `storage`; counts as a use of all of it.
///
/// Blobs are asked for first and Trees read only then: most misses show without reading anything.
pub async fn outputs_present(
    storage: &(impl Storage + ?Sized),
    function: DigestFunction,
    result: &ActionResult,
) -> Result<bool, StorageError> {
    let References { mut blobs, trees, roots } = references_of_result(function, result)?;
    blobs.extend(trees.iter().chain(&roots));
    if !storage.find_missing(&blobs).await?.is_empty() {
        return Ok(false);
    }
    let mut files = Vec::new();
    for digest in &trees {
        let Some(data) = read_message(storage, digest).await? else { return Ok(false) };
        match Tree::decode(data) {
            Ok(tree) => files.extend(references_of_tree(function, &tree)?),
            Err(error) => {
                warn!(%digest, %error, "output directory is no Tree message, its action result is a miss");
                return Ok(false);
            }
        }
    }
    if !storage.find_missing(&files).await?.is_empty() {
        return Ok(false);
    }
    directories_present(storage, function, roots).await
}

/// A result, if all that it refers to is in `storage`. One that can't be checked is a miss.
pub(crate) async fn if_complete(
    storage: &(impl Storage + ?Sized),
    action: &Digest,
    result: ActionResult,
) -> Result<Option<ActionResult>, StorageError> {
    match outputs_present(storage, action.function(), &result).await {
        Ok(present) => Ok(present.then_some(result)),
        Err(StorageError::Digest(error)) => {
            warn!(%action, %error, "outputs of an action result can't be checked, it is a miss");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}

/// Walks Directory messages level by level.
async fn directories_present(
    storage: &(impl Storage + ?Sized),
    function: DigestFunction,
    mut level: Vec<Digest>,
) -> Result<bool, StorageError> {
    let mut seen = std::collections::HashSet::new();
    while !level.is_empty() {
        let mut below = Vec::new();
        let mut files = Vec::new();
        for digest in level {
            if !seen.insert(digest) {
                continue;
            }
            let Some(data) = read_message(storage, &digest).await? else { return Ok(false) };
            let Ok(directory) = Directory::decode(data) else {
                warn!(%digest, "output directory is no Directory message, its action result is a miss");
                return Ok(false);
            };
            for file in &directory.files {
                files.push(Digest::from_field(function, "digest of a file", file.digest.as_ref())?);
            }
            for node in &directory.directories {
                below.push(Digest::from_field(function, "digest of a directory", node.digest.as_ref())?);
            }
        }
        if !storage.find_missing(&files).await?.is_empty() {
            return Ok(false);
        }
        level = below;
    }
    Ok(true)
}

/// Reads a message, or says that it is gone; also when it vanished since it was looked up.
async fn read_message(
    storage: &(impl Storage + ?Sized),
    digest: &Digest,
) -> Result<Option<Bytes>, StorageError> {
    match storage.read_blob(digest, TREE_MAX_BYTES).await {
        Ok(data) => Ok(Some(data)),
        Err(StorageError::NotFound { .. }) => Ok(None),
        Err(StorageError::TooLarge { .. }) => {
            warn!(%digest, max_bytes = TREE_MAX_BYTES, "output tree is too large to check, its action result is a miss");
            Ok(None)
        }
        Err(other) => Err(other),
    }
}
