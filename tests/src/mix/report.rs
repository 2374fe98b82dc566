//! Both builds side by side.
use super::{Action, BANDS, NODE_CORES, Outcome};
use std::fmt::Write as _;

/// Tables, with ratios to the first outcome in brackets.
pub fn table(actions: &[Action], outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let wall: f64 = actions.iter().map(|a| a.wall.as_secs_f64()).sum();
    // Writing to a String does not fail.
    _ = writeln!(
        text,
        "{} actions, {:.1} hours of wall time with as many cores as they like\n",
        actions.len(),
        wall / 3600.0
    );
    _ = writeln!(text, "| wall time | actions | share of wall time | cores |\n| --- | --- | --- | --- |");
    for (i, band) in BANDS.iter().enumerate() {
        let of: Vec<&Action> = actions.iter().filter(|a| a.band == i).collect();
        let band_wall: f64 = of.iter().map(|a| a.wall.as_secs_f64()).sum();
        let cores = of.iter().map(|a| a.cores).sum::<f64>() / of.len().max(1) as f64;
        _ = writeln!(
            text,
            "| {} | {} | {:.0} % | {cores:.2} |",
            band.name,
            of.len(),
            100.0 * band_wall / wall
        );
    }
    let names: Vec<&str> = outcomes.iter().map(|o| o.name).collect();
    _ = writeln!(text, "\n| | {} |\n| ---{} |", names.join(" | "), " | ---".repeat(names.len()));
    let mut row = |name: &str, figure: fn(&Outcome) -> f64, unit: &str| {
        let first = outcomes.first().map_or(f64::NAN, figure);
        let cells = outcomes.iter().enumerate().map(|(i, outcome)| match (i, figure(outcome)) {
            (0, value) => format!("{value:.2}{unit}"),
            (_, value) => format!("{value:.2}{unit} ({:.2})", value / first),
        });
        _ = writeln!(text, "| {name} | {} |", cells.collect::<Vec<_>>().join(" | "));
    };
    row("nodes", |o| o.nodes as f64, "");
    row("time", |o| o.took.as_secs_f64() / 60.0, " min");
    row("node hours, all nodes stay", Outcome::node_hours, " h");
    row("node hours, idle workers go", |o| o.busy_node_hours, " h");
    row("CPU requested while executing", |o| o.requested_core_hours, " core h");
    row("CPU used", |o| o.used_core_hours, " core h");
    row("used by requested", |o| o.used_core_hours / o.requested_core_hours, "");
    row("used by what the nodes have", |o| o.used_core_hours / (o.node_hours() * NODE_CORES), "");
    let killed: Vec<String> = outcomes.iter().map(|o| o.killed.to_string()).collect();
    _ = writeln!(text, "| killed | {} |", killed.join(" | "));
    for outcome in outcomes {
        let all: usize = outcome.shapes.iter().map(|s| s.1).sum();
        let wall: f64 = outcome.shapes.iter().map(|s| s.2.as_secs_f64()).sum();
        for (name, actions, of, busy) in &outcome.shapes {
            _ = writeln!(
                text,
                "\n{}: {name} workers ran {actions} of {all} actions ({:.1} %), {:.0} % of wall time, and executed {:.0} % of the time",
                outcome.name,
                100.0 * *actions as f64 / all as f64,
                100.0 * of.as_secs_f64() / wall,
                100.0 * busy
            );
        }
    }
    text
}
