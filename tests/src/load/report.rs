//! Numbers for people and for programs.
use super::{Aim, Measurement, Settings};
use serde_json::{Value, json};
use std::{fs, thread::available_parallelism, time::Duration, time::SystemTime};

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the server, or of what is special.
    pub name: String,
    /// What was measured.
    pub settings: Settings,
    /// What the server did.
    pub measurement: Measurement,
    /// What it should have reached.
    pub aims: Vec<Aim>,
}

/// Lines that are compared with the first of them.
#[derive(Clone, Debug)]
pub struct Group {
    /// What they have in common.
    pub title: String,
    /// At least one.
    pub rows: Vec<Row>,
}

/// What a table shows of one measurement. Not a number where nothing ran.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    pub(super) actions_per_second: f64,
    pub(super) assignment_p50_ms: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    max_ms: f64,
    pub(super) server_us_per_action: f64,
    own_us_per_action: f64,
    server_cores: f64,
    own_cores: f64,
    updates_per_action: f64,
    /// Share of the slots' time that actions executed; 0 if they take no time.
    pub(super) slots_used: f64,
    pub(super) bytes_per_waiting: f64,
}

impl Figures {
    fn new(row: &Row) -> Self {
        let (m, settings) = (&row.measurement, &row.settings);
        let (actions, window) = (m.actions() as f64, m.window.as_secs_f64());
        let ms = |ns: u64| ns as f64 / 1e6;
        let us_per_action = |cpu: Duration| cpu.as_secs_f64() * 1e6 / actions;
        // The time as set, not as it was: a load generator that comes late is not the server's merit.
        let executed = actions * settings.action_time.as_secs_f64();
        Self {
            actions_per_second: actions / window,
            assignment_p50_ms: ms(m.assignment.value_at_quantile(0.5)),
            p50_ms: ms(m.latency.value_at_quantile(0.5)),
            p99_ms: ms(m.latency.value_at_quantile(0.99)),
            max_ms: ms(m.latency.max()),
            server_us_per_action: us_per_action(m.server_cpu),
            own_us_per_action: us_per_action(m.own_cpu),
            server_cores: m.server_cpu.as_secs_f64() / window,
            own_cores: m.own_cpu.as_secs_f64() / window,
            updates_per_action: m.updates as f64 / actions,
            slots_used: executed / (settings.slots() as f64 * window),
            bytes_per_waiting: m.bytes_per_waiting,
        }
    }
}

/// A row's figures beside those of the first of its group.
struct Compared<'a> {
    row: &'a Row,
    figures: Figures,
    first: Figures,
}

impl Group {
    fn compared(&self) -> Vec<Compared<'_>> {
        let figures: Vec<_> = self.rows.iter().map(Figures::new).collect();
        let compare = |(row, f): (_, &Figures)| Compared { row, figures: *f, first: figures[0] };
        self.rows.iter().zip(&figures).map(compare).collect()
    }
}

impl Compared<'_> {
    fn rate(&self) -> f64 {
        self.figures.actions_per_second / self.first.actions_per_second
    }

    fn cpu(&self) -> f64 {
        self.figures.server_us_per_action / self.first.server_us_per_action
    }

    fn aims(&self) -> String {
        let aims = self.row.aims.iter().map(|aim| {
            let met = if aim.is_met(&self.figures, &self.first) { "met" } else { "MISSED" };
            format!("{}: {met}", aim.text())
        });
        aims.collect::<Vec<_>>().join("; ")
    }

    fn cells(&self) -> [String; 15] {
        let f = &self.figures;
        [
            format!("  {}", self.row.name),
            number(f.actions_per_second, 0),
            number(self.rate(), 2),
            number(f.assignment_p50_ms, 3),
            number(f.p50_ms, 2),
            number(f.p99_ms, 2),
            number(f.p99_ms / f.p50_ms, 2),
            number(f.server_us_per_action, 1),
            number(self.cpu(), 2),
            number(f.server_cores, 2),
            number(f.own_cores, 2),
            number(f.updates_per_action, 2),
            number(f.slots_used * 100.0, 1),
            number(f.bytes_per_waiting, 0),
            self.aims(),
        ]
    }
}

/// A dash where there is nothing to tell.
fn number(value: f64, decimals: usize) -> String {
    if value.is_finite() && value != 0.0 { format!("{value:.decimals$}") } else { "-".to_owned() }
}

const HEADINGS: [&str; 15] = [
    "",
    "actions/s",
    "x first",
    "assigned p50 ms",
    "p50 ms",
    "p99 ms",
    "p99/p50",
    "server CPU us/action",
    "x first",
    "server cores",
    "load cores",
    "updates/action",
    "slots %",
    "bytes/waiting",
    "asked",
];

/// An aligned table; ratios are to the first row of each group.
pub fn table(groups: &[Group]) -> String {
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    for group in groups {
        lines.extend(group.compared().iter().map(Compared::cells));
    }
    let mut aligned = align(&lines).into_iter();
    let mut text = format!("{}\n\n{}\n", machine(), aligned.next().unwrap_or_default());
    for group in groups {
        text.push_str(&format!("{}\n", group.title));
        for line in aligned.by_ref().take(group.rows.len()) {
            text.push_str(&format!("{line}\n"));
        }
    }
    groups.iter().filter_map(note_on_updates).for_each(|note| text.push_str(&note));
    text
}

