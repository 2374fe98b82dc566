//! Input directories: fetched level by level, kept decoded in memory for later actions.
use crate::{cas::Store, error::Failure, paths::check_name};
use lru::LruCache;
use pointsman_digest::Digest;
use pointsman_proto::rev2::{Directory, NodeProperties};
use prost::Message as _;
use std::{
    collections::{HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

/// More files, directories and links than this in one input root are refused: a few hundred bytes of
/// directories that name each other many times could otherwise fill the disk.
const NODES_MAX: usize = 2_000_000;
/// A longer path can't be given to the operating system; refused before a chain of directories of some
/// megabytes becomes gigabytes of paths.
const PATH_MAX_BYTES: usize = 4096;
/// All paths of one input root together, for the same reason.
const PATHS_MAX_BYTES: usize = 512 << 20;
/// All `Directory` messages of one input root together: they are in memory at one time.
const TREE_MAX_BYTES: u64 = 512 << 20;
/// What a decoded directory costs in memory for each encoded byte, roughly.
const DECODED_FACTOR: u64 = 3;

/// Decoded directories by digest, bounded in bytes.
pub(crate) struct Directories {
    max_bytes: u64,
    known: Mutex<(LruCache<Digest, Arc<Directory>>, u64)>,
}

/// What has to be made of an input root, paths relative to it, parents before children.
#[derive(Default)]
pub(crate) struct Plan {
    pub(crate) directories: Vec<PlannedDirectory>,
    pub(crate) files: Vec<PlannedFile>,
    pub(crate) symlinks: Vec<PlannedSymlink>,
    path_bytes: usize,
}

pub(crate) struct PlannedDirectory {
    pub(crate) path: PathBuf,
    pub(crate) properties: Option<NodeProperties>,
}

pub(crate) struct PlannedFile {
    pub(crate) path: PathBuf,
    pub(crate) blob: Digest,
    pub(crate) executable: bool,
    pub(crate) properties: Option<NodeProperties>,
}

pub(crate) struct PlannedSymlink {
    pub(crate) path: PathBuf,
    pub(crate) target: String,
    pub(crate) properties: Option<NodeProperties>,
}

impl Directories {
    pub(crate) fn new(max_bytes: u64) -> Self {
        Self { max_bytes, known: Mutex::new((LruCache::unbounded(), 0)) }
    }

    /// Lays out the tree below `root`, fetching what is not known.
    pub(crate) async fn plan(&self, store: &Store, root: Digest) -> Result<Plan, Failure> {
        let tree = self.load(store, &root).await?;
        let mut plan = Plan::default();
        let mut stack = vec![(PathBuf::new(), root)];
        while let Some((path, blob)) = stack.pop() {
            let directory = tree.get(&blob).ok_or_else(|| Failure::missing(vec![blob]))?;
            plan.add(store, &path, directory, &mut stack)?;
            let nodes = plan.directories.len() + plan.files.len() + plan.symlinks.len() + stack.len();
            if nodes > NODES_MAX {
                return Err(Failure::invalid(format!("the input root has more than {NODES_MAX} nodes")));
            }
        }
        Ok(plan)
    }

    /// All directories below `root`, each once.
    async fn load(&self, store: &Store, root: &Digest) -> Result<HashMap<Digest, Arc<Directory>>, Failure> {
        let mut tree = HashMap::new();
        // With the length of the shortest path to each.
        let mut level = HashMap::from([(*root, 0)]);
        let mut missing = Vec::new();
        let mut bytes = 0_u64;
        while !level.is_empty() {
            bytes = level.keys().fold(bytes, |sum, blob| sum.saturating_add(blob.size_bytes()));
            if bytes > TREE_MAX_BYTES {
                return Err(Failure::invalid(format!(
                    "the directories of the input root have more than {TREE_MAX_BYTES} bytes"
                )));
            }
            let mut found = self.recall(level.keys());
            let wanted: Vec<_> = level.keys().filter(|blob| !found.contains_key(blob)).cloned().collect();
            if !wanted.is_empty() {
                for (blob, data) in store.read_many(wanted).await? {
                    match data {
                        Some(data) => {
                            let directory = decode(&blob, &data)?;
                            self.remember(&blob, &directory);
                            found.insert(blob, directory);
                        }
                        None => missing.push(blob),
                    }
                }
            }
            let mut next = HashMap::new();
            for (blob, directory) in &found {
                let above = level.get(blob).copied().unwrap_or_default();
                for node in &directory.directories {
                    let child = store.digest(&node.name, node.digest.as_ref())?;
                    let length = above + node.name.len() + 1;
                    next.entry(child)
                        .and_modify(|least: &mut usize| *least = length.min(*least))
                        .or_insert(length);
                }
            }
            tree.extend(found);
            next.retain(|blob, _| !tree.contains_key(blob));
            level = next;
            if level.values().any(|length| *length > PATH_MAX_BYTES) {
                return Err(path_too_long());
            }
        }
        missing.sort();
        if missing.is_empty() { Ok(tree) } else { Err(Failure::missing(missing)) }
    }

    fn recall<'a>(&self, blobs: impl Iterator<Item = &'a Digest>) -> HashMap<Digest, Arc<Directory>> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        blobs.filter_map(|blob| known.0.get(blob).map(|d| (*blob, Arc::clone(d)))).collect()
    }

    fn remember(&self, blob: &Digest, directory: &Arc<Directory>) {
        let cost = |blob: &Digest| blob.size_bytes() * DECODED_FACTOR + 512;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (entries, bytes) = &mut *known;
        if entries.put(*blob, Arc::clone(directory)).is_none() {
            *bytes += cost(blob);
        }
        while *bytes > self.max_bytes {
            let Some((gone, _)) = entries.pop_lru() else { break };
            *bytes -= cost(&gone);
        }
    }
}

