//! Pointsman's server: configuration, wiring, gRPC services and the command line. `main.rs` is a thin caller.

pub mod cli;
pub mod config;
pub mod rev2;
pub mod workers;
