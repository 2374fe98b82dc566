//! A version that is tried out beside the one in force: in shadow, where it decides nothing, or as a canary, where it
//! decides about a share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pointsman_scheduler::is_path_prefix;
use pointsman_scheduler::route::Route;
use sha2::{Digest, Sha256};

use crate::archive::TrialMode;
use crate::decision::Rejection;
use crate::facts::ActionFacts;
use crate::policy::Policy;
use crate::tally::{TallySnapshot, count};

/// Actions that a canary decides about.
#[derive(Clone, Debug, PartialEq)]
pub enum Share {
    /// This share of invocations, each wholly; actions of no invocation by their digest.
    Invocations(f64),
    /// Those whose instance name begins with one of these paths.
    Prefixes(Vec<Arc<str>>),
}

/// How a version is tried out.
#[derive(Clone, Debug, PartialEq)]
pub enum Mode {
    /// It is asked about this share of actions after they have been routed, and what it says is only compared.
    Shadow(f64),
    /// It decides about these; when it fails, the version in force does.
    Canary(Share),
}

impl Mode {
    /// As it is kept in the state folder.
    pub(crate) fn kept(&self) -> TrialMode {
        match self {
            Self::Shadow(share) => TrialMode::Shadow(*share),
            Self::Canary(Share::Invocations(share)) => TrialMode::Canary(*share),
            Self::Canary(Share::Prefixes(list)) => {
                TrialMode::CanaryPrefixes(list.iter().map(|prefix| prefix.to_string()).collect())
            }
        }
    }

    /// The other way round.
    pub(crate) fn of_kept(kept: &TrialMode) -> Self {
        match kept {
            TrialMode::Shadow(share) => Self::Shadow(*share),
            TrialMode::Canary(share) => Self::Canary(Share::Invocations(*share)),
            TrialMode::CanaryPrefixes(list) => {
                Self::Canary(Share::Prefixes(list.iter().map(|prefix| prefix.as_str().into()).collect()))
            }
        }
    }

    /// For people.
    pub fn describe(&self) -> String {
        match self {
            Self::Shadow(share) => format!("shadow of {} %", share * 100.0),
            Self::Canary(Share::Invocations(share)) => {
                format!("canary for {} % of invocations", share * 100.0)
            }
            Self::Canary(Share::Prefixes(list)) => {
                format!("canary for instance names below {}", list.join(", "))
            }
        }
    }
}

/// A version that is tried out.
#[derive(Debug)]
pub struct Trial {
    /// The version.
    pub policy: Arc<Policy>,
    /// How.
    pub mode: Mode,
    /// What came of it so far.
    pub results: TrialResults,
}

/// What came of a trial.
#[derive(Debug, Default)]
pub struct TrialResults {
    compared: AtomicU64,
    disagreed: AtomicU64,
    not_compared: AtomicU64,
    active_us: AtomicU64,
    samples: Mutex<Vec<Sample>>,
}

/// A decision on which two versions disagree.
#[derive(Clone, Debug)]
pub struct Sample {
    /// The action's digest.
    pub action: Arc<str>,
    /// Its mnemonic, as far as the client said.
    pub mnemonic: Arc<str>,
    /// Its target, as far as the client said.
    pub target_id: Arc<str>,
    /// The fields that differ, with both values: `priority: 0 in force, 5 on trial`.
    pub differences: Vec<String>,
}

/// Results at one moment.
#[derive(Clone, Debug)]
pub struct TrialSnapshot {
    /// Decisions that were compared.
    pub compared: u64,
    /// Of those, different.
    pub disagreed: u64,
    /// Decisions that were to be compared and were not, as there was no time.
    pub not_compared: u64,
    /// Time that the version in force took for those that were compared.
    pub active_time: Duration,
    /// What the version on trial did.
    pub tally: TallySnapshot,
    /// The first decisions that differed.
    pub samples: Vec<Sample>,
}

/// So many disagreements are kept as samples.
const SAMPLES: usize = 20;

impl Trial {
    pub(crate) fn new(policy: Arc<Policy>, mode: Mode) -> Self {
        Self { policy, mode, results: TrialResults::default() }
    }

    /// Does it decide about that action?
    pub(crate) fn decides(&self, facts: &ActionFacts) -> bool {
        match &self.mode {
            Mode::Shadow(_) => false,
            Mode::Canary(Share::Invocations(share)) => {
                let of = [&facts.invocation_id, &facts.correlated_invocations_id, &facts.digest];
                falls_into(of.into_iter().find(|text| !text.is_empty()).map_or("", |text| text), *share)
            }
            Mode::Canary(Share::Prefixes(list)) => {
                list.iter().any(|prefix| is_path_prefix(prefix, &facts.instance_name))
            }
        }
    }

