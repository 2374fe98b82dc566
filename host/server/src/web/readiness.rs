//! Whether the server takes work, and why not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What it is doing, shared by those who change it and those who ask.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

const STARTING: u8 = 0;
const READY: u8 = 1;
const STOPPING: u8 = 2;

impl Readiness {
    /// Policies are in force and the port is open.
    pub fn ready(&self) {
        // What stops doesn't become ready again.
        _ = self.0.compare_exchange(STARTING, READY, Relaxed, Relaxed);
    }

    /// No new work from now on.
    pub fn stopping(&self) {
        self.0.store(STOPPING, Relaxed);
    }

    /// It takes work.
    pub fn is_ready(&self) -> bool {
        self.0.load(Relaxed) == READY
    }

    /// Why it takes no work, if it doesn't.
    pub fn why_not(&self) -> Option<&'static str> {
        match self.0.load(Relaxed) {
            STARTING => Some("starting: storage and policies are being loaded; the log says how far it is"),
            READY => None,
            _ => Some("stopping: what runs may end, and clients are sent to come back"),
        }
    }
}
