//! The configuration as the program uses it: complete and free of contradictions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::ConfigError;
use super::overrides::Overrides;

/// A complete configuration. Made by [`Config::load`], [`Config::parse`] or [`Config::default`] and by nothing
/// else: the fields of [`Values`] can be read through it, not written, so what was checked stays checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    pub(super) values: Values,
}

impl Deref for Config {
    type Target = Values;

    fn deref(&self) -> &Values {
        &self.values
    }
}

impl Default for Config {
    /// What the program does without a file and without flags.
    fn default() -> Self {
        Self::without_file(&Overrides::default()).unwrap_or_else(|error| {
            // A default that contradicts itself is a mistake in this module; a test of it fails first.
            panic!("the built-in configuration is refused: {error}")
        })
    }
}

/// What a configuration holds. Read it through [`Config`].
#[derive(Clone, Debug, PartialEq)]
pub struct Values {
    /// The file that was read, if any; its folder is what relative paths in it start from.
    pub file: Option<PathBuf>,
    /// `listen`: where clients and workers connect. Default `127.0.0.1:8980`. Whoever reaches this port can run
    /// commands on the workers, so open it to a network only behind something that checks who calls.
    pub listen: SocketAddr,
    /// `storage.embedded`: where blobs and action results are kept.
    pub storage: EmbeddedStorage,
    /// `supported_platform_properties`: the platform property keys that exist, and how each one matches. Change it
    /// when actions ask for something of your own (a licence, a GPU). Default: OSFamily, ISA, Arch,
    /// container-image, Pool as `priority`; cpu_count, memory as `minimum`.
    pub platform_properties: BTreeMap<String, PropertyType>,
    /// `unknown_property`: what happens to an action that asks for a key outside that table. Default `reject` with
    /// a file, since then somebody wrote the table; `ignore` without, so that any build runs.
    pub unknown_property: UnknownProperty,
    /// `host_key`: which entries of a worker's id tell one host from another. Default: all but `thread`. Change it
    /// when your workers put something else than a thread number into their id that is not the machine.
    pub host_key: HostKey,
    /// `timers`: everything that waits.
    pub timers: Timers,
    /// `max_attempts`: how often an action is tried, the first time included, when workers vanish or fail by no
    /// fault of its own. 1 or more; default 3.
    pub max_attempts: u32,
    /// `priority_step`: how much waiting time one unit of REv2 `priority` is worth in the queue (smaller priority
    /// values go first). Default 60 s; 0 makes priorities meaningless, and is allowed.
    pub priority_step: Duration,
    /// `limits`: what is refused for being too much.
    pub limits: Limits,
    /// `policy`: who decides where actions go.
    pub policy: Policy,
    /// `worker`: the worker that `serve` runs in itself.
    pub worker: BundledWorker,
    /// `worker_match_logging_interval_s`: how often the log is to say why actions are waiting; `None` (−1 or 0 in the
    /// file) is never. Default 10 s. Read so that NativeLink's files are accepted; nothing is logged by it yet.
    pub worker_match_logging_interval: Option<Duration>,
}

/// `storage.embedded`: files under one folder, nothing else to run.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddedStorage {
    /// `dir`: the folder. Default `storage` below `state_dir`, which itself defaults to
    /// `$XDG_STATE_HOME/pointsman`, `~/.local/state/pointsman` or `./pointsman-data`.
    pub dir: PathBuf,
    /// `max_size`: bytes of blobs to keep; the least recently used go first. Default 10 GiB. Make it several times
    /// what one build reads and writes, or builds lose inputs while they run.
    pub max_size_bytes: u64,
    /// `action_cache_entries`: action results to keep, least recently used go first. Default 1,000,000.
    pub action_cache_entries_max: u64,
    /// `small_blob_cache`: bytes of memory for small blobs (actions, commands, directories). Default 64 MiB.
    pub small_blob_cache_bytes: u64,
}

/// How the values of one platform property key are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PropertyType {
    /// The worker's value is byte for byte the one asked for.
    Exact,
    /// The worker has at least that much left: a number that running actions use up.
    Minimum,
    /// The worker has the key; the value is only passed on.
    Priority,
    /// The key is known and not looked at.
    Ignore,
}

/// What happens to an action that asks for a platform property key that nobody declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownProperty {
    /// The client is told at once: the key, the nearest one, the way out.
    Reject,
    /// The action waits for workers that have the key, though none may be there.
    Queue,
    /// The key is dropped; the log says so once per key.
    Ignore,
}

/// Which entries of a worker's id name its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKey {
    /// All entries but `thread`, which is what Buildbarn's workers count up.
    AllButThread,
    /// These entries, at least one, each once.
    Only(Vec<String>),
}

