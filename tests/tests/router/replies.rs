//! Answers, with all that Buildbarn's scheduler looks at in them: the checks are in `scheduler`, each case passes them.

use std::time::Duration;

use pointsman_proto::rev2::{Action, Command, RequestMetadata, digest_function};
use pointsman_storage::DigestFunction;
use prost::Message as _;
use serde_json::json;

use crate::guests::{ACCEPT, Guest, import};
use crate::scheduler::MAXIMUM_TIMEOUT;
use crate::support::{Cas, action_of, bazel, buck2, owned, properties, scheduler};

/// A field of a later version of the protocol.
const UNKNOWN: &[u8] = &[0xc2, 0x0c, 3, 7, 8, 9];

#[tokio::test]
async fn the_platform_of_the_command_is_copied_and_sorted() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let asks = scheduler(&router).await;
    let platform = [
        ("container-image", "docker://w"),
        ("OSFamily", "linux"),
        ("OSFamily", "linux"),
        ("a", "2"),
        ("a", "1"),
    ];
    let action = cas.action(&buck2("a", &platform)).await;
    let routed = asks.execute(&action).await.unwrap();
    let wanted = [("OSFamily", "linux"), ("a", "1"), ("a", "2"), ("container-image", "docker://w")];
    assert_eq!((routed.platform, routed.degraded), (owned(&wanted), None));
    assert_eq!(Action { platform: None, ..routed.action }, action, "nothing but the platform is edited");
}

#[tokio::test]
async fn an_action_with_a_platform_comes_back_as_the_same_bytes() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    // Its Command is nowhere: nobody asks for it.
    let action = Action {
        timeout: Some(prost_types::Duration { seconds: 7, nanos: 1 }),
        do_not_cache: true,
        salt: "salt".into(),
        ..bazel("a", &[("OSFamily", "linux"), ("Pool", "x")])
    };
    let bytes = [UNKNOWN, &action.encode_to_vec()].concat();
    let routed = scheduler(&router).await.execute_bytes(bytes.clone().into()).await.unwrap();
    assert_eq!(routed.bytes, bytes);
}

#[tokio::test]
async fn fields_that_nobody_knows_stay() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let action = cas.action(&buck2("a", &[("b", "1")])).await;
    let action = Action { salt: "salt".into(), ..action };
    let bytes = [UNKNOWN, &action.encode_to_vec(), UNKNOWN].concat();
    let routed = scheduler(&router).await.execute_bytes(bytes.into()).await.unwrap();
    // That they are all there, and in their order, is what the scheduler of these tests looks at.
    assert_eq!((routed.platform, &*routed.action.salt), (owned(&[("b", "1")]), &b"salt"[..]));
}

#[tokio::test]
async fn a_platform_is_there_even_if_it_is_empty() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let action = cas.action(&Command { arguments: vec!["true".into()], ..Command::default() }).await;
    let routed = scheduler(&router).await.execute(&action).await.unwrap();
    assert_eq!((routed.platform, routed.degraded), (vec![], None), "that is what policies decided");
}

#[tokio::test]
async fn what_comes_unsorted_goes_back_sorted() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let action = bazel("a", &[("b", "1"), ("a", "1"), ("b", "1")]);
    let routed = scheduler(&router).await.execute(&action).await.unwrap();
    assert_eq!(routed.platform, owned(&[("a", "1"), ("b", "1")]));
}

