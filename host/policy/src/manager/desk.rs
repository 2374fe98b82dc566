//! The thread that decides what is in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use super::link::{Managed, rolled_back};
use super::load::{self, Configured, Loaded, Request};
use super::restore::{SIGNATURE_BYTES_MAX, Sought, find, read_signature};
use super::status::{LastLoad, LinkStatus};
use super::version::{Bytes, Origin, Version, signature_path};
use super::{CommandError, ManagerOptions, Message, Outcome, Push, Reply, StartError};
use crate::archive::ArchiveError;
use crate::loader::digest_hex;
use crate::plan::{Plan, Rollout, Source};
use crate::runtime::Runtime;
use crate::tripwire::Tripped;
use crate::watch::{FileWatch, Found};

pub(super) struct Desk {
    runtime: Arc<Runtime>,
    options: ManagerOptions,
    plan: Plan,
    links: BTreeMap<Arc<str>, Managed>,
    messages: Sender<Message>,
    tickets: u64,
    /// A new plan is being looked at.
    configuring: bool,
}

impl Desk {
    pub(super) fn new(runtime: Arc<Runtime>, options: ManagerOptions, messages: Sender<Message>) -> Self {
        let (plan, links) = (Plan::default(), BTreeMap::new());
        Self { runtime, options, plan, links, messages, tickets: 0, configuring: false }
    }

    /// Puts the first plan in force.
    pub(super) fn restore(&mut self, plan: Plan) -> Result<(), StartError> {
        for (name, link) in &plan.links {
            let sought = self.sought(name, link).map_err(|error| StartError::State(error.to_string()))?;
            let found = find(&self.runtime, sought)
                .map_err(|reasons| StartError::NoVersion { link: name.clone(), reasons })?;
            let mut managed = Managed::new(name.clone(), link.clone(), found);
            managed.resume_probation(plan.probation.length);
            self.links.insert(name.clone(), managed);
        }
        self.plan = plan;
        self.runtime.tripwire.set_rules(self.plan.probation.clone());
        for link in self.links.values() {
            let id = link.active.id();
            let (policy, version, digest) = (&*id.name, &*id.version, &*id.digest_hex);
            let origin = link.active.origin.name();
            tracing::info!(link = &*link.name, policy, version, digest, origin, "policy in force");
        }
        for name in self.plan.links.keys().cloned().collect::<Vec<_>>() {
            self.watch(&name).map_err(StartError::Thread)?;
            self.save(&name);
        }
        self.publish();
        if let Some(archive) = &self.runtime.archive
            && let Err(error) = archive.sweep()
        {
            tracing::warn!("old versions of policies can't be removed from the state folder: {error}");
        }
        Ok(())
    }

    /// A link that nothing is known of in memory.
    fn sought(&self, name: &Arc<str>, plan: &crate::plan::LinkPlan) -> Result<Sought, ArchiveError> {
        let state = self.runtime.archive.as_ref().map(|archive| archive.link(name)).transpose()?.flatten();
        let (name, plan, state) = (name.clone(), plan.clone(), state.unwrap_or_default());
        Ok(Sought { name, plan, state, at_hand: Vec::new(), only_that: false })
    }

