//! What can be told about links and versions.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::archive::{Event, RolledBack};
use crate::decision::PolicyId;
use crate::generation::OnError;
use crate::tally::TallySnapshot;
use crate::trial::TrialSnapshot;

/// How one link is.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Its name.
    pub name: Arc<str>,
    /// Instance name prefixes of the chains it is in.
    pub chains: Vec<Arc<str>>,
    /// The file it is loaded from.
    pub file: Option<PathBuf>,
    /// What is done when it fails.
    pub on_error: OnError,
    /// The only version that is let in.
    pub pin: Option<String>,
    /// Must versions be signed?
    pub signed: bool,
    /// The version in force.
    pub active: VersionStatus,
    /// How much longer it is on probation.
    pub probation_left: Option<Duration>,
    /// Versions that can be gone back to at once, the latest first.
    pub previous: Vec<PolicyId>,
    /// The version that is tried out.
    pub trial: Option<TrialStatus>,
    /// What came of the last version that was to be let in.
    pub last_load: LastLoad,
    /// Versions that are not let in again unless they are pushed with `again`.
    pub rolled_back: Vec<RolledBack>,
    /// What happened, the oldest first.
    pub history: Vec<Event>,
}

/// One version.
#[derive(Clone, Debug)]
pub struct VersionStatus {
    /// Which it is.
    pub id: PolicyId,
    /// Where it came from: `built-in`, `file`, `push`.
    pub origin: &'static str,
    /// Since when it is in force, or tried out.
    pub since: SystemTime,
    /// Hooks that it has.
    pub hooks: Vec<&'static str>,
    /// What it did.
    pub tally: TallySnapshot,
    /// It is not called for a while, as it fails each time.
    pub circuit_open: bool,
    /// Its answers take so long that it is asked on threads of its own.
    pub slow: bool,
}

/// A version that is tried out.
#[derive(Clone, Debug)]
pub struct TrialStatus {
    /// The version.
    pub version: VersionStatus,
    /// How it is tried out, in words.
    pub mode: String,
    /// What came of it.
    pub results: TrialSnapshot,
}

/// What came of the last version that was to be let in.
#[derive(Clone, Debug)]
pub struct LastLoad {
    /// It was let in.
    pub ok: bool,
    /// When that was decided.
    pub at: SystemTime,
    /// Its SHA-256, in lower-case hex; empty when it could not be read.
    pub digest_hex: String,
    /// Why not, or how it began.
    pub text: String,
    /// From the first byte read to the swap.
    pub took: Duration,
}
