//! Blobs (the content addressable storage, CAS) and action results (the action cache) behind one trait.
//!
//! [`Storage`] is what the gRPC services and the scheduler's front end see. [`embedded::EmbeddedStorage`] keeps
//! everything in a folder of this machine, [`RemoteStorage`] in any REv2 store; so nothing here promises a local path, a
//! cheap look-up or a lock.
//!
//! Module map: `verify` checks blobs, `memory` keeps small ones, `references` says which blobs an action result needs,
//! `error` is the one error type, `weighted_lru` is the bounded map that the embedded store builds on, `bounded_cache` the same
//! shared between threads.

mod bounded_cache;
pub mod embedded;
mod error;
mod memory;
mod references;
mod remote;
mod verify;
mod weighted_lru;

use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::Stream;
use pointsman_proto::rev2::ActionResult;

pub use bounded_cache::BoundedCache;
pub use embedded::{EmbeddedConfig, EmbeddedStats, EmbeddedStorage, OpenError};
pub use error::{InvalidBlob, StorageError};
pub use pointsman_digest::{Digest, DigestError, DigestFunction};
pub use references::{References, outputs_present, references_of_result, references_of_tree};
pub use remote::{RemoteConfig, RemoteStorage};
pub use verify::{Verifier, verify};

/// The content of a blob, in order, in chunks of a size that suits one gRPC message (at most 1 MiB each).
pub type BlobStream = Pin<Box<dyn Stream<Item = Result<Bytes, StorageError>> + Send>>;

/// A store for blobs and action results.
///
/// What every implementation does:
/// - content is checked against its digest before anybody can read it, and never served when found damaged: it is
///   reported as missing instead;
/// - the empty blob always exists;
/// - blobs may be shared between instance names, action results are not;
/// - an action result is served only while every blob that it refers to is there;
/// - two writers of one digest at the same time both succeed;
/// - a blob that was looked up or read lives longer than one that was not.
///
/// What is not its job: validating instance names, authorisation, compression, and limits on messages.
#[async_trait]
pub trait Storage: Send + Sync + 'static {
    /// The store as it is seen with a client's instance name. One that shares blobs between instance names is itself;
    /// a store elsewhere may not.
    fn for_instance(self: Arc<Self>, instance_name: &str) -> Arc<dyn Storage>;

    /// Returns those of `digests` that are not here, in the order asked, each at most once. Counts as a use of
    /// the others: they are the last to be evicted.
    async fn find_missing(&self, digests: &[Digest]) -> Result<Vec<Digest>, StorageError>;

    /// Streams a blob from byte `offset`, at most `limit` bytes of it (`None`: to its end).
    ///
    /// A stream once handed out is not broken by eviction. Errors: [`StorageError::NotFound`];
    /// [`StorageError::OutOfRange`] for an offset behind the blob's end (its size itself is a valid offset).
    async fn read(
        &self,
        digest: &Digest,
        offset: u64,
        limit: Option<u64>,
    ) -> Result<BlobStream, StorageError>;

    /// Returns a whole small blob (an Action, a Command, a Tree), from memory when it was seen lately. What is
    /// returned pins no network buffer.
    ///
    /// Errors: [`StorageError::TooLarge`] when the digest says more than `max_bytes`, before anything is read.
    async fn read_blob(&self, digest: &Digest, max_bytes: u64) -> Result<Bytes, StorageError>;

    /// Begins the upload of a blob. Nothing of it is visible before [`BlobWriter::commit`] returned, and nothing
    /// stays behind when the writer is dropped.
    ///
    /// Errors: [`StorageError::Full`] at once for a blob that can never fit.
    async fn write(&self, digest: &Digest) -> Result<Box<dyn BlobWriter>, StorageError>;

    /// Stores a whole blob held in memory.
    async fn write_blob(&self, digest: &Digest, data: Bytes) -> Result<(), StorageError>;

    /// Looks an action up; `None` is a miss, also when any blob that the result refers to is gone. Counts as a
    /// use of all those blobs.
    async fn get_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
    ) -> Result<Option<ActionResult>, StorageError>;

    /// Stores what an action gave, in place of what was there. The caller has checked that the result is worth
    /// keeping.
    ///
    /// Errors: [`StorageError::Digest`] when a digest in the result is malformed. Whether the blobs exist is
    /// checked on look-up, not here.
    async fn update_action_result(
        &self,
        instance_name: &str,
        action: &Digest,
        result: &ActionResult,
    ) -> Result<(), StorageError>;
}

/// The upload of one blob, in chunks of any size.
#[async_trait]
pub trait BlobWriter: Send {
    /// Appends a chunk. Waits when the disk is slower than the sender.
    ///
    /// Errors: [`InvalidBlob::TooLong`] as soon as there are more bytes than the digest says. After an error the
    /// writer is of no more use: drop it.
    async fn write(&mut self, chunk: Bytes) -> Result<(), StorageError>;

    /// Checks size and hash and makes the blob visible.
    async fn commit(self: Box<Self>) -> Result<(), StorageError>;
}
