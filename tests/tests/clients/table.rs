//! The table client × feature in Markdown.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::COLUMNS;
use super::feature::{Cell, Feature};

/// What became of one client and one feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Ok,
    Failed,
    /// The client is absent, or was not asked for.
    NotRun,
    NotOffered,
}

/// The table; `outcome` is asked for each column, by its number, and row.
pub(crate) fn render(outcome: impl Fn(usize, Feature) -> Outcome) -> String {
    let mut text = String::from("| |");
    for column in &COLUMNS {
        let _ = write!(text, " {} |", column.title);
    }
    text += &format!("\n| --- |{}\n", " --- |".repeat(COLUMNS.len()));
    for feature in Feature::ALL {
        let _ = write!(text, "| {} |", feature.title());
        for number in 0..COLUMNS.len() {
            let word = match outcome(number, feature) {
                Outcome::Ok => "ok",
                Outcome::Failed => "**failed**",
                Outcome::NotRun => "not run",
                Outcome::NotOffered => "–",
            };
            let _ = write!(text, " {word} |");
        }
        text.push('\n');
    }
    text
}

/// Why a client does not offer something, one line per reason.
pub(crate) fn reasons() -> String {
    let mut text = String::new();
    for column in &COLUMNS {
        let mut titles: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for feature in Feature::ALL {
            if let Cell::NotOffered(reason) = (column.cell)(feature) {
                titles.entry(reason).or_default().push(feature.title());
            }
        }
        for (reason, titles) in titles {
            let _ = writeln!(text, "- {}, {}: {reason}", column.title, titles.join(", "));
        }
    }
    text
}

/// The table of a day on which everything was run and nothing failed.
pub(crate) fn ideal() -> String {
    render(|number, feature| match (COLUMNS[number].cell)(feature) {
        Cell::Offered(_) | Cell::OnDemand(_) => Outcome::Ok,
        Cell::NotOffered(_) => Outcome::NotOffered,
    })
}
