//! Loads policies, holds the one in force, and routes actions by it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use arc_swap::ArcSwap;
use pointsman_scheduler::route::Route;
use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::componentize::component_of;
use crate::counters::{Counters, CountersSnapshot};
use crate::decision::{Decision, PolicyId};
use crate::engine::Ticking;
use crate::error::{LoadError, RuntimeError};
use crate::facts::ActionFacts;
use crate::failure::Failure;
use crate::generation::{Answer, Common, Generation, Parts};
use crate::interface::{Instance, Loaded, Manifest};
use crate::options::Options;
use crate::preflight::Offer;

/// The default policy, built by `policies/build.sh`.
static DEFAULT: &[u8] = include_bytes!("../../../policies/prebuilt/default.wasm");

/// The policies of a server. All methods can be called from any thread and none waits for I/O; [`load`](Self::load)
/// compiles, which takes from some ten milliseconds (Rust) to seconds (Python), so it is not for a reactor's thread.
pub struct Runtime {
    in_force: ArcSwap<Generation>,
    default: Arc<Generation>,
    installed: AtomicU64,
    offer: Offer,
    instances: usize,
    common: Arc<Common>,
    ticking: Ticking,
}

impl Runtime {
    /// Makes a runtime in which the embedded default policy is in force.
    ///
    /// # Errors
    /// When the Wasm engine does not work on this machine, or the default policy refuses its configuration.
    pub fn new(options: Options) -> Result<Self, RuntimeError> {
        let Options { limits, instances, default_config, pools } = options;
        let ticking = Ticking::new(limits.deadline).map_err(RuntimeError::Engine)?;
        let offer = Offer::new().map_err(RuntimeError::Engine)?;
        let common = Arc::new(Common {
            limits: Arc::new(limits),
            pools,
            counters: Counters::default(),
            stores: Default::default(),
        });
        let default = load(DEFAULT, &default_config, &ticking, &offer, instances, &common)
            .map_err(RuntimeError::Default)?
            .numbered(1);
        let default = Arc::new(default);
        Ok(Self {
            in_force: ArcSwap::new(default.clone()),
            default,
            installed: AtomicU64::new(1),
            offer,
            instances,
            common,
            ticking,
        })
    }

    /// Compiles, checks and configures a policy, without putting it in force. `bytes` is a component, or a core
    /// module with the interface embedded, as `cargo build` writes it. `config_json` is given to the policy as it is.
    ///
    /// # Errors
    /// See [`LoadError`]; the policy in force stays.
    pub fn load(&self, bytes: &[u8], config_json: &str) -> Result<Generation, LoadError> {
        load(bytes, config_json, &self.ticking, &self.offer, self.instances, &self.common)
            .inspect_err(|_| self.common.counters.refused_load())
    }

    /// Puts a policy in force for all calls that begin from now on. Calls that are running end with the one they
    /// began with.
    pub fn install(&self, generation: Generation) -> Arc<Generation> {
        self.common.counters.install();
        let number = self.installed.fetch_add(1, Relaxed) + 1;
        let generation = Arc::new(generation.numbered(number));
        // Two installs at once may come here in either order; the later number must win.
        self.in_force.rcu(|now| if now.number() < number { generation.clone() } else { now.clone() });
        generation
    }

    /// Puts the embedded default policy in force again.
    ///
    /// # Errors
    /// As [`load`](Self::load), which it goes through.
    pub fn install_default(&self, config_json: &str) -> Result<Arc<Generation>, LoadError> {
        Ok(self.install(self.load(DEFAULT, config_json)?))
    }

    /// The policy in force.
    pub fn in_force(&self) -> Arc<Generation> {
        self.in_force.load_full()
    }

    /// Should the facts of an action with or without a platform come with its Command? Also when only the embedded
    /// default policy wants it, as that may have to decide.
    pub fn wants_command(&self, has_platform: bool) -> bool {
        self.in_force.load().wants_command(has_platform) || self.default.wants_command(has_platform)
    }

