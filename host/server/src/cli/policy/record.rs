//! A decision record for eyes: what was asked, and what each policy changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

/// So much of a SHA-256 tells policies apart.
const DIGEST_SHOWN: usize = 12;

/// Some lines, the last one empty.
pub(super) fn block(record: &Value) -> String {
    let mut text = head(record);
    let mut found = record.get("before").cloned().unwrap_or_default();
    for step in record["steps"].as_array().into_iter().flatten() {
        text.push_str(&who(step));
        let lines = outcome(step, &mut found, record);
        let lines = if lines.is_empty() { vec!["left all as it was".to_owned()] } else { lines };
        for line in lines {
            // Writing to a String does not fail.
            _ = writeln!(text, "    {line}");
        }
    }
    text
}

fn head(record: &Value) -> String {
    let at = text(&record["at"]).replace('T', " ").replace('Z', "");
    let mut head = format!("{at}  {}  generation {}", text(&record["hook"]), record["generation"]);
    let subject = match record.get("worker") {
        Some(worker) => format!("worker {}", id(&worker["id"])),
        None => format!("action {}", text(&record["facts"]["digest"])),
    };
    _ = writeln!(head, "\n  {subject}");
    let facts = &record["facts"];
    let known = ["instance_name", "mnemonic", "target_id", "cause", "invocation_id"];
    let known = known.iter().filter(|key| !facts[**key].is_null());
    let known: Vec<String> =
        known.map(|key| format!("{} {}", key.replace('_', " "), text(&facts[*key]))).collect();
    if !known.is_empty() {
        _ = writeln!(head, "  {}", known.join(", "));
    }
    if let Some(attempt) = record.get("attempt") {
        _ = writeln!(head, "  attempt {} on {}", text(&attempt["outcome"]), text(&attempt["worker"]));
    }
    head
}

fn who(step: &Value) -> String {
    let policy = &step["policy"];
    let digest: String = text(&policy["sha256"]).chars().take(DIGEST_SHOWN).collect();
    let trial = if step["on_trial"] == true { " on trial" } else { "" };
    let (name, version) = (text(&policy["name"]), text(&policy["version"]));
    let (us, fuel) = (&step["elapsed_us"], &step["fuel"]);
    format!("  {}: {name} {version} ({digest}){trial}, {us} us, fuel {fuel}\n", text(&step["link"]))
}

fn outcome(step: &Value, found: &mut Value, record: &Value) -> Vec<String> {
    if let Some(rejected) = step.get("rejected") {
        let help = rejected["help"].as_str().map(|help| format!("; {help}")).unwrap_or_default();
        return vec![format!("rejected as {}: {}{help}", text(&rejected["code"]), text(&rejected["reason"]))];
    }
    if let Some(failed) = step.get("failed") {
        return vec![format!("failed ({}): {}", text(&failed["kind"]), text(&failed["text"]))];
    }
    if let Some(order) = step.get("order").and_then(Value::as_array) {
        let name = |place: &Value| {
            let worker = place[0].as_u64().and_then(|at| record["candidates"].get(usize::try_from(at).ok()?));
            format!("{} ({})", text(worker.map_or(&Value::Null, |w| &w["worker"])), text(&place[1]))
        };
        return vec![format!("order: {}", order.iter().map(name).collect::<Vec<_>>().join(", "))];
    }
    if let Some(again) = step.pointer("/next/again") {
        let mut lines = vec!["runs again".to_owned()];
        lines.extend(changes(found, again));
        return lines;
    }
    match step.get("route").or_else(|| step.get("terms")) {
        None => Vec::new(),
        Some(edited) => {
            let lines = changes(found, edited);
            *found = edited.clone();
            lines
        }
    }
}

/// What differs, a line for each.
fn changes(found: &Value, edited: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    let (before, after) = (properties(found), properties(edited));
    for name in before.keys().chain(after.keys()).collect::<BTreeSet<_>>() {
        let values =
            |of: &BTreeMap<String, Vec<String>>| of.get(name).map_or("none".to_owned(), |v| v.join(", "));
        if before.get(name) != after.get(name) {
            lines.push(format!("property {name}: {} -> {}", values(&before), values(&after)));
        }
    }
    let keys =
        |of: &Value| of.as_object().into_iter().flat_map(|fields| fields.keys().cloned()).collect::<Vec<_>>();
    for key in keys(found).into_iter().chain(keys(edited)).collect::<BTreeSet<_>>() {
        let value = |of: &Value| of.get(&key).map_or("default".to_owned(), Value::to_string);
        match key.as_str() {
            "platform" => {}
            "notes" => lines.extend(new_notes(found, edited)),
            _ if found.get(&key) != edited.get(&key) => {
                lines.push(format!("{}: {} -> {}", key.replace('_', " "), value(found), value(edited)));
            }
            _ => {}
        }
    }
    lines
}

