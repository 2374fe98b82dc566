//! Messages and services of every protocol that Pointsman speaks, generated from the definitions under
//! `proto/`. Byte fields are [`bytes::Bytes`]; google's well-known types are those of [`prost_types`].
//!
//! REv2 is that of the crate `bazel-remote-apis`, which a test compares name by name; Buildbarn's messages
//! are compared with a table.

pub mod action_router;
mod any;
mod passing;

pub use any::{UnpackError, pack, pack_encoded, unpack};
pub use generated::{
    build::bazel::{remote::execution::v2 as rev2, semver},
    buildbarn::{buildqueuestate, remoteactionrouter, remoteworker, resourceusage},
    google::{bytestream, longrunning, rpc},
    pointsman::v1,
};
pub use passing::is_passing;

/// The packages as they are nested in the definitions; the short names at the crate's root are usually
/// nicer.
#[allow(missing_docs, clippy::all)]
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/all.rs"));
}

/// All definitions with what they import as an encoded `google.protobuf.FileDescriptorSet`, without
/// comments: for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
