//! Describes a call of a policy, for native tests of it.
//!
//! ```
//! use pointsman_policy_sdk::testing::{Call, run};
//! # use pointsman_policy_sdk::{Config, ConfigError, Policy, Rejection, action, route};
//! # struct Noter;
//! # impl Policy for Noter {
//! #     const NAME: &'static str = "noter";
//! #     const VERSION: &'static str = "1";
//! #     fn configure(config: &str) -> Result<Self, Vec<ConfigError>> {
//! #         Config::parse(config)?.finish()?;
//! #         Ok(Self)
//! #     }
//! #     fn route(&self) -> Result<(), Rejection> {
//! #         route::note(&action::mnemonic());
//! #         Ok(())
//! #     }
//! # }
//!
//! let mut call = Call::default();
//! call.action.mnemonic = "CppLink".into();
//! let outcome = run::<Noter>("{}", call).unwrap();
//! assert_eq!(outcome.route.notes, ["CppLink"]);
//! ```

mod fixtures;
mod forms;

use std::collections::BTreeMap;

pub use fixtures::run_fixtures;

use crate::bindings::pointsman::policy::host::Level;
use crate::native;
use crate::{
    Attempt, CommandWhen, ConfigError, Exclusivity, Next, Policy, Pool, Property, Rejection, SizeClass,
    Summary, Trigger,
};

/// What the policy is to see in one call.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// What `action` tells.
    pub action: Action,
    /// What `command` tells, if the policy asks for it.
    pub command: Command,
    /// The route that the policy is to edit.
    pub route: Route,
    /// The attempt that has ended, for [`completed`].
    pub attempt: Option<Attempt>,
    /// What `worker` tells, for [`admit`].
    pub worker: Worker,
    /// The terms that the policy is to edit, for [`admit`].
    pub terms: Terms,
    /// What the server offers beside.
    pub host: Host,
}

/// The action of a [`Call`]; one field for each function of the interface.
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Action {
    pub instance_name: String,
    pub digest: String,
    /// `None`: the client sent no properties in the Action.
    pub platform: Option<Vec<Property>>,
    pub priority: i32,
    pub timeout_ms: Option<u32>,
    pub do_not_cache: bool,
    pub skip_cache_lookup: bool,
    pub tool_name: String,
    pub tool_version: String,
    pub invocation_id: String,
    pub correlated_invocations_id: String,
    pub mnemonic: String,
    pub target_id: String,
    pub configuration_id: String,
    pub principal: String,
    pub attempts: Vec<Attempt>,
    /// `None` stands for an arrival.
    pub cause: Option<Trigger>,
}

/// The Command of a [`Call`].
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Command {
    pub arguments: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub platform: Vec<Property>,
    pub output_paths: Vec<String>,
    pub working_directory: String,
}

/// The route of a [`Call`], before and after the policy.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Route {
    pub platform: Vec<Property>,
    pub pool: Option<String>,
    pub size: SizeClass,
    pub exclusive: Exclusivity,
    pub strategies: Option<Vec<String>>,
    pub invocation_keys: Vec<String>,
    pub priority: i32,
    pub timeout_ms: Option<u32>,
    pub shared: bool,
    /// Key, and how long to wait in milliseconds.
    pub affinity: Option<(String, u32)>,
    pub learning_key: Option<String>,
    /// What `set-environment` offers to the action.
    pub environment: BTreeMap<String, String>,
    pub rank_candidates: u32,
    pub notes: Vec<String>,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            platform: Vec::new(),
            pool: None,
            size: SizeClass::Learned,
            exclusive: Exclusivity::Shared,
            strategies: None,
            invocation_keys: Vec::new(),
            priority: 0,
            timeout_ms: None,
            shared: true,
            affinity: None,
            learning_key: None,
            environment: BTreeMap::new(),
            rank_candidates: 0,
            notes: Vec::new(),
        }
    }
}

/// The worker of a [`Call`].
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Worker {
    pub id: Vec<Property>,
    pub instance_name_prefix: String,
    pub platform: Vec<Property>,
    pub size_class: u32,
    pub principal: String,
}

/// The terms of a [`Call`], before and after the policy.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Terms {
    pub platform: Vec<Property>,
    pub pool: Option<String>,
    pub size_class: u32,
    pub strategies: Option<Vec<String>>,
    pub max_inflight: Option<u32>,
    pub exclusive: HostExclusive,
    pub exclusive_below: Option<u32>,
    pub notes: Vec<String>,
}

/// May an exclusive action have the host?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostExclusive {
    /// At any time.
    #[default]
    Allowed,
    /// Not more often than once in so many milliseconds.
    NotMoreOftenThanMs(u32),
    /// Never.
    Never,
}

/// What `host` offers in a [`Call`].
#[derive(Clone, Debug, Default)]
#[expect(missing_docs, reason = "the fields are the functions of `wit/policy.wit`, which explains them")]
pub struct Host {
    pub statistics: BTreeMap<String, Summary>,
    /// Values that were stored before; `set` is seen by later `get`s of the same call.
    pub stored: BTreeMap<String, Vec<u8>>,
    pub pools: Vec<Pool>,
    pub now: f64,
}

/// What the policy did.
#[derive(Clone, Debug, Default)]
pub struct Ran {
    /// The edited route, its platform in order and without doubles, as the server keeps it.
    pub route: Route,
    /// The edited terms, likewise.
    pub terms: Terms,
    /// Set when the policy refused the action or the worker.
    pub rejection: Option<Rejection>,
    /// What [`completed`] said.
    pub next: Option<Next>,
    /// Which Commands the policy asked for when it was configured.
    pub requested: Option<CommandWhen>,
    /// What it logged.
    pub log: Vec<(Level, String)>,
    /// What is stored after the call.
    pub stored: BTreeMap<String, Vec<u8>>,
}

/// Configures a policy and asks it about one call.
///
/// # Errors
/// Those of [`Policy::configure`].
///
/// # Panics
/// When the policy panics, or calls a function where a server would trap it.
pub fn run<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    native::run::<P>(config, call)
}

/// Configures a policy and asks it about one worker that wants to join.
///
/// # Errors
/// Those of [`Policy::configure`].
///
/// # Panics
/// Like [`run`].
pub fn admit<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    native::admit::<P>(config, call)
}

/// Configures a policy and tells it of an attempt that has ended.
///
/// # Errors
/// Those of [`Policy::configure`].
///
/// # Panics
/// Like [`run`], and when the call has no attempt.
pub fn completed<P: Policy>(config: &str, call: Call) -> Result<Ran, Vec<ConfigError>> {
    native::completed::<P>(config, call)
}
