//! One hook, along a chain: who is asked, and what is done when one fails.

use std::sync::Arc;

use crate::decision::{Answer, Code, Hook, PolicyId, Rejection, Step};
use crate::failure::Failure;
use crate::generation::{Link, OnError};
use crate::interface::{Called, Instance};
use crate::policy::{Ended, Policy};
use crate::trial::Trial;
use crate::tripwire::Tripwire;

/// The policies of one chain being asked one question.
pub(crate) struct Walk<'a> {
    pub(crate) hook: Hook,
    /// What the question is about, for the log.
    pub(crate) subject: &'a str,
    pub(crate) generation: u64,
    /// The link is the only one of its chain.
    pub(crate) alone: bool,
    /// Who decides when all else fails.
    pub(crate) last: &'a Arc<Policy>,
    pub(crate) tripwire: &'a Tripwire,
    pub(crate) steps: Vec<Step>,
    pub(crate) failures: Vec<String>,
}

/// What came of asking one link.
pub(crate) enum Outcome<T> {
    /// An answer, of the policy that the last step is about.
    Answer(T),
    /// Nobody was asked, or who was failed and is skipped.
    Unchanged,
    /// The link's policy failed, and nothing goes without it.
    Refused(Rejection),
}

impl Walk<'_> {
    /// Asks a link. `canary` is the version on trial, if it is to decide; `call` makes one call, `show` says what the
    /// answer is for the record.
    pub(crate) fn ask<T>(
        &mut self,
        link: &Link,
        canary: Option<&Arc<Trial>>,
        call: &mut dyn FnMut(&mut Instance) -> Result<Called<T>, Failure>,
        show: &dyn Fn(&T) -> Answer,
    ) -> Outcome<T> {
        if let Some(trial) = canary {
            match self.try_one(link, &trial.policy, true, call, show) {
                Tried::Answered(answer) => return Outcome::Answer(answer),
                Tried::NotAsked => {}
                Tried::Failed(failure) => {
                    self.failed(link, &trial.policy, &failure, "the version in force decides")
                }
            }
        }
        let failure = match self.try_one(link, &link.active, false, call, show) {
            Tried::Answered(answer) => return Outcome::Answer(answer),
            Tried::NotAsked => return Outcome::Unchanged,
            Tried::Failed(failure) => failure,
        };
        match link.on_error {
            OnError::LastGood => self.by_last_good(link, &failure, call, show),
            OnError::Skip => {
                self.failed(link, &link.active, &failure, "the chain goes on without it");
                Outcome::Unchanged
            }
            OnError::Reject => {
                self.failed(link, &link.active, &failure, "the request is refused");
                Outcome::Refused(Rejection {
                    code: Code::Unavailable,
                    reason: format!("the policy failed: {failure}"),
                    help: Some("try again; the operator finds more by `pointsman policy status`".into()),
                })
            }
        }
    }

    fn by_last_good<T>(
        &mut self,
        link: &Link,
        failure: &Failure,
        call: &mut dyn FnMut(&mut Instance) -> Result<Called<T>, Failure>,
        show: &dyn Fn(&T) -> Answer,
    ) -> Outcome<T> {
        let is_last = Arc::ptr_eq(&link.active, self.last);
        let last = (self.alone && !is_last)
            .then(|| (self.last.clone(), "the built-in default decides in its place"));
        let previous = link.previous.clone().map(|policy| (policy, "the version before it decides"));
        let mut failed = (link.active.clone(), failure.clone());
        let able = |(policy, _): &(Arc<Policy>, &str)| policy.hooks().contains(&self.hook);
        let able: Vec<_> = previous.into_iter().chain(last).filter(able).collect();
        for (policy, remedy) in able {
            self.failed(link, &failed.0, &failed.1, remedy);
            match self.try_one(link, &policy, false, call, show) {
                Tried::Answered(answer) => return Outcome::Answer(answer),
                Tried::NotAsked => return Outcome::Unchanged,
                Tried::Failed(failure) => failed = (policy, failure),
            }
        }
        self.failed(link, &failed.0, &failed.1, "the chain goes on without it");
        Outcome::Unchanged
    }

    fn try_one<T>(
        &mut self,
        link: &Link,
        policy: &Arc<Policy>,
        trial: bool,
        call: &mut dyn FnMut(&mut Instance) -> Result<Called<T>, Failure>,
        show: &dyn Fn(&T) -> Answer,
    ) -> Tried<T> {
        if !policy.hooks().contains(&self.hook) {
            return Tried::NotAsked;
        }
        let Ended { result, elapsed } = policy.call(self.hook, call);
        let mut step = |answer, fuel, asked| {
            let (link, policy) = (link.name.clone(), policy.id().clone());
            self.steps.push(Step { link, policy, trial, answer, fuel, elapsed, asked });
        };
        match result {
            Ok(Called { answer, fuel, asked }) => {
                let shown = show(&answer);
                if matches!(shown, Answer::Rejected(_)) {
                    policy.tally.rejection();
                    self.tripwire.look(link, policy);
                }
                step(Ok(shown), fuel, asked);
                Tried::Answered(answer)
            }
            Err(failure) => {
                step(Err(failure.clone()), 0, Vec::new());
                self.tripwire.look(link, policy);
                Tried::Failed(failure)
            }
        }
    }

    /// Tells that a policy failed, and what is done about it.
    fn failed(&mut self, link: &Link, policy: &Policy, failure: &Failure, remedy: &str) {
        let id = policy.policy();
        if let Some(held_back) = policy.warnings.pass() {
            tracing::warn!(
                link = &*link.name,
                policy = &*id.name,
                version = &*id.version,
                digest = &*id.digest_hex,
                generation = self.generation,
                hook = %self.hook,
                kind = failure.kind.name(),
                about = self.subject,
                like_this_not_logged = held_back,
                "policy failed, {remedy}: {failure}"
            );
        }
        self.failures.push(format!("policy {id} failed: {failure}; {remedy}"));
    }

    /// Who was asked last and gave an answer.
    pub(crate) fn decided(&self) -> Option<&Arc<PolicyId>> {
        self.steps.iter().rev().find(|step| step.answer.is_ok()).map(|step| &step.policy)
    }

    pub(crate) fn fuel(&self) -> u64 {
        self.steps.iter().map(|step| step.fuel).sum()
    }
}

enum Tried<T> {
    Answered(T),
    NotAsked,
    Failed(Failure),
}
