//! The policy is swapped while Bazel builds: nothing fails, and every operation says which policy routed it.

use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_proto::v1::RoutingDecision;
use pointsman_tests::harness::{
    BazelVersion, Clients, Server, ServerOptions, build_policy, finished_operations, replace,
};
use sha2::{Digest, Sha256};

use super::with_bazel;

/// The default policy as a component.
fn default_policy() -> anyhow::Result<Vec<u8>> {
    Ok(std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/prebuilt/default.wasm"))?)
}

fn digest(component: &[u8]) -> String {
    Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Starts a build under the default policy and swaps another one in while it runs; what every operation says of its
/// routing afterwards, in the order in which workers took them.
async fn swap_to(clients: &Clients, second: &[u8]) -> anyhow::Result<Vec<RoutingDecision>> {
    let (folder, inside) = clients.folder()?;
    let file = folder.path().join("policy.wasm");
    replace(&file, &default_policy()?)?;

    let options = ServerOptions::with_worker(&["--policy", &format!("{inside}/policy.wasm")]);
    let mut server = Server::start_in(clients, &options).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let mut build = bazel.start(&server.address(), &["build", "//:step11"])?;
    // Asked of the server: what Bazel prints of its progress skips steps.
    let some_are_done = async {
        while finished_operations(server.channel()?).await?.len() < 3 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(Duration::from_secs(60), some_are_done).await.context("nothing is built")??;
    replace(&file, second)?;
    server.wait_for_log(&format!("digest=\"{}\"", digest(second)), Duration::from_secs(30)).await?;
    ensure!(build.is_running(), "the build ended before the swap:\n{}", build.text());
    build.finish().await?.expect_code(0)?;

    let mut operations = finished_operations(server.channel()?).await?;
    ensure!(operations.len() == 12, "twelve actions were to run, but the operations are {operations:#?}");
    let failed = operations.iter().find(|operation| operation.exit_code != 0);
    ensure!(failed.is_none(), "{failed:?}");
    operations.sort_by_key(|operation| operation.started);
    Ok(operations.into_iter().map(|operation| operation.decision).collect())
}

/// The first decisions are the default policy's, the others the second one's, and there are some of each.
fn old_then_new(decisions: &[RoutingDecision], second: &[u8]) -> anyhow::Result<()> {
    let (old, new) = (digest(&default_policy()?), digest(second));
    let split =
        decisions.iter().position(|decision| decision.policy_digest != old).unwrap_or(decisions.len());
    let (before, after) = decisions.split_at(split);
    ensure!(before.len() >= 3 && after.len() >= 3, "{} before, {} after", before.len(), after.len());
    let odd = after.iter().find(|decision| decision.policy_digest != new);
    ensure!(odd.is_none(), "after the swap came {odd:?}");
    let replaced = decisions.iter().find(|decision| !decision.fallback_reason.is_empty());
    ensure!(replaced.is_none(), "a policy failed: {replaced:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_swapped_under_a_running_build() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    // The same policy with a custom section more, and so with another digest; this needs no compiler. Section 0
    // (custom), its size, the length of its name, its name.
    let second = [&default_policy()?[..], &[0, 7, 6], b"second"].concat();
    let decisions = swap_to(&clients, &second).await?;
    old_then_new(&decisions, &second)
}

/// The README's walk: a policy built from source takes over and leaves its remark.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_of_ones_own_takes_over() -> anyhow::Result<()> {
    let script = "examples/policies/first-policy/build.sh";
    let Some(built) = build_policy("e2e with a policy built here", script).await? else { return Ok(()) };
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let second = std::fs::read(built)?;
    let decisions = swap_to(&clients, &second).await?;
    old_then_new(&decisions, &second)?;
    let last = decisions.last().context("no decisions")?;
    ensure!(last.policy_name == "first-policy", "{last:?}");
    ensure!(last.notes == ["hello from my first policy, Genrule"], "{last:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_policy_changes_nothing() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let (folder, inside) = clients.folder()?;
    let file = folder.path().join("policy.wasm");
    let policy = default_policy()?;
    replace(&file, &policy)?;

    let options = ServerOptions::with_worker(&["--policy", &format!("{inside}/policy.wasm")]);
    let mut server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    replace(&file, b"no component at all")?;
    server
        .wait_for_log(
            "new version of the policy refused, the version in force stays",
            Duration::from_secs(30),
        )
        .await?;
    bazel.remote(&server.address(), &["build", "//:link1"]).await?.expect_code(0)?;
    for operation in finished_operations(server.channel()?).await? {
        ensure!(operation.decision.policy_digest == digest(&policy), "{operation:?}");
    }
    Ok(())
}
