//! A new version is on probation for a while: it is rolled back by itself when it does worse than it may.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::tally::TallySnapshot;

/// What a version may do wrong while it is new, or on trial. Rates are of all its calls.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbationRules {
    /// How long it lasts, from when the version came into force.
    pub length: Duration,
    /// So many failures, or rejections, are too few to judge by.
    pub events_min: u64,
    /// Share of calls that may trap, or answer what can't be. Default 0.002: a policy that traps has a mistake in it.
    pub traps_max: f64,
    /// Share of calls that may use more fuel or time than they may. Default 0.002.
    pub over_budget_max: f64,
    /// How much larger the share of rejections may be than it was with the version before. Default 0.2.
    pub more_rejections_max: f64,
}

impl Default for ProbationRules {
    fn default() -> Self {
        Self {
            length: Duration::from_secs(600),
            events_min: 3,
            traps_max: 0.002,
            over_budget_max: 0.002,
            more_rejections_max: 0.2,
        }
    }
}

/// Rejections say less than traps: so many times as many are needed to judge by them.
const REJECTIONS_PER_EVENT: u64 = 10;

impl ProbationRules {
    /// Why a version has to go, if it has. `before` is how its predecessor did.
    pub(crate) fn verdict(&self, tally: &TallySnapshot, before: Option<&TallySnapshot>) -> Option<String> {
        let calls = tally.total();
        let over_budget = kinds(tally, true);
        let traps = kinds(tally, false);
        let too_many = |what: &str, events: u64, max: f64| {
            let share = events as f64 / calls.max(1) as f64;
            (events >= self.events_min && share > max).then(|| {
                let text = format!("{what} in {events} of {calls} calls ({})", percent(share));
                format!("{text}, allowed are {}", percent(max))
            })
        };
        let rejections = || {
            let share = tally.rejections as f64 / calls.max(1) as f64;
            let usual = before.map_or(0.0, |b| b.rejections as f64 / b.total().max(1) as f64);
            let judged = tally.rejections >= self.events_min * REJECTIONS_PER_EVENT;
            (judged && share > usual + self.more_rejections_max).then(|| {
                format!(
                    "it rejected {} of {calls} calls ({}), the version before {}, and {} more are allowed",
                    tally.rejections,
                    percent(share),
                    percent(usual),
                    percent(self.more_rejections_max)
                )
            })
        };
        too_many("it failed", traps, self.traps_max)
            .or_else(|| too_many("it used too much fuel or time", over_budget, self.over_budget_max))
            .or_else(rejections)
    }
}

fn kinds(tally: &TallySnapshot, over_budget: bool) -> u64 {
    let kinds = tally.failures.iter().filter(|(kind, _)| kind.is_over_budget() == over_budget);
    kinds.map(|(_, count)| count).sum()
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// Whether a version is being watched, and whether a verdict has been spoken.
#[derive(Debug, Default)]
pub(crate) struct Probation {
    watched: AtomicBool,
}

impl Probation {
    pub(crate) fn begin(&self) {
        self.watched.store(true, Relaxed);
    }

    pub(crate) fn end(&self) {
        self.watched.store(false, Relaxed);
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.load(Relaxed)
    }

    /// Ends it; `true` for the first one who does so, who is to tell.
    pub(crate) fn speak(&self) -> bool {
        self.watched.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decision::Hook;
    use crate::failure::FailureKind;

    fn tally(calls: u64, traps: u64, fuel: u64, rejections: u64) -> TallySnapshot {
        TallySnapshot {
            calls: vec![(Hook::OnAction, calls)],
            rejections,
            failures: vec![(FailureKind::Trap, traps), (FailureKind::OutOfFuel, fuel)],
            ..TallySnapshot::default()
        }
    }

    #[test]
    fn each_rate_has_its_limit() {
        let rules = ProbationRules::default();
        let verdict = |tally: TallySnapshot| rules.verdict(&tally, None);
        assert_eq!(verdict(tally(1_000, 2, 2, 25)), None, "too few to judge by");
        assert_eq!(verdict(tally(2_000, 4, 4, 400)), None, "as many as are allowed");
        let why = verdict(tally(300, 3, 0, 0)).unwrap();
        assert_eq!(why, "it failed in 3 of 300 calls (1.00 %), allowed are 0.20 %");
        assert!(verdict(tally(300, 0, 3, 0)).unwrap().contains("too much fuel"));
        assert!(verdict(tally(100, 0, 0, 30)).unwrap().contains("it rejected 30 of 100 calls (30.00 %)"));
    }

    #[test]
    fn rejections_are_compared_with_those_of_the_version_before() {
        let rules = ProbationRules::default();
        let before = tally(100, 0, 0, 90);
        assert_eq!(rules.verdict(&tally(100, 0, 0, 99), Some(&before)), None);
        assert!(rules.verdict(&tally(100, 0, 0, 40), Some(&tally(100, 0, 0, 10))).is_some());
    }
}