    pub(super) fn run(mut self, inbox: &Receiver<Message>) {
        loop {
            let now = Instant::now();
            let ends = self.links.values().filter_map(|link| link.probation_until).min();
            let wait = ends.map_or(Duration::from_secs(3600), |end| end.saturating_duration_since(now));
            match inbox.recv_timeout(wait) {
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.end_probations();
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::File(link, found) => self.file(&link, found),
            Message::Signature(link) => self.signature(&link),
            Message::Loaded(loaded) => self.loaded(*loaded),
            Message::Push(push, reply) => self.push(push, reply),
            Message::Promote(link, reply) => answer(reply, self.promote(&link)),
            Message::Rollback(link, reply) => answer(reply, self.roll_back(&link)),
            Message::EndTrial(link, reply) => answer(reply, self.end_trial(&link)),
            Message::Configure(plan, reply) => self.configure(plan, reply),
            Message::Configured(configured) => self.configured(*configured),
            Message::LookAtFiles => {
                self.links.values().flat_map(|link| &link.watches).for_each(FileWatch::look);
            }
            Message::Tripped(tripped) => self.tripped(&tripped),
            Message::Status(reply) => {
                // Whoever asked may have gone.
                let _ = reply.send(self.status());
            }
            Message::Stop => {}
        }
    }

    // === Versions that come ===

    fn file(&mut self, name: &Arc<str>, found: Found) {
        let Some(link) = self.links.get_mut(name) else { return };
        let (bytes, digest) = match found {
            Found::Content { bytes, digest_hex } => (bytes, digest_hex),
            Found::Unreadable(why) => {
                return self.refused(name, "", &format!("the file can't be read: {why}"), Duration::ZERO);
            }
        };
        let seen = link.state.seen.replace(digest.clone());
        if digest == link.active.digest() {
            if !link.last.ok {
                tracing::info!(link = &**name, digest, "the policy file is again the version in force");
            }
            link.last = loaded_now(true, &digest, "it is the version in force", Duration::ZERO);
            return self.save(name);
        }
        if seen.as_ref() == Some(&digest) {
            return;
        }
        if let Some(gone) = link.state.rolled_back(&digest) {
            let text = format!(
                "it was rolled back before ({}); push it with --again to try once more, or change the file",
                gone.reason
            );
            return self.refused(name, &digest, &text, Duration::ZERO);
        }
        self.load_file(name, bytes, digest);
    }

    fn load_file(&mut self, name: &Arc<str>, bytes: Vec<u8>, digest_hex: String) {
        let Some(link) = self.links.get_mut(name) else { return };
        let Source::File(path) = &link.plan.source else { return };
        let signed = !link.plan.public_keys.is_empty();
        let signature = if signed { read_signature(path) } else { None };
        link.unsigned = signed.then(|| bytes.clone());
        let request = Request {
            link: name.clone(),
            digest_hex,
            bytes: Bytes { content: bytes.into(), signature },
            origin: Origin::File,
            rollout: link.plan.rollout.clone(),
            started: Instant::now(),
            reply: None,
        };
        self.load(request);
    }

    /// The signature came after the file.
    fn signature(&mut self, name: &Arc<str>) {
        let refused =
            |link: &Managed| !link.last.ok && Some(&link.last.digest_hex) == link.state.seen.as_ref();
        let Some(link) = self.links.get_mut(name).filter(|link| refused(link)) else { return };
        if let Some(bytes) = link.unsigned.take() {
            let digest = digest_hex(&bytes);
            self.load_file(name, bytes, digest);
        }
    }

    fn push(&mut self, push: Push, reply: Reply) {
        let Push { link: name, bytes, signature, rollout, again } = push;
        let name = match self.named(&name) {
            Ok(link) => link.name.clone(),
            Err(error) => return answer(reply, Err(error)),
        };
        let Some(link) = self.links.get(&name) else { return };
        let digest_hex = digest_hex(&bytes);
        if let Some(gone) = link.state.rolled_back(&digest_hex).filter(|_| !again) {
            let text = format!("that version was rolled back before ({}); --again lets it in", gone.reason);
            return answer(reply, Err(CommandError::Refused(text)));
        }
        let request = Request {
            link: name,
            digest_hex,
            bytes: Bytes { content: bytes.into(), signature: signature.map(Into::into) },
            origin: Origin::Push,
            rollout: rollout.unwrap_or_else(|| link.plan.rollout.clone()),
            started: Instant::now(),
            reply: Some(reply),
        };
        self.load(request);
    }

    fn load(&mut self, request: Request) {
        self.tickets += 1;
        let Some(link) = self.links.get_mut(&request.link) else { return };
        link.ticket = self.tickets;
        let (name, digest) = (link.name.clone(), request.digest_hex.clone());
        if let Err(error) = load::load(&self.runtime, &link.plan, self.tickets, request, &self.messages) {
            self.refused(&name, &digest, &format!("there is no thread to load it: {error}"), Duration::ZERO);
        }
    }

    fn loaded(&mut self, loaded: Loaded) {
        let Loaded { ticket, request, result } = loaded;
        let Request { link: name, digest_hex, bytes, origin, rollout, started, reply } = request;
        let took = started.elapsed();
        let latest = self.links.get(&name).is_some_and(|link| link.ticket == ticket);
        let outcome = match result {
            _ if !latest => Err("another version came meanwhile".to_owned()),
            Err(error) => {
                self.refused(&name, &digest_hex, &error.to_string(), took);
                Err(error.to_string())
            }
            Ok(policy) => Ok(self.let_in(&name, Version::new(policy, bytes, origin), rollout, took)),
        };
        if let Some(reply) = reply {
            answer(reply, outcome.map_err(CommandError::Refused));
        }
    }

    fn let_in(&mut self, name: &Arc<str>, version: Version, rollout: Rollout, took: Duration) -> String {
        let Some(link) = self.links.get_mut(name) else { return String::new() };
        let id = version.id().clone();
        let replaces = link.active.id().to_string();
        let (origin, probation) = (version.origin.name(), self.plan.probation.length);
        let (text, news) = match rollout {
            Rollout::InForce => {
                link.activate(version, probation);
                link.note("in-force", Some(&id), &format!("{origin}; replaces {replaces}"));
                (format!("{id} is in force, on probation for {probation:?}"), "policy in force")
            }
            Rollout::Trial(mode) => {
                let text = format!("{id} is tried out as {}", mode.describe());
                link.note("trial", Some(&id), &mode.describe());
                link.begin_trial(version, mode);
                (text, "policy on trial")
            }
        };
        link.last = loaded_now(true, &id.digest_hex, &text, took);
        tracing::info!(
            link = &**name,
            policy = &*id.name,
            version = &*id.version,
            digest = &*id.digest_hex,
            origin,
            replaces,
            load_ms = took.as_millis() as u64,
            "{news}"
        );
        self.publish();
        match self.keep(name) {
            Ok(()) => text,
            Err(error) => format!("{text}; it will not survive a restart: {error}"),
        }
    }

    fn refused(&mut self, name: &Arc<str>, digest: &str, why: &str, took: Duration) {
        let Some(link) = self.links.get_mut(name) else { return };
        link.last = loaded_now(false, digest, why, took);
        tracing::error!(
            link = &**name,
            digest,
            in_force = %link.active.id(),
            "new version of the policy refused, the version in force stays: {why}"
        );
        let digest: Arc<str> = digest.into();
        let unknown: Arc<str> = Arc::default();
        let id = crate::decision::PolicyId { name: unknown.clone(), version: unknown, digest_hex: digest };
        link.note("refused", Some(&id), why);
        self.save(name);
    }

    // === Versions that go ===

    fn promote(&mut self, name: &str) -> Outcome {
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

    fn roll_back(&mut self, name: &str) -> Outcome {
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

    fn end_trial(&mut self, name: &str) -> Outcome {
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

    fn tripped(&mut self, tripped: &Tripped) {
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

    fn end_probations(&mut self) {
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

    // === Plans ===

    fn configure(&mut self, plan: Plan, reply: Reply) {
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
        match load::configure(&self.runtime, plan, sought, reply, &self.messages) {
            Ok(()) => self.configuring = true,
            Err(error) => {
                tracing::error!(%error, "there is no thread to check the new configuration of policies")
            }
        }
    }

    fn configured(&mut self, configured: Configured) {
        let Configured { plan, versions, problems, reply } = configured;
        self.configuring = false;
        if !problems.is_empty() {
            tracing::error!(
                "the new configuration of policies is refused, the old one stays: {}",
                problems.join("; ")
            );
            return answer(reply, Err(CommandError::Refused(problems.join("; "))));
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
        self.plan = plan;
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

    // === What is in force, and what survives ===

    fn publish(&mut self) {
        let links = self.links.iter().map(|(name, link)| (name.clone(), Arc::new(link.link()))).collect();
        let generation = self.runtime.put_in_force(links, &self.plan.chains);
        (self.options.on_swap)(generation.number());
    }

    /// Writes down what a link is, with its components.
    fn keep(&self, name: &Arc<str>) -> Result<(), ArchiveError> {
        let (Some(archive), Some(link)) = (&self.runtime.archive, self.links.get(name)) else {
            return Ok(());
        };
        let versions = [Some(&link.active), link.trial.as_ref().map(|(version, _)| version)];
        for version in versions.into_iter().flatten() {
            archive.keep(&version.bytes.content)?;
        }
        archive.save_link(name, &link.state)
    }

    fn save(&self, name: &Arc<str>) {
        if let Err(error) = self.keep(name) {
            tracing::error!(link = &**name, "the state of this policy does not survive a restart: {error}");
        }
    }

    fn watch(&mut self, name: &Arc<str>) -> std::io::Result<()> {
        let Some(link) = self.links.get_mut(name).filter(|link| link.watches.is_empty()) else {
            return Ok(());
        };
        let Source::File(path) = &link.plan.source else { return Ok(()) };
        let (known, options, messages) = (link.state.seen.clone(), &self.options.watch, &self.messages);
        let tell = |message: fn(Arc<str>, Found) -> Message| {
            let (name, messages) = (name.clone(), messages.clone());
            // Fails only when the manager has gone.
            move |found| _ = messages.send(message(name.clone(), found))
        };
        let bytes_max = self.runtime.file_bytes_max();
        let file = FileWatch::start(path, bytes_max, known, options.clone(), tell(Message::File))?;
        link.watches.push(file);
        if !link.plan.public_keys.is_empty() {
            let tell = tell(|name, _| Message::Signature(name));
            let signature = signature_path(path);
            link.watches.push(FileWatch::start(signature, SIGNATURE_BYTES_MAX, None, options.clone(), tell)?);
        }
        Ok(())
    }

    /// The link that an operator means; the empty name is that of the only one.
    fn named(&mut self, name: &str) -> Result<&mut Managed, CommandError> {
        let known: Vec<String> = self.links.keys().map(ToString::to_string).collect();
        let only = if name.is_empty() && known.len() == 1 { &known[0] } else { name };
        let unknown = CommandError::UnknownLink { name: name.to_owned(), known: known.clone() };
        self.links.get_mut(only).ok_or(unknown)
    }

    fn status(&self) -> Vec<LinkStatus> {
        let chains = |name: &Arc<str>| {
            let having = self.plan.chains.iter().filter(|(_, links)| links.contains(name));
            having.map(|(prefix, _)| prefix.clone()).collect()
        };
        self.links.iter().map(|(name, link)| link.status(chains(name))).collect()
    }
}

/// A link whose version has to be loaded again for a new plan.
fn again(link: &Managed, wanted: &crate::plan::LinkPlan) -> Sought {
    let versions = std::iter::once(&link.active).chain(&link.spares);
    Sought {
        name: link.name.clone(),
        plan: wanted.clone(),
        state: link.state.clone(),
        at_hand: versions.map(|version| (version.bytes.clone(), version.origin)).collect(),
        only_that: wanted.pin == link.plan.pin && wanted.source == link.plan.source,
    }
}

fn answer(reply: Reply, outcome: Outcome) {
    // Whoever asked may have gone.
    let _ = reply.send(outcome);
}

fn loaded_now(ok: bool, digest: &str, text: &str, took: Duration) -> LastLoad {
    LastLoad { ok, at: SystemTime::now(), digest_hex: digest.to_owned(), text: text.to_owned(), took }
}
