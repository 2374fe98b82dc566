//! Real programs for end-to-end tests: the server's binary, Bazel and the other clients, each started and stopped by
//! the test, so that a test is ten lines that say what is special about it.
//!
//! Real clients live in a root of their own (`tests/clients/clients.sh`). Where they are absent their tests are listed
//! as "not run" and pass, unless `POINTSMAN_REQUIRE_CLIENTS` is set.

mod bazel;
mod binary;
mod clients;
mod fault_proxy;
mod guest;
mod http;
mod operations;
mod process;
mod relay;
mod router;
mod server;
mod worker;

pub use bazel::{Bazel, BazelVersion, Spawn};
pub use binary::{Binary, ask, ask_json, cli};
pub use clients::{Clients, has_client, prometheus};
pub use fault_proxy::{Fault, FaultProxy, Pause};
pub use guest::build_policy;
pub use http::{HttpAnswer, http, sample};
pub use operations::{Observed, executing, finished_operations, operations};
pub use process::{Finished, Running, Signal};
pub use relay::Relay;
pub use router::RouterProcess;
pub use server::{Server, ServerOptions, replace};
pub use worker::start_worker;
