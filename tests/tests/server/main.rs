//! The server in this process, with a fake client and fake workers: what goes over the wire, and what comes of it.
#![allow(clippy::unwrap_used)]

mod admin;
mod config_files;
mod decisions;
mod digest_functions;
mod environment;
mod execution;
mod floods;
#[allow(dead_code, reason = "the tests of the policy host use all of it")]
#[path = "../../../host/policy/tests/it/guests.rs"]
mod guests;
mod hooks;
mod hostile_policies;
mod inline_outputs;
mod kept_policies;
mod learning;
mod operations;
mod platform_properties;
mod policies;
mod refusals;
mod remote_storage;
mod services;
mod side_port;
mod sizes;
mod stopping;
mod support;
mod workers;
