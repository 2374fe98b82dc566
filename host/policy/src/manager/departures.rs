//! Versions that go: by an operator's word, or since they do worse than they may.

use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::desk::Desk;
use super::link::{Managed, rolled_back};
use super::{CommandError, Outcome};
use crate::tripwire::Tripped;

impl Desk {
    pub(super) fn promote(&mut self, name: &str) -> Outcome {
        let probation = self.plan.probation.length;
        let link = self.named(name)?;
        let Some(mut version) = link.end_trial() else {
            let text = format!("no version is tried out in the policy link '{}'", link.name);
            return Err(CommandError::Refused(text));
        };
        version.policy.leave_trial();
        version.since = SystemTime::now();
        let (id, replaces) = (version.id().clone(), link.active.id().clone());
        link.activate(version, probation);
        link.note("promoted", Some(&id), &format!("replaces {replaces}"));
        let name = link.name.clone();
        tracing::info!(link = &*name, policy = %id, %replaces, "an operator promotes a policy");
        self.publish();
        self.keep(&name).map_err(|error| {
            CommandError::Refused(format!("{id} is in force, but will not survive a restart: {error}"))
        })?;
        Ok(format!("{id} is in force, on probation for {probation:?}"))
    }

    pub(super) fn roll_back(&mut self, name: &str) -> Outcome {
        let link = self.named(name)?;
        let Some(gone) = link.roll_back("by an operator") else {
            let text = format!("the policy link '{}' has no version before {}", link.name, link.active.id());
            return Err(CommandError::Refused(text));
        };
        let (name, back) = (link.name.clone(), link.active.id().clone());
        tracing::warn!(link = &*name, rolled_back = %gone, in_force = %back, "an operator rolls a policy back");
        self.publish();
        self.save(&name);
        Ok(format!("{back} is in force again in place of {gone}"))
    }

    pub(super) fn end_trial(&mut self, name: &str) -> Outcome {
        let link = self.named(name)?;
        let Some(version) = link.end_trial() else {
            let text = format!("no version is tried out in the policy link '{}'", link.name);
            return Err(CommandError::Refused(text));
        };
        let id = version.id().clone();
        link.note("trial-ended", Some(&id), "by an operator");
        let name = link.name.clone();
        self.publish();
        self.save(&name);
        Ok(format!("{id} is tried out no more"))
    }

    pub(super) fn tripped(&mut self, tripped: &Tripped) {
        let Tripped { link: name, policy, why } = tripped;
        let Some(link) = self.links.get_mut(name) else { return };
        let id = policy.policy().clone();
        if Arc::ptr_eq(policy, &link.active.policy) {
            match link.roll_back(why) {
                Some(_) => {
                    let back = link.active.id().clone();
                    tracing::error!(link = &**name, rolled_back = %id, in_force = %back, "policy rolled back by itself: {why}");
                }
                None => {
                    link.probation_until = None;
                    link.note("failing", Some(&id), &format!("{why}; there is no version to go back to"));
                    tracing::error!(link = &**name, policy = %id, "policy fails, and there is no version to go back to: {why}");
                }
            }
        } else if link.trial.as_ref().is_some_and(|(trial, _)| Arc::ptr_eq(policy, &trial.policy)) {
            link.end_trial();
            link.state.note_rolled_back(rolled_back(&id, why));
            link.note("trial-ended", Some(&id), why);
            tracing::error!(link = &**name, policy = %id, "policy on trial ended by itself: {why}");
        } else {
            return;
        }
        let name = name.clone();
        self.publish();
        self.save(&name);
    }

    pub(super) fn end_probations(&mut self) {
        let now = Instant::now();
        let over = |link: &&mut Managed| link.probation_until.is_some_and(|end| end <= now);
        let mut passed = Vec::new();
        for link in self.links.values_mut().filter(over) {
            link.probation_until = None;
            link.active.policy.probation.end();
            let id = link.active.id().clone();
            tracing::info!(link = &*link.name, policy = %id, "policy is on probation no more");
            link.note("probation-passed", Some(&id), "");
            passed.push(link.name.clone());
        }
        passed.iter().for_each(|name| self.save(name));
    }
}
