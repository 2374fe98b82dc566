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
//! | `runtime` | load, install, route: the main path |
//! | `generation` | one loaded policy and its instances |
//! | `interface` | adapters to versions of the WIT interface |
//! | `preflight`, `shape` | what a component wants compared with what there is |
//! | `engine`, `limiter`, `options`, `failure` | bounds, and what it means to hit one |
//! | `state`, `kv` | what host functions work on |
//! | `json` | one JSON form of what policies read and decide |
//! | `watch` | a policy file that is loaded again when it changes |

mod componentize;
mod counters;
mod decision;
mod engine;
mod error;
mod facts;
mod failure;
mod generation;
mod hooks;
mod interface;
pub mod json;
mod kv;
mod limiter;
mod options;
mod preflight;
mod runtime;
mod shape;
mod state;
mod throttle;
mod watch;

pub use componentize::{ComponentizeError, componentize};
pub use counters::CountersSnapshot;
pub use decision::{Code, Decision, Hook, PolicyId, Rejection};
pub use error::{LoadError, RuntimeError};
pub use facts::{ActionFacts, Attempt, CommandFacts, Outcome, Pool, Trigger};
pub use failure::{Failure, FailureKind};
pub use generation::Generation;
pub use hooks::{Admission, Candidate, Completion, HostExclusive, Next, Ranking, Terms, WorkerFacts};
pub use interface::ConfigProblem;
pub use options::{Limits, Options, PoolsSnapshot};
pub use runtime::Runtime;
pub use watch::{Change, WatchError, WatchOptions, Watcher};
