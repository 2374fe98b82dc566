//! What failed tries are called.

use std::fmt::Write as _;

use crate::ids::Text;
use crate::task::Attempt;

/// One text that names each attempt.
pub(crate) fn gave_up(attempts: &[Attempt]) -> Text {
    let mut text = format!("the action was tried {} times and never completed", attempts.len());
    for (i, attempt) in attempts.iter().enumerate() {
        // Writing to a String does not fail.
        _ = write!(text, "; attempt {} on {}: {}", i + 1, attempt.host, attempt.cause);
    }
    text.into()
}
