//! Whole builds by a real client while something happens to the server or a worker: one file per topic. What each client
//! can do is in `tests/clients`.

mod action_sizes;
mod casd;
mod exclusive;
mod gpu;
#[allow(
    dead_code,
    clippy::unwrap_used,
    reason = "it is the one of the tests of the policy host, which use all of it"
)]
#[path = "../../../host/policy/tests/it/guests.rs"]
mod guests;
mod lifecycle;
mod swap;
mod unknown_property;
mod worker;

use pointsman_tests::harness::Clients;

/// The root with Bazel in it, or `None` where the suite is not run.
async fn with_bazel() -> anyhow::Result<Option<Clients>> {
    Clients::take("e2e with Bazel 7", &["bazel7"]).await
}
