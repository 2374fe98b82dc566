//! The thread that decides what is in force.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant, SystemTime};

use super::link::Managed;
use super::restore::{SIGNATURE_BYTES_MAX, Sought, find};
use super::status::{LastLoad, LinkStatus};
use super::{CommandError, ManagerOptions, Message, Outcome, Reply, StartError};
use crate::archive::ArchiveError;
use crate::plan::{LinkPlan, Plan, Source};
use crate::runtime::Runtime;
use crate::signature::signature_path;
use crate::watch::{FileWatch, Found};

pub(super) struct Desk {
    pub(super) runtime: Arc<Runtime>,
    pub(super) options: ManagerOptions,
    pub(super) plan: Plan,
    pub(super) links: BTreeMap<Arc<str>, Managed>,
    pub(super) messages: Sender<Message>,
    pub(super) tickets: u64,
    /// Plans that were put in force.
    pub(super) plans: u64,
    /// A new plan is being looked at.
    pub(super) configuring: bool,
}

impl Desk {
    pub(super) fn new(runtime: Arc<Runtime>, options: ManagerOptions, messages: Sender<Message>) -> Self {
        let (plan, links) = (Plan::default(), BTreeMap::new());
        Self { runtime, options, plan, links, messages, tickets: 0, plans: 0, configuring: false }
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
    pub(super) fn sought(&self, name: &Arc<str>, plan: &LinkPlan) -> Result<Sought, ArchiveError> {
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

    // === What is in force, and what survives ===

    pub(super) fn publish(&mut self) {
        let links = self.links.iter().map(|(name, link)| (name.clone(), Arc::new(link.link()))).collect();
        let generation = self.runtime.put_in_force(links, &self.plan.chains);
        (self.options.on_swap)(generation.number());
    }

    /// Writes down what a link is, with its components.
    pub(super) fn keep(&self, name: &Arc<str>) -> Result<(), ArchiveError> {
        let (Some(archive), Some(link)) = (&self.runtime.archive, self.links.get(name)) else {
            return Ok(());
        };
        let versions = [Some(&link.active), link.trial.as_ref().map(|(version, _)| version)];
        for version in versions.into_iter().flatten() {
            archive.keep(&version.bytes.content)?;
        }
        archive.save_link(name, &link.state)
    }

    pub(super) fn save(&self, name: &Arc<str>) {
        if let Err(error) = self.keep(name) {
            tracing::error!(link = &**name, "the state of this policy does not survive a restart: {error}");
        }
    }

    pub(super) fn watch(&mut self, name: &Arc<str>) -> std::io::Result<()> {
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
    pub(super) fn named(&mut self, name: &str) -> Result<&mut Managed, CommandError> {
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

pub(super) fn answer(reply: Reply, outcome: Outcome) {
    // Whoever asked may have gone.
    let _ = reply.send(outcome);
}

pub(super) fn loaded_now(ok: bool, digest: &str, text: &str, took: Duration) -> LastLoad {
    LastLoad { ok, at: SystemTime::now(), digest_hex: digest.to_owned(), text: text.to_owned(), took }
}
