//! `GetTree`: all directories below one, level by level, in pages.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use futures_util::{Stream, stream};
use pointsman_proto::rev2::{Directory, GetTreeResponse};
use pointsman_storage::{Digest, Storage, StorageError};
use prost::Message;
use tonic::Status;

use super::status;

/// Most directories in a page, also of a client that asks for more or does not say.
const PAGE_MAX_DIRECTORIES: usize = 1000;

/// A page that has this many bytes is sent.
const PAGE_MAX_BYTES: u64 = 1 << 20;

/// Most bytes of one Directory message, so that a page stays below the 4 MiB that clients take.
const DIRECTORY_MAX_BYTES: u64 = 3 << 20;

/// A walk through a tree. A directory that is there twice is sent once.
///
/// A page token is the number of directories sent before: the order is that of the messages themselves, so a later
/// call walks the same way.
pub(super) struct Pages {
    storage: Arc<dyn Storage>,
    root: Digest,
    queue: VecDeque<Digest>,
    seen: HashSet<Digest>,
    page_directories: usize,
    skip: usize,
    visited: usize,
    started: bool,
}

impl Pages {
    pub(super) fn new(
        storage: Arc<dyn Storage>,
        root: Digest,
        page_size: i32,
        page_token: &str,
    ) -> Result<Self, Status> {
        let page_directories = match usize::try_from(page_size) {
            Ok(0) => PAGE_MAX_DIRECTORIES,
            Ok(size) => size.min(PAGE_MAX_DIRECTORIES),
            Err(_) => return Err(Status::invalid_argument(format!("page_size {page_size} is negative"))),
        };
        let skip = match page_token {
            "" => 0,
            token => token.parse().map_err(|_| {
                let shown: String = token.chars().take(80).collect();
                Status::invalid_argument(format!("page_token {shown:?} was not given out by this server"))
            })?,
        };
        Ok(Self {
            storage,
            root,
            queue: VecDeque::from([root]),
            seen: HashSet::from([root]),
            page_directories,
            skip,
            visited: 0,
            started: false,
        })
    }

    /// The pages; at least one, which is empty for a token at the end.
    pub(super) fn stream(self) -> impl Stream<Item = Result<GetTreeResponse, Status>> + Send {
        stream::try_unfold(self, |mut pages| async move {
            if pages.started && pages.queue.is_empty() {
                return Ok(None);
            }
            pages.started = true;
            Ok(Some((pages.next_page().await?, pages)))
        })
    }

    async fn next_page(&mut self) -> Result<GetTreeResponse, Status> {
        let mut page = GetTreeResponse::default();
        let mut bytes = 0;
        while page.directories.len() < self.page_directories && bytes < PAGE_MAX_BYTES {
            let Some(digest) = self.queue.pop_front() else { break };
            let directory = self.load(&digest).await?;
            self.enqueue(&digest, &directory)?;
            self.visited += 1;
            if self.visited > self.skip {
                page.directories.push(directory);
                bytes += digest.size_bytes();
            }
        }
        if !self.queue.is_empty() {
            page.next_page_token = self.visited.to_string();
        }
        Ok(page)
    }

    async fn load(&self, digest: &Digest) -> Result<Directory, Status> {
        let data = match self.storage.read_blob(digest, DIRECTORY_MAX_BYTES).await {
            Ok(data) => data,
            // A tree with a part left out looks like a whole one, so it is an error below the root as well.
            Err(StorageError::NotFound { .. }) => {
                let text = format!("directory {digest} of the tree {} not found: upload it first", self.root);
                return Err(Status::not_found(text));
            }
            Err(error) => return Err(status::from_storage(&error)),
        };
        Directory::decode(data).map_err(|error| {
            let text = format!("blob {digest} in the tree {} is no Directory message: {error}", self.root);
            Status::invalid_argument(text)
        })
    }

    fn enqueue(&mut self, parent: &Digest, directory: &Directory) -> Result<(), Status> {
        for node in &directory.directories {
            let child =
                status::digest_field(parent.function(), "digest of a directory", node.digest.as_ref())?;
            if self.seen.insert(child) {
                self.queue.push_back(child);
            }
        }
        Ok(())
    }
}
