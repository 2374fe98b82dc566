//! Load generator: many clients and workers that do nothing but talk, against a server in a process of its
//! own, so that the server's processor time can be told from ours.
//!
//! The yardstick is [`echo`]: the same messages over the same library, and no scheduling at all. Clients form
//! a closed loop: each has one action under way. Workers complete at once.
pub mod echo;
mod measure;
mod process;
mod report;
mod server;

pub use measure::{Measurement, measure};
pub use process::{CpuClock, OWN_PROCESS};
pub use report::{Row, json, table};
pub use server::Server;

use std::time::Duration;

/// What is measured, the same for each server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Worker hosts, each with an HTTP/2 connection.
    pub hosts: usize,
    /// Threads of each host; each is a worker by itself.
    pub threads: usize,
    /// Execute streams that are open at any time.
    pub clients: usize,
    /// HTTP/2 connections that the clients share.
    pub connections: usize,
    /// Length of the measured window.
    pub window: Duration,
    /// Time before the window that is not measured.
    pub warm_up: Duration,
    /// Distinct actions that the clients go round in. None is cacheable, so that none is shared.
    pub actions: usize,
    /// Properties of both actions and workers.
    pub platform: Vec<(String, String)>,
}
