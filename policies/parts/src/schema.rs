//! JSON Schemas of configurations. Each lies in a file of its own, which refers to others by their place (`$ref` by
//! relative path, and each file says by `$id` where it is). A policy has to say all of its schema in one text.

/// How [`Condition`](crate::condition::Condition) and [`Patterns`](crate::pattern::Patterns) are written.
pub const CONDITION: &str = include_str!("../condition.schema.json");

/// A schema with those that it refers to inside, where their `$id` finds them.
pub fn complete(schema: &str, others: &[&str]) -> String {
    let Some(open) = schema.trim_end().strip_suffix('}').filter(|_| !others.is_empty()) else {
        return schema.to_owned();
    };
    let others: Vec<String> =
        others.iter().enumerate().map(|(index, text)| format!("\"{index}\": {}", text.trim())).collect();
    format!("{},\n  \"$defs\": {{\n{}\n}}\n}}\n", open.trim_end(), others.join(",\n"))
}
