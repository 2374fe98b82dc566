//! What Buildbarn's workers rely on, scenario by scenario, by a worker that behaves as they do (`fake_worker`). Where the
//! server differs on purpose from Buildbarn's, `COMPAT.md` says so and names the test.
#![allow(clippy::unwrap_used)]

mod cache;
mod clients;
mod compat;
mod failures;
mod handover;
mod holds;
mod loss;
mod matching;
mod polling;
mod prefer_idle;
mod queues;
mod status;
mod steps;
#[allow(dead_code, reason = "shared with the tests of the server, which need other parts of it")]
#[path = "../server/support.rs"]
mod support;
mod timeouts;
