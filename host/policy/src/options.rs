//! What a server can set about its policies, and the limits that hold for each.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::Route;

use crate::facts::{Pool, Summary};
use crate::record::Record;

/// What has been learned under a key.
type Statistics = dyn Fn(&str) -> Option<Summary> + Send + Sync;

/// Where answers of the interface `host` come from. Called by the policy's thread, so they must only look at snapshots.
#[derive(Clone)]
pub struct Sources {
    /// `host.pools`.
    pub pools: Arc<dyn Fn() -> Arc<[Pool]> + Send + Sync>,
    /// `host.statistics`, by learning key.
    pub statistics: Arc<Statistics>,
}

impl Default for Sources {
    /// No pools, and nothing learned.
    fn default() -> Self {
        Self { pools: Arc::new(|| Arc::new([])), statistics: Arc::new(|_| None) }
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Where decision records go. Called by the thread that decides, so it must not wait.
pub type Recorder = Arc<dyn Fn(Record) + Send + Sync>;

/// Says which edit of a route the server can't carry out, if there is one: given the route as a policy found it, and as it
/// left it.
pub type EditCheck = Arc<dyn Fn(&Route, &Route) -> Option<String> + Send + Sync>;

/// Settings of a [`Runtime`](crate::Runtime).
#[derive(Clone)]
pub struct Options {
    /// What a policy may use.
    pub limits: Limits,
    /// Instances that each generation keeps; 0 counts as 1. More callers than that wait for each other.
    pub instances: usize,
    /// Configuration of the embedded default policy, as JSON.
    pub default_config: String,
    /// Folder in which versions and compiled components survive a restart; `None`: they don't.
    pub state_dir: Option<PathBuf>,
    /// What the interface `host` answers.
    pub sources: Sources,
    /// Who gets a record of every decision; `None`: nothing is recorded, which saves some of the time.
    pub recorder: Option<Recorder>,
    /// Policies are not let in if one of their golden cases, by the operator's configuration, ends with an edit that this
    /// refuses; `None`: the server carries out all there are.
    pub edits: Option<EditCheck>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            instances: std::thread::available_parallelism().map_or(1, Into::into),
            default_config: "{}".into(),
            state_dir: None,
            sources: Sources::default(),
            recorder: None,
            edits: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("limits", &self.limits)
            .field("instances", &self.instances)
            .field("default_config", &self.default_config)
            .finish_non_exhaustive()
    }
}

/// What a policy may use. A call that needs more fails, and the embedded default policy decides.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Size of the file, in bytes.
    pub component_bytes: usize,
    /// Wasm instructions of one call, roughly. A thousand million are some 90 ms of tight loop. Fuel is the verdict:
    /// unlike time it is the same on a busy machine.
    pub fuel_per_call: u64,
    /// Wall time of one call. Only a net for what fuel does not count, so it has to be generous: a healthy call on a
    /// busy machine must not meet it.
    pub deadline: Duration,
    /// Linear memory of one instance, in bytes.
    pub memory_bytes: usize,
    /// Elements of all tables of one instance.
    pub table_elements: usize,
    /// Bytes that one host call may take out of a policy's memory.
    pub hostcall_bytes: usize,
    /// Properties that a route may have.
    pub properties: usize,
    /// Bytes of one string of an answer.
    pub string_bytes: usize,
    /// Names of strategies, and levels of invocation keys, that a route may have.
    pub list_items: usize,
    /// Variables that a route may offer to its action.
    pub variables: usize,
    /// Bytes of those, names included.
    pub variables_bytes: usize,
    /// Notes that one call may add.
    pub notes: usize,
    /// Log lines of one call; further ones are dropped.
    pub log_lines: u32,
    /// Bytes of one log line; the rest is cut off.
    pub log_line_bytes: usize,
    /// Values that a policy may store; the oldest go first.
    pub stored_values: usize,
    /// Bytes of those, keys included.
    pub stored_bytes: usize,
    /// Calls after which an instance is replaced by a new one, beside the calls; what it hoards is gone then. One that has
    /// taken half of the memory that was left to it when it was configured is replaced likewise.
    pub calls_per_instance: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            component_bytes: 64 << 20,
            fuel_per_call: 50_000_000,
            deadline: Duration::from_secs(5),
            memory_bytes: 64 << 20,
            table_elements: 100_000,
            hostcall_bytes: 8 << 20,
            properties: 1_000,
            string_bytes: 64 << 10,
            list_items: 64,
            variables: 32,
            variables_bytes: 4 << 10,
            notes: 32,
            log_lines: 32,
            log_line_bytes: 4 << 10,
            stored_values: 10_000,
            stored_bytes: 4 << 20,
            calls_per_instance: 1_000_000,
        }
    }
}
