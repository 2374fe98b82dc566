//! JSON Schema of the configuration: its own file, with those of the parts that it refers to inside.

use pointsman_policy_parts::{affinity, exclusive, property_rules, schema, size_classes, tenant_fair};

pub(crate) fn schema() -> String {
    let parts = [
        schema::CONDITION,
        property_rules::SCHEMA,
        exclusive::SCHEMA,
        size_classes::SCHEMA,
        affinity::SCHEMA,
        tenant_fair::SCHEMA,
    ];
    schema::complete(include_str!("../config.schema.json"), &parts)
}