fn properties(of: &Value) -> BTreeMap<String, Vec<String>> {
    let mut properties: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for property in of["platform"].as_array().into_iter().flatten() {
        properties.entry(text(&property["name"])).or_default().push(property["value"].to_string());
    }
    properties
}

fn new_notes(found: &Value, edited: &Value) -> Vec<String> {
    let known = found["notes"].as_array().map_or(0, Vec::len);
    let notes = edited["notes"].as_array().into_iter().flatten();
    notes.skip(known).map(|note| format!("note: {}", text(note))).collect()
}

fn id(entries: &Value) -> String {
    let entries = entries.as_array().into_iter().flatten();
    entries.map(|e| format!("{}={}", text(&e["name"]), text(&e["value"]))).collect::<Vec<_>>().join(",")
}

/// A string without its quotes; nothing for what is not there.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_step_says_what_it_changed() {
        let policy = json!({ "name": "steer", "version": "0.1.0", "sha256": "0123456789abcdef" });
        let record = json!({
            "at": "2026-12-01T01:02:03.456789Z", "hook": "on-action", "generation": 3,
            "facts": { "digest": "ab/1", "mnemonic": "Genrule" },
            "before": { "platform": [{ "name": "odd", "value": "json" }, { "name": "os", "value": "linux" }] },
            "steps": [
                { "link": "first", "policy": policy, "fuel": 7, "elapsed_us": 12,
                  "route": { "platform": [{ "name": "os", "value": "linux" }], "pool": "gpu", "notes": ["dropped"] } },
                { "link": "second", "policy": policy, "fuel": 1, "elapsed_us": 2, "on_trial": true },
                { "link": "third", "policy": policy, "fuel": 0, "elapsed_us": 3,
                  "failed": { "kind": "trap", "text": "it panicked" } },
                { "link": "fourth", "policy": policy, "fuel": 5, "elapsed_us": 4,
                  "rejected": { "code": "failed_precondition", "reason": "no", "help": "ask" } },
            ],
        });
        let wanted = "\
2026-12-01 01:02:03.456789  on-action  generation 3
  action ab/1
  mnemonic Genrule
  first: steer 0.1.0 (0123456789ab), 12 us, fuel 7
    property odd: \"json\" -> none
    note: dropped
    pool: default -> \"gpu\"
  second: steer 0.1.0 (0123456789ab) on trial, 2 us, fuel 1
    left all as it was
  third: steer 0.1.0 (0123456789ab), 3 us, fuel 0
    failed (trap): it panicked
  fourth: steer 0.1.0 (0123456789ab), 4 us, fuel 5
    rejected as failed_precondition: no; ask
";
        assert_eq!(block(&record), wanted);
    }

    #[test]
    fn other_hooks_have_their_own_words() {
        let policy = json!({ "name": "p", "version": "1", "sha256": "00" });
        let step = |key: &str, value: Value| {
            let mut step = json!({ "link": "l", "policy": policy, "fuel": 1, "elapsed_us": 1 });
            step[key] = value;
            step
        };
        let ranked = json!({
            "at": "", "hook": "on-assignment", "generation": 1, "facts": { "digest": "d" },
            "candidates": [{ "worker": "w1" }, { "worker": "w2" }],
            "steps": [step("order", json!([[1, "warm"], [0, ""]]))],
        });
        assert!(block(&ranked).contains("order: w2 (warm), w1 ()"), "{}", block(&ranked));
        let admitted = json!({
            "at": "", "hook": "on-worker", "generation": 1, "before": { "pool": "a" },
            "worker": { "id": [{ "name": "host", "value": "h1" }] },
            "steps": [step("terms", json!({ "pool": "b" }))],
        });
        assert!(block(&admitted).contains("worker host=h1"), "{}", block(&admitted));
        assert!(block(&admitted).contains("pool: \"a\" -> \"b\""), "{}", block(&admitted));
        let again = json!({
            "at": "", "hook": "on-result", "generation": 1, "before": {}, "facts": { "digest": "d" },
            "attempt": { "outcome": "killed", "worker": "w" },
            "steps": [step("next", json!({ "again": { "size": { "exactly": 2 } } }))],
        });
        let shown = block(&again);
        assert!(shown.contains("attempt killed on w") && shown.contains("runs again"), "{shown}");
        assert!(shown.contains("size: default -> {\"exactly\":2}"), "{shown}");
    }
}
