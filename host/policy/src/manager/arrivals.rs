//! Versions that come: from a file, or sent by an operator.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::desk::{Desk, answer, loaded_now};
use super::link::Managed;
use super::load::{self, Loaded, Request};
use super::restore::read_signature;
use super::version::{Bytes, Origin, Version};
use super::{CommandError, Push, Reply};
use crate::decision::PolicyId;
use crate::loader::digest_hex;
use crate::plan::{Rollout, Source};
use crate::watch::Found;

impl Desk {
    pub(super) fn file(&mut self, name: &Arc<str>, found: Found) {
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

    pub(super) fn load_file(&mut self, name: &Arc<str>, bytes: Vec<u8>, digest_hex: String) {
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
    pub(super) fn signature(&mut self, name: &Arc<str>) {
        let refused =
            |link: &Managed| !link.last.ok && Some(&link.last.digest_hex) == link.state.seen.as_ref();
        let Some(link) = self.links.get_mut(name).filter(|link| refused(link)) else { return };
        if let Some(bytes) = link.unsigned.take() {
            let digest = digest_hex(&bytes);
            self.load_file(name, bytes, digest);
        }
    }

    pub(super) fn push(&mut self, push: Push, reply: Reply) {
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

    pub(super) fn load(&mut self, request: Request) {
        self.tickets += 1;
        let Some(link) = self.links.get(&request.link) else { return };
        let (name, digest) = (link.name.clone(), request.digest_hex.clone());
        if let Err(error) =
            load::load(&self.runtime, &link.plan, (self.tickets, self.plans), request, &self.messages)
        {
            self.refused(&name, &digest, &format!("there is no thread to load it: {error}"), Duration::ZERO);
        }
    }

    pub(super) fn loaded(&mut self, loaded: Loaded) {
        let Loaded { ticket, plan, request, result } = loaded;
        if plan != self.plans {
            // It was checked by a configuration that has changed since.
            return self.load(request);
        }
        let Request { link: name, digest_hex, bytes, origin, rollout, started, reply } = request;
        let took = started.elapsed();
        let outdated = self.links.get(&name).is_none_or(|link| ticket < link.let_in);
        let outcome = match result {
            Ok(_) if outdated => {
                tracing::warn!(
                    link = &*name,
                    digest = digest_hex,
                    "policy not let in: a version that came later already is"
                );
                Err("a version that came later was let in meanwhile".to_owned())
            }
            Err(error) => {
                self.refused(&name, &digest_hex, &error.to_string(), took);
                Err(error.to_string())
            }
            Ok(policy) => {
                self.links.entry(name.clone()).and_modify(|link| link.let_in = ticket);
                Ok(self.let_in(&name, Version::new(policy, bytes, origin), rollout, took))
            }
        };
        if let Some(reply) = reply {
            answer(reply, outcome.map_err(CommandError::Refused));
        }
    }

    pub(super) fn let_in(
        &mut self,
        name: &Arc<str>,
        version: Version,
        rollout: Rollout,
        took: Duration,
    ) -> String {
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

    pub(super) fn refused(&mut self, name: &Arc<str>, digest: &str, why: &str, took: Duration) {
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
        let id = PolicyId { name: unknown.clone(), version: unknown, digest_hex: digest };
        link.note("refused", Some(&id), why);
        self.save(name);
    }
}
