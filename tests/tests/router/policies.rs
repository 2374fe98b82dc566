//! Policies that reject, fail, hang, are swapped, and set what a router can't hand on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use pointsman_policy::golden;
use pointsman_proto::rev2::{Action, Command, RequestMetadata};
use pointsman_tests::harness::{RouterProcess, cli, replace, sample};
use prost::Message as _;
use tonic::Code;

use crate::guests::{ACCEPT, Guest, import};
use crate::support::{Cas, action_of, bazel, buck2, config, owned, scheduler, within};

/// A router whose only policy lies in a file.
struct WithPolicy {
    cas: Cas,
    router: RouterProcess,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

async fn with_policy(component: &[u8], link: &str, keys: &str) -> WithPolicy {
    let (cas, folder) = (Cas::start().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("policy.wasm");
    replace(&file, component).unwrap();
    let keys = format!("policies: {{ site: {{ file: '{}', {link} }} }}, {keys}", file.display());
    WithPolicy { router: cas.router(&keys).await, cas, file, _folder: folder }
}

/// A policy that gives each action this time limit, so that one sees who decided.
fn limiting(seconds: i64) -> Guest {
    let set = import("route", "set-timeout-ms", "i32", "");
    Guest::routing(&set, &format!("(call $route.set-timeout-ms (i32.const {})) {ACCEPT}", seconds * 1000))
}

/// The same for those that have no correlated id; it fails at all others.
fn limiting_and_failing(seconds: i64) -> Guest {
    let mut guest = limiting(seconds);
    guest.imports += &import("action", "correlated-invocations-id", "i32", "");
    guest.route = format!(
        "(call $action.correlated-invocations-id (i32.const 1024)) (if (i32.load (i32.const 1028)) (then unreachable)) {}",
        guest.route
    );
    guest
}

fn traps() -> Vec<u8> {
    Guest::routing("", "unreachable").build()
}

fn seconds(action: &Action) -> Option<i64> {
    action.timeout.map(|timeout| timeout.seconds)
}

#[tokio::test]
async fn a_rejection_has_the_policys_code_and_words() {
    let cas = Cas::start().await;
    let rule = "{ when: { property: { Pool: 'gold' } }, reject: { code: 'permission_denied', reason: 'gold is for others', \
                help: 'ask for silver' } }";
    let router =
        cas.router(&format!("policy: {{ config: {{ property_rules: {{ rules: [{rule}] }} }} }}")).await;
    let refused = scheduler(&router).await.execute(&bazel("a", &[("Pool", "gold")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("gold is for others; ask for silver"), "{refused}");
    let scrape = router.page("/metrics").await.unwrap().body;
    assert_eq!(sample(&scrape, "pointsman_router_calls_total{outcome=\"rejected\"}"), Some(1.0));
}

#[tokio::test]
async fn who_fails_leaves_the_platform_that_the_client_gave() {
    let WithPolicy { cas, router, .. } = &with_policy(&traps(), "", "").await;
    let asks = scheduler(router).await.of_invocation("i");
    let routed = asks.execute(&cas.action(&buck2("a", &[("b", "1"), ("a", "1")])).await).await.unwrap();
    assert_eq!(routed.platform, owned(&[("a", "1"), ("b", "1")]));
    assert_eq!(routed.degraded.as_deref(), Some("native"));
    assert_eq!(routed.keys, [serde_json::json!({ "toolInvocationId": "i" })]);
    let action = bazel("a", &[("c", "1")]);
    let routed = asks.execute(&action).await.unwrap();
    assert_eq!((routed.bytes, routed.degraded.as_deref()), (action.encode_to_vec().into(), Some("native")));

    // Never without properties that nobody decided on.
    let nothing = cas.action(&Command { arguments: vec!["true".into()], ..Command::default() }).await;
    let refused = asks.execute(&nothing).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    let text = refused.message();
    assert!(text.contains("policy guest 1.2.3") && text.contains("it panicked or aborted"), "{text}");
    assert!(text.contains("its Command has none either"), "{text}");
    let refused = asks.execute(&action_of(&buck2("nowhere", &[]))).await.unwrap_err();
    // Its client can do something about that.
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("is not in the CAS"), "{refused}");
    assert!(router.log().contains("an action is routed without its policies"), "{}", router.log());
}

#[tokio::test]
async fn who_fails_at_a_known_action_leaves_its_last_route() {
    let WithPolicy { cas, router, .. } = &with_policy(&limiting_and_failing(61).build(), "", "").await;
    let asks = scheduler(router).await;
    let action =
        Action { platform: Some(Default::default()), ..cas.action(&buck2("a", &[("a", "1")])).await };
    assert_eq!(seconds(&asks.execute(&action).await.unwrap().action), Some(61));
    let metadata = RequestMetadata { correlated_invocations_id: "c".into(), ..RequestMetadata::default() };
    let failing = asks.with_metadata(metadata);
    let routed = failing.execute(&action).await.unwrap();
    assert_eq!((seconds(&routed.action), routed.degraded.as_deref()), (Some(61), Some("known")));
    // Another kind of action has no route that is known.
    let other = Action { do_not_cache: true, ..action };
    let routed = failing.execute(&other).await.unwrap();
    assert_eq!((seconds(&routed.action), routed.degraded.as_deref()), (None, Some("native")));
    assert_eq!(routed.platform, owned(&[("a", "1")]));
}

#[tokio::test]
async fn on_error_has_the_first_word() {
    let action = bazel("a", &[("a", "1")]);
    let WithPolicy { router, .. } = &with_policy(&traps(), "on_error: 'reject'", "").await;
    let refused = scheduler(router).await.execute(&action).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("the policy failed: it panicked or aborted"), "{refused}");

    // The chain goes on, and who comes next decides.
    let chain = "chains: { '': ['site', 'default'] }";
    let WithPolicy { cas, router, .. } = &with_policy(&traps(), "on_error: 'skip'", chain).await;
    let buck2 = cas.action(&buck2("a", &[("a", "1")])).await;
    let routed = scheduler(router).await.execute(&buck2).await.unwrap();
    assert_eq!((routed.platform, routed.degraded), (owned(&[("a", "1")]), None));
}

#[tokio::test]
async fn a_policy_that_loops_holds_nobody_up() {
    let endless = Guest::routing("", "(loop $again (br $again)) unreachable").build();
    let keys = "policy: { fuel: 10000000000, deadline: '30s' }, router: { deadline: '1s' }";
    let WithPolicy { router, .. } = &with_policy(&endless, "", keys).await;
    let asks = scheduler(router).await;
    for _ in 0..3 {
        let begun = Instant::now();
        let routed = within(Duration::from_secs(5), asks.execute(&bazel("a", &[("a", "1")]))).await.unwrap();
        assert_eq!(routed.degraded.as_deref(), Some("native"));
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_swapped_under_load_and_no_call_is_lost() {
    let (one, two) = (limiting(61).build(), limiting(62).build());
    let with = with_policy(&one, "", "").await;
    let (stop, answered) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
    let mut callers = Vec::new();
    for index in 0..4 {
        let (asks, stop, answered) = (scheduler(&with.router).await, stop.clone(), answered.clone());
        let action = bazel(&index.to_string(), &[("a", "1")]);
        callers.push(tokio::spawn(async move {
            let mut decided = Vec::new();
            while !stop.load(Relaxed) {
                let routed = asks.execute(&action).await.unwrap();
                assert_eq!(routed.platform, owned(&[("a", "1")]));
                decided.push(seconds(&routed.action));
                answered.fetch_add(1, Relaxed);
            }
            decided
        }));
    }
    let asks = scheduler(&with.router).await;
    let decides = async |wanted: i64| {
        let until = async {
            while seconds(&asks.execute(&bazel("probe", &[])).await.unwrap().action) != Some(wanted) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(Duration::from_secs(30), until).await;
    };
    decides(61).await;
    replace(&with.file, &two).unwrap();
    decides(62).await;
    // Each call that this one fails at is answered by the version before, until it is rolled back.
    replace(&with.file, &traps()).unwrap();
    let mut router = with.router;
    router.wait_for_log("rolled back").await.unwrap();
    decides(62).await;
    replace(&with.file, &one).unwrap();
    decides(61).await;
    stop.store(true, Relaxed);
    for caller in callers {
        let decided = caller.await.unwrap();
        assert!(decided.iter().all(|by| matches!(by, Some(61 | 62))), "somebody was answered otherwise");
    }
    assert!(answered.load(Relaxed) > 100, "{answered:?}");
}

/// A policy that sets a priority.
fn prioritising() -> Guest {
    let set = import("route", "set-priority", "i32", "");
    Guest::routing(&set, &format!("(call $route.set-priority (i32.const 7)) {ACCEPT}"))
}

#[tokio::test]
async fn what_can_not_be_handed_on_is_dropped_and_told_once() {
    let WithPolicy { router, .. } = &with_policy(&prioritising().build(), "", "").await;
    let action = bazel("a", &[("a", "1")]);
    for _ in 0..3 {
        let routed = scheduler(router).await.execute(&action).await.unwrap();
        assert_eq!((routed.bytes, routed.degraded), (action.encode_to_vec().into(), None));
    }
    let log = router.log();
    assert_eq!(log.matches("sets what a router can't hand on").count(), 1, "{log}");
    assert!(log.contains("priority") && log.contains("guest 1.2.3"), "{log}");
    let scrape = router.page("/metrics").await.unwrap().body;
    assert_eq!(
        sample(&scrape, "pointsman_router_edits_dropped_total{edit=\"priority\"}"),
        Some(3.0),
        "{scrape}"
    );
    let address = router.address.to_string();
    let records = cli(&["policy", "log", "--server", &address, "--output", "json"]).await.unwrap();
    let records = records.expect_code(0).unwrap().text;
    assert!(records.contains("priority is not handed on: this is a router"), "{records}");
}

#[tokio::test]
async fn or_it_is_refused() {
    let keys = "router: { unsupported: 'reject' }";
    let WithPolicy { router, .. } = &with_policy(&prioritising().build(), "", keys).await;
    let refused = scheduler(router).await.execute(&bazel("a", &[("a", "1")])).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    let text = refused.message();
    assert!(
        text.contains("policy guest 1.2.3") && text.contains("sets priority, which a router can't hand on"),
        "{text}"
    );
}

#[tokio::test]
async fn a_policy_whose_golden_cases_show_it_is_not_let_in() {
    let case = br#"{ "cases": [{ "name": "urgent", "expect": { "route": { "priority": 7 } } }] }"#;
    let shows = golden::pack(&prioritising().build(), case).unwrap();
    let told = "its golden case \"urgent\" sets priority, which a router can't hand on";
    let folder = tempfile::tempdir().unwrap();
    let (policy, file) = (folder.path().join("policy.wasm"), folder.path().join("router.json5"));
    std::fs::write(&policy, &shows).unwrap();
    let text = config("127.0.0.1:1".parse().unwrap(), "policy: { file: 'policy.wasm' }");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    for words in [&["router", "--check", "--config", file][..], &["config", "check", "--router", file]] {
        let refused = cli(words).await.unwrap().expect_code(64).unwrap().text;
        assert!(refused.contains(told), "{refused}");
    }
    // It is fine for a scheduler.
    cli(&["config", "check", file]).await.unwrap().expect_code(0).unwrap();
    // While a router runs, what was in force stays.
    let mut with = with_policy(&limiting(61).build(), "", "").await;
    replace(&with.file, &shows).unwrap();
    with.router.wait_for_log(told).await.unwrap();
    let routed = scheduler(&with.router).await.execute(&bazel("a", &[])).await.unwrap();
    assert_eq!(seconds(&routed.action), Some(61));
}
