//! What is kept of policies over a restart: `STATE_DIR/policies`, with the components that are or were in force, and a
//! file per link that says which they are and what happened.
//!
//! ```text
//! policies/components/SHA256.wasm    a component, or core module, as it was given
//! policies/links/NAME.json           a `LinkState`
//! policies/cwasm/                    compiled components (module `cwasm`)
//! ```

mod link;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::folder::{Durable, Folder, FolderError};
use crate::loader::digest_hex;

pub use link::{Event, LinkState, RolledBack, Source, Trial, TrialMode, Version};

/// The format that this version writes, and the newest that it reads.
const FORMAT: u32 = 1;

/// More than any component that is allowed to be loaded.
const COMPONENT_BYTES_MAX: u64 = 1 << 30;

/// More than a file of a link ever has.
const LINK_BYTES_MAX: u64 = 16 << 20;

/// What file systems take as a name, with room for `.json.damaged`.
const FILE_NAME_MAX: usize = 200;

/// Why something can't be kept, or not be had back.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file or folder can't be used.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A component is not there.
    #[error("the policy with sha256 {digest_hex} is not kept in {}; push it again", .folder.display())]
    Missing {
        /// SHA-256 that was asked for.
        digest_hex: String,
        /// Where it would be.
        folder: PathBuf,
    },
    /// What was kept is not what was put there.
    #[error("the kept policy {} has other bytes than when it was written, so it is not used; push it again", .path.display())]
    Damaged {
        /// Where it lies now.
        path: PathBuf,
    },
    /// A later version of the program has written it.
    #[error(
        "{} was written by a newer version of this program (format {format}, this one knows up to {FORMAT}); \
         start that version, or move the file away to begin without its history", .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        format: u64,
    },
    /// A link has a name that can't be that of a file.
    #[error(
        "the name of the policy {name:?} is too long to keep its state; allowed are {FILE_NAME_MAX} bytes"
    )]
    Name {
        /// The name.
        name: String,
    },
}

/// The folder of policies below the state folder.
#[derive(Debug)]
pub struct Archive {
    root: Folder,
    components: Folder,
    links: Folder,
}

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Components that are gone.
    pub components: usize,
    /// Their size in all.
    pub bytes: u64,
}

impl Archive {
    /// Opens a folder; made when it is not there.
    ///
    /// # Errors
    /// When it can't be made, belongs to somebody else, is a symbolic link, or others may write to it.
    pub fn open(folder: &Path) -> Result<Self, ArchiveError> {
        let root = Folder::open(folder)?;
        let (components, links) = (root.folder("components")?, root.folder("links")?);
        Ok(Self { root, components, links })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.root.path()
    }

    /// Keeps a component. Gives its SHA-256 once it is on the disk, whole.
    ///
    /// # Errors
    /// When it can't be written, on a full disk for instance. What was kept before is still there.
    pub fn keep(&self, bytes: &[u8]) -> Result<String, ArchiveError> {
        let digest_hex = digest_hex(bytes);
        let name = component_name(&digest_hex);
        let there = |name: &str| match self.components.read(name, COMPONENT_BYTES_MAX) {
            Ok(there) => there.is_some_and(|there| there == bytes),
            Err(_) => false,
        };
        if !there(&name) {
            self.components.write(&name, bytes, Durable::Yes)?;
            if !there(&name) {
                return Err(self.damaged(&name)?);
            }
        }
        Ok(digest_hex)
    }

    /// A kept component, checked by its SHA-256.
    ///
    /// # Errors
    /// When it is not there, or not as it was when it was kept. In that case it is set aside.
    pub fn component(&self, digest_hex: &str) -> Result<Vec<u8>, ArchiveError> {
        let missing = || ArchiveError::Missing {
            digest_hex: digest_hex.to_owned(),
            folder: self.components.path().to_owned(),
        };
        // Names of files are made of it.
        if !is_digest(digest_hex) {
            return Err(missing());
        }
        let name = component_name(digest_hex);
        let bytes = self.components.read(&name, COMPONENT_BYTES_MAX)?.ok_or_else(missing)?;
        if self::digest_hex(&bytes) == digest_hex { Ok(bytes) } else { Err(self.damaged(&name)?) }
    }

    fn damaged(&self, name: &str) -> Result<ArchiveError, FolderError> {
        let path = self.components.set_aside(name)?;
        Ok(ArchiveError::Damaged { path })
    }

