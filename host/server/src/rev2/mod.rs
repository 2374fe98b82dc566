//! Remote Execution API v2 services.

pub mod execution;
pub mod metadata;
pub mod operations;
