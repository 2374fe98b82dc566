//! The life of a policy under builds that never end: a shadow that is promoted, a version whose own golden case fails, one
//! that traps now and then, a pin, and a restart. No build fails.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use pointsman_policy::{digest_hex, golden};
use pointsman_tests::harness::{Bazel, BazelVersion, Server, ServerOptions, Signal, ask, replace};
use serde_json::Value;

use super::with_bazel;
use crate::guests::{ACCEPT, Guest, import};

/// A version that gives actions this priority and does nothing else.
fn setting(priority: i32) -> Vec<u8> {
    let imports = import("route", "set-priority", "i32", "");
    Guest::routing(&imports, &format!("(call $route.set-priority (i32.const {priority})) {ACCEPT}")).build()
}

/// One that traps at each hundredth action.
fn trapping() -> Vec<u8> {
    let mut guest = Guest::routing(
        "",
        &format!(
            "(global.set $calls (i32.add (global.get $calls) (i32.const 1)))
            (if (i32.eqz (i32.rem_u (global.get $calls) (i32.const 100))) (then unreachable))
            {ACCEPT}"
        ),
    );
    guest.more = "(global $calls (mut i32) (i32.const 0))".into();
    guest.build()
}

/// One that says of itself that it gives actions another priority than it does.
fn lying() -> anyhow::Result<Vec<u8>> {
    let cases = r#"{ "cases": [ { "name": "tests go first", "facts": { "mnemonic": "TestRunner" },
        "expect": { "route": { "priority": -5 } } } ] }"#;
    Ok(golden::pack(&setting(3), cases.as_bytes())?)
}

