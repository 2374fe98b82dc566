//! Schemas and readers know the same keys.

use std::collections::BTreeSet;

use pointsman_policy_sdk::Config;
use serde_json::{Value, json};

use crate::affinity::{self, Affinity};
use crate::command_platform::{self, CommandPlatform};
use crate::exclusive::{self, Exclusive};
use crate::property_rules::{self, PropertyRules};
use crate::size_classes::{self, SizeClasses};
use crate::tenant_fair::{self, TenantFair};
use crate::{Part, schema};

/// A key that no policy has, and nothing similar.
const ALIEN: &str = "§§§§§§§§§§§§§§§§";

/// The keys that the reader knows at a place, as it says them of a key it does not know.
fn known_to_reader<P: Part>(config: &Value, path: &str) -> BTreeSet<String> {
    let mut read = Config::of("", config.clone()).unwrap();
    drop(P::read(&mut read));
    let errors = read.finish().unwrap_err();
    let path = format!("{path}/{ALIEN}");
    let error =
        errors.iter().find(|error| error.path == path).unwrap_or_else(|| panic!("{path}: {errors:?}"));
    let (_, known) = error.message.split_once("known keys are ").unwrap();
    known.split(", ").map(str::to_owned).collect()
}

/// Follows JSON pointers and references. `places` of a schema are those of a value: `rules` stands for
/// `properties/rules`, `0` for the items of a list, `*` for any name.
fn known_to_schema(schema: &str, places: &[&str]) -> BTreeSet<String> {
    let mut schema: Value = serde_json::from_str(schema).unwrap();
    for place in places {
        schema = match *place {
            "0" => schema["items"].clone(),
            "*" => schema["additionalProperties"].clone(),
            name => schema["properties"][name].clone(),
        };
        if schema["$ref"] == "../parts/condition.schema.json" {
            schema = serde_json::from_str(schema::CONDITION).unwrap();
        }
    }
    schema["properties"].as_object().unwrap_or_else(|| panic!("{places:?}")).keys().cloned().collect()
}

#[test]
fn schemas_have_the_keys_that_readers_have() {
    fn same<P: Part>(schema: &str, config: &Value, path: &str, places: &[&str]) {
        assert_eq!(known_to_reader::<P>(config, path), known_to_schema(schema, places), "{path}");
    }
    let alien = json!({ ALIEN: 1 });
    same::<CommandPlatform>(command_platform::SCHEMA, &alien, "", &[]);
    same::<Exclusive>(exclusive::SCHEMA, &alien, "", &[]);
    same::<SizeClasses>(size_classes::SCHEMA, &alien, "", &[]);
    same::<Affinity>(affinity::SCHEMA, &alien, "", &[]);
    same::<TenantFair>(tenant_fair::SCHEMA, &alien, "", &[]);
    same::<PropertyRules>(property_rules::SCHEMA, &alien, "", &[]);

    let under = |key: &str| json!({ key: alien });
    same::<Exclusive>(exclusive::SCHEMA, &under("only"), "/only", &["only"]);
    same::<Exclusive>(exclusive::SCHEMA, &under("workers"), "/workers", &["workers"]);
    same::<Exclusive>(exclusive::SCHEMA, &under("other_groups"), "/other_groups", &["other_groups"]);
    same::<Exclusive>(exclusive::SCHEMA, &json!({ "groups": { "g": alien } }), "/groups/g", &["groups", "*"]);
    same::<SizeClasses>(size_classes::SCHEMA, &json!({ "table": [alien] }), "/table/0", &["table", "0"]);
    same::<SizeClasses>(size_classes::SCHEMA, &under("learning_key"), "/learning_key", &["learning_key"]);
    same::<TenantFair>(tenant_fair::SCHEMA, &under("background"), "/background", &["background"]);
    same::<TenantFair>(tenant_fair::SCHEMA, &under("priority"), "/priority", &["priority"]);
    let rules = json!({ "rules": [alien] });
    same::<Affinity>(affinity::SCHEMA, &rules, "/rules/0", &["rules", "0"]);
    same::<PropertyRules>(property_rules::SCHEMA, &rules, "/rules/0", &["rules", "0"]);
    let rules = json!({ "rules": [{ "reject": alien }] });
    same::<PropertyRules>(property_rules::SCHEMA, &rules, "/rules/0/reject", &["rules", "0", "reject"]);
}

#[test]
fn parts_of_keys_are_those_of_the_schema() {
    let schema: Value = serde_json::from_str(size_classes::SCHEMA).unwrap();
    let of_schema = &schema["properties"]["learning_key"]["properties"]["parts"]["items"]["enum"];
    assert_eq!(*of_schema, json!(size_classes::key_parts().collect::<Vec<_>>()));
}

#[test]
fn a_complete_schema_holds_those_that_it_refers_to() {
    let complete =
        schema!("size-classes", "../../size-classes/config.schema.json", "../condition.schema.json");
    let complete: Value = serde_json::from_str(complete).unwrap();
    let id = |file: &str| complete["$defs"][file]["$id"].as_str().unwrap();
    assert_eq!(complete["$ref"], id("../../size-classes/config.schema.json"));
    assert_eq!(id("../condition.schema.json"), "pointsman:/policies/parts/condition.schema.json");
}
