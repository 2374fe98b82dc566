//! JSON Schemas of configurations. Each lies in a file of its own, which refers to others by their place (`$ref` by
//! relative path, and each file says by `$id` where it is). A policy has to say all of its schema in one text.

/// How [`Condition`](crate::condition::Condition) and [`Patterns`](crate::pattern::Patterns) are written.
pub const CONDITION: &str = include_str!("../condition.schema.json");

/// The schema of a policy and all that it refers to, as one text: the name of the policy's folder, then the files, from
/// the one where this stands. Put together by the compiler, as an instance hands its schema over whenever it is
/// configured.
#[macro_export]
macro_rules! schema {
    ($name:literal, $first:literal $(, $other:literal)*) => {
        concat!(
            "{\n\"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n",
            "\"$ref\": \"pointsman:/policies/", $name, "/config.schema.json\",\n",
            "\"$defs\": {\n\"", $first, "\": ", include_str!($first),
            $(",\"", $other, "\": ", include_str!($other),)*
            "}\n}\n"
        )
    };
}
