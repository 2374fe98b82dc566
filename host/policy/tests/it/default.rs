//! The embedded default policy: what was built behaves as its source does, on the same fixtures.

use std::sync::Arc;

use pointsman_policy::{ActionFacts, CommandFacts, Hook, LoadError, Options, Runtime, RuntimeError};
use pointsman_scheduler::route::Property;
use serde_json::Value;

use crate::support::{facts, first, runtime, strings, wishes};

fn properties(value: &Value) -> Option<Vec<Property>> {
    let pairs = value.as_array()?;
    Some(
        pairs
            .iter()
            .map(|pair| Property::new(pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
            .collect(),
    )
}

fn text(value: &Value) -> Arc<str> {
    value.as_str().unwrap_or_default().into()
}

#[test]
fn fixtures() {
    let fixtures: Vec<Value> =
        serde_json::from_str(include_str!("../../../../policies/default/fixtures.json")).unwrap();
    for fixture in fixtures {
        let name = fixture["name"].as_str().unwrap();
        let default_config = fixture.get("config").map_or("{}".into(), Value::to_string);
        let runtime = match Runtime::new(Options { default_config, ..Options::default() }) {
            Ok(runtime) => runtime,
            Err(RuntimeError::Default(LoadError::Config { problems })) => {
                let paths: Vec<&str> = problems.iter().map(|problem| &*problem.path).collect();
                assert_eq!(
                    serde_json::to_value(paths).unwrap(),
                    fixture["config_errors"],
                    "{name}: {problems:?}"
                );
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        let action = &fixture["action"];
        let platform = properties(&action["platform"]);
        let command = runtime.wants_command("", platform.is_some()).then(|| CommandFacts {
            platform: properties(&fixture["command_platform"]).unwrap_or_default(),
            ..CommandFacts::default()
        });
        let facts = Arc::new(ActionFacts {
            platform,
            command,
            invocation_id: text(&action["invocation_id"]),
            correlated_invocations_id: text(&action["correlated_invocations_id"]),
            principal: text(&action["principal"]),
            ..ActionFacts::default()
        });
        let decision = runtime.route(&facts, wishes(&facts));
        assert_eq!(decision.fallback, None, "{name}");
        let expect = &fixture["expect"];
        assert_eq!(Some(&decision.route.platform), properties(&expect["platform"]).as_ref(), "{name}");
        let keys = strings(&decision.route.invocation_keys);
        assert_eq!(serde_json::to_value(keys).unwrap(), expect["invocation_keys"], "{name}");
    }
}

#[test]
fn is_in_force_from_the_start() {
    let runtime = runtime();
    let generation = runtime.in_force();
    assert_eq!((&*first(&generation).policy().name, generation.number()), ("default", 1));
    assert_eq!(first(&generation).policy().digest_hex.len(), 64);
    assert_eq!(first(&generation).hooks(), [Hook::OnAction]);
    let schema: Value = serde_json::from_str(first(&generation).config_schema().unwrap()).unwrap();
    assert_eq!(schema["additionalProperties"], Value::Bool(false));
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
