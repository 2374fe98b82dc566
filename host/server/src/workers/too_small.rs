//! The scheduler's own rule about results (`sizes.rerun`): what a machine was too small for runs again on a larger one.
//!
//! It is asked when no policy has decided. A plain failure is never such a result: it would run twice to fail twice.

use std::fmt::Write as _;
use std::sync::Arc;

use pointsman_policy::{Attempt, Outcome};
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_scheduler::route::{Route, SizeClass};

use super::judge::how;
use crate::config::TooSmall;
use crate::driver::{Driver, Given};
use crate::routing::{Routed, Router};

/// Knows which results show a machine to be too small.
pub(super) struct Rule {
    pub(super) driver: Arc<Driver>,
    pub(super) router: Arc<Router>,
    pub(super) rerun: Vec<TooSmall>,
}

impl Rule {
    /// A result may be one. Asked about each, so it looks at almost nothing.
    pub(super) fn looks_at(&self, response: &ExecuteResponse) -> bool {
        let succeeded = || {
            let status = response.status.as_ref().map_or(0, |status| status.code);
            status == 0 && response.result.as_ref().is_none_or(|result| result.exit_code == 0)
        };
        !self.rerun.is_empty() && !succeeded()
    }

    /// The route by which an action would run again after such an attempt; `None`: it does not.
    pub(super) fn route(&self, given: &Given, attempt: &Attempt) -> Option<Route> {
        let result = match attempt.outcome {
            Outcome::Killed => TooSmall::Killed,
            Outcome::TimedOut => TooSmall::TimedOut,
            _ => return None,
        };
        if !self.rerun.contains(&result) {
            return None;
        }
        let mut route = (*given.route).clone();
        if given.payload.enlarged == Some(route.size) {
            // It was named here, so it may be another now.
            route.size = SizeClass::Learned;
        }
        let size = SizeClass::AtLeast(attempt.size_class.checked_add(1)?);
        self.router.enlarged(&route, size, given.payload.facts.timeout)
    }

    /// The same for the next larger class of those there are; `None`: there is none for this action.
    pub(super) fn larger(&self, given: &Given, mut routed: Routed) -> Option<Routed> {
        let (than, instance) = (given.spec.size_class, &given.payload.instance_name);
        let size = self.driver.larger_than(than, instance, &routed.route, &routed.asked)?;
        Arc::make_mut(&mut routed.route).size = size;
        Some(routed)
    }
}

/// Why an action ran again, for whoever asks.
pub(super) fn cause(attempt: &Attempt) -> String {
    format!(
        "{} on size class {}, so sizes.rerun has it run on a larger one",
        how(attempt),
        attempt.size_class
    )
}

/// Why an action does not run once more, and what became of it before.
pub(super) fn why_not(given: &Given, attempt: &Attempt, why: &str) -> String {
    let mut text = format!("{} on size class {}, {why}", how(attempt), attempt.size_class);
    for (i, attempt) in given.attempts.iter().enumerate() {
        // Writing to a String does not fail.
        _ = write!(text, "; attempt {} on {}: {}", i + 1, attempt.host, attempt.cause);
    }
    text
}
