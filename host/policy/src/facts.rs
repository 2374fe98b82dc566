//! What a policy can read about one action, as plain data.
//!
//! The server fills an [`ActionFacts`] once per action and keeps it while the action is queued, so that it can be
//! routed again when policies change.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::route::{Property, Route};

/// Everything known about an action when it is routed.
#[derive(Clone, Debug, Default)]
pub struct ActionFacts {
    /// Instance name of the request; may be empty.
    pub instance_name: Arc<str>,
    /// Digest of the Action as `HASH/SIZE`.
    pub digest: Arc<str>,
    /// Platform of the Action, in the order the client sent. `None`: the Action has no `platform` field. An empty
    /// platform is a platform.
    pub platform: Option<Vec<Property>>,
    /// `ExecutionPolicy.priority`; smaller goes first.
    pub priority: i32,
    /// `Action.timeout`.
    pub timeout: Option<Duration>,
    /// `Action.do_not_cache`.
    pub do_not_cache: bool,
    /// `ExecuteRequest.skip_cache_lookup`.
    pub skip_cache_lookup: bool,
    /// `RequestMetadata.tool_details.tool_name`. This and the other strings of RequestMetadata are empty when the
    /// client did not say.
    pub tool_name: Arc<str>,
    /// `RequestMetadata.tool_details.tool_version`.
    pub tool_version: Arc<str>,
    /// `RequestMetadata.tool_invocation_id`.
    pub invocation_id: Arc<str>,
    /// `RequestMetadata.correlated_invocations_id`.
    pub correlated_invocations_id: Arc<str>,
    /// `RequestMetadata.action_mnemonic`.
    pub mnemonic: Arc<str>,
    /// `RequestMetadata.target_id`.
    pub target_id: Arc<str>,
    /// `RequestMetadata.configuration_id`.
    pub configuration_id: Arc<str>,
    /// Who the client authenticated as; empty when the server does not authenticate.
    pub principal: Arc<str>,
    /// How earlier attempts ended, oldest first.
    pub attempts: Vec<Attempt>,
    /// Why the action is routed.
    pub trigger: Trigger,
    /// The action's Command, when [`Runtime::wants_command`](crate::Runtime::wants_command) asked for it.
    pub command: Option<Arc<CommandFacts>>,
    /// What the policy is told the time is: seconds since the Unix epoch. Stored values expire by it too, so that the
    /// same facts give the same decision.
    pub now_unix_seconds: f64,
}

impl ActionFacts {
    /// What the client wishes: the route that the first policy finds.
    pub fn wishes(&self) -> Route {
        let mut route = Route {
            platform: self.platform.clone().unwrap_or_default(),
            priority: self.priority,
            timeout: self.timeout,
            // REv2: an action that must not be cached must not be merged with another in flight either.
            shared: !self.do_not_cache,
            ..Route::default()
        };
        route.sort_platform();
        route
    }
}

/// What a policy can read about a Command.
#[derive(Clone, Debug, Default)]
pub struct CommandFacts {
    /// `Command.arguments`.
    pub arguments: Vec<Arc<str>>,
    /// `Command.environment_variables` as name and value.
    pub environment: Vec<(Arc<str>, Arc<str>)>,
    /// `Command.platform`.
    pub platform: Vec<Property>,
    /// `Command.output_paths`, or files and directories of clients that still name them apart.
    pub output_paths: Vec<Arc<str>>,
    /// `Command.working_directory`.
    pub working_directory: Arc<str>,
}

/// Why an action is routed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Trigger {
    /// It has just arrived.
    #[default]
    Arrived,
    /// An attempt failed and it is to run again.
    Retried,
    /// Policies changed while it was queued.
    Rerouted,
}

/// How one attempt at an action ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// In one word.
    pub outcome: Outcome,
    /// Exit code of the command; 0 when it has none.
    pub exit_code: i32,
    /// Name of the signal that ended it.
    pub signal: Option<Arc<str>>,
    /// Size class of the worker.
    pub size_class: u32,
    /// Name of the worker.
    pub worker: Arc<str>,
    /// Execution strategy, when one was chosen.
    pub strategy: Option<Arc<str>>,
    /// From start to end on the worker.
    pub wall: Duration,
    /// CPU time by wall time.
    pub cores: Option<f64>,
    /// Highest memory use, in MiB.
    pub peak_memory_mib: Option<u32>,
}

/// How an attempt ended, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Exit code 0.
    Succeeded,
    /// Another exit code.
    Failed,
    /// The action's timeout passed.
    TimedOut,
    /// Ended by a signal that often means out of memory.
    Killed,
    /// The worker went away.
    WorkerLost,
    /// The worker could not run it.
    InfrastructureError,
}

/// Workers of one pool at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Name of the pool.
    pub name: Arc<str>,
    /// Workers that are connected.
    pub workers: u32,
    /// Workers that execute nothing.
    pub idle_workers: u32,
    /// Actions that are executing.
    pub executing: u32,
    /// Actions that are waiting.
    pub queued: u32,
    /// How long the oldest of those has waited.
    pub oldest_queued: Duration,
}

/// What has been learned for one learning key. Durations are of successful attempts only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Attempts that ended.
    pub attempts: u32,
    /// Of those, not successful.
    pub failures: u32,
    /// Median wall time.
    pub p50_wall: Duration,
    /// 95th percentile of the wall time.
    pub p95_wall: Duration,
    /// CPU time by wall time, on average.
    pub mean_cores: f64,
    /// 95th percentile of the highest memory use, in MiB.
    pub p95_peak_memory_mib: u32,
}