/// `timers`. None of them is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// `heartbeat`: how soon a worker that runs something is asked to report again. Default 10 s. Shorter notices
    /// lost workers sooner and costs a call per running action each time. Less than `worker_expiry`.
    pub heartbeat: Duration,
    /// `idle_poll`: how long the call of an idle worker is kept waiting for work at most. Default 120 s. Shorten it
    /// when something between worker and server cuts silent connections.
    pub idle_poll: Duration,
    /// `worker_expiry`: how long after its next report was due a worker is taken for lost, and what it ran is given
    /// to another. Default 60 s.
    pub worker_expiry: Duration,
    /// `abandoned`: how long an action that no client waits for stays queued or running. Default 60 s: time for a
    /// client to come back after Ctrl-C or a broken connection.
    pub abandoned: Duration,
    /// `completed_retention`: how long a finished operation can still be asked for by name. Default 60 s.
    pub completed_retention: Duration,
    /// `default_action_timeout`: the time limit of actions that name none. Default 30 min. Not more than
    /// `maximum_action_timeout`.
    pub default_action_timeout: Duration,
    /// `maximum_action_timeout`: the longest time limit an action may name; more is refused. Default 2 h.
    pub maximum_action_timeout: Duration,
    /// `shutdown_grace`: how long a stopping server lets calls end before it cuts them. Default 10 s.
    pub shutdown_grace: Duration,
}

/// `limits`. None of them is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `queued_actions`: actions waiting at one time; one more is refused with `RESOURCE_EXHAUSTED`, which Bazel
    /// retries for some seconds only. Default 200,000.
    pub queued_actions_max: u32,
    /// `properties_per_action`: platform properties of one action. Default 100.
    pub properties_per_action_max: u32,
    /// `command_size`: bytes of one Command message that is read for a policy. Default 16 MiB.
    pub command_size_max_bytes: u64,
    /// `message_size`: bytes of one gRPC message that is taken in; 4 MiB or more, since clients send batches of
    /// that size. Default 64 MiB.
    pub message_size_max_bytes: u64,
    /// `streams_per_connection`: calls that one connection may have open. Default 20,000; frontends put all their
    /// clients' streams on one connection.
    pub streams_per_connection_max: u32,
}

/// `policy`: the Wasm component that routes actions, and what it may use.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// `file`: the component; watched, and swapped in when it changes and passes its checks. `None` is the default
    /// policy that is part of the program.
    pub file: Option<PathBuf>,
    /// `config`: handed to the policy as JSON; what it may hold is the policy's own business. Default `{}`.
    pub config: serde_json::Value,
    /// `fuel`: what one call may burn, roughly one per Wasm instruction. Default 50 million, some milliseconds. A
    /// call that needs more is stopped and the default policy decides.
    pub fuel: u64,
    /// `deadline`: how long one call may take on the clock. Default 5 s. `fuel` is what judges a policy; this is a
    /// net for what fuel does not count, so keep it generous, or a busy machine fails healthy calls.
    pub deadline: Duration,
    /// `memory`: bytes of linear memory of one instance. Default 64 MiB.
    pub memory_max_bytes: u64,
}

/// `worker`: the bundled worker inside `serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct BundledWorker {
    /// `enabled`: whether `serve` runs one. Default false; `--with-worker` sets it.
    pub enabled: bool,
    /// `concurrency`: actions at one time. Default: as many as there are processors.
    pub concurrency: u32,
    /// `platform`: properties to advertise besides, or instead of, the ones the worker finds out by itself (a key
    /// given here replaces that key's values). Every key must be in `supported_platform_properties`.
    pub platform: BTreeMap<String, Vec<String>>,
    /// `dir`: where actions run and inputs are cached. Default `worker` below `state_dir`.
    pub dir: PathBuf,
    /// `cache_size`: bytes of input files to keep. Default 10 GiB.
    pub cache_size_bytes: u64,
    /// `storage_patience`: how long a storage that can't be reached is tried again before an action is given back.
    /// Default 30 s.
    pub storage_patience: Duration,
}

impl Config {
    /// Reads a file, puts the flags over it, and checks the whole.
    ///
    /// # Errors
    /// The file can't be read, is not JSON5, has unknown keys or wrong values, or contradicts itself: all problems
    /// at once, each with its place.
    pub fn load(file: &Path, overrides: &Overrides) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| ConfigError::unreadable(&name, &error))?;
        super::check::from_text(&text, file, overrides)
    }

    /// The same from a text; `name` stands for the file in errors, and its folder is where relative paths start.
    ///
    /// # Errors
    /// As [`Config::load`], but for reading the file.
    pub fn parse(text: &str, name: &str) -> Result<Self, ConfigError> {
        super::check::from_text(text, Path::new(name), &Overrides::default())
    }

    /// The defaults with the flags over them.
    ///
    /// # Errors
    /// The flags contradict each other or a default.
    pub fn without_file(overrides: &Overrides) -> Result<Self, ConfigError> {
        super::check::without_file(overrides)
    }
}
