//! `METRICS.md`: every metric, printed from what the scrape is made from.

use std::fmt::Write as _;

use super::family::Family;
use super::{buildbarn, learning, policies, process, router, scheduler};

const HEAD: &str = r#"# Metrics

`pointsman serve` and `pointsman router` answer `GET /metrics` on their side ports (`http.listen`, 127.0.0.1:8981 if that is free) with OpenMetrics text;
beside it are `/healthz` (200 while the process lives) and `/readyz` (200 when it takes work, 503 and the reason when it does
not). A scrape takes the scheduler's lock once, for some microseconds, however much waits.

A router has the sections about itself, about policies and about the program; a scheduler has all but the one about routers.

The label `pool` has the pools of the configuration, `default` for workers of none, and the first hundred that a policy puts
workers into; all others are `other`.

The counters of Buildbarn's scheduler are there too, unless `http.buildbarn_metrics` is false. Their labels `instance_name_prefix`, `platform`
(protobuf JSON) and `size_class` (0 if it names none) are those of the pools of the configuration; all else is together under the platform
`{"properties":[{"name":"pointsman-pool","value":"other"}]}`. An action is counted in one pool at a time: in the one of the smallest size
class that could run it, then of the longest prefix, then the first; and in that of the worker that has it. So
differences of these counters are what there is.

This page is what `pointsman metrics` prints.
"#;

/// The page.
pub fn document() -> String {
    let mut text = HEAD.to_owned();
    for (title, families) in sections() {
        _ = write!(
            text,
            "\n## {title}\n\n| Name | Type | Labels | What | For example |\n| --- | --- | --- | --- | --- |\n"
        );
        for family in families {
            row(&mut text, family);
        }
    }
    // Whoever prints it ends it with a line feed.
    text.truncate(text.trim_end().len());
    text
}

fn sections() -> [(&'static str, &'static [Family]); 7] {
    [
        ("The scheduler", scheduler::FAMILIES),
        ("The router", router::FAMILIES),
        ("Policies", policies::FAMILIES),
        ("What is learned", learning::LEARNING),
        ("The embedded storage", process::STORAGE),
        ("The program", process::PROCESS),
        ("As Buildbarn's scheduler has them", buildbarn::FAMILIES),
    ]
}

fn row(text: &mut String, family: &Family) {
    let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
    // A vertical bar would end the cell, in code too.
    let query = family.query.replace('|', "\\|");
    let (name, kind, help) = (family.full_name(), family.kind.as_str(), family.help);
    _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} | `{query}` |");
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_page_of_metrics_is_up_to_date() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../METRICS.md");
        let written = std::fs::read_to_string(file).unwrap_or_default();
        assert!(written == document() + "\n", "METRICS.md is stale: run `pointsman metrics > METRICS.md`");
    }

    #[test]
    fn names_are_told_apart_and_queries_speak_of_them() {
        let families: Vec<&Family> = sections().iter().flat_map(|(_, families)| *families).collect();
        let names: BTreeSet<String> = families.iter().map(|family| family.full_name()).collect();
        assert_eq!(names.len(), families.len());
        for family in families {
            assert!(family.query.contains(&family.full_name()), "{}: {}", family.full_name(), family.query);
            assert!(family.help.ends_with('.') && !family.help.contains('\n'), "{}", family.help);
        }
    }
}
