//! What a router can't do is refused when its configuration is read, with the line.

use pointsman_tests::harness::cli;

/// What is said of a configuration, by either command; without the log, which has the time.
async fn checked(text: &str, code: i32) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.json5");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let words = ["config", "check", "--router", file];
    let text = cli(&words).await.unwrap().expect_code(code).unwrap().text;
    let by_router =
        cli(&["router", "--check", "--config", file]).await.unwrap().expect_code(code).unwrap().text;
    let said =
        |text: String| text.lines().filter(|line| !line.contains(" INFO ")).collect::<Vec<_>>().join("\n");
    let (text, by_router) = (said(text), said(by_router));
    assert_eq!(text, by_router);
    text
}

const CAS: &str = "storage: { remote: { address: 'grpc://127.0.0.1:1' } }";

#[tokio::test]
async fn keys_without_effect_are_refused_with_their_line_and_reason() {
    let text = checked(
        &format!(
            "{{ {CAS},
  pools: [],
  worker: {{ enabled: true }},
  sizes: {{ rerun: [] }}, learning: {{ keys: 7 }},
  matching: 'typed',
  timers: {{ heartbeat: '1s', maximum_action_timeout: '1h' }},
  limits: {{ command_size: '1MiB', queued_actions: 3 }},
}}"
        ),
        64,
    )
    .await;
    for (place, key, why) in [
        (":2:3", "pools", "the workers are the scheduler's that asks the router"),
        (":3:3", "worker", "a router has no worker"),
        (":4:3", "sizes", "a router executes nothing"),
        (":4:25", "learning", "a router executes nothing"),
        (":5:3", "matching", "compares whole property lists"),
        (":6:13", "timers.heartbeat", "of timers it reads maximum_action_timeout, shutdown_grace"),
        (":7:35", "limits.queued_actions", "of limits it reads properties_per_action, command_size"),
    ] {
        let line =
            text.lines().find(|line| line.contains(&format!("{place}: {key}: has no effect in a router")));
        assert!(line.is_some_and(|line| line.contains(why)), "{place} {key} {why}\n{text}");
    }
    assert!(!text.contains("maximum_action_timeout: has"), "{text}");
}

#[tokio::test]
async fn there_has_to_be_a_cas() {
    let text = checked("{ storage: { embedded: { max_size: '1GiB' } } }", 64).await;
    assert!(text.contains("storage.embedded: has no effect in a router"), "{text}");
    assert!(text.contains("give storage: { remote: { address:"), "{text}");
}

#[tokio::test]
async fn parts_of_the_default_policy_that_are_of_no_use_are_refused() {
    let text = checked(
        &format!(
            "{{ {CAS}, policy: {{ config: {{
  exclusive: {{}},
  size_classes: {{ classes: {{ a: 1 }}, property: 'size' }},
  affinity: {{ rules: [{{ by: 'package' }}] }},
  property_rules: {{ rules: [{{ add: {{ a: 'b' }} }}, {{ pool: 'big' }}] }},
  tenant_fair: {{ background: {{ when: {{ mnemonic: 'x' }} }} }},
}} }} }}"
        ),
        64,
    )
    .await;
    for (place, key, what) in [
        (":2:3", "policy.config.exclusive", "exclusive actions"),
        (":3:3", "policy.config.size_classes", "size classes"),
        (":4:3", "policy.config.affinity", "affinity"),
        (":5:52", "policy.config.property_rules.rules[1].pool", "pools"),
        (":6:18", "policy.config.tenant_fair.background", "priorities"),
    ] {
        let wanted = format!("{place}: {key}: a router can't hand on {what}");
        assert!(text.contains(&wanted), "{wanted}\n{text}");
    }
    let fine = "policy: { config: { platform_from_command: 'missing_properties', tenant_fair: {}, property_rules: { rules: \
                [{ add: { a: 'b' } }] } } }, router: { deadline: '1s', unsupported: 'reject', known_routes: '1MiB' }";
    checked(&format!("{{ {CAS}, {fine} }}"), 0).await;
}

#[tokio::test]
async fn a_policys_own_mistakes_are_found_too() {
    let text = checked(&format!("{{ {CAS}, policy: {{ config: {{ invocation_key: [] }} }} }}"), 64).await;
    assert!(text.contains("invocation_key"), "{text}");
    let text = checked(&format!("{{ {CAS}, policy: {{ file: '/no/such.wasm' }} }}"), 64).await;
    assert!(text.contains("/no/such.wasm"), "{text}");
}

#[tokio::test]
async fn problems_can_be_had_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("router.json5");
    for (text, key, what) in [
        (format!("{{ {CAS}, pools: [] }}"), "pools", "has no effect"),
        (format!("{{ {CAS}, policy: {{ config: {{ nonsense: 1 }} }} }}"), "", "nonsense"),
    ] {
        std::fs::write(&file, text).unwrap();
        let words = ["config", "check", "--router", "--output", "json", file.to_str().unwrap()];
        let run = cli(&words).await.unwrap().expect_code(64).unwrap().text;
        let mut values = serde_json::Deserializer::from_str(&run).into_iter::<serde_json::Value>();
        let report = values.next().unwrap().unwrap();
        assert_eq!(report["problems"][0]["key"], key, "{run}");
        assert!(report["problems"][0]["text"].as_str().unwrap().contains(what), "{run}");
    }
}

#[tokio::test]
async fn a_router_has_no_worker() {
    let refused =
        cli(&["router", "--config", "/no/matter", "--with-worker"]).await.unwrap().expect_code(64).unwrap();
    assert!(refused.text.contains("a router has no worker"), "{}", refused.text);
    let refused = cli(&["router"]).await.unwrap().expect_code(64).unwrap();
    assert!(refused.text.contains("--config"), "{}", refused.text);
}
