//! The configuration as the program uses it: complete and free of contradictions.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pointsman_worker::{PlatformQuery, Strategy};
use serde::{Deserialize, Serialize};

pub use super::checked_policy::Policy;
use super::decision_log::DecisionLog;
use super::error::ConfigError;
use super::http::Http;
use super::learning::{Learning, Packing};
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
    /// `http`: the side port for monitoring.
    pub http: Http,
    /// `services`: what of the protocol the port has. Default `all`. Choose another where clients are given two addresses,
    /// one for execution and one for the cache.
    pub services: Services,
    /// `storage.embedded`: where blobs and action results are kept.
    pub storage: EmbeddedStorage,
    /// `storage.remote`: another REv2 server keeps them instead. Default: none.
    pub remote_storage: Option<RemoteStorage>,
    /// `action_cache`: what the scheduler itself does with results.
    pub action_cache: ActionCache,
    /// `matching`: how an action's properties are compared with a worker's. Default `typed`. Choose `exact_set` to keep
    /// workers and clients of a Buildbarn installation as they are.
    pub matching: Matching,
    /// `supported_platform_properties`: the platform property keys that exist, and how each one matches. Change it
    /// when actions ask for something of your own (a licence, a GPU). Default: OSFamily, ISA, Arch,
    /// container-image, Pool as `priority`; cpu_count, memory as `minimum`. Empty, and not to be given, with
    /// `matching: "exact_set"`.
    pub platform_properties: BTreeMap<String, PropertyType>,
    /// `unknown_property`: what happens to an action that asks for a key outside that table. Default `reject` with
    /// a file, since then somebody wrote the table; `ignore` without, so that any build runs.
    pub unknown_property: UnknownProperty,
    /// `host_key`: which entries of a worker's id tell one host from another. Default: all but `thread`. Change it
    /// when your workers put something else than a thread number into their id that is not the machine.
    pub host_key: HostKey,
    /// `pools`: kinds of workers there are, even when none of them is there just now. Declare one so that actions which it
    /// could run wait for its workers however long those take to come, so that its workers are shared out between builds
    /// for themselves, or so that its hosts run so many actions at once. Default: none; all workers are of the pool
    /// `default`.
    pub pools: Vec<Pool>,
    /// `timers`: everything that waits.
    pub timers: Timers,
    /// `max_attempts`: how often an action is tried, the first time included, when workers vanish or fail by no
    /// fault of its own. 1 or more; default 3.
    pub max_attempts: u32,
    /// `attempts`: the same for each thing that may go wrong.
    pub attempts: Attempts,
    /// `sizes`: what is made of size classes.
    pub sizes: Sizes,
    /// `quarantine_after`: a host where so many different actions fail one after the other is in quarantine: it gets
    /// nothing for `timers.quarantine`, then one action to try it out. Default 5; 0 is never.
    pub quarantine_after: u32,
    /// `reserved_percent`: so many of the hosts that could run an action are kept free for it or others like it at a time, at
    /// most; one at least may be. Default 10. Raise it where many large or exclusive actions wait for too long, though
    /// hosts stand half empty meanwhile.
    pub reserved_percent: u32,
    /// `placement`: which of the hosts that wait and have room an arriving action goes to. Default `spread`. Choose `pack`
    /// where idle hosts are switched off, `best_fit` where small actions would break up the room that large ones need.
    pub placement: Placement,
    /// `priority_step`: how much waiting time one unit of REv2 `priority` is worth in the queue (smaller priority
    /// values go first). Default 60 s; 0 makes priorities meaningless, and is allowed.
    pub priority_step: Duration,
    /// `limits`: what is refused for being too much.
    pub limits: Limits,
    /// `learning`: what is kept of how actions ran.
    pub learning: Learning,
    /// `packing`: what is set aside for an action on its host.
    pub packing: Packing,
    /// `policy`, `policies`, `chains`: who decides where actions go.
    pub policy: Policy,
    /// `decision_log`: records of what policies decided.
    pub decision_log: DecisionLog,
    /// `worker`: the worker that `serve` runs in itself.
    pub worker: BundledWorker,
    /// `worker_match_logging_interval_s`: how often the log says why actions are waiting, one block for each set of
    /// requirements, and which are the oldest; nothing while nothing waits. `None` (−1 or 0 in the file) is never.
    /// Default 10 s.
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

