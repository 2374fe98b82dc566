//! Answers as text.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use pointsman_proto::v1::list_queue_response::Class;
use pointsman_proto::v1::list_workers_response::Worker;
use pointsman_proto::v1::{Explanation, Hold, ListQueueResponse, ListWorkersResponse, hold};

use crate::cli::one_line;

/// Why an action is where it is, and what those who routed it have remarked.
pub(super) fn why(explanation: &Explanation) -> String {
    let notes = explanation.decision.iter().flat_map(|decision| &decision.notes);
    std::iter::once(explanation.text.clone())
        .chain(notes.map(|note| format!("  note: {note}")))
        .collect::<Vec<_>>()
        .join("\n")
}

pub(super) fn queue(answer: &ListQueueResponse) -> String {
    let mut blocks: Vec<String> = answer.classes.iter().map(class).collect();
    let shown: u32 = answer.classes.iter().map(|c| c.actions).sum();
    if shown < answer.queued {
        blocks.push(format!("{} more with other requirements: --limit shows them", answer.queued - shown));
    }
    blocks.push(format!("{} queued, {} running", actions(answer.queued), answer.running));
    blocks.join("\n")
}

fn class(class: &Class) -> String {
    let why = class.explanation.as_ref().map_or("", |e| &e.text);
    let asked: Vec<_> = class.platform.iter().map(|p| format!("{}={}", p.name, p.value)).collect();
    format!(
        "{} with {{{}}} of instance name '{}'\n  {why}\n  for example {}",
        actions(class.actions),
        asked.join(", "),
        class.instance_name,
        class.operation_names.join(" ")
    )
}

pub(super) fn workers(answer: &ListWorkersResponse) -> String {
    let ListWorkersResponse { workers, refused } = answer;
    let mut rows: Vec<[String; 5]> = workers.iter().map(row).collect();
    rows.sort();
    let mut lines = aligned(&rows);
    lines.push(match workers.len() {
        0 => "no worker is known: start one with `pointsman worker --scheduler HOST:PORT`".to_owned(),
        1 => "1 worker".to_owned(),
        n => format!("{n} workers"),
    });
    lines.extend(refused.iter().map(|r| {
        let who = if r.id.is_empty() { "others".to_owned() } else { id(&r.id) };
        let calls = count(u32::try_from(r.calls).unwrap_or(u32::MAX), "call");
        format!("{who} refused ({calls}, the last {} s ago): {}", r.last_ms / 1000, r.reason)
    }));
    lines.join("\n")
}

/// Its id, what it does, what its host has left, the operation that it executes, and what else it offers.
fn row(worker: &Worker) -> [String; 5] {
    let mut state = worker.state.clone();
    if worker.terminating {
        state.push_str(", terminating");
    }
    if worker.drained {
        state.push_str(", drained");
    }
    for (word, why) in [("paused", &worker.paused), ("quarantined", &worker.quarantined)] {
        if !why.is_empty() {
            state = format!("{state}, {word}: {why}");
        }
    }
    if worker.exclusive_there {
        state.push_str(", exclusive");
    }
    if !worker.reserved_for.is_empty() {
        state = format!("{state}, kept free for {}", worker.reserved_for);
    }
    let amounts = worker.amounts.iter().map(|a| format!("{} {}/{}", a.key, a.free, a.total));
    let free = amounts.collect::<Vec<_>>().join(", ");
    let counted = |key: &str| worker.amounts.iter().any(|a| a.key == key);
    let others =
        worker.platform.iter().filter(|p| !counted(&p.name)).map(|p| format!("{}={}", p.name, p.value));
    let others = others.chain(terms(worker)).collect::<Vec<_>>().join(", ");
    [id(&worker.id), state, free, worker.operation_name.clone(), others]
}

/// What a policy has admitted it with, as far as it isn't as it would be without.
fn terms(worker: &Worker) -> Vec<String> {
    let mut terms = Vec::new();
    if worker.admitted_by.is_empty() {
        return terms;
    }
    terms.push(format!("pool {}", worker.pool));
    if worker.has_strategies {
        terms.push(format!("strategies [{}]", worker.strategies.join(", ")));
    }
    match worker.exclusive.as_str() {
        "never" => terms.push("never exclusive".to_owned()),
        "not-more-often-than" => {
            let every = Duration::from_millis(worker.exclusive_interval_ms);
            terms.push(format!("exclusive once in {}", humantime::format_duration(every)));
        }
        _ => {}
    }
    if let Some(below) = worker.exclusive_below {
        terms.push(format!("exclusive after at most {below} actions in a minute"));
    }
    terms.extend(worker.notes.iter().map(|note| format!("\"{note}\"")));
    terms.push(format!("admitted by {}", worker.admitted_by));
    terms
}

