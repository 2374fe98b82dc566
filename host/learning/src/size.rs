//! Which size class an action should run on, by what is known under its learning key.
//!
//! The rule, first match first:
//!
//! 1. On some class it was killed or timed out lately: the class above the largest such one.
//! 2. Fewer than `min_attempts` successful runs with their use of cores are remembered, or nobody knows how many cores the
//!    classes have: any class will do.
//! 3. It is long and parallel (the median run takes `long` or more, and runs use more cores on average than the smallest
//!    class has): the largest class.
//! 4. The smallest class that has the cores which 95% of the runs stay below; if none has as many, the largest.
//!
//! What comes out is a lower bound, and the core takes the largest class where none is as large: what was measured keeps no
//! action from running. Where there are not two classes nothing is chosen.

use std::fmt;
use std::time::Duration;

use crate::record::Record;

/// So much more than a class has still fits it: a run that is a tenth slower is no reason for a larger machine, and buckets
/// are as coarse.
const TOLERANCE: f64 = 1.1;

/// What an operator says of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Successful runs before the use of cores decides anything.
    pub min_attempts: u32,
    /// From this median wall time on a parallel action goes to the largest class.
    pub long: Duration,
    /// Kills and time-outs longer ago than this are forgotten.
    pub forget_after: Duration,
}

/// A size class, and how many cores an action has there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClassCores {
    /// The class.
    pub size_class: u32,
    /// Cores of a host by the actions that it runs at once; `None`: nobody says.
    pub cores: Option<f64>,
}

/// A class, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Suggestion {
    /// This class or a larger one.
    pub at_least: u32,
    /// Why.
    pub why: Why,
}

/// What a suggestion follows from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Why {
    /// Rule 1.
    Ended {
        /// The largest class where it happened.
        on: u32,
        /// Kills among the runs that are remembered.
        killed: u8,
        /// Time-outs among them.
        timed_out: u8,
    },
    /// Rule 3.
    LongAndParallel {
        /// Median wall time.
        p50_wall: Duration,
        /// On average.
        cores: f64,
        /// What that is known from.
        runs: u32,
    },
    /// Rule 4.
    Cores {
        /// Of 95% of the runs.
        p95: f64,
        /// What that is known from.
        runs: u32,
    },
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended { on, killed, timed_out } => {
                match (killed, timed_out) {
                    (_, 0) => write!(f, "killed {}", times(*killed))?,
                    (0, _) => write!(f, "timed out {}", times(*timed_out))?,
                    (_, _) => write!(f, "killed {} and timed out {}", times(*killed), times(*timed_out))?,
                }
                write!(f, " on size {on}")
            }
            Self::LongAndParallel { p50_wall, cores, runs } => {
                let seconds = p50_wall.as_secs_f64();
                write!(f, "a median of {seconds:.0} s and {cores:.1} cores on average in {runs} runs")
            }
            Self::Cores { p95, runs } => write!(f, "p95 of {p95:.1} cores in {runs} runs"),
        }
    }
}

fn times(n: u8) -> String {
    match n {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    }
}

