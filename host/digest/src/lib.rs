//! Names of blobs: which function made the hash, the hash, and the size.
//!
//! Shared by whoever computes or checks one, server and worker alike. Of the protocol's functions those are here that
//! hash plain bytes; SHA256TREE, MURMUR3, VSO and GITSHA1 are refused by name.

mod digest;
mod error;
mod function;
mod hasher;

pub use digest::Digest;
pub use error::DigestError;
pub use function::DigestFunction;
pub use hasher::Hasher;
