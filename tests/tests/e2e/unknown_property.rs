//! A new release of a client sends one property more, which no worker has. Actions wait, the operator is told why, a policy
//! that drops the property is swapped in, and the build that waited goes on.

use std::time::Duration;

use anyhow::{Context, ensure};
use pointsman_tests::harness::{
    BazelVersion, Server, ServerOptions, ask, ask_json, finished_operations, replace,
};

use super::with_bazel;
use crate::guests::{ACCEPT, Guest, import};

const KEY: &str = "persistentWorkerProtocol";

/// A policy that drops the property and changes nothing else.
fn dropping() -> Vec<u8> {
    let length = KEY.len();
    let mut guest = Guest::routing(
        &import("route", "remove-property", "i32 i32", ""),
        &format!("(call $route.remove-property (i32.const 1024) (i32.const {length})) {ACCEPT}"),
    );
    guest.more = format!("(data (i32.const 1024) \"{KEY}\")");
    guest.build()
}

/// Name of an operation that waits, once there is one.
async fn waiting(server: &Server) -> anyhow::Result<String> {
    let found = async {
        loop {
            let queue = ask_json(server, &["queue"]).await?;
            if let Some(name) = queue["classes"][0]["operation_names"][0].as_str() {
                return anyhow::Ok(name.to_owned());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.context("nothing waits")?
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_waits_for_an_unknown_property_goes_green_by_a_policy() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let (folder, inside) = clients.folder()?;
    let file = folder.path().join("policy.wasm");
    let default = concat!(env!("CARGO_MANIFEST_DIR"), "/../policies/prebuilt/default.wasm");
    replace(&file, &std::fs::read(default)?)?;
    let config =
        format!("{{ unknown_property: 'queue', policies: {{ site: {{ file: '{inside}/policy.wasm' }} }} }}");
    let server = Server::start_in(&clients, &ServerOptions::with_worker(&[]).config(&config)).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    bazel.remote(&server.address(), &["build", "//:link1"]).await?.expect_code(0)?;

    let more = format!("--remote_default_exec_properties={KEY}=json");
    let mut build = bazel.start(&server.address(), &["build", "//:link3", &more])?;
    let name = waiting(&server).await?;
    let why = ask(&server, &["why", &name]).await?.expect_code(0)?;
    let told = format!("'{KEY}' is not in supported_platform_properties");
    ensure!(why.text.contains(&told), "{told:?} is not in:\n{}", why.text);
    ensure!(build.is_running(), "the build did not wait:\n{}", build.text());

    replace(&file, &dropping())?;
    build.finish().await?.expect_code(0)?;
    let operations = finished_operations(server.channel()?).await?;
    let dropped = operations.iter().filter(|operation| operation.decision.policy_name == "guest");
    ensure!(dropped.clone().count() > 0, "the policy routed nothing: {operations:#?}");
    for operation in dropped {
        ensure!(operation.decision.platform.iter().all(|p| p.name != KEY), "{operation:?}");
    }
    Ok(())
}
