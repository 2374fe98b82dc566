//! Policies: WebAssembly components that route actions.
//!
//! [`Runtime::route`] is what the server calls for each action. The policy in force reads an [`ActionFacts`] and edits
//! a `Route` through the functions of `wit/policy.wit`; a [`Decision`] comes out. What a policy does wrong (loops,
//! traps, eats memory, sets nonsense) ends its call and its instance, and the embedded default policy decides.
//!
//! This is the only crate that names Wasmtime. It is synchronous and does no I/O but in the [`Watcher`].
//!
//! | Module | Holds |
//! | --- | --- |
//! | `runtime`, `chain` | the hooks: the main path |
//! | `generation`, `policy` | what is in force; one version of a policy with its instances |
//! | `loader`, `preflight`, `shape` | from bytes to a policy; what a component wants compared with what there is |
//! | `interface` | adapters to versions of the WIT interface |
//! | `engine`, `limiter`, `options`, `failure`, `breaker` | bounds, and what it means to hit one |
//! | `state`, `kv`, `asked` | what host functions work on, and what they were asked |
//! | `trial`, `shadow` | versions that are tried out |
//! | `probation`, `tripwire` | what a new version may do wrong, and who notices |
//! | `archive`, `cwasm`, `folder` | what is kept over a restart: versions, their components, compiled code |
//! | `signature` | who signed a policy file |
//! | `golden` | examples of decisions inside a component, tried before it comes into force |
//! | `json` | one JSON form of what policies read and decide |
//! | `watch` | a policy file that is loaded again when it changes |

pub mod archive;
mod asked;
mod breaker;
mod chain;
mod chores;
mod componentize;
#[allow(dead_code, reason = "the gate begins to use it")]
mod cwasm;
mod decision;
mod engine;
mod error;
mod facts;
mod failure;
mod folder;
mod gate;
mod generation;
pub mod golden;
mod hooks;
mod interface;
pub mod json;
mod kv;
mod limiter;
mod loader;
mod manager;
mod options;
mod plan;
mod policy;
mod pool;
mod preflight;
mod probation;
mod record;
mod runtime;
mod shadow;
mod shape;
pub mod signature;
mod state;
mod tally;
mod throttle;
mod trial;
mod tripwire;
mod watch;

pub use asked::{Asked, HostAnswer};
pub use componentize::{ComponentizeError, componentize};
pub use decision::{Answer, Code, Decision, Hook, PolicyId, Rejection, Step};
pub use error::{LoadError, RuntimeError};
pub use facts::{ActionFacts, Attempt, CommandFacts, Outcome, Pool, Summary, Trigger};
pub use failure::{Failure, FailureKind};
pub use folder::FolderError;
pub use generation::{Chain, DEFAULT_LINK, Generation, Link, OnError};
pub use hooks::{Admission, Candidate, Completion, HostExclusive, Next, Ranking, Terms, WorkerFacts};
pub use interface::ConfigProblem;
pub use loader::digest_hex;
pub use manager::{
    CommandError, LastLoad, LinkStatus, Manager, ManagerOptions, Push, StartError, TrialStatus, VersionStatus,
};
pub use options::{EditCheck, Limits, Options, Recorder, Sources};
pub use plan::{LinkPlan, Places, Plan, Rollout, Source};
pub use policy::{Isolation, Policy};
pub use pool::CallPool;
pub use probation::ProbationRules;
pub use record::{Question, Record};
pub use runtime::Runtime;
pub use tally::{CountersSnapshot, LATENCY_BUCKETS_US, TallySnapshot};
pub use throttle::Throttle;
pub use trial::{Mode, Sample, Share, Trial, TrialSnapshot};
pub use watch::{FileWatch, Found, WatchOptions, read_bounded};