    /// Is it to be asked about that action, for comparison?
    pub(crate) fn compares(&self, facts: &ActionFacts) -> bool {
        matches!(self.mode, Mode::Shadow(share) if falls_into(&facts.digest, share))
    }

    /// What came of it so far.
    pub fn snapshot(&self) -> TrialSnapshot {
        let results = &self.results;
        TrialSnapshot {
            compared: results.compared.load(Relaxed),
            disagreed: results.disagreed.load(Relaxed),
            not_compared: results.not_compared.load(Relaxed),
            active_time: Duration::from_micros(results.active_us.load(Relaxed)),
            tally: self.policy.tally(),
            samples: results.samples.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    pub(crate) fn no_time(&self) {
        count(&self.results.not_compared);
    }

    /// Compares what both said about one action.
    pub(crate) fn compare(&self, facts: &ActionFacts, active: &Said<'_>, candidate: &Said<'_>) {
        count(&self.results.compared);
        self.results.active_us.fetch_add(active.elapsed.as_micros() as u64, Relaxed);
        let differences = differences(active, candidate);
        if differences.is_empty() {
            return;
        }
        count(&self.results.disagreed);
        let mut samples = self.results.samples.lock().unwrap_or_else(PoisonError::into_inner);
        if samples.len() < SAMPLES {
            samples.push(Sample {
                action: facts.digest.clone(),
                mnemonic: facts.mnemonic.clone(),
                target_id: facts.target_id.clone(),
                differences,
            });
        }
    }
}

/// What a policy said about an action.
#[derive(Debug)]
pub(crate) struct Said<'a> {
    pub(crate) route: &'a Route,
    pub(crate) rejection: Option<&'a Rejection>,
    pub(crate) elapsed: Duration,
}

/// The same text always falls on the same side, also after an update of the program.
fn falls_into(text: &str, share: f64) -> bool {
    let digest = Sha256::digest(text);
    let number = digest[..8].iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    // 53 bits, as many as the other number has.
    ((number >> 11) as f64) < share * (1u64 << 53) as f64
}

/// The fields in which two decisions differ; notes are not part of a decision.
fn differences(active: &Said<'_>, candidate: &Said<'_>) -> Vec<String> {
    let mut found = Vec::new();
    let mut differ = |field: &str, active: String, candidate: String| {
        if active != candidate {
            found.push(format!("{field}: {active} in force, {candidate} on trial"));
        }
    };
    let rejected =
        |said: &Said<'_>| said.rejection.map_or("none".into(), |r| format!("{:?}: {}", r.code, r.reason));
    differ("rejection", rejected(active), rejected(candidate));
    if active.rejection.is_some() || candidate.rejection.is_some() {
        return found;
    }
    let (a, b) = (active.route, candidate.route);
    if a == b {
        return found;
    }
    let platform = |route: &Route| {
        let pairs = route.platform.iter().map(|p| format!("{}={}", p.name, p.value));
        format!("[{}]", pairs.collect::<Vec<_>>().join(", "))
    };
    differ("platform", platform(a), platform(b));
    differ("pool", format!("{:?}", a.pool), format!("{:?}", b.pool));
    differ("size", format!("{:?}", a.size), format!("{:?}", b.size));
    differ("exclusive", format!("{:?}", a.exclusivity), format!("{:?}", b.exclusivity));
    differ("strategies", format!("{:?}", a.strategies), format!("{:?}", b.strategies));
    differ("invocation_keys", format!("{:?}", a.invocation_keys), format!("{:?}", b.invocation_keys));
    differ("priority", a.priority.to_string(), b.priority.to_string());
    differ("timeout", format!("{:?}", a.timeout), format!("{:?}", b.timeout));
    differ("shared", a.shared.to_string(), b.shared.to_string());
    differ("affinity", format!("{:?}", a.affinity), format!("{:?}", b.affinity));
    differ("learning_key", format!("{:?}", a.learning_key), format!("{:?}", b.learning_key));
    differ("environment", format!("{:?}", a.environment), format!("{:?}", b.environment));
    differ("rank_candidates", a.rank_candidates.to_string(), b.rank_candidates.to_string());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_kept_and_sticky() {
        let in_share = |share| (0..10_000).filter(|n| falls_into(&format!("invocation {n}"), share)).count();
        assert_eq!((in_share(0.0), in_share(1.0)), (0, 10_000));
        let tenth = in_share(0.1);
        assert!((900..1_100).contains(&tenth), "{tenth}");
        assert!((0..100).all(|n| falls_into(&format!("{n}"), 0.3) == falls_into(&format!("{n}"), 0.3)));
        assert!((0..1_000).all(|n| !falls_into(&format!("{n}"), 0.1) || falls_into(&format!("{n}"), 0.2)));
    }
}