/// Figures mean nothing without the day and the machine.
fn machine() -> String {
    let cores = available_parallelism().map_or(0, usize::from);
    let day = humantime::format_rfc3339_seconds(SystemTime::now());
    format!("{day}, {cores} cores, {}", processor().unwrap_or_else(|| "unknown processor".to_owned()))
}

fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// The first and the last column to the left, the others to the right.
fn align<const N: usize>(lines: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |line: &[String; N]| {
        let cells = line.iter().zip(widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ if i == N - 1 => cell.clone(),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    lines.iter().map(line).collect()
}

/// A server that sends more operations than the first does more work: the ratio should not hide it.
fn note_on_updates(group: &Group) -> Option<String> {
    let rows = group.compared();
    let first = rows.first()?;
    let differs = |c: &&Compared<'_>| (c.figures.updates_per_action - c.first.updates_per_action).abs() > 0.1;
    let other = rows.iter().find(differs)?;
    Some(format!(
        "\n{}: {} does not send as many updates per action as {}\n",
        group.title, other.row.name, first.row.name
    ))
}

/// The same for programs, with the settings.
pub fn json(groups: &[Group]) -> Value {
    let groups: Vec<_> = groups
        .iter()
        .map(|g| json!({ "title": g.title, "rows": g.compared().iter().map(row_json).collect::<Vec<_>>() }))
        .collect();
    json!({ "machine": machine(), "groups": groups })
}

fn row_json(c: &Compared<'_>) -> Value {
    let (s, m, f) = (&c.row.settings, &c.row.measurement, &c.figures);
    let aims = c.row.aims.iter().map(|a| json!({ "aim": a.text(), "met": a.is_met(f, &c.first) }));
    json!({
        "name": c.row.name,
        "hosts": s.hosts,
        "threads": s.threads,
        "worker_connections": s.worker_connections,
        "clients": s.clients,
        "connections": s.connections,
        "distinct_actions": s.actions,
        "platform": s.platform,
        "pools": s.pools,
        "idle_workers": s.idle_workers,
        "unmatched": s.unmatched,
        "unmatched_classes": s.unmatched_classes,
        "action_ms": s.action_time.as_secs_f64() * 1e3,
        "actions": m.actions(),
        "seconds": m.window.as_secs_f64(),
        "actions_per_second": f.actions_per_second,
        "actions_per_second_of_first": c.rate(),
        "assigned_p50_ms": f.assignment_p50_ms,
        "latency_p50_ms": f.p50_ms,
        "latency_p99_ms": f.p99_ms,
        "latency_max_ms": f.max_ms,
        "server_cpu_us_per_action": f.server_us_per_action,
        "server_cpu_of_first": c.cpu(),
        "load_cpu_us_per_action": f.own_us_per_action,
        "server_cores": f.server_cores,
        "load_cores": f.own_cores,
        "updates_per_action": f.updates_per_action,
        "slots_used": f.slots_used,
        "server_bytes_per_waiting": f.bytes_per_waiting,
        "aims": aims.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    fn row(name: &str, latencies_ms: &[u64], cpu_ms: u64) -> Row {
        let mut latency = Histogram::new(3).unwrap();
        latencies_ms.iter().for_each(|ms| latency.record(ms * 1_000_000).unwrap());
        let measurement = Measurement {
            updates: 2 * latency.len(),
            assignment: latency.clone(),
            latency,
            window: Duration::from_secs(2),
            server_cpu: Duration::from_millis(cpu_ms),
            own_cpu: Duration::from_millis(10),
            bytes_per_waiting: 0.0,
        };
        let settings =
            Settings { hosts: 1, threads: 2, action_time: Duration::from_millis(500), ..Settings::default() };
        Row { name: name.into(), settings, measurement, aims: vec![Aim::Cpu(1.5), Aim::Rate(0.5)] }
    }

    fn group(rows: Vec<Row>) -> Group {
        Group { title: "some".into(), rows }
    }

    #[test]
    fn ratios_are_to_the_first_row() {
        let value = json(&[group(vec![row("echo", &[1, 1, 2, 3], 40), row("other", &[2, 2], 40)])]);
        let (first, second) = (&value["groups"][0]["rows"][0], &value["groups"][0]["rows"][1]);
        assert_eq!(first["actions_per_second"], 2.0);
        assert_eq!(first["server_cpu_us_per_action"], 10_000.0);
        assert_eq!(first["actions_per_second_of_first"], 1.0);
        assert_eq!(second["actions_per_second_of_first"], 0.5);
        assert_eq!(second["server_cpu_of_first"], 2.0);
        assert_eq!(first["slots_used"], 0.5);
        assert_eq!(second["aims"][0]["met"], false);
        assert_eq!(second["aims"][1]["met"], true);
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(&[
            group(vec![row("echo", &[1], 1), row("a long name", &[1], 100)]),
            group(vec![row("third", &[], 1)]),
        ]);
        let at: Vec<_> = text.lines().filter_map(|l| l.find("CPU <= ").or(l.find("asked"))).collect();
        assert_eq!(at.len(), 4, "{text}");
        assert!(at.iter().all(|a| *a == at[0]), "{text}");
        assert!(text.contains("CPU <= 1.50: MISSED; rate >= 0.50: met"), "{text}");
    }
}