/// `storage.remote`: blobs and action results are with another REv2 server (bb_storage, buildbox-casd, NativeLink,
/// another Pointsman). Clients and workers may go there, or to this server, which hands everything on.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteStorage {
    /// `address`: `grpc://HOST:PORT`.
    pub address: String,
    /// `instance_name`: the one that server is asked with. Default: the one that each client gives.
    pub instance_name: Option<String>,
    /// `patience`: how long a call that fails for a moment is made again, and a silent one waited for. Keep it well below
    /// what clients wait for a call of theirs (Bazel: 60 s). Default 20 s.
    pub patience: Duration,
    /// `small_blob_cache`: bytes of memory for actions and commands that were read or written lately. Default 64 MiB.
    pub small_blob_cache_bytes: u64,
}

/// A kind of workers.
#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    /// `name`: what policies and `pointsman plan --pool` call it.
    pub name: String,
    /// `platform`: whoever has all of these properties is one of its workers (of `minimum` keys as much or more), unless a
    /// pool before this one has it already; and each of its workers is taken to have these.
    pub platform: BTreeMap<String, Vec<String>>,
    /// `instance_name_prefix`: only workers with this one are of the pool. Default: any are.
    pub instance_name_prefix: Option<String>,
    /// `size_class`: only workers of this one are. Default: any are.
    pub size_class: Option<u32>,
    /// `strategies`: execution strategies that its workers offer, unless they say so themselves, as the bundled worker does.
    /// Default: none, so that only actions get there that may be run by any.
    pub strategies: Vec<String>,
    /// `max_inflight_tasks`: actions that each of its hosts runs at once at most, whatever they ask for. Default 0: as
    /// many as it has worker threads.
    pub max_inflight_tasks: u32,
}

/// `action_cache`: what the scheduler itself does with results of actions that may be cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionCache {
    /// `look_again_after`: an action that has waited so long is looked up once more before a worker gets it, and always
    /// when one had it before. Default 1 s; 0 looks each time. Raise it where a look-up is slow and nobody else fills the
    /// cache.
    pub look_again_after: Duration,
    /// `write_results`: whether the scheduler writes successful results. Default false: Buildbarn's workers and the
    /// bundled one do it. Switch it on for workers that don't.
    pub write_results: bool,
}

/// Which host an arriving action goes to; of equals always the one used least recently.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Placement {
    /// The one used least recently: all are used alike.
    #[default]
    Spread,
    /// The fullest: as few as possible are used.
    Pack,
    /// The one that it fills best, by what it asks of `minimum` properties.
    BestFit,
}

/// What of the protocol a server's port has. Capabilities, health and reflection are always there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Services {
    /// Everything.
    #[default]
    All,
    /// Execution, Operations, workers and administration; clients and workers have blobs and action results elsewhere.
    Execution,
    /// ContentAddressableStorage, ActionCache and ByteStream; nothing is executed.
    Cache,
}

/// How the properties of actions and workers are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Matching {
    /// Key by key, by the types in `supported_platform_properties`.
    #[default]
    Typed,
    /// As Buildbarn does: an action goes to workers whose whole property list is its own. No key is unknown then, and
    /// the bundled worker offers `worker.platform` and nothing else.
    ExactSet,
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

/// `timers`. None of them is 0, but where it says what 0 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// `heartbeat`: how soon a worker that runs something is asked to report again, as long as `limits.heartbeats_per_second`
    /// allows. Default 10 s. Shorter notices
    /// lost workers sooner and costs a call per running action each time. Less than `worker_expiry`.
    pub heartbeat: Duration,
    /// `heartbeat_max`: how soon at the latest, however many run something. Default 60 s, or `heartbeat` if that is more.
    pub heartbeat_max: Duration,
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
    /// `retry_backoff`: how long an action that has failed on a host rests before it goes to that same host again, when
    /// there is no other; doubled by each further try. Default 1 s; 0 is no rest. Other hosts get it at once.
    pub retry_backoff: Duration,
    /// `retry_backoff_max`: the longest such rest. Default 60 s. At least `retry_backoff`.
    pub retry_backoff_max: Duration,
    /// `exhausted_pause`: how long a host is given nothing after it reported that it is out of resources (a full disk,
    /// say), doubled each time until it completes something. Default 1 s; 0 is no pause.
    pub exhausted_pause: Duration,
    /// `exhausted_pause_max`: the longest such pause. Default 60 s. At least `exhausted_pause`.
    pub exhausted_pause_max: Duration,
    /// `quarantine`: how long a host that fails everything (see `quarantine_after`) is given nothing before one action
    /// tries it out, doubled each time that fails. Default 60 s.
    pub quarantine: Duration,
    /// `quarantine_max`: the longest such time. Default 5 min. At least `quarantine`.
    pub quarantine_max: Duration,
    /// `reservation_after`: how long an action that asks for much is passed over by others, which ask for less, before a host is
    /// kept free for it. Default 60 s; 0 is at once. Exclusive actions have a host kept free when their turn comes.
    pub reservation_after: Duration,
    /// `reservation_timeout`: how long a host is kept free for an action before another is instead, since what runs there
    /// does not end. Default 10 min.
    pub reservation_timeout: Duration,
    /// `unschedulable_timeout`: how long an action waits that no worker could ever run, before its client gets
    /// `FAILED_PRECONDITION` and the reason; counted from when it came, the server started, or the last such worker
    /// left, whichever is latest. Default 15 min, so that a pool may grow from nothing; 0 is for ever. Shorten it
    /// where no workers come by themselves.
    pub unschedulable_timeout: Duration,
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
    /// `classes`: different sets of requirements (properties, instance name, …) among what waits and runs; an action with
    /// one more is refused with `RESOURCE_EXHAUSTED`. Default 200,000, which only a property whose value differs with
    /// each action reaches.
    pub classes_max: u32,
    /// `demands`: different combinations of `minimum` values among what waits and runs; one more is refused likewise.
    /// Default 64. Each costs time whenever a worker asks for work, so have clients round their numbers before you
    /// raise it.
    pub demands_max: u32,
    /// `workers`: registered at one time (every thread is one); one more is turned away. Default 100,000.
    pub workers_max: u32,
    /// `heartbeats_per_second`: so many reports of running actions are welcome in a second; when more run, each worker is
    /// asked to report less often, up to `timers.heartbeat_max`. Default 1,000, about a tenth of a processor.
    pub heartbeats_per_s_max: u32,
    /// `holds`: drains and pauses in force at one time. Default 1,000. Each costs time when a worker registers.
    pub holds_max: u32,
}

