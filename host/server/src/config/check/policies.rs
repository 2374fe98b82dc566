//! `policy`, `policies` and `chains`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pointsman_policy::DEFAULT_LINK;
use pointsman_policy::signature::SigningKey;

use super::super::checked_policy::{NewVersions, Policy, PolicyLink, Probation};
use super::super::config_files::{self, ConfigFile};
use super::super::error::At;
use super::super::path::KeyPath;
use super::super::raw_policy::{RawLink, RawPolicy, RawProbation};
use super::{Checker, MIB, SECOND};

/// Name of the policy of the short form.
const MAIN: &str = "main";

impl Checker {
    pub(super) fn policy(
        &mut self,
        raw: RawPolicy,
        links: BTreeMap<String, RawLink>,
        chains: BTreeMap<String, Vec<String>>,
        state_dir: &Path,
    ) -> Policy {
        let short = RawLink {
            file: raw.file,
            config: raw.config,
            config_files: raw.config_files,
            ..RawLink::default()
        };
        let is_short = short != RawLink::default();
        let mut links: BTreeMap<String, PolicyLink> =
            links.into_iter().map(|(name, link)| (name.clone(), self.named_link(&name, link))).collect();
        if is_short && !links.is_empty() {
            let key = match &short {
                RawLink { file: Some(_), .. } => "policy.file",
                RawLink { config: Some(_), .. } => "policy.config",
                _ => "policy.config_files",
            };
            self.complain(
                KeyPath::of(key),
                At::Key,
                "is for a policy that is alone, and there are policies; give it as a key of one of those",
            );
        } else if links.is_empty() {
            let main = self.link(&KeyPath::of("policy"), short);
            links.insert(MAIN.to_owned(), main);
        }
        let chains = self.chains(chains, &mut links);
        Policy {
            dir: raw.dir.unwrap_or_else(|| state_dir.join("policies")),
            fuel: self.positive("policy.fuel", raw.fuel, 50_000_000),
            deadline: self.timer("policy.deadline", raw.deadline, 5 * SECOND),
            memory_max_bytes: self.size("policy.memory", raw.memory, 64 * MIB),
            probation: self.probation(&raw.probation),
            links,
            chains,
        }
    }

    fn probation(&mut self, raw: &RawProbation) -> Probation {
        Probation {
            length: self.timer("policy.probation.length", raw.length, 600 * SECOND),
            events_min: self.positive("policy.probation.events", raw.events, 3),
            traps_max: self.share(KeyPath::of("policy.probation.traps"), raw.traps, 0.002),
            over_budget_max: self.share(KeyPath::of("policy.probation.over_budget"), raw.over_budget, 0.002),
            more_rejections_max: self.share(
                KeyPath::of("policy.probation.more_rejections"),
                raw.more_rejections,
                0.2,
            ),
        }
    }

    pub(in crate::config) fn share(&mut self, path: KeyPath, given: Option<f64>, default: f64) -> f64 {
        let share = given.unwrap_or(default);
        if !(0.0..=1.0).contains(&share) {
            self.complain(path, At::Value, format!("{share} is no share; give a number from 0 to 1"));
        }
        share
    }

    fn named_link(&mut self, name: &str, raw: RawLink) -> PolicyLink {
        let path = KeyPath::of("policies").key(name);
        if name.is_empty() {
            self.complain(path.clone(), At::Key, "a policy has a name");
        }
        self.link(&path, raw)
    }

    /// Files with parts of a policy's configuration, and what is wrong with each.
    fn config_files(
        &mut self,
        path: &KeyPath,
        config: &serde_json::Value,
        raw: BTreeMap<String, PathBuf>,
    ) -> BTreeMap<String, ConfigFile> {
        let at = |pointer: &str| path.key("config_files").key(pointer);
        let mut files = BTreeMap::new();
        for (pointer, file) in raw {
            let (seen, read) = ConfigFile::read(&file);
            self.seen.push(seen);
            match read {
                Ok(file) => _ = files.insert(pointer, file),
                Err(problem) => self.complain(at(&pointer), At::Value, problem),
            }
        }
        for (pointer, problem) in config_files::join(config, &files).err().unwrap_or_default() {
            self.complain(at(&pointer), At::Key, problem);
        }
        files
    }

    fn link(&mut self, path: &KeyPath, raw: RawLink) -> PolicyLink {
        let at = |key: &str| path.key(key);
        let sha256 = raw.sha256.map(|digest| digest.to_ascii_lowercase());
        if let Some(digest) = &sha256
            && (digest.len() != 64 || !digest.bytes().all(|byte| byte.is_ascii_hexdigit()))
        {
            self.complain(
                at("sha256"),
                At::Value,
                "is no SHA-256; give 64 hexadecimal digits, as `sha256sum` prints",
            );
        }
        for key in &raw.public_keys {
            if let Err(error) = SigningKey::parse(key) {
                self.complain(at("public_keys"), At::Value, error.to_string());
            }
        }
        let new_versions = raw.new_versions.unwrap_or_default();
        if new_versions == NewVersions::InForce && raw.trial_share.is_some() {
            let text = "has no effect unless new_versions is \"shadow\" or \"canary\"; leave it out";
            self.complain(at("trial_share"), At::Key, text);
        }
        if new_versions != NewVersions::Canary && !raw.canary_prefixes.is_empty() {
            let text = "has no effect unless new_versions is \"canary\"; leave it out";
            self.complain(at("canary_prefixes"), At::Key, text);
        }
        let share = if new_versions == NewVersions::Canary { 0.1 } else { 1.0 };
        let config = raw.config.unwrap_or_else(|| serde_json::Value::Object(serde_json::Map::new()));
        PolicyLink {
            file: raw.file,
            config_files: self.config_files(path, &config, raw.config_files),
            config,
            on_error: raw.on_error.unwrap_or_default(),
            sha256,
            public_keys: raw.public_keys,
            isolation: raw.isolation.unwrap_or_default(),
            new_versions,
            trial_share: self.share(at("trial_share"), raw.trial_share, share),
            canary_prefixes: raw.canary_prefixes,
        }
    }

    fn chains(
        &mut self,
        given: BTreeMap<String, Vec<String>>,
        links: &mut BTreeMap<String, PolicyLink>,
    ) -> BTreeMap<String, Vec<String>> {
        if given.is_empty() {
            if links.len() > 1 {
                self.complain(
                    KeyPath::of("policies"),
                    At::Key,
                    "has several, so `chains` must say in which order they are asked, as in \
                     chains: { \"\": [\"first\", \"second\"] }",
                );
            }
            return BTreeMap::from([(String::new(), links.keys().cloned().collect())]);
        }
        for (prefix, names) in &given {
            let at = || KeyPath::of("chains").key(prefix);
            for (index, name) in names.iter().enumerate() {
                if name == DEFAULT_LINK && !links.contains_key(name) {
                    let default = self.named_link(name, RawLink::default());
                    links.insert(name.clone(), default);
                }
                if !links.contains_key(name) {
                    let known = links.keys().cloned().collect::<Vec<_>>().join(", ");
                    self.complain(
                        at(),
                        At::Value,
                        format!("names {name:?}, which is not among policies ({known})"),
                    );
                } else if names[..index].contains(name) {
                    self.complain(at(), At::Value, format!("names {name:?} twice"));
                }
            }
            if names.is_empty() {
                let text = "is empty; leave the prefix out, or name \"default\", the policy that is part of the program";
                self.complain(at(), At::Value, text);
            }
        }
        given
    }
}