    /// What is known about a link. `None`: nothing, or its file was damaged and has been set aside.
    ///
    /// # Errors
    /// When a newer version of the program wrote the file, or it can't be read.
    pub fn link(&self, name: &str) -> Result<Option<LinkState>, ArchiveError> {
        let file = link_name(name)?;
        let Some(text) = self.links.read(&file, LINK_BYTES_MAX)? else { return Ok(None) };
        match read_link(&text) {
            Ok(state) => Ok(Some(state)),
            Err(Unread::Newer(format)) => {
                Err(ArchiveError::Newer { path: self.links.path().join(file), format })
            }
            Err(Unread::Damaged(problem)) => {
                let aside = self.links.set_aside(&file)?;
                tracing::warn!(
                    policy = name,
                    file = %aside.display(),
                    "the history of this policy can't be read and was set aside, the policy begins without: {problem}"
                );
                Ok(None)
            }
        }
    }

    /// Keeps the state of a link, within its bounds.
    ///
    /// # Errors
    /// When it can't be written. The old state is still there.
    pub fn save_link(&self, name: &str, state: &LinkState) -> Result<(), ArchiveError> {
        let file = link_name(name)?;
        let content = LinkFile { format: FORMAT, state: state.clone().trimmed() };
        // All keys are strings, so there is JSON for it.
        let text = serde_json::to_vec_pretty(&content).unwrap_or_default();
        Ok(self.links.write(&file, &text, Durable::Yes)?)
    }

    /// Removes components that no link names. What a damaged file of a link seems to name stays too, so that somebody
    /// can still repair it.
    ///
    /// # Errors
    /// When it can't be known what is named, as a newer version of the program wrote some file. Nothing is removed then.
    pub fn sweep(&self) -> Result<Swept, ArchiveError> {
        let mut named = BTreeSet::new();
        for entry in self.links.list()? {
            let Some(text) = self.links.read(&entry.name, LINK_BYTES_MAX)? else { continue };
            match read_link(&text) {
                Err(Unread::Newer(format)) => {
                    return Err(ArchiveError::Newer { path: self.links.path().join(entry.name), format });
                }
                Ok(state) => named.extend(state.components().map(str::to_owned)),
                Err(Unread::Damaged(_)) => named.extend(digests_in(&text)),
            }
        }
        let mut swept = Swept::default();
        for entry in self.components.list()? {
            let digest = entry.name.strip_suffix(".wasm");
            if digest.is_some_and(|digest| is_digest(digest) && !named.contains(digest)) {
                self.components.remove(&entry.name)?;
                swept.components += 1;
                swept.bytes += entry.bytes;
            }
        }
        Ok(swept)
    }
}

/// A file of a link.
#[derive(Serialize, Deserialize)]
struct LinkFile {
    format: u32,
    #[serde(flatten)]
    state: LinkState,
}

enum Unread {
    Newer(u64),
    Damaged(String),
}

fn read_link(text: &[u8]) -> Result<LinkState, Unread> {
    #[derive(Deserialize)]
    struct Format {
        format: u64,
    }
    let damaged = |error: serde_json::Error| Unread::Damaged(error.to_string());
    let Format { format } = serde_json::from_slice(text).map_err(damaged)?;
    if format > u64::from(FORMAT) {
        return Err(Unread::Newer(format));
    }
    serde_json::from_slice::<LinkFile>(text).map(|file| file.state).map_err(damaged)
}

fn component_name(digest_hex: &str) -> String {
    format!("{digest_hex}.wasm")
}

/// A link's name as that of a file: what could have a meaning there is written `%2F`.
fn link_name(name: &str) -> Result<String, ArchiveError> {
    let mut file = String::with_capacity(name.len() + 5);
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => file.push(char::from(byte)),
            _ => file.push_str(&format!("%{byte:02X}")),
        }
    }
    if file.len() > FILE_NAME_MAX {
        return Err(ArchiveError::Name { name: name.to_owned() });
    }
    file.push_str(".json");
    Ok(file)
}

fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// All that looks like a SHA-256.
fn digests_in(text: &[u8]) -> impl Iterator<Item = String> {
    text.split(|byte| !byte.is_ascii_alphanumeric())
        .filter_map(|word| std::str::from_utf8(word).ok())
        .filter(|word| is_digest(word))
        .map(str::to_owned)
}
