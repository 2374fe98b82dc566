//! Remote Execution API v2 services.

pub mod action_cache;
pub mod bytestream;
pub mod capabilities;
pub mod cas;
mod compression;
pub mod execution;
pub mod instance_name;
pub mod metadata;
mod operation_filter;
pub mod operations;
mod partial_uploads;
pub mod resource_name;
pub mod status;
mod tree;
mod upload;
