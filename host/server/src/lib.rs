//! Pointsman's server: configuration, wiring, gRPC services and the command line. `main.rs` is a thin caller.

pub mod admin;
pub mod arrivals;
pub mod aside;
pub mod attempts;
mod base;
pub mod buildqueuestate;
pub mod cli;
pub mod config;
pub mod decisions;
pub mod driver;
mod gate;
pub mod learning;
pub mod match_log;
pub mod metrics;
pub mod pools;
pub mod ranking;
pub mod reload;
pub mod reroute;
pub mod rev2;
pub mod router;
pub mod routing;
pub mod serve;
mod transport;
pub mod web;
pub mod workers;
