//! What was learned, as text.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use pointsman_proto::v1::ListSizesResponse;
use pointsman_proto::v1::list_sizes_response::{Class, Key, OnClass, Share};

use crate::cli::admin::tables::aligned;
use crate::cli::one_line;

const NOTHING: &str = "nothing is learned yet: a policy has to give actions a learning key (the policy size-classes does), and such \
                       actions have to end";

/// One line a key.
pub(super) fn list(answer: &ListSizesResponse) -> String {
    if answer.keys.is_empty() {
        return NOTHING.to_owned();
    }
    let head = ["RUNS", "FAILED", "P50", "P95", "CORES", "MEMORY", "LAST", "KEY"].map(str::to_owned);
    let row = |k: &Key| {
        [
            k.runs.to_string(),
            failures(k),
            wall(k.p50_wall_ms),
            wall(k.p95_wall_ms),
            cores(k.p95_cores),
            memory(k.p95_memory_mib),
            ago(k.last_unix_s),
            k.key.clone(),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(answer.keys.iter().map(row)).collect();
    let mut lines = aligned(&rows);
    lines.extend(more(answer));
    lines.join("\n")
}

/// All that is known of the one key of an answer.
pub(super) fn show(answer: &ListSizesResponse) -> String {
    let Some(k) = answer.keys.first() else { return NOTHING.to_owned() };
    let mut lines = vec![
        one_line(&k.key).into_owned(),
        format!(
            "  {} runs since {} ago, the last {} ago: {}",
            k.runs,
            ago(k.first_unix_s),
            ago(k.last_unix_s),
            causes(k)
        ),
        format!("  in all {}", wall(k.wall_total_ms)),
        format!("  wall time     p50 {}, p95 {}", wall(k.p50_wall_ms), wall(k.p95_wall_ms)),
        format!("  cores         mean {}, p95 {}", cores(k.mean_cores), cores(k.p95_cores)),
        format!("  memory        p95 {}, most {}", memory(k.p95_memory_mib), memory(k.max_memory_mib)),
    ];
    lines.extend(k.classes.iter().map(on_class));
    lines.push(match k.suggested {
        Some(size) => format!("  belongs on size {size}: {}", k.why),
        None => "  belongs on any size: too little is known, of it or of the sizes".to_owned(),
    });
    lines.join("\n")
}

fn on_class(c: &OnClass) -> String {
    let mut line =
        format!("  on size {:<5} {} runs, the last {} ago", c.size_class, c.runs, ago(c.last_unix_s));
    if c.killed > 0 {
        line.push_str(&format!(", {} killed lately", c.killed));
    }
    if c.timed_out > 0 {
        line.push_str(&format!(", {} timed out lately", c.timed_out));
    }
    line
}

/// Which key belongs where.
pub(super) fn suggest(answer: &ListSizesResponse) -> String {
    if answer.keys.is_empty() {
        return NOTHING.to_owned();
    }
    let head = ["TIME", "RUNS", "FAILED", "P50", "P95", "CORES", "MEMORY", "RAN ON", "SIZE", "KEY"]
        .map(str::to_owned);
    let row = |k: &Key| {
        let ran_on: Vec<_> = k.classes.iter().map(|c| c.size_class.to_string()).collect();
        let why = if k.why.is_empty() { String::new() } else { format!("  ({})", k.why) };
        [
            wall(k.wall_total_ms),
            k.runs.to_string(),
            failures(k),
            wall(k.p50_wall_ms),
            wall(k.p95_wall_ms),
            cores(k.p95_cores),
            memory(k.p95_memory_mib),
            ran_on.join(","),
            size(k.suggested),
            format!("{}{why}", k.key),
        ]
    };
    let rows: Vec<_> = std::iter::once(head).chain(answer.keys.iter().map(row)).collect();
    let mut lines = aligned(&rows);
    lines.extend(more(answer));
    lines.push(String::new());
    lines.extend(shares(&answer.shares));
    lines.push(format!("sizes: {}", sizes(&answer.classes)));
    lines.join("\n")
}

fn sizes(classes: &[Class]) -> String {
    if classes.is_empty() {
        return "no worker is there, and no size is configured, so nothing can be suggested".to_owned();
    }
    let one = |c: &Class| match c.cores {
        0.0 => format!("{} (cores not known; learning.class_cores says them)", c.size_class),
        cores => format!("{} ({cores:.1} cores)", c.size_class),
    };
    classes.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn shares(shares: &[Share]) -> Vec<String> {
    let runs: u64 = shares.iter().map(|s| s.runs).sum();
    let wall_ms: u64 = shares.iter().map(|s| s.wall_total_ms).sum();
    let of = |part: u64, all: u64| format!("{:.1}%", 100.0 * part as f64 / all.max(1) as f64);
    let row = |s: &Share| {
        [
            format!("size {}", size(s.size_class)),
            format!("{} keys", s.keys),
            format!("{} of runs", of(s.runs, runs)),
            format!("{} of running time", of(s.wall_total_ms, wall_ms)),
            wall(s.wall_total_ms),
        ]
    };
    aligned(&shares.iter().map(row).collect::<Vec<_>>())
}

fn more(answer: &ListSizesResponse) -> Option<String> {
    let shown = u32::try_from(answer.keys.len()).unwrap_or(u32::MAX);
    (shown < answer.known)
        .then(|| format!("{} more keys with less running time: --limit shows them", answer.known - shown))
}

fn size(class: Option<u32>) -> String {
    class.map_or_else(|| "any".to_owned(), |class| class.to_string())
}

fn failures(k: &Key) -> String {
    match k.failed.saturating_add(k.killed).saturating_add(k.timed_out) {
        0 => "-".to_owned(),
        n if k.killed == 0 && k.timed_out == 0 => n.to_string(),
        n => format!("{n} ({} killed, {} timed out)", k.killed, k.timed_out),
    }
}

fn causes(k: &Key) -> String {
    let ok = [k.failed, k.killed, k.timed_out].into_iter().fold(k.runs, u32::saturating_sub);
    format!("{ok} succeeded, {} failed, {} killed, {} timed out", k.failed, k.killed, k.timed_out)
}

fn wall(ms: u64) -> String {
    match Duration::from_millis(ms).as_secs_f64() {
        0.0 => "-".to_owned(),
        s if s < 10.0 => format!("{s:.2}s"),
        s if s < 120.0 => format!("{s:.0}s"),
        s if s < 7200.0 => format!("{:.0}m", s / 60.0),
        s => format!("{:.1}h", s / 3600.0),
    }
}

fn cores(cores: f64) -> String {
    if cores > 0.0 { format!("{cores:.1}") } else { "-".to_owned() }
}

fn memory(mib: u32) -> String {
    match mib {
        0 => "-".to_owned(),
        mib if mib < 10_000 => format!("{mib}MiB"),
        mib => format!("{:.1}GiB", f64::from(mib) / 1024.0),
    }
}

fn ago(unix_s: u32) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match now.saturating_sub(unix_s.into()) {
        s if s < 120 => format!("{s}s"),
        s if s < 7200 => format!("{}m", s / 60),
        s if s < 172_800 => format!("{}h", s / 3600),
        s => format!("{}d", s / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, suggested: Option<u32>, why: &str) -> Key {
        Key {
            key: key.to_owned(),
            runs: 13,
            failed: 1,
            wall_total_ms: 1_200_000,
            p50_wall_ms: 93_000,
            p95_wall_ms: 131_000,
            mean_cores: 5.5,
            p95_cores: 5.66,
            p95_memory_mib: 1360,
            suggested,
            why: why.to_owned(),
            ..Key::default()
        }
    }

    #[test]
    fn a_suggestion_reads_as_a_table_with_shares() {
        let share = |size_class, keys, runs, wall_total_ms| Share { size_class, keys, runs, wall_total_ms };
        let answer = ListSizesResponse {
            keys: vec![
                key("target=//gcc:final", Some(8), "p95 of 5.7 cores in 12 runs"),
                Key { killed: 2, ..key("x", None, "") },
            ],
            known: 5,
            classes: vec![Class { size_class: 1, cores: 1.5 }, Class { size_class: 8, cores: 0.0 }],
            shares: vec![share(None, 4, 87, 540_000), share(Some(8), 1, 13, 460_000)],
        };
        let text = suggest(&answer);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "TIME  RUNS  FAILED                     P50  P95  CORES  MEMORY   RAN ON  SIZE  KEY",
                "20m   13    1                          93s  2m   5.7    1360MiB          8     target=//gcc:final  (p95 of 5.7 cores in 12 runs)",
                "20m   13    3 (2 killed, 0 timed out)  93s  2m   5.7    1360MiB          any   x",
                "3 more keys with less running time: --limit shows them",
                "",
                "size any  4 keys  87.0% of runs  54.0% of running time  9m",
                "size 8    1 keys  13.0% of runs  46.0% of running time  8m",
                "sizes: 1 (1.5 cores), 8 (cores not known; learning.class_cores says them)",
            ]
        );
        assert!(
            list(&answer).contains("\n13    1  ")
                && list(&ListSizesResponse::default()).contains("learning key")
        );
        let shown = show(&answer);
        assert!(
            shown.contains("belongs on size 8: p95") && shown.contains("12 succeeded, 1 failed"),
            "{shown}"
        );
    }
}
