//! Real clients against the real program: one file per topic.

mod build;
mod interrupt;
mod refusals;
mod swap;
mod trexe;
mod worker;

use anyhow::ensure;
use pointsman_tests::harness::{Bazel, Clients, ServerOptions, Spawn};

/// The sample workspace.
const WORKSPACE: &str = "ws7";

/// What the README's first command adds to `serve`.
fn with_worker(further: &[&str]) -> ServerOptions {
    let arguments = ["--with-worker", "--worker-concurrency", "2"].iter().chain(further);
    ServerOptions { arguments: arguments.map(|&word| word.to_owned()).collect(), ..ServerOptions::default() }
}

/// The root with Bazel in it, or `None` where the suite is not run.
async fn with_bazel() -> anyhow::Result<Option<Clients>> {
    Clients::take("e2e with Bazel 7", &["bazel7"]).await
}

/// Every spawn of the last build but those of `local_only` ran as `runner`, and there were some.
fn all_spawns_are(bazel: &Bazel<'_>, runner: &str) -> anyhow::Result<Vec<Spawn>> {
    let spawns = bazel.spawns()?;
    ensure!(spawns.len() > 20, "only {} spawns are in the log", spawns.len());
    let odd: Vec<_> =
        spawns.iter().filter(|spawn| spawn.target != "//:local_only" && spawn.runner != runner).collect();
    ensure!(odd.is_empty(), "not {runner}: {odd:#?}");
    Ok(spawns)
}
