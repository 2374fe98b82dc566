//! Which sections of a `.bazelrc` a command reads, in the order of their precedence, weakest first.

/// Commands that have the options of `build`, and what they inherit besides.
const WITH_BUILD: [(&str, &[&str]); 12] = [
    ("aquery", &["build", "aquery"]),
    ("build", &["build"]),
    ("canonicalize-flags", &["build", "canonicalize-flags"]),
    ("clean", &["build", "clean"]),
    ("config", &["build", "config"]),
    ("coverage", &["build", "test", "coverage"]),
    ("cquery", &["build", "test", "cquery"]),
    ("info", &["build", "info"]),
    ("mobile-install", &["build", "mobile-install"]),
    ("print_action", &["build", "print_action"]),
    ("run", &["build", "run"]),
    ("test", &["build", "test"]),
];

/// The other commands, and what is no command but a section.
const WITHOUT_BUILD: [&str; 14] = [
    "always",
    "analyze-profile",
    "common",
    "dump",
    "fetch",
    "help",
    "license",
    "mod",
    "query",
    "shutdown",
    "startup",
    "sync",
    "vendor",
    "version",
];

/// The sections of all commands.
const FOR_ALL: [&str; 2] = ["always", "common"];

/// Whether Bazel knows a section of that name; lines of others are skipped with a warning.
pub fn is_known(section: &str) -> bool {
    WITHOUT_BUILD.contains(&section) || WITH_BUILD.iter().any(|(command, _)| *command == section)
}

/// Whether options of the build family may stand in a section.
pub fn takes_build_options(section: &str) -> bool {
    FOR_ALL.contains(&section) || WITH_BUILD.iter().any(|(command, _)| *command == section)
}

/// The sections that a command of the build family reads; `None` for others.
pub fn read_by(command: &str) -> Option<Vec<&'static str>> {
    let (_, own) = WITH_BUILD.iter().find(|(known, _)| *known == command)?;
    Some(FOR_ALL.iter().chain(*own).copied().collect())
}

/// The commands for which [`read_by`] has an answer.
pub fn build_commands() -> impl Iterator<Item = &'static str> {
    WITH_BUILD.iter().map(|(command, _)| *command)
}