/// The class for the next run at `now`, in seconds since the Unix epoch; `classes` are sorted by size. `None`: any.
pub fn suggest(record: &Record, classes: &[ClassCores], rule: &Rule, now: u32) -> Option<Suggestion> {
    let [smallest, .., largest] = classes else { return None };
    let recent = |at: u32| u64::from(now.saturating_sub(at)) <= rule.forget_after.as_secs();
    let bad = record.classes().into_iter().rfind(|c| (c.killed > 0 || c.timed_out > 0) && recent(c.last_bad));
    if let Some(bad) = bad {
        let above = classes.iter().find(|c| c.size_class > bad.size_class);
        return Some(Suggestion {
            at_least: above.map_or_else(|| bad.size_class.saturating_add(1), |c| c.size_class),
            why: Why::Ended { on: bad.size_class, killed: bad.killed, timed_out: bad.timed_out },
        });
    }
    let (runs, p95) = (record.measured(), record.cores(0.95)?);
    let known = || classes.iter().filter_map(|c| Some((c.size_class, c.cores?)));
    let smallest_cores = smallest.cores.or_else(|| known().next().map(|(_, cores)| cores))?;
    if runs < rule.min_attempts {
        return None;
    }
    if let (Some(p50_wall), Some(cores)) = (record.wall(0.5), record.mean_cores())
        && p50_wall >= rule.long
        && cores > smallest_cores * TOLERANCE
    {
        let why = Why::LongAndParallel { p50_wall, cores, runs };
        return Some(Suggestion { at_least: largest.size_class, why });
    }
    let fitting = known().find(|(_, cores)| p95 <= cores * TOLERANCE);
    let at_least = fitting.map_or(largest.size_class, |(class, _)| class);
    Some(Suggestion { at_least, why: Why::Cores { p95, runs } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::ran;
    use crate::record::{Ended, Run};

    const RULE: Rule = Rule {
        min_attempts: 5,
        long: Duration::from_secs(60),
        forget_after: Duration::from_secs(7 * 24 * 3600),
    };

    fn classes(cores: [Option<f64>; 3]) -> Vec<ClassCores> {
        [1, 4, 8].into_iter().zip(cores).map(|(size_class, cores)| ClassCores { size_class, cores }).collect()
    }

    fn known() -> Vec<ClassCores> {
        classes([Some(1.5), Some(6.0), Some(16.0)])
    }

    fn after(runs: u32, run: &Run) -> Record {
        let mut record = Record::default();
        (0..runs).for_each(|_| record.note(run, 1000));
        record
    }

    fn chosen(record: &Record) -> Option<(u32, String)> {
        suggest(record, &known(), &RULE, 2000).map(|s| (s.at_least, s.why.to_string()))
    }

    #[test]
    fn the_smallest_class_that_has_the_cores() {
        for (cores, class) in [(0.9, 1), (1.5, 1), (2.0, 4), (5.6, 4), (6.0, 4), (9.0, 8), (64.0, 8)] {
            let (at_least, why) = chosen(&after(12, &ran(10.0, cores, 100))).unwrap();
            assert_eq!(at_least, class, "{cores}: {why}");
        }
        let (_, why) = chosen(&after(12, &ran(10.0, 8.0, 100))).unwrap();
        assert_eq!(why, "p95 of 8.0 cores in 12 runs");
    }

    #[test]
    fn nothing_is_chosen_before_enough_is_known() {
        assert_eq!(chosen(&after(4, &ran(10.0, 8.0, 100))), None);
        assert!(chosen(&after(5, &ran(10.0, 8.0, 100))).is_some());
        assert_eq!(chosen(&after(50, &Run { cores: None, ..ran(10.0, 8.0, 100) })), None);
        assert_eq!(chosen(&after(50, &Run { ended: Ended::Failed, ..ran(10.0, 8.0, 100) })), None);
        let record = after(50, &ran(10.0, 8.0, 100));
        assert_eq!(suggest(&record, &known()[..1], &RULE, 2000), None, "one class is no choice");
        assert_eq!(suggest(&record, &[], &RULE, 2000), None);
        assert_eq!(suggest(&record, &classes([None; 3]), &RULE, 2000), None, "nobody knows the classes");
        let partly = suggest(&record, &classes([None, Some(8.0), None]), &RULE, 2000).unwrap();
        assert_eq!(partly.at_least, 4);
    }

    #[test]
    fn long_and_parallel_goes_to_the_largest() {
        assert_eq!(chosen(&after(9, &ran(59.0, 2.0, 100))).unwrap().0, 4);
        let (at_least, why) = chosen(&after(9, &ran(90.0, 2.0, 100))).unwrap();
        assert_eq!((at_least, why.as_str()), (8, "a median of 93 s and 2.0 cores on average in 9 runs"));
        assert_eq!(chosen(&after(9, &ran(300.0, 1.0, 100))).unwrap().0, 1, "long, and of one thread");
    }

    #[test]
    fn above_where_it_was_killed_or_timed_out() {
        let mut record = after(12, &ran(1.0, 0.5, 100));
        record.note(&Run { ended: Ended::Killed, ..ran(1.0, 0.5, 100) }, 1500);
        assert_eq!(chosen(&record).unwrap(), (4, "killed once on size 1".to_owned()));
        for _ in 0..2 {
            record.note(&Run { ended: Ended::TimedOut, size_class: 4, ..ran(1.0, 0.5, 100) }, 1600);
        }
        assert_eq!(chosen(&record).unwrap(), (8, "timed out 2 times on size 4".to_owned()));
        record.note(&Run { ended: Ended::Killed, size_class: 8, ..ran(1.0, 0.5, 100) }, 1700);
        assert_eq!(chosen(&record).unwrap().0, 9, "the core takes the largest there is");
        let later = 1700 + 8 * 24 * 3600;
        assert_eq!(suggest(&record, &known(), &RULE, later).unwrap().at_least, 1, "it is forgotten");
        let first = after(1, &Run { ended: Ended::Killed, ..ran(1.0, 0.5, 100) });
        assert_eq!(chosen(&first).unwrap().0, 4, "one kill is enough");
    }

    #[test]
    fn counts_of_a_file_may_be_anything() {
        let line = r#"{"format":1,"key":"k","runs":9,"classes":[{"size_class":1,"runs":9,"killed":200,"timed_out":200,"last_bad":1500}]}"#;
        let (_, record) = crate::decode(line).unwrap();
        assert_eq!(chosen(&record).unwrap().0, 4);
    }

    #[test]
    fn a_clock_that_was_ahead_once_keeps_no_kill_for_ever() {
        let mut record = after(12, &ran(1.0, 0.5, 100));
        record.note(&Run { ended: Ended::Killed, ..ran(1.0, 0.5, 100) }, 4_000_000_000);
        record.not_after(2000);
        assert_eq!(record.seen(), (1000, 2000));
        assert_eq!(chosen(&record).unwrap().0, 4);
        let later = 2000 + 8 * 24 * 3600;
        assert_eq!(suggest(&record, &known(), &RULE, later).unwrap().at_least, 1);
    }

    #[test]
    fn a_plain_failure_says_nothing_of_the_size() {
        let mut record = after(12, &ran(1.0, 0.5, 100));
        (0..100).for_each(|_| record.note(&Run { ended: Ended::Failed, ..ran(1.0, 9.0, 100) }, 1500));
        assert_eq!(chosen(&record).unwrap().0, 1);
    }
}