/// `attempts`: how often an action is tried for each thing that may go wrong, none of it the action's own fault. Each of
/// the first three is 1 to `max_attempts`, which is also their default and bounds their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempts {
    /// `lost`: its worker disappeared. Lower it when actions kill their workers (by using up the memory, say).
    pub lost_max: u32,
    /// `given_back`: its worker was given it and went on to something else.
    pub given_back_max: u32,
    /// `reported`: its worker reported a failure of its own (`INTERNAL`, `UNAVAILABLE`, …).
    pub reported_max: u32,
    /// `exhausted_forgiven`: how often it may meet a worker that is out of resources at no cost; after that each time
    /// counts as `reported`. Default 10; 0 counts from the first.
    pub exhausted_forgiven_max: u32,
}

/// `sizes`: what is made of the size classes of workers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// `rerun`: results that show a machine to be too small. Such an action runs again, by itself, on a larger size class if
    /// there is one for it, and its result is that of the last attempt; `max_attempts` bounds them. Policies come first:
    /// what `on-result` says stands, and so does a route for the largest class or an exact one. Default `["killed",
    /// "timed-out"]`; `[]` is never. Take `timed-out` out where actions that hang are more common than small machines.
    pub rerun: Vec<TooSmall>,
}

/// A result that may be the machine's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TooSmall {
    /// SIGKILL, or exit code 137, which is how shells tell of it: the kernel ends so what uses up the memory.
    Killed,
    /// The action's time limit passed.
    TimedOut,
}

/// Where the values of one platform property of the bundled worker come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlatformValues {
    /// The file. None at all keeps the worker from advertising the key.
    Listed(Vec<String>),
    /// A command that is run once, when the worker starts; the worker does not start when it fails.
    Queried(PlatformQuery),
}

/// `worker`: the bundled worker inside `serve`.
#[derive(Clone, Debug, PartialEq)]
pub struct BundledWorker {
    /// `enabled`: whether `serve` runs one. Default false; `--with-worker` sets it.
    pub enabled: bool,
    /// `concurrency`: actions at one time. Default: as many as there are processors.
    pub concurrency: u32,
    /// `platform`: properties to advertise besides, or instead of, the ones the worker finds out by itself (a key
    /// given here replaces that key's values). Every key must be in `supported_platform_properties`. A value is a
    /// text, a list of them, `{ values: […] }`, or `{ query_cmd: "…" }`: a command that prints them. NativeLink's
    /// `platform_properties` is taken for it.
    pub platform: BTreeMap<String, PlatformValues>,
    /// `query_timeout`: how long each such command may take. Default 10 s.
    pub query_timeout: Duration,
    /// `dir`: where actions run and inputs are cached. Default `worker` below `state_dir`.
    pub dir: PathBuf,
    /// `cache_size`: bytes of input files to keep. Default 10 GiB.
    pub cache_size_bytes: u64,
    /// `strategies`: how it may run actions, `local` or `sandboxed`; the first where an action's route names none. Default:
    /// `local`, and `sandboxed` where bubblewrap works.
    pub strategies: Option<Vec<Strategy>>,
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
