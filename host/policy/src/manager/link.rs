//! One link as the manager has it.

use std::time::{Duration, Instant, SystemTime};

use super::restore::Restored;
use super::status::{LastLoad, LinkStatus, TrialStatus, VersionStatus};
use super::version::{Version, unix_ms};
use crate::archive::{self, Event, LinkState, RolledBack};
use crate::decision::PolicyId;
use crate::generation::Link;
use crate::plan::{LinkPlan, Source};
use crate::trial::{Mode, Trial};
use crate::watch::FileWatch;
use std::sync::Arc;

/// Versions kept ready to be gone back to.
const SPARES: usize = 2;

pub(super) struct Managed {
    pub(super) name: Arc<str>,
    pub(super) plan: LinkPlan,
    pub(super) active: Version,
    /// Versions that were in force before, the latest first.
    pub(super) spares: Vec<Version>,
    pub(super) trial: Option<(Version, Arc<Trial>)>,
    /// What survives a restart.
    pub(super) state: LinkState,
    pub(super) last: LastLoad,
    /// The latest load that was let in: what was begun before comes too late.
    pub(super) let_in: u64,
    pub(super) probation_until: Option<Instant>,
    /// Content of the file that was refused for its signature, which may come later.
    pub(super) unsigned: Option<Vec<u8>>,
    pub(super) watches: Vec<FileWatch>,
}

impl Managed {
    pub(super) fn new(name: Arc<str>, plan: LinkPlan, found: Restored) -> Self {
        let Restored { active, spare, trial, state, passed_over } = found;
        let last = LastLoad {
            ok: passed_over.is_empty(),
            at: SystemTime::now(),
            digest_hex: state.seen.clone().unwrap_or_default(),
            text: match passed_over.is_empty() {
                true => "in force since the start".to_owned(),
                false => passed_over.join("; "),
            },
            took: Duration::ZERO,
        };
        if !passed_over.is_empty() {
            tracing::error!(
                link = &*name,
                in_force = %active.id(),
                "what the policy file has is not used, the last good version is: {}",
                passed_over.join("; ")
            );
        }
        let trial = trial.map(|(version, mode)| tried(version, mode));
        let mut managed = Self {
            name,
            plan,
            spares: spare.into_iter().collect(),
            trial,
            state,
            last,
            let_in: 0,
            probation_until: None,
            unsigned: None,
            watches: Vec::new(),
            active,
        };
        managed.keep_active();
        managed
    }

    fn keep_active(&mut self) {
        let kept = self.active.kept();
        if self.state.active.as_ref().is_none_or(|known| known.digest_hex != kept.digest_hex) {
            self.state.activate(kept);
            let id = self.active.id().clone();
            self.note("in-force", Some(&id), self.active.origin.name());
        }
    }

    /// As it is in force.
    pub(super) fn link(&self) -> Link {
        Link {
            name: self.name.clone(),
            on_error: self.plan.on_error,
            active: self.active.policy.clone(),
            previous: self.spares.first().map(|version| version.policy.clone()),
            trial: self.trial.as_ref().map(|(_, trial)| trial.clone()),
        }
    }

    /// Goes on with a probation that began before the server stopped, or begins one for a version that came with the
    /// restart. Where there is no version to go back to a probation has no point.
    pub(super) fn resume_probation(&mut self, length: Duration) {
        let Some(kept) = self.state.active.as_ref().filter(|_| !self.spares.is_empty()) else { return };
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(kept.since_unix_ms);
        let age = SystemTime::now().duration_since(since).unwrap_or_default();
        if let Some(left) = length.checked_sub(age).filter(|left| !left.is_zero()) {
            self.active.policy.probation.begin();
            self.probation_until = Some(Instant::now() + left);
        }
    }

    /// Puts a version in force, on probation.
    pub(super) fn activate(&mut self, version: Version, probation: Duration) {
        if self.trial.as_ref().is_some_and(|(trial, _)| trial.digest() == version.digest()) {
            self.end_trial();
        }
        let before = std::mem::replace(&mut self.active, version);
        before.policy.probation.end();
        self.active.policy.probation.begin();
        self.probation_until = Some(Instant::now() + probation);
        let now = self.active.policy.clone();
        let same = |v: &Version| v.digest() == &*now.policy().digest_hex && v.policy.config() == now.config();
        self.spares.insert(0, before);
        self.spares.retain(|version| !same(version));
        self.spares.truncate(SPARES);
        self.state.activate(self.active.kept());
    }

