//! The embedded default policy in its place. Its fixtures are tried in `boxed`.

use std::sync::Arc;

use pointsman_policy::{Hook, LoadError, Options, Runtime, RuntimeError};
use serde_json::Value;

use crate::support::{facts, first, runtime, strings, wishes};

#[test]
fn is_in_force_from_the_start() {
    let runtime = runtime();
    let generation = runtime.in_force();
    assert_eq!((&*first(&generation).policy().name, generation.number()), ("default", 1));
    assert_eq!(first(&generation).policy().digest_hex.len(), 64);
    assert_eq!(first(&generation).hooks(), [Hook::OnAction]);
    let schema: Value = serde_json::from_str(first(&generation).config_schema().unwrap()).unwrap();
    assert_eq!(schema["$defs"]["../config.schema.json"]["additionalProperties"], Value::Bool(false));
    assert!(runtime.wants_command("", false), "an Action without platform needs its Command");
    assert!(!runtime.wants_command("", true), "and one with a platform does not");
}

#[test]
fn same_facts_same_decision_same_fuel() {
    let runtime = runtime();
    let facts = Arc::new(facts());
    let first = runtime.route(&facts, wishes(&facts));
    let second = runtime.route(&facts, wishes(&facts));
    assert_eq!(first.route, second.route);
    assert_eq!(first.fuel, second.fuel);
    assert!((100..100_000).contains(&first.fuel), "{}", first.fuel);
    assert_eq!(runtime.counters().calls, 2);
    assert_eq!(runtime.counters().instances, 1, "the instance that was configured first answers");
}

#[test]
fn has_a_configuration_of_its_own_where_it_stands_in() {
    let config = r#"{ "invocation_keys": ["principal"] }"#.to_owned();
    let runtime = Runtime::new(Options { default_config: config, ..Options::default() }).unwrap();
    let mut facts = facts();
    facts.principal = "anna".into();
    let facts = Arc::new(facts);
    let decision = runtime.route(&facts, wishes(&facts));
    assert_eq!(strings(&decision.route.invocation_keys), ["anna"]);

    let wrong = r#"{ "invocation_key": ["principal"] }"#.to_owned();
    match Runtime::new(Options { default_config: wrong, ..Options::default() }) {
        Err(RuntimeError::Default(LoadError::Config { problems })) => {
            assert_eq!(problems[0].path, "/invocation_key");
            assert!(problems[0].message.contains("did you mean \"invocation_keys\"?"), "{problems:?}");
        }
        other => panic!("{:?}", other.err()),
    }
}
