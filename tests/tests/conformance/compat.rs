//! `COMPAT.md` speaks of tests that there are, and of every code.

use pointsman::workers::status_table::{Meaning, STATUS_TABLE};

const COMPAT: &str = include_str!("../../../COMPAT.md");

fn rows() -> impl Iterator<Item = Vec<&'static str>> {
    COMPAT.lines().filter(|l| l.starts_with('|')).map(|l| l.split('|').map(str::trim).collect())
}

#[test]
fn every_test_that_compat_names_exists() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let names = COMPAT
        .split('`')
        .filter(|part| ["conformance::", "router::"].iter().any(|suite| part.starts_with(suite)));
    let mut count = 0;
    for name in names {
        let [suite, module, test] = name.split("::").collect::<Vec<_>>()[..] else { panic!("{name}") };
        let source = std::fs::read_to_string(folder.join(suite).join(format!("{module}.rs"))).unwrap();
        assert!(source.contains(&format!("fn {test}(")), "there is no test {name}");
        count += 1;
    }
    assert!(count > 50, "{count} tests are named");
}

#[test]
fn the_status_table_is_the_programs() {
    for (code, meaning) in &STATUS_TABLE {
        let told = match meaning {
            Meaning::Answer => "answer",
            Meaning::Attempt => "attempt",
            Meaning::NoRoom => "no room",
        };
        let name = format!("`{}`", code.as_str_name());
        let row = rows().find(|r| r[1] == name).unwrap_or_else(|| panic!("no row for {name}"));
        assert!(row[2].starts_with(told), "{name} is told to be: {}", row[2]);
    }
}
