//! Remote Execution API v2 services.

pub mod action_cache;
pub mod bytestream;
pub mod capabilities;
pub mod cas;
mod compression;
pub mod execution;
pub mod instance_name;
pub mod metadata;
pub mod operations;
pub mod resource_name;
pub mod status;
mod tree;
mod upload;
