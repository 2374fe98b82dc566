//! What a pool's workers are, as constraint values: said in the configuration, or read off their properties.

use super::Pool;

/// Values of properties, and the constraint value that each is. Case does not count.
const OS: [(&str, &str); 5] =
    [("linux", "linux"), ("macos", "osx"), ("darwin", "osx"), ("osx", "osx"), ("windows", "windows")];
const CPU: [(&str, &str); 8] = [
    ("x86-64", "x86_64"),
    ("x86_64", "x86_64"),
    ("amd64", "x86_64"),
    ("aarch64", "aarch64"),
    ("arm64", "aarch64"),
    ("arm-a64", "aarch64"),
    ("riscv64", "riscv64"),
    ("x86-32", "x86_32"),
];

/// The constraint values of a pool for Bazel; empty if nothing tells.
pub(super) fn bazel(pool: &Pool) -> Vec<String> {
    if !pool.constraint_values.is_empty() {
        return pool.constraint_values.clone();
    }
    let of = |keys: &[&str], table: &[(&str, &'static str)]| {
        let values = pool.properties.iter().filter(|p| keys.contains(&&*p.key)).flat_map(|p| &p.values);
        let mut known =
            values.filter_map(|value| table.iter().find(|(from, _)| from.eq_ignore_ascii_case(value)));
        known.next().map(|(_, to)| *to)
    };
    // One alone would leave out what a toolchain asks for: then the host's count.
    match (of(&["ISA", "Arch"], &CPU), of(&["OSFamily"], &OS)) {
        (Some(cpu), Some(os)) => vec![format!("@platforms//cpu:{cpu}"), format!("@platforms//os:{os}")],
        _ => Vec::new(),
    }
}

/// The same for Buck2, and those that it has no counterpart of.
pub(super) fn buck(pool: &Pool) -> (Vec<String>, Vec<String>) {
    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for value in bazel(pool) {
        let label = value.replacen("@@", "@", 1);
        let counterpart = match label.as_str() {
            "@platforms//os:osx" | "@platforms//os:macos" => "prelude//os/constraints:macos".to_owned(),
            "@platforms//cpu:aarch64" | "@platforms//cpu:arm64" => {
                "prelude//cpu/constraints:arm64".to_owned()
            }
            _ => match (label.strip_prefix("@platforms//os:"), label.strip_prefix("@platforms//cpu:")) {
                (Some(os), _) => format!("prelude//os/constraints:{os}"),
                (_, Some(cpu)) => format!("prelude//cpu/constraints:{cpu}"),
                _ => {
                    unknown.push(value);
                    continue;
                }
            },
        };
        known.push(counterpart);
    }
    (known, unknown)
}