/// Rows whose columns begin below one another.
pub(in crate::cli) fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    // What is in a cell stays there.
    let rows: Vec<[Cow<'_, str>; N]> =
        rows.iter().map(|row| row.each_ref().map(|cell| one_line(cell))).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[Cow<'_, str>; N]| {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

pub(super) fn holds(kind: hold::Kind, holds: &[Hold]) -> String {
    if holds.is_empty() {
        let held = if kind == hold::Kind::Pause { "paused" } else { "drained" };
        return format!("nothing is {held}");
    }
    let row = |h: &Hold| {
        [
            format!("{}{}", id(&h.worker_id_pattern), of_queue(h)),
            format!("for {}", humantime::format_duration(Duration::from_secs(h.age_ms / 1000))),
            format!("matches {}", count(h.workers, "worker")),
            format!("{} run something", h.busy),
        ]
    };
    let mut rows: Vec<_> = holds.iter().map(row).collect();
    rows.sort();
    aligned(&rows).join("\n")
}

/// In which queue, if a drain is in one only.
fn of_queue(hold: &Hold) -> String {
    let Some(queue) = &hold.queue else { return String::new() };
    let platform: Vec<_> = queue.platform.iter().map(|p| format!("{}={}", p.name, p.value)).collect();
    format!(
        " (of prefix '{}', {{{}}}, size class {})",
        queue.instance_name_prefix,
        platform.join(", "),
        queue.size_class
    )
}

pub(super) fn released(hosts: &[String]) -> String {
    if hosts.is_empty() {
        return "no host of such workers was in quarantine or paused itself".to_owned();
    }
    let total = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let hosts = hosts.iter().map(|host| format!("\n  {host}"));
    format!("released {}{}", count(total, "host"), hosts.collect::<String>())
}

pub(super) fn cancelled(names: &[String]) -> String {
    let total = u32::try_from(names.len()).unwrap_or(u32::MAX);
    let names = names.iter().map(|n| format!("\n  {n}"));
    format!("cancelled {}{}", count(total, "operation"), names.collect::<String>())
}

fn actions(n: u32) -> String {
    count(n, "action")
}

fn count(n: u32, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn id(id: &HashMap<String, String>) -> String {
    let mut entries: Vec<_> = id.iter().map(|(k, v)| format!("{k}={v}")).collect();
    entries.sort();
    if entries.is_empty() { "all workers".to_owned() } else { entries.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_begin_below_one_another() {
        let rows = [["a".to_owned(), "b".to_owned()], ["longer".to_owned(), String::new()]];
        assert_eq!(aligned(&rows), ["a       b", "longer"]);
    }

    #[test]
    fn what_is_in_a_cell_stays_there() {
        let rows = [["a\n\u{1b}[2Jb".to_owned(), "x".to_owned()]];
        assert_eq!(aligned(&rows), ["a\\n\\u{1b}[2Jb  x"]);
    }

    #[test]
    fn what_a_policy_admitted_a_worker_with_is_told() {
        let mut worker = Worker {
            pool: "fast".into(),
            admitted_by: "p 1 (sha256 ab)".into(),
            exclusive: "allowed".into(),
            ..Worker::default()
        };
        assert_eq!(row(&worker)[4], "pool fast, admitted by p 1 (sha256 ab)");
        worker.has_strategies = true;
        worker.exclusive = "not-more-often-than".into();
        (worker.exclusive_interval_ms, worker.exclusive_below) = (60_000, Some(7));
        worker.notes.push("of the old kind".into());
        assert_eq!(
            row(&worker)[4],
            "pool fast, strategies [], exclusive once in 1m, exclusive after at most 7 actions in a minute, \
             \"of the old kind\", admitted by p 1 (sha256 ab)"
        );
        worker.admitted_by.clear();
        assert_eq!(row(&worker)[4], "", "nobody was asked");
    }

    #[test]
    fn what_the_limit_cuts_off_is_counted() {
        let classes = vec![Class { actions: 2, ..Class::default() }];
        let text = queue(&ListQueueResponse { classes, queued: 5, running: 1 });
        assert!(
            text.ends_with(
                "\n3 more with other requirements: --limit shows them\n5 actions queued, 1 running"
            ),
            "{text}"
        );
    }
}
