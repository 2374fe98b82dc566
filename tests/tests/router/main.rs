//! The router's binary, asked by a client that is as strict as Buildbarn's scheduler, with another server as its CAS.
#![allow(clippy::unwrap_used)]

mod configuration;
mod example;
mod failures;
#[allow(dead_code, reason = "the tests of the policy host use all of it")]
#[path = "../../../host/policy/tests/it/guests.rs"]
mod guests;
mod operations;
mod policies;
mod replicas;
mod replies;
mod scheduler;
mod support;
