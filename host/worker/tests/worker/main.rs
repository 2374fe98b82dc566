//! The worker against a scheduler and a storage that are written here, over loopback gRPC, with real
//! processes.
#![allow(clippy::unwrap_used)]

mod actions;
mod harness;
mod outputs;
mod protocol;
mod scheduler;
mod storage;