#[tokio::test]
async fn keys_are_of_types_that_the_scheduler_knows() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let action = bazel("a", &[("a", "1")]);
    let asks = scheduler(&router).await;
    let metadata = |correlated: &str, invocation: &str| RequestMetadata {
        correlated_invocations_id: correlated.into(),
        tool_invocation_id: invocation.into(),
        // None of it may get into a key: groups are equal if their JSON is.
        action_mnemonic: "CppCompile".into(),
        target_id: "//a".into(),
        tool_details: Some(Default::default()),
        ..RequestMetadata::default()
    };
    let (correlated, invocation, nobody) = (
        json!({ "correlatedInvocationsId": "c" }),
        json!({ "toolInvocationId": "i" }),
        json!({ "value": "(no invocation)" }),
    );
    for (metadata, wanted) in [
        (Some(metadata("c", "i")), vec![&correlated, &invocation]),
        (Some(metadata("", "i")), vec![&invocation]),
        (Some(metadata("c", "")), vec![&correlated]),
        (Some(metadata("", "")), vec![&nobody]),
        (None, vec![&nobody]),
    ] {
        let asks = metadata.into_iter().fold(asks.clone(), |asks, m| asks.with_metadata(m));
        let routed = asks.execute(&action).await.unwrap();
        assert_eq!(routed.keys.iter().collect::<Vec<_>>(), wanted);
    }
}

#[tokio::test]
async fn a_policys_own_keys_are_texts_and_there_is_always_one() {
    let cas = Cas::start().await;
    let action = bazel("a", &[("a", "1")]);
    let router = cas.router("policy: { config: { tenant_fair: {} } }").await;
    let asks = scheduler(&router).await.with_instance_name("team/x").of_invocation("i");
    let routed = asks.execute(&action).await.unwrap();
    assert_eq!(routed.keys, [json!({ "value": "team" }), json!({ "toolInvocationId": "i" })]);

    let router = cas.router("policy: { config: { invocation_keys: [] } }").await;
    let asks = scheduler(&router).await.of_invocation("i");
    assert_eq!(asks.execute(&action).await.unwrap().keys, [json!({ "value": "(all)" })]);
}

/// A policy that does this with each action.
async fn by(
    cas: &Cas,
    imports: &str,
    body: &str,
) -> (pointsman_tests::harness::RouterProcess, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("policy.wasm");
    std::fs::write(&file, Guest::routing(imports, body).build()).unwrap();
    let router = cas.router(&format!("policy: {{ file: '{}' }}", file.display())).await;
    (router, folder)
}

#[tokio::test]
async fn time_limit_and_sharing_are_edited_only_by_policies() {
    let cas = Cas::start().await;
    let set = import("route", "set-timeout-ms", "i32", "") + &import("route", "set-shared", "i32", "");
    let body = format!(
        "(call $route.set-timeout-ms (i32.const 90500)) (call $route.set-shared (i32.const 0)) {ACCEPT}"
    );
    let (router, _folder) = by(&cas, &set, &body).await;
    let asks = scheduler(&router).await;
    let action = bazel("a", &[("a", "1")]);
    let routed = asks.execute(&action).await.unwrap();
    let edited = Action {
        timeout: Some(prost_types::Duration { seconds: 90, nanos: 500_000_000 }),
        // The scheduler has no other word for what is not to be shared.
        do_not_cache: true,
        ..action.clone()
    };
    assert_eq!(routed.action, edited);
    // What the policy sets is there already.
    assert_eq!(asks.execute(&edited).await.unwrap().bytes, edited.encode_to_vec());
}

#[tokio::test]
async fn a_policy_can_not_make_the_scheduler_cache_what_its_client_forbade() {
    let cas = Cas::start().await;
    let set = import("route", "set-shared", "i32", "");
    let (router, _folder) = by(&cas, &set, &format!("(call $route.set-shared (i32.const 1)) {ACCEPT}")).await;
    let action = Action { do_not_cache: true, ..bazel("a", &[("a", "1")]) };
    let routed = scheduler(&router).await.execute(&action).await.unwrap();
    assert!(routed.action.do_not_cache);
}