/// Builds from nothing, over and over.
async fn build_on(
    bazel: &Bazel<'_>,
    server: &str,
    stop: &AtomicBool,
    built: &AtomicUsize,
) -> anyhow::Result<()> {
    while !stop.load(Relaxed) {
        bazel.run(&["clean"]).await?.expect_code(0)?;
        // Each action is executed, whatever the action cache has.
        let words = ["build", "//...", "--noremote_accept_cached"];
        bazel.remote(server, &words).await?.expect_code(0)?;
        built.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// What the operator does and sees.
struct Operator<'a> {
    server: &'a Server,
    /// Of policies.
    folder: PathBuf,
    built: Arc<AtomicUsize>,
}

impl Operator<'_> {
    async fn link(&self) -> anyhow::Result<Value> {
        let answer = ask(self.server, &["policy", "status", "--output", "json"]).await?.expect_code(0)?;
        let mut answer: Value = serde_json::from_str(&answer.text)?;
        Ok(answer["links"][0].take())
    }

    async fn until(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> anyhow::Result<Value> {
        let deadline = tokio::time::Instant::now() + PATIENCE;
        loop {
            let link = self.link().await?;
            if wanted(&link) {
                return Ok(link);
            }
            if tokio::time::Instant::now() > deadline {
                bail!("waited for {what}, there is {link:#}\n{}", self.server.log());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    async fn in_force(&self, version: &[u8]) -> anyhow::Result<()> {
        let (link, wanted) = (self.link().await?, digest_hex(version));
        ensure!(link["active"]["digest"] == *wanted, "{wanted} is not in force: {link:#}");
        Ok(())
    }

    /// Waits until so many more builds are done.
    async fn builds(&self, more: usize) -> anyhow::Result<()> {
        let wanted = self.built.load(Relaxed) + more;
        let done = async {
            while self.built.load(Relaxed) < wanted {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, done).await.context("nothing is built")
    }

    fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<String> {
        let file = self.folder.join(name);
        replace(&file, content)?;
        Ok(file.to_str().context("a name that is no text")?.to_owned())
    }

    /// All of it, while builds go on.
    async fn works(&self, config: &dyn Fn(&str) -> String) -> anyhow::Result<()> {
        let (first, second) = (setting(1), setting(2));
        self.builds(1).await?;
        self.in_force(&first).await?;

        // A shadow is asked about every action, and decides about none.
        let pushed = self.write("second.wasm", &second)?;
        ask(self.server, &["policy", "push", &pushed, "--shadow"]).await?.expect_code(0)?;
        let link = self.until("comparisons", |link| link["trial"]["compared"].as_u64() > Some(10)).await?;
        ensure!(link["trial"]["compared"] == link["trial"]["disagreed"], "{link:#}");
        let difference = &link["trial"]["samples"][0]["differences"][0];
        ensure!(difference == "priority: 1 in force, 2 on trial", "{difference}");
        self.in_force(&first).await?;
        ask(self.server, &["policy", "promote"]).await?.expect_code(0)?;
        self.in_force(&second).await?;
        self.builds(1).await?;

        // Its own case finds it out.
        self.write("policy.wasm", &lying()?)?;
        let refused = |link: &Value| {
            link["last_load"]["text"].as_str().is_some_and(|text| text.contains("tests go first"))
        };
        let link = self.until("the refusal", refused).await?;
        ensure!(link["last_load"]["ok"] == false, "{link:#}");
        self.in_force(&second).await?;

        // It passes all checks, and fails at one action in a hundred.
        self.write("policy.wasm", &trapping())?;
        let bad = digest_hex(&trapping());
        self.until("the version that traps", |link| link["active"]["digest"] == *bad).await?;
        let link = self.until("its end", |link| link["rolled_back"][0]["digest"] == *bad).await?;
        let why = link["rolled_back"][0]["detail"].as_str().unwrap_or_default();
        ensure!(why.starts_with("it failed in 1 of "), "{why}");
        self.in_force(&second).await?;
        self.builds(1).await?;

        // From now on nothing else gets in.
        let pin = format!(", sha256: '{}'", digest_hex(&second));
        replace(&self.server.file("pointsman.json5"), config(&pin).as_bytes())?;
        self.until("the pin", |link| link["pin"] == *digest_hex(&second)).await?;
        let other = self.write("other.wasm", &setting(9))?;
        let refused = ask(self.server, &["policy", "push", &other]).await?;
        ensure!(refused.text.contains("the configuration pins"), "{}", refused.text);
        self.in_force(&second).await
    }
}

/// Some hundred actions, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(240);

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_lives_and_no_build_fails() -> anyhow::Result<()> {
    let Some(clients) = with_bazel().await? else { return Ok(()) };
    let (folder, inside) = clients.folder()?;
    let file = format!("{inside}/policy.wasm");
    replace(&folder.path().join("policy.wasm"), &setting(1))?;
    let config = |pin: &str| {
        format!(
            "{{ unknown_property: 'ignore', policy: {{ probation: {{ events: 1 }} }},
                policies: {{ site: {{ file: '{file}'{pin} }} }} }}"
        )
    };
    let mut server = Server::start_in(&clients, &ServerOptions::with_worker(&[]).config(&config(""))).await?;
    let bazel = clients.bazel(BazelVersion::Seven).await?;
    let (stop, built) = (AtomicBool::new(false), Arc::<AtomicUsize>::default());
    let address = server.address();

    let operator = Operator { server: &server, folder: folder.path().to_owned(), built: built.clone() };
    let worked = async {
        let done = operator.works(&config).await;
        stop.store(true, Relaxed);
        done
    };
    let (builds, done) = tokio::join!(build_on(&bazel, &address, &stop, &built), worked);
    builds?;
    done?;

    // The file has still the version that traps.
    server.end(Signal::TERM).await?;
    server.start_again().await?;
    let operator = Operator { server: &server, folder: folder.path().to_owned(), built };
    operator.in_force(&setting(2)).await?;
    bazel.run(&["clean"]).await?.expect_code(0)?;
    bazel.remote(&address, &["build", "//...", "--noremote_accept_cached"]).await?.expect_code(0)?;
    let link = operator.link().await?;
    ensure!(
        link["active"]["calls"].as_u64() > Some(5) && link["active"]["failures"] == serde_json::json!({}),
        "{link:#}"
    );
    Ok(())
}
