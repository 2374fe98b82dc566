//! `pointsman metrics`.

use super::{Failure, print};

/// Prints every metric that `/metrics` has, with what it means.
pub(super) fn run() -> Result<(), Failure> {
    print(&crate::metrics::document())
}
