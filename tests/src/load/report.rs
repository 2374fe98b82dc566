//! Numbers for people and for programs.
use super::{Measurement, Settings};
use serde_json::{Value, json};
use std::time::Duration;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the server.
    pub server: String,
    /// What it did.
    pub measurement: Measurement,
}

/// What a table shows of one measurement.
struct Figures {
    actions_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    server_us_per_action: f64,
    own_us_per_action: f64,
    server_cores: f64,
    own_cores: f64,
    updates_per_action: f64,
}

impl Figures {
    fn new(m: &Measurement) -> Self {
        let (actions, window) = (m.actions() as f64, m.window.as_secs_f64());
        let quantile = |q| m.latency.value_at_quantile(q) as f64 / 1e6;
        let us_per_action = |cpu: Duration| cpu.as_secs_f64() * 1e6 / actions;
        Self {
            actions_per_second: actions / window,
            p50_ms: quantile(0.5),
            p99_ms: quantile(0.99),
            max_ms: m.latency.max() as f64 / 1e6,
            server_us_per_action: us_per_action(m.server_cpu),
            own_us_per_action: us_per_action(m.own_cpu),
            server_cores: m.server_cpu.as_secs_f64() / window,
            own_cores: m.own_cpu.as_secs_f64() / window,
            updates_per_action: m.updates as f64 / actions,
        }
    }

    /// How much of another server's rate this one reaches: as it was, and per processor time of the server,
    /// which does not depend on what clients and workers cost.
    fn ratios(&self, to: &Self) -> (f64, f64) {
        (self.actions_per_second / to.actions_per_second, to.server_us_per_action / self.server_us_per_action)
    }
}

const HEADINGS: [&str; 11] = [
    "server",
    "actions/s",
    "of first",
    "p50 ms",
    "p99 ms",
    "max ms",
    "server CPU us/action",
    "of first",
    "server cores",
    "load cores",
    "updates/action",
];

const LEGEND: &str = "
of first: share of the first server's rate, as measured (left) and per processor time of the server (right)
";

/// An aligned table; ratios are to the first row, and more is better in both of them.
pub fn table(settings: &Settings, rows: &[Row]) -> String {
    let figures: Vec<_> = rows.iter().map(|r| Figures::new(&r.measurement)).collect();
    let mut lines = vec![HEADINGS.map(str::to_owned)];
    lines.extend(rows.iter().zip(&figures).map(|(row, f)| {
        let (rate, per_cpu) = f.ratios(&figures[0]);
        [
            row.server.clone(),
            format!("{:.0}", f.actions_per_second),
            format!("{rate:.2}"),
            format!("{:.2}", f.p50_ms),
            format!("{:.2}", f.p99_ms),
            format!("{:.2}", f.max_ms),
            format!("{:.1}", f.server_us_per_action),
            format!("{per_cpu:.2}"),
            format!("{:.2}", f.server_cores),
            format!("{:.2}", f.own_cores),
            format!("{:.2}", f.updates_per_action),
        ]
    }));
    let mut text = format!("{}\n\n{}", heading(settings), align(&lines));
    text.push_str(LEGEND);
    if let Some(note) = note_on_updates(rows, &figures) {
        text.push_str(&note);
    }
    text
}

fn heading(s: &Settings) -> String {
    format!(
        "{} hosts x {} threads, {} clients on {} connections, {} distinct actions, {:.0} s after {:.0} s of warm-up",
        s.hosts,
        s.threads,
        s.clients,
        s.connections,
        s.actions,
        s.window.as_secs_f64(),
        s.warm_up.as_secs_f64()
    )
}

/// The first column to the left, the others to the right.
fn align<const N: usize>(lines: &[[String; N]]) -> String {
    let width = |column: usize| lines.iter().map(|l| l[column].len()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(widths).enumerate().map(|(i, (cell, width))| match i {
            0 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        text.push_str(&cells.collect::<Vec<_>>().join("  "));
        text.push('\n');
    }
    text
}

/// A server that sends more operations than the first does more work: the ratio should not hide it.
fn note_on_updates(rows: &[Row], figures: &[Figures]) -> Option<String> {
    let first = figures.first()?.updates_per_action;
    let (row, _) = rows.iter().zip(figures).find(|(_, f)| (f.updates_per_action - first).abs() > 0.1)?;
    Some(format!(
        "\n{} does not send as many updates per action as {}: compare with --echo-updates all or current\n",
        row.server, rows[0].server
    ))
}

/// The same for programs, with the settings.
pub fn json(settings: &Settings, rows: &[Row]) -> Value {
    let figures: Vec<_> = rows.iter().map(|r| Figures::new(&r.measurement)).collect();
    let servers = rows.iter().zip(&figures).map(|(row, f)| {
        let (rate, per_cpu) = f.ratios(&figures[0]);
        json!({
            "server": row.server,
            "actions": row.measurement.actions(),
            "seconds": row.measurement.window.as_secs_f64(),
            "actions_per_second": f.actions_per_second,
            "actions_per_second_of_first": rate,
            "latency_p50_ms": f.p50_ms,
            "latency_p99_ms": f.p99_ms,
            "latency_max_ms": f.max_ms,
            "server_cpu_us_per_action": f.server_us_per_action,
            "actions_per_server_cpu_of_first": per_cpu,
            "load_cpu_us_per_action": f.own_us_per_action,
            "server_cores": f.server_cores,
            "load_cores": f.own_cores,
            "updates_per_action": f.updates_per_action,
        })
    });
    json!({
        "hosts": settings.hosts,
        "threads": settings.threads,
        "clients": settings.clients,
        "connections": settings.connections,
        "distinct_actions": settings.actions,
        "platform": settings.platform,
        "servers": servers.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;

    fn row(server: &str, latencies_ms: &[u64], cpu_ms: u64) -> Row {
        let mut latency = Histogram::new(3).unwrap();
        latencies_ms.iter().for_each(|ms| latency.record(ms * 1_000_000).unwrap());
        let measurement = Measurement {
            updates: 2 * latency.len(),
            latency,
            window: Duration::from_secs(2),
            server_cpu: Duration::from_millis(cpu_ms),
            own_cpu: Duration::from_millis(10),
        };
        Row { server: server.into(), measurement }
    }

    fn settings() -> Settings {
        let second = Duration::from_secs(1);
        Settings {
            hosts: 1,
            threads: 1,
            clients: 1,
            connections: 1,
            window: second * 2,
            warm_up: second,
            actions: 1,
            platform: Vec::new(),
        }
    }

    #[test]
    fn ratios_are_to_the_first_row_and_more_is_better() {
        let rows = [row("echo", &[1, 1, 2, 3], 40), row("other", &[2, 2], 40)];
        let value = json(&settings(), &rows);
        let (first, second) = (&value["servers"][0], &value["servers"][1]);
        assert_eq!(first["actions_per_second"], 2.0);
        assert_eq!(first["server_cpu_us_per_action"], 10_000.0);
        assert_eq!(first["actions_per_second_of_first"], 1.0);
        assert_eq!(second["actions_per_second_of_first"], 0.5);
        assert_eq!(second["actions_per_server_cpu_of_first"], 0.5);
    }

    #[test]
    fn columns_are_aligned() {
        let text = table(&settings(), &[row("echo", &[1], 1), row("pointsman", &[1], 1)]);
        let widths: Vec<_> = text.lines().skip(2).take(3).map(str::len).collect();
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
    }
}
