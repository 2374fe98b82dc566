//! The fixtures, on the source. The host's tests run the same ones on the built component.

use pointsman_policy_sdk::Property;
use pointsman_policy_sdk::testing::{Call, run};
use serde_json::Value;

fn properties(value: &Value) -> Option<Vec<Property>> {
    let pairs = value.as_array()?;
    Some(
        pairs
            .iter()
            .map(|pair| Property::new(pair[0].as_str().unwrap(), pair[1].as_str().unwrap()))
            .collect(),
    )
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

#[test]
fn fixtures() {
    let fixtures: Vec<Value> = serde_json::from_str(include_str!("../fixtures.json")).unwrap();
    for fixture in fixtures {
        let name = fixture["name"].as_str().unwrap();
        let action = &fixture["action"];
        let mut call = Call::default();
        call.action.platform = properties(&action["platform"]);
        call.action.invocation_id = text(&action["invocation_id"]);
        call.action.correlated_invocations_id = text(&action["correlated_invocations_id"]);
        call.action.principal = text(&action["principal"]);
        call.command.platform = properties(&fixture["command_platform"]).unwrap_or_default();
        call.route.platform = call.action.platform.clone().unwrap_or_default();
        let config = fixture.get("config").map_or("{}".into(), Value::to_string);
        match run::<crate::Default>(&config, call) {
            Ok(ran) => {
                assert!(ran.rejection.is_none(), "{name}");
                let expect = &fixture["expect"];
                assert_eq!(Some(ran.route.platform), properties(&expect["platform"]), "{name}");
                assert_eq!(
                    serde_json::to_value(ran.route.invocation_keys).unwrap(),
                    expect["invocation_keys"],
                    "{name}"
                );
            }
            Err(errors) => {
                let paths: Vec<&str> = errors.iter().map(|error| &*error.path).collect();
                assert_eq!(
                    serde_json::to_value(paths).unwrap(),
                    fixture["config_errors"],
                    "{name}: {errors:?}"
                );
            }
        }
    }
}
