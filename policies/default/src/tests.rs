//! The fixtures, on the source. The host's tests run the same ones on the built component.

use pointsman_policy_sdk::testing::{Call, run, run_fixtures};
use pointsman_policy_sdk::{CommandWhen, Policy};
use serde_json::Value;

#[test]
fn fixtures() {
    run_fixtures::<crate::Default>(include_str!("../fixtures.json"));
}

#[test]
fn commands_are_asked_for_only_where_a_part_needs_them() {
    let requested = |config| run::<crate::Default>(config, Call::default()).unwrap().requested;
    assert_eq!(requested("{}"), Some(CommandWhen::WithoutPlatform));
    assert_eq!(requested(r#"{ "platform_from_command": false }"#), None);
    let always =
        r#"{ "exclusive": {}, "size_classes": { "table": [{ "size": "largest", "output": "*.so" }] } }"#;
    assert_eq!(requested(always), Some(CommandWhen::Always));
    let not_needed =
        r#"{ "exclusive": {}, "size_classes": { "table": [{ "size": "largest", "target": "//a:b" }] } }"#;
    assert_eq!(requested(not_needed), Some(CommandWhen::WithoutPlatform));
}

#[test]
fn the_schema_has_all_that_it_refers_to() {
    let schema: Value = serde_json::from_str(&crate::Default::config_schema().unwrap()).unwrap();
    let ids: Vec<&str> =
        schema["$defs"].as_object().unwrap().values().filter_map(|s| s["$id"].as_str()).collect();
    for part in ["property-rules", "exclusive", "size-classes", "affinity", "tenant-fair"] {
        let id = format!("pointsman:/policies/{part}/config.schema.json");
        assert!(ids.contains(&&*id), "{id} is not among {ids:?}");
        let own = &schema["$defs"]["../config.schema.json"]["properties"][part.replace('-', "_")];
        assert_eq!(own["$ref"], format!("../{part}/config.schema.json"));
    }
}