    /// Routes an action by the policy in force. `route` is what the client asked for. Never fails: when the policy
    /// does, the embedded default decides on the unedited route.
    pub fn route(&self, facts: &Arc<ActionFacts>, route: Route) -> Decision {
        let started = Instant::now();
        let generation = self.in_force.load();
        self.common.counters.call();
        let (policy, answer, fallback) = match generation.route(facts, route.clone()) {
            Ok(answer) => (generation.policy(), answer, None),
            Err(failure) => {
                let why = self.failed(&generation, &failure, facts);
                let (answer, why) = self.by_default(facts, route, why);
                (self.default.policy(), answer, Some(why))
            }
        };
        let (mut route, rejection, fuel) = answer;
        route.sort_platform();
        if rejection.is_some() {
            self.common.counters.rejection();
        }
        Decision {
            route,
            rejection,
            policy: policy.clone(),
            generation: generation.number(),
            fallback,
            fuel,
            elapsed: started.elapsed(),
        }
    }

    /// What happened so far.
    pub fn counters(&self) -> CountersSnapshot {
        self.common.counters.snapshot()
    }

    /// Size of the largest file that [`load`](Self::load) accepts.
    pub(crate) fn file_bytes_max(&self) -> usize {
        self.common.limits.component_bytes
    }

    fn failed(&self, generation: &Generation, failure: &Failure, facts: &ActionFacts) -> String {
        self.common.counters.failure(failure.kind);
        let policy = generation.policy();
        if let Some(held_back) = generation.warnings.pass() {
            tracing::warn!(
                policy = &*policy.name,
                version = &*policy.version,
                digest = &*policy.digest_hex,
                generation = generation.number(),
                kind = failure.kind.name(),
                action = &*facts.digest,
                like_this_not_logged = held_back,
                "policy failed, the built-in default decides in its place: {failure}"
            );
        }
        format!("policy {policy} failed: {failure}")
    }

    /// The default's answer, and why it was asked. Should it fail too, the client's wishes stand as they are.
    fn by_default(&self, facts: &Arc<ActionFacts>, route: Route, why: String) -> (Answer, String) {
        self.common.counters.fallback();
        match self.default.route(facts, route.clone()) {
            Ok(answer) => (answer, why),
            Err(failure) => {
                let second = self.failed(&self.default, &failure, facts);
                ((route, None, 0), format!("{why}; and {second}"))
            }
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("in_force", &self.in_force()).finish_non_exhaustive()
    }
}

/// SHA-256 in lower-case hex.
pub(crate) fn digest_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn load(
    bytes: &[u8],
    config_json: &str,
    ticking: &Ticking,
    offer: &Offer,
    instances: usize,
    common: &Arc<Common>,
) -> Result<Generation, LoadError> {
    let limit = common.limits.component_bytes;
    if bytes.len() > limit {
        return Err(LoadError::TooLarge { bytes: bytes.len(), limit });
    }
    let digest_hex = digest_hex(bytes);
    let engine = &ticking.engine;
    let component = component_of(bytes).map_err(|error| LoadError::NotAComponent(error.to_string()))?;
    let component = Component::from_binary(engine, &component)
        .map_err(|error| LoadError::NotAComponent(format!("{error:#}")))?;
    let differences = offer.differences(engine, &component);
    if !differences.is_empty() {
        return Err(LoadError::Interface { differences });
    }
    let loaded =
        Loaded::new(engine, &component).map_err(|text| LoadError::Interface { differences: vec![text] })?;
    common.counters.instance();
    let (first, configured) = Instance::new(&loaded, config_json, &common.limits, &common.pools, None)
        .map_err(LoadError::Failed)?;
    let (manifest, command_when) = configured.map_err(|problems| LoadError::Config { problems })?;
    let policy = identity(&manifest, digest_hex)?;
    let config_schema = manifest.config_schema.map(Into::into);
    let config = config_json.into();
    let parts = Parts { policy, config, config_schema, loaded, command_when, first, instances };
    Ok(Generation::new(parts, common.clone()))
}

/// Names are shown in logs, pages and messages, so they have to be short and plain.
fn identity(manifest: &Manifest, digest_hex: String) -> Result<PolicyId, LoadError> {
    for (what, text) in [("name", &manifest.name), ("version", &manifest.version)] {
        let plain = text.chars().all(|c| c.is_ascii_graphic());
        if text.is_empty() || text.len() > 100 || !plain {
            let text = format!("{what} {text:?} is not 1 to 100 printable ASCII characters without spaces");
            return Err(LoadError::Manifest(text));
        }
    }
    Ok(PolicyId {
        name: manifest.name.as_str().into(),
        version: manifest.version.as_str().into(),
        digest_hex: digest_hex.into(),
    })
}