impl Plan {
    fn add(
        &mut self,
        store: &Store,
        path: &Path,
        directory: &Directory,
        stack: &mut Vec<(PathBuf, Digest)>,
    ) -> Result<(), Failure> {
        let properties = directory.node_properties.clone();
        self.directories.push(PlannedDirectory { path: path.to_owned(), properties });
        for node in &directory.directories {
            stack.push((self.join(path, &node.name)?, store.digest(&node.name, node.digest.as_ref())?));
        }
        for node in &directory.files {
            let path = self.join(path, &node.name)?;
            self.files.push(PlannedFile {
                path,
                blob: store.digest(&node.name, node.digest.as_ref())?,
                executable: node.is_executable,
                properties: node.node_properties.clone(),
            });
        }
        for node in &directory.symlinks {
            let path = self.join(path, &node.name)?;
            self.symlinks.push(PlannedSymlink {
                path,
                target: node.target.clone(),
                properties: node.node_properties.clone(),
            });
        }
        Ok(())
    }

    fn join(&mut self, path: &Path, name: &str) -> Result<PathBuf, Failure> {
        let bytes = path.as_os_str().len() + 1 + name.len();
        self.path_bytes += bytes;
        if bytes > PATH_MAX_BYTES {
            return Err(path_too_long());
        }
        if self.path_bytes > PATHS_MAX_BYTES {
            return Err(Failure::invalid(format!(
                "the paths of the input root have more than {PATHS_MAX_BYTES} bytes together"
            )));
        }
        Ok(path.join(name))
    }
}

fn path_too_long() -> Failure {
    Failure::invalid(format!("a path of the input root is longer than {PATH_MAX_BYTES} bytes"))
}

/// Decodes a directory and checks its names: each one component, none twice.
fn decode(blob: &Digest, data: &[u8]) -> Result<Arc<Directory>, Failure> {
    let directory = Directory::decode(data)
        .map_err(|e| Failure::invalid(format!("{} is not a directory of an input root: {e}", blob.path())))?;
    let names = (directory.files.iter().map(|n| &n.name))
        .chain(directory.directories.iter().map(|n| &n.name))
        .chain(directory.symlinks.iter().map(|n| &n.name));
    let mut seen = HashSet::new();
    for name in names {
        check_name(name)?;
        if !seen.insert(name) {
            return Err(Failure::invalid(format!("input directory {} has two nodes {name:?}", blob.path())));
        }
    }
    for node in &directory.symlinks {
        if node.target.is_empty() || node.target.contains('\0') {
            return Err(Failure::invalid(format!(
                "the symbolic link {:?} of the inputs has target {:?}",
                node.name, node.target
            )));
        }
    }
    Ok(Arc::new(directory))
}
