//! What a row is asked for.
use super::report::Figures;

/// A bound on one figure of a row; most are relative to the first row of its group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// At least this share of the first row's actions per second.
    Rate(f64),
    /// At most this many times the first row's processor time of the server per action.
    Cpu(f64),
    /// At most this many times the first row's median from Execute to the worker's start.
    Assignment(f64),
    /// At most this many times its own median at the 99th percentile.
    Tail(f64),
    /// At least this share of the slots' time used.
    Slots(f64),
    /// At most so many bytes per waiting stream more than the first row.
    BytesOverFirst(f64),
}

impl Aim {
    /// Whether the row meets it.
    pub(super) fn is_met(self, row: &Figures, first: &Figures) -> bool {
        match self {
            Self::Rate(min) => row.actions_per_second >= min * first.actions_per_second,
            Self::Cpu(max) => row.server_us_per_action <= max * first.server_us_per_action,
            Self::Assignment(max) => row.assignment_p50_ms <= max * first.assignment_p50_ms,
            Self::Tail(max) => row.p99_ms <= max * row.p50_ms,
            Self::Slots(min) => row.slots_used >= min,
            Self::BytesOverFirst(max) => row.bytes_per_waiting <= first.bytes_per_waiting + max,
        }
    }

    /// The bound in words of the table's headings.
    pub(super) fn text(self) -> String {
        match self {
            Self::Rate(min) => format!("rate >= {min:.2}"),
            Self::Cpu(max) => format!("CPU <= {max:.2}"),
            Self::Assignment(max) => format!("assigned <= {max:.2} x first"),
            Self::Tail(max) => format!("p99/p50 <= {max:.2}"),
            Self::Slots(min) => format!("slots >= {min:.2}"),
            Self::BytesOverFirst(max) => format!("bytes <= first + {max:.0}"),
        }
    }
}