#[tokio::test]
async fn a_time_limit_that_the_scheduler_would_refuse_is_refused_with_the_policys_name() {
    let cas = Cas::start().await;
    let set = import("route", "set-timeout-ms", "i32", "");
    let too_long = MAXIMUM_TIMEOUT + Duration::from_millis(1);
    let body = format!("(call $route.set-timeout-ms (i32.const {})) {ACCEPT}", too_long.as_millis());
    let (router, _folder) = by(&cas, &set, &body).await;
    let refused = scheduler(&router).await.execute(&bazel("a", &[])).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    let text = refused.message();
    assert!(text.contains("policy guest 1.2.3") && text.contains("timers.maximum_action_timeout"), "{text}");
    // The client's own is for the scheduler to judge.
    let (router, _folder) = by(&cas, "", ACCEPT).await;
    let action = Action { timeout: Some(MAXIMUM_TIMEOUT.try_into().unwrap()), ..bazel("a", &[]) };
    assert_eq!(scheduler(&router).await.execute(&action).await.unwrap().bytes, action.encode_to_vec());
}

#[tokio::test]
async fn each_instance_name_has_its_own_commands_and_chain() {
    let cas = Cas::start().await;
    let router = cas
        .router("policies: { d: { config: { platform_from_command: false } } }, chains: { raw: ['d'], '': ['default'] }")
        .await;
    let asks = scheduler(&router).await;
    let action = cas.action(&buck2("a", &[("a", "1")])).await;
    assert_eq!(asks.execute(&action).await.unwrap().platform, owned(&[("a", "1")]));
    let raw = asks.clone().with_instance_name("raw/x").execute(&action).await.unwrap();
    assert_eq!((raw.platform, raw.degraded), (vec![], None));
    let refused = asks.with_instance_name("a//b").execute(&action).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn commands_are_found_by_any_digest_function() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let asks = scheduler(&router).await;
    for function in [DigestFunction::Sha1, DigestFunction::Blake3, DigestFunction::Sha512] {
        let command = buck2(&format!("{function:?}"), &[("a", "1")]);
        let client = cas.client().await.with_digest_function(function);
        let digest = client.upload([command.encode_to_vec().into()]).await.unwrap().remove(0);
        let action = Action { command_digest: Some(digest), ..Action::default() };
        let routed = asks.clone().with_function(function.to_proto()).execute(&action).await.unwrap();
        assert_eq!(routed.platform, owned(&[("a", "1")]), "{function:?}");
    }
    // Not said, and told by the hash's length.
    let command = buck2("unsaid", &[("a", "1")]);
    let client = cas.client().await.with_digest_function(DigestFunction::Sha1);
    let digest = client.upload([command.encode_to_vec().into()]).await.unwrap().remove(0);
    let action = Action { command_digest: Some(digest), ..Action::default() };
    let routed = asks.with_function(digest_function::Value::Unknown).execute(&action).await.unwrap();
    assert_eq!(routed.platform, owned(&[("a", "1")]));
}

#[tokio::test]
async fn what_is_no_call_is_refused() {
    let cas = Cas::start().await;
    let router = cas.router("").await;
    let asks = scheduler(&router).await;
    let refused = |bytes: Vec<u8>| {
        let asks = asks.clone();
        async move { asks.execute_bytes(bytes.into()).await.unwrap_err() }
    };
    let nonsense = refused(vec![0x0a, 200]).await;
    assert_eq!(nonsense.code(), tonic::Code::InvalidArgument);
    assert!(nonsense.message().contains("not a valid Action"), "{nonsense}");
    let many: Vec<String> = (0..101).map(|n| format!("{n:03}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "")).collect();
    let many = Action { platform: Some(properties(&many)), ..Action::default() };
    let refusal = refused(many.encode_to_vec()).await;
    assert!(refusal.message().contains("101 platform properties, 100 are allowed"), "{refusal}");
    let without = action_of(&Command::default());
    let without = Action { command_digest: None, ..without };
    let refusal = refused(without.encode_to_vec()).await;
    assert_eq!(refusal.code(), tonic::Code::InvalidArgument);
    assert!(refusal.message().contains("Action.command_digest is not set"), "{refusal}");
    let large = Action { salt: vec![0; 2 << 20].into(), ..Action::default() };
    assert!(refused(large.encode_to_vec()).await.message().contains("1048576 are allowed"));
}