    /// Puts the version before the one in force back. `None`: there is none.
    pub(super) fn roll_back(&mut self, reason: &str) -> Option<PolicyId> {
        if self.spares.is_empty() {
            return None;
        }
        let mut back = self.spares.remove(0);
        back.since = SystemTime::now();
        let gone = std::mem::replace(&mut self.active, back);
        gone.policy.probation.end();
        self.probation_until = None;
        let (gone, back) = (gone.id().clone(), self.active.id().clone());
        // The same component with another configuration is not to blame for that.
        if gone.digest_hex != back.digest_hex {
            self.state.note_rolled_back(rolled_back(&gone, reason));
        }
        self.state.activate(self.active.kept());
        self.state.previous.retain(|version| *version.digest_hex != *gone.digest_hex);
        self.note("rolled-back", Some(&gone), &format!("{reason}; {back} is in force again"));
        Some(gone)
    }

    pub(super) fn begin_trial(&mut self, version: Version, mode: Mode) {
        self.end_trial();
        let kept = archive::Trial { version: version.kept(), mode: mode.kept() };
        self.state.candidate = Some(kept);
        self.trial = Some(tried(version, mode));
    }

    /// Takes the version off that is tried out.
    pub(super) fn end_trial(&mut self) -> Option<Version> {
        self.state.candidate = None;
        let (version, _) = self.trial.take()?;
        version.policy.probation.end();
        Some(version)
    }

    pub(super) fn note(&mut self, what: &str, id: Option<&PolicyId>, detail: &str) {
        let text = |field: fn(&PolicyId) -> &Arc<str>| id.map(|id| field(id).to_string()).unwrap_or_default();
        self.state.note(Event {
            unix_ms: unix_ms(SystemTime::now()),
            what: what.to_owned(),
            digest_hex: text(|id| &id.digest_hex),
            name: text(|id| &id.name),
            version: text(|id| &id.version),
            by: String::new(),
            detail: detail.to_owned(),
        });
    }

    pub(super) fn status(&self, chains: Vec<Arc<str>>) -> LinkStatus {
        LinkStatus {
            name: self.name.clone(),
            chains,
            file: match &self.plan.source {
                Source::File(path) => Some(path.clone()),
                Source::Default => None,
            },
            on_error: self.plan.on_error,
            pin: self.plan.pin.clone(),
            signed: !self.plan.public_keys.is_empty(),
            active: version_status(&self.active),
            probation_left: self.probation_until.map(|at| at.saturating_duration_since(Instant::now())),
            previous: self.spares.iter().map(|version| version.id().clone()).collect(),
            trial: self.trial.as_ref().map(|(version, trial)| TrialStatus {
                version: version_status(version),
                mode: trial.mode.describe(),
                results: trial.snapshot(),
            }),
            last_load: self.last.clone(),
            rolled_back: self.state.rolled_back.clone(),
            history: self.state.history.clone(),
        }
    }
}

fn tried(version: Version, mode: Mode) -> (Version, Arc<Trial>) {
    version.policy.probation.begin();
    let trial = Arc::new(Trial::new(version.policy.clone(), mode));
    (version, trial)
}

pub(super) fn rolled_back(id: &PolicyId, reason: &str) -> RolledBack {
    RolledBack {
        digest_hex: id.digest_hex.to_string(),
        reason: reason.to_owned(),
        unix_ms: unix_ms(SystemTime::now()),
    }
}

fn version_status(version: &Version) -> VersionStatus {
    let policy = &version.policy;
    VersionStatus {
        id: policy.policy().clone(),
        origin: version.origin.name(),
        since: version.since,
        hooks: policy.hooks().iter().map(|hook| hook.name()).collect(),
        tally: policy.tally(),
        circuit_open: policy.is_circuit_open(),
        slow: policy.tally.is_slow(),
    }
}
