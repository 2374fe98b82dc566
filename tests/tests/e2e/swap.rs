//! The policy is swapped while Bazel builds: nothing fails, and every operation says which policy routed it.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use pointsman_tests::harness::{Server, finished_operations, replace};
use sha2::{Digest, Sha256};

use super::{WORKSPACE, with_bazel, with_worker};

/// The default policy as a component, and one that differs in a custom section and so in its digest.
fn two_policies() -> anyhow::Result<[Vec<u8>; 2]> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/prebuilt/default.wasm");
    let first = std::fs::read(path)?;
    let mut second = first.clone();
    // Section 0 (custom), its size, the length of its name, its name.
    second.extend([&[0, 7, 6], &b"second"[..]].concat());
    Ok([first, second])
}

fn digest(component: &[u8]) -> String {
    Sha256::digest(component).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_is_swapped_under_a_running_build() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let (folder, inside) = clients.folder()?;
    let file = folder.path().join("policy.wasm");
    let policies = two_policies()?;
    replace(&file, &policies[0])?;

    let options = with_worker(&["--policy", &format!("{inside}/policy.wasm")]);
    let mut server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(WORKSPACE).await?;
    let mut build = bazel.start(&server.address(), &["build", "//:step11"])?;
    build.wait_for("//:step3", Duration::from_secs(60)).await?;
    replace(&file, &policies[1])?;
    let digests = policies.map(|policy| digest(&policy));
    server.wait_for_log(&digests[1][..12], Duration::from_secs(30)).await?;
    build.finish().await?.expect_code(0)?;

    let mut routed: BTreeMap<String, u32> = BTreeMap::new();
    for operation in finished_operations(server.channel()?).await? {
        ensure!(operation.exit_code == 0, "{operation:?}");
        ensure!(operation.decision.fallback_reason.is_empty(), "{operation:?}");
        *routed.entry(operation.decision.policy_digest).or_default() += 1;
    }
    ensure!(routed.values().sum::<u32>() == 12, "twelve actions ran, but the operations say {routed:?}");
    for digest in &digests {
        ensure!(routed.get(digest).is_some_and(|count| *count >= 2), "hardly any by {digest}: {routed:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_policy_changes_nothing() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let (folder, inside) = clients.folder()?;
    let file = folder.path().join("policy.wasm");
    let [policy, _] = two_policies()?;
    replace(&file, &policy)?;

    let options = with_worker(&["--policy", &format!("{inside}/policy.wasm")]);
    let mut server = Server::start_in(&clients, &options).await?;
    let bazel = clients.bazel(WORKSPACE).await?;
    replace(&file, b"no component at all")?;
    server
        .wait_for_log("changed policy file refused, the policy in force stays", Duration::from_secs(30))
        .await?;
    bazel.remote(&server.address(), &["build", "//:link1"]).await?.expect_code(0)?;
    for operation in finished_operations(server.channel()?).await? {
        ensure!(operation.decision.policy_digest == digest(&policy), "{operation:?}");
    }
    Ok(())
}
