//! A new plan: checked beside what is in force, and put in force as a whole or not at all.

use std::sync::Arc;
use std::time::Duration;

use super::desk::{Desk, answer, loaded_now};
use super::link::Managed;
use super::load::{self, Configured};
use super::restore::Sought;
use super::{CommandError, Reply};
use crate::plan::{LinkPlan, Plan};

impl Desk {
    pub(super) fn configure(&mut self, plan: Plan, reply: Reply) {
        if self.configuring {
            let text = "another configuration is being checked; try again".to_owned();
            return answer(reply, Err(CommandError::Refused(text)));
        }
        let mut sought = Vec::new();
        for (name, wanted) in &plan.links {
            match self.links.get(name) {
                None => match self.sought(name, wanted) {
                    Ok(found) => sought.push(found),
                    Err(error) => return answer(reply, Err(CommandError::Refused(error.to_string()))),
                },
                Some(link) if wanted.needs_reload(&link.plan) => sought.push(again(link, wanted)),
                Some(_) => {}
            }
        }
        let default_changes = plan.default_config() != self.plan.default_config();
        match load::configure(&self.runtime, plan, sought, reply, default_changes, &self.messages) {
            Ok(()) => self.configuring = true,
            Err(error) => {
                tracing::error!(%error, "there is no thread to check the new configuration of policies")
            }
        }
    }

    pub(super) fn configured(&mut self, configured: Configured) {
        let Configured { plan, versions, default, problems, reply } = configured;
        self.configuring = false;
        if !problems.is_empty() {
            let text = |(name, why): &(Arc<str>, String)| format!("policy link '{name}': {why}");
            let text = problems.iter().map(text).collect::<Vec<_>>().join("; ");
            tracing::error!("the new configuration of policies is refused, the old one stays: {text}");
            for (name, why) in problems {
                self.configuration_refused(&name, &why);
            }
            return answer(reply, Err(CommandError::Refused(text)));
        }
        let mut changes = Vec::new();
        self.links.retain(|name, _| {
            let keep = plan.links.contains_key(name);
            if !keep {
                changes.push(format!("link '{name}' removed"));
            }
            keep
        });
        let probation = plan.probation.length;
        let mut touched = Vec::new();
        for (name, found) in versions {
            let Some(wanted) = plan.links.get(&name) else { continue };
            changes.push(format!("link '{name}' has {}", found.active.id()));
            match self.links.get_mut(&name) {
                Some(link) => {
                    link.state.seen.clone_from(&found.state.seen);
                    let id = found.active.id().clone();
                    link.activate(found.active, probation);
                    link.note("configured", Some(&id), "");
                }
                None => {
                    _ = self.links.insert(name.clone(), Managed::new(name.clone(), wanted.clone(), found))
                }
            }
            touched.push(name);
        }
        for (name, link) in &mut self.links {
            let Some(wanted) = plan.links.get(name).filter(|wanted| **wanted != link.plan) else { continue };
            if wanted.source != link.plan.source || wanted.public_keys != link.plan.public_keys {
                link.watches.clear();
            }
            link.plan = wanted.clone();
            touched.push(name.clone());
        }
        if self.plan.chains != plan.chains {
            changes.push("chains changed".to_owned());
        }
        if let Some(default) = default {
            self.runtime.set_default(default);
        }
        self.plan = plan;
        self.plans += 1;
        self.runtime.tripwire.set_rules(self.plan.probation.clone());
        self.publish();
        for name in touched {
            if let Err(error) = self.watch(&name) {
                tracing::error!(link = &*name, %error, "there is no thread that watches this policy's file");
            }
            self.save(&name);
        }
        let text = if changes.is_empty() { "nothing changed".to_owned() } else { changes.join("; ") };
        tracing::info!("configuration of policies: {text}");
        answer(reply, Ok(text));
    }
}

impl Desk {
    /// So that whoever looks at the link sees it, too.
    fn configuration_refused(&mut self, name: &Arc<str>, why: &str) {
        // One that would have been new is not there to be looked at.
        let Some(link) = self.links.get_mut(name) else { return };
        let id = link.active.id().clone();
        let why = format!("new configuration: {why}");
        link.last = loaded_now(false, &id.digest_hex, &why, Duration::ZERO);
        link.note("refused", Some(&id), &why);
        self.save(name);
    }
}

/// A link whose version has to be loaded again for a new plan.
fn again(link: &Managed, wanted: &LinkPlan) -> Sought {
    let versions = std::iter::once(&link.active).chain(&link.spares);
    Sought {
        name: link.name.clone(),
        plan: wanted.clone(),
        state: link.state.clone(),
        at_hand: versions.map(|version| (version.bytes.clone(), version.origin)).collect(),
        only_that: wanted.pin == link.plan.pin && wanted.source == link.plan.source,
    }
}
