//! Policies that do harm, put in force under a running server: what its clients see, what its operator sees, and which
//! version decides.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use pointsman_policy::{FailureKind, Hook, LinkStatus, digest_hex, golden};
use pointsman_proto::v1::{ListWorkersRequest, RoutingDecision};
use pointsman_tests::fake_client::FakeClient;

use crate::guests::{ACCEPT, Guest, MANIFEST, import};
use crate::policies::{decided_by, replace, server_with_policy, version};
use crate::support::{TestServer, action, admin, host, server_in, server_with, within};

fn status(server: &TestServer) -> LinkStatus {
    server.server.manager.status().remove(0)
}

/// Waits until the only link is so.
async fn until(server: &TestServer, wanted: impl Fn(&LinkStatus) -> bool) -> LinkStatus {
    let found = async {
        loop {
            let status = status(server);
            if wanted(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), found).await.expect("the link does not become so")
}

/// Builds one action, which must succeed, and gives who decided.
async fn build(client: &FakeClient, name: &str) -> RoutingDecision {
    let digest = client.upload_action(&action(name)).await.unwrap();
    let finished = within(client.execute(&digest).await.unwrap().finish()).await.unwrap();
    let status = finished.response.status.clone().unwrap_or_default();
    assert_eq!((status.code, &*status.message), (0, ""), "no build fails because of a policy");
    assert_eq!(finished.response.result.as_ref().map(|result| result.exit_code), Some(0));
    decided_by(finished.updates.last().unwrap())
}

/// Clients that build without end.
struct Load {
    stop: Arc<AtomicBool>,
    built: Arc<AtomicUsize>,
    clients: Vec<tokio::task::JoinHandle<Vec<RoutingDecision>>>,
}

impl Load {
    async fn start(server: &TestServer, clients: usize) -> Self {
        let (stop, built) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let mut running = Vec::new();
        for index in 0..clients {
            let (client, stop, built) = (server.client().await, stop.clone(), built.clone());
            running.push(tokio::spawn(async move {
                let mut decisions = Vec::new();
                while !stop.load(Relaxed) {
                    decisions.push(build(&client, &format!("{index}-{}", decisions.len())).await);
                    built.fetch_add(1, Relaxed);
                }
                decisions
            }));
        }
        Self { stop, built, clients: running }
    }

    /// Waits for so many more actions.
    async fn go_on(&self, actions: usize) {
        let wanted = self.built.load(Relaxed) + actions;
        within(async {
            while self.built.load(Relaxed) < wanted {
                assert!(!self.clients.iter().any(|client| client.is_finished()), "a build failed");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }

    /// Ends it, and gives all decisions.
    async fn end(self) -> Vec<RoutingDecision> {
        self.stop.store(true, Relaxed);
        let mut decisions = Vec::new();
        for client in self.clients {
            decisions.extend(within(client).await.unwrap());
        }
        decisions
    }
}

/// A version that fails at each action is put in force under load, and goes by itself.
async fn comes_and_goes(bad: &Guest, failure: &str, verdict: &str) {
    let folder = tempfile::tempdir().unwrap();
    let good = version("good");
    let (server, file) = server_with_policy(folder.path(), &good).await;
    let _workers = [server.eager_worker(&host("a")).await, server.eager_worker(&host("b")).await];
    let load = Load::start(&server, 4).await;
    load.go_on(20).await;

    let bad = bad.build();
    replace(&file, &bad);
    let after = until(&server, |status| !status.rolled_back.is_empty()).await;
    load.go_on(20).await;
    let decisions = load.end().await;

    // What the clients saw: nothing, but each answer of that time says who decided, and why.
    assert!(decisions.iter().all(|decision| decision.policy_digest == digest_hex(&good)));
    let failed: Vec<_> = decisions.iter().filter(|decision| !decision.fallback_reason.is_empty()).collect();
    assert!(!failed.is_empty());
    for decision in &failed {
        let why = &decision.fallback_reason;
        assert!(why.contains(failure) || why.contains("failed too often in a row"), "{why}");
        assert!(why.contains(&format!("policy guest 1.2.3 (sha256 {}", digest_hex(&bad))), "{why}");
    }
    // What is in force: the version before. What the operator sees: which one went, and why.
    assert_eq!(*after.active.id.digest_hex, *digest_hex(&good));
    assert_eq!(after.rolled_back.len(), 1);
    assert_eq!(after.rolled_back[0].digest_hex, digest_hex(&bad));
    assert!(after.rolled_back[0].reason.contains(verdict), "{}", after.rolled_back[0].reason);
    assert!(after.history.iter().any(|event| event.digest_hex == digest_hex(&bad)), "{:?}", after.history);
    let client = server.client().await;
    assert_eq!(build(&client, "afterwards").await.fallback_reason, "");

    // The file still has the bad version, and the next good one is not held up by that.
    let next = version("next");
    replace(&file, &next);
    until(&server, |status| *status.active.id.digest_hex == *digest_hex(&next)).await;
    assert_eq!(build(&client, "at last").await.policy_digest, digest_hex(&next));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endless_loop_under_load() {
    let bad = Guest::routing("", "(loop $again (br $again)) unreachable");
    comes_and_goes(&bad, "it used up its fuel", "it used too much fuel or time in 3 of").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trap_under_load() {
    comes_and_goes(&Guest::routing("", "unreachable"), "it panicked or aborted", "it failed in 3 of").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_memory_bomb_under_load() {
    let eat = "(loop $again (br_if $again (i32.ne (memory.grow (i32.const 16)) (i32.const -1)))) unreachable";
    comes_and_goes(&Guest::routing("", eat), "out of memory", "it").await;
}

/// A policy that routes well, with each host asked about, and does this in all other hooks.
fn well_routing(body: &str) -> Guest {
    let mut guest = Guest::routing(
        &import("route", "rank-candidates", "i32", ""),
        &format!("(call $route.rank-candidates (i32.const 2)) {ACCEPT}"),
    );
    guest.world.push_str("export p:on-worker@; export p:on-result@; export p:on-assignment@;");
    let attempt = "(param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 f64 i32 i32)";
    for (hook, parameters) in [
        ("on-worker@0.1.0#admit", ""),
        ("on-result@0.1.0#completed", attempt),
        ("on-assignment@0.1.0#rank", "(param i32 i32)"),
    ] {
        guest.more +=
            &format!("(func (export \"pointsman:policy/{hook}\") {parameters} (result i32) {body})");
    }
    guest
}

#[tokio::test]
async fn harm_in_other_hooks_changes_nothing_for_anybody() {
    for (body, kind) in [
        ("unreachable", FailureKind::Trap),
        ("(loop $again (br $again)) unreachable", FailureKind::OutOfFuel),
        ("i32.const 0x7fff0000", FailureKind::BadAnswer),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let bytes = well_routing(body).build();
        let (server, _file) = server_with_policy(folder.path(), &bytes).await;
        let _workers = [server.eager_worker(&host("a")).await, server.eager_worker(&host("b")).await];
        let client = server.client().await;
        let failed = |hook: Hook| {
            let tally = status(&server).active.tally;
            let calls: u64 =
                tally.calls.iter().filter(|(known, _)| *known == hook).map(|(_, calls)| calls).sum();
            let failures: u64 =
                tally.failures.iter().filter(|(known, _)| *known == kind).map(|(_, n)| n).sum();
            (calls, failures)
        };
        // Both have joined as they are, though the policy has failed at each.
        within(async {
            while failed(Hook::OnWorker).0 < 2 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        })
        .await;
        for name in ["1", "2", "3"] {
            let decision = build(&client, name).await;
            assert_eq!((decision.policy_digest, &*decision.fallback_reason), (digest_hex(&bytes), ""));
            assert_eq!(decision.ranked_by, "", "nobody has put the hosts in order");
        }
        let (results, failures) = failed(Hook::OnResult);
        assert!(results >= 3 && failures >= 5, "{kind:?}: {results} results, {failures} failures");
        let status = status(&server);
        assert_eq!(*status.active.id.digest_hex, *digest_hex(&bytes));
        assert!(status.rolled_back.is_empty(), "there is nothing to go back to");
    }
}

#[tokio::test]
async fn an_operator_may_prefer_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.wasm");
    replace(&file, &well_routing("unreachable").build());
    let keys = format!("policies: {{ strict: {{ file: '{}', on_error: 'reject' }} }}", file.display());
    let server = server_with(&keys).await;
    let mut worker = server.worker(&host("a")).await;
    let refused = within(worker.synchronize()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable);
    assert!(refused.message().contains("the policy failed: it panicked or aborted"), "{refused}");
    let known = admin(&server).await.list_workers(ListWorkersRequest {}).await.unwrap().into_inner();
    assert!(known.workers.is_empty());
    assert!(known.refused[0].reason.contains("the policy failed"), "{:?}", known.refused);

    // Another version of the file, which is fine, and the worker needs no more than to ask again.
    replace(&file, &version("fine"));
    until(&server, |status| *status.active.id.name == *"default").await;
    let _worker = server.eager_worker(&host("a")).await;
    build(&server.client().await, "1").await;

    // And one that fails at actions: no build is spared, as that is what the operator wants.
    replace(&file, &Guest::routing("", "unreachable").build());
    until(&server, |status| *status.active.id.name == *"guest").await;
    let client = server.client().await;
    let digest = client.upload_action(&action("2")).await.unwrap();
    let ended = match client.execute(&digest).await {
        Ok(updates) => {
            let status = within(updates.finish()).await.unwrap().response.status.unwrap_or_default();
            (status.code, status.message)
        }
        Err(status) => (status.code() as i32, status.message().to_owned()),
    };
    assert_eq!(ended.0, tonic::Code::Unavailable as i32, "{ended:?}");
    assert!(ended.1.contains("the policy failed: it panicked or aborted"), "{ended:?}");
}

/// Files that are no good, and what the operator is told of each.
fn refused() -> Vec<(Vec<u8>, &'static str)> {
    let mut wasi = Guest::routing(
        r#"(import "wasi:clocks/wall-clock@0.2.0" "now" (func $now (result i64)))"#,
        &format!("(drop (call $now)) {ACCEPT}"),
    );
    wasi.more_wit = vec!["package wasi:clocks@0.2.0; interface wall-clock { now: func() -> u64; }".into()];
    wasi.world.push_str("import wasi:clocks/wall-clock@0.2.0;");
    let mut without = Guest::default();
    without.world = without.world.replace("export p:on-action@;", "");
    let mut shape = Guest::default();
    shape.wit = shape.wit.replace("    resource-exhausted,\n", "");
    let configured = |body: &str| Guest { configure: format!("{body} {MANIFEST}"), ..Guest::default() };
    let mut misplaced = configured("(drop (call $action.priority))");
    misplaced.imports = import("action", "priority", "", "i32");
    let mut no_text =
        configured("(i32.store (i32.const 68) (i32.const 1000)) (i32.store (i32.const 72) (i32.const 2))");
    no_text.more = r#"(data (i32.const 1000) "\ff\fe")"#.into();
    let mut refuses = Guest { configure: "i32.const 1024".into(), ..Guest::default() };
    refuses.more = r#"
        (data (i32.const 1024) "\01\00\00\00\10\04\00\00\01\00\00\00")
        (data (i32.const 1040) "\4c\04\00\00\04\00\00\00\56\04\00\00\06\00\00\00")
        (data (i32.const 1100) "/a/b") (data (i32.const 1110) "no way")"#
        .into();
    let starts = Guest { more: "(start $s) (func $s (loop $again (br $again)))".into(), ..Guest::default() };
    let whole = Guest::default().build();
    let case = br#"{ "cases": [{ "name": "to the big ones", "expect": { "route": { "pool": "big" } } }] }"#;
    vec![
        (b"#!/bin/sh\n".to_vec(), "it is not a WebAssembly component"),
        (whole[..whole.len() / 2].to_vec(), "it is not a WebAssembly component"),
        (wasi.build(), "it imports wasi:clocks/wall-clock@0.2.0: a policy has no"),
        (without.build(), "it exports none of on-action, on-assignment, on-result, on-worker"),
        (shape.build(), "this server calls it as"),
        (configured("unreachable").build(), "it failed while it was configured: it panicked"),
        (
            configured("(loop $again (br $again))").build(),
            "it failed while it was configured: it used up its fuel",
        ),
        (misplaced.build(), "action.priority was called in configure"),
        (no_text.build(), "it failed while it was configured: unreadable answer"),
        (refuses.build(), "it refuses its configuration: /a/b: no way"),
        (starts.build(), "it failed while it was configured: it used up its fuel"),
        (
            golden::pack(&whole, case).unwrap(),
            "case \"to the big ones\": route.pool was to be \"big\", but is the default",
        ),
        (
            golden::pack(&whole, b"{\"cases\": []}").unwrap()[..whole.len() + 9].to_vec(),
            "it is not a WebAssembly",
        ),
    ]
}

#[tokio::test]
async fn versions_that_are_no_good_never_decide() {
    let folder = tempfile::tempdir().unwrap();
    let good = version("good");
    let (server, file) = server_with_policy(folder.path(), &good).await;
    let _worker = server.eager_worker(&host("a")).await;
    let client = server.client().await;
    let in_force = server.server.policies.in_force().number();
    for (index, (bad, told)) in refused().into_iter().enumerate() {
        replace(&file, &bad);
        let digest = digest_hex(&bad);
        let status = until(&server, |status| status.last_load.digest_hex == digest).await;
        assert!(
            !status.last_load.ok && status.last_load.text.contains(told),
            "{told}: {:?}",
            status.last_load
        );
        assert_eq!(*status.active.id.digest_hex, *digest_hex(&good));
        assert!(
            status.history.last().is_some_and(|event| event.detail.contains(told)),
            "{told}: {:?}",
            status.history.last()
        );
        assert_eq!(server.server.policies.in_force().number(), in_force, "{told}");
        let decision = build(&client, &index.to_string()).await;
        assert_eq!((decision.policy_digest, &*decision.fallback_reason), (digest_hex(&good), ""));
    }
    assert!(status(&server).rolled_back.is_empty(), "what was never in force is not rolled back");
}

#[tokio::test]
async fn a_version_that_came_with_a_restart_goes_by_itself_too() {
    let policies = tempfile::tempdir().unwrap();
    let good = version("good");
    let (server, file) = server_with_policy(policies.path(), &good).await;
    let bad = Guest::routing("", "unreachable").build();
    server.server.stop().await;
    replace(&file, &bad);
    let keys = format!("policy: {{ file: '{}' }}", file.display());
    let server = server_in(server._folder, &keys).await;
    assert_eq!(*status(&server).active.id.digest_hex, *digest_hex(&bad));
    let _worker = server.eager_worker(&host("a")).await;
    let client = server.client().await;
    for name in ["1", "2", "3"] {
        assert!(!build(&client, name).await.fallback_reason.is_empty());
    }
    let after = until(&server, |status| !status.rolled_back.is_empty()).await;
    assert_eq!(*after.active.id.digest_hex, *digest_hex(&good));
    assert_eq!(build(&client, "4").await.policy_digest, digest_hex(&good));
}

#[tokio::test]
async fn a_server_does_not_use_a_state_folder_that_others_may_write_to() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let policies = folder.path().join("policies");
    std::fs::create_dir(&policies).unwrap();
    std::fs::set_permissions(&policies, std::fs::Permissions::from_mode(0o777)).unwrap();
    let error = start_in(folder.path()).await.unwrap_err();
    assert!(
        error.contains("policies: others may write to it (mode 0777)") && error.contains("chmod 700"),
        "{error}"
    );
    std::fs::set_permissions(&policies, std::fs::Permissions::from_mode(0o700)).unwrap();
    start_in(folder.path()).await.unwrap();
}

/// Starts a server with that state folder, and ends it.
async fn start_in(state_dir: &Path) -> Result<(), String> {
    let text = format!("{{ listen: '127.0.0.1:0', state_dir: '{}' }}", state_dir.display());
    let config = pointsman::config::Config::parse(&text, "test.json5").unwrap();
    let server = pointsman::serve::Server::start(&config).await.map_err(|error| format!("{error:#}"))?;
    server.stop().await;
    Ok(())
}
