//! Holds the generation in force, and asks its policies.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Instant, SystemTime};

use arc_swap::ArcSwap;
use pointsman_scheduler::route::Route;

use crate::archive::Archive;
use crate::chain::{Outcome, Walk};
use crate::chores::Chores;
use crate::cwasm::CompiledCache;
use crate::decision::{Answer, Decision, Hook, PolicyId, Rejection, Step};
use crate::engine::Ticking;
use crate::error::{LoadError, RuntimeError};
use crate::facts::{ActionFacts, Attempt};
use crate::generation::{Chain, Generation, Link, OnError};
use crate::hooks::{Admission, Candidate, Completion, Next, Ranking, Terms, WorkerFacts};
use crate::interface::Instance;
use crate::loader::{How, Loader};
use crate::options::{Options, Recorder};
use crate::policy::{Common, Isolation, Policy};
use crate::preflight::Offer;
use crate::record::{Question, Record};
use crate::shadow::{Job, Shadow};
use crate::tally::{Counters, CountersSnapshot, count};
use crate::trial::Trial;
use crate::tripwire::Tripwire;

/// The default policy, built by `policies/build.sh`.
static DEFAULT: &[u8] = include_bytes!("../../../policies/prebuilt/default.wasm");

/// The policies of a server. All methods can be called from any thread and none waits for I/O; [`load`](Self::load)
/// compiles, which takes from some ten milliseconds (Rust) to seconds (Python), so it is not for a reactor's thread.
pub struct Runtime {
    in_force: ArcSwap<Generation>,
    /// The default policy as it is configured now: it decides when all else fails. Generations hold theirs.
    default: ArcSwap<Policy>,
    built_in: PolicyId,
    installed: AtomicU64,
    pub(crate) loader: Loader,
    pub(crate) tripwire: Arc<Tripwire>,
    recorder: Option<Recorder>,
    shadow: Shadow,
    /// What survives a restart, if there is a folder for it.
    pub(crate) archive: Option<Archive>,
}

impl Runtime {
    /// Makes a runtime in which the embedded default policy is in force for all.
    ///
    /// # Errors
    /// When the Wasm engine does not work on this machine, or the default policy refuses its configuration.
    pub fn new(options: Options) -> Result<Self, RuntimeError> {
        let Options { limits, instances, default_config, state_dir, sources, recorder, edits } = options;
        let ticking = Ticking::new(limits.deadline).map_err(RuntimeError::Engine)?;
        let offer = Offer::new().map_err(RuntimeError::Engine)?;
        let common = Arc::new(Common {
            limits: Arc::new(limits),
            sources,
            edits,
            counters: Counters::default(),
            stores: Default::default(),
            chores: Chores::start().map_err(RuntimeError::Engine)?,
        });
        let archive = state_dir.as_deref().map(Archive::open).transpose();
        let archive = archive.map_err(|error| RuntimeError::State(error.to_string()))?;
        let cache = CompiledCache::open(archive.as_ref().map(Archive::path), &ticking.engine)
            .map_err(|error| RuntimeError::State(error.to_string()))?;
        let loader = Loader { ticking, offer, cache, instances, common };
        let how = How { config: &default_config, ..How::default() };
        let default = Arc::new(loader.load(DEFAULT, &how).map_err(RuntimeError::Default)?);
        let tripwire = Arc::<Tripwire>::default();
        let first = Generation::new(BTreeMap::new(), &BTreeMap::new(), &default).numbered(1);
        Ok(Self {
            in_force: ArcSwap::from_pointee(first),
            built_in: default.policy().clone(),
            default: ArcSwap::new(default),
            installed: AtomicU64::new(1),
            loader,
            shadow: Shadow::start(tripwire.clone()).map_err(RuntimeError::Engine)?,
            tripwire,
            recorder,
            archive,
        })
    }

    /// Compiles, checks and configures a policy, without putting it in force. `bytes` is a component, or a core
    /// module with the interface embedded, as `cargo build` writes it. `config_json` is given to the policy as it is.
    ///
    /// # Errors
    /// See [`LoadError`]; what is in force stays.
    pub fn load(&self, bytes: &[u8], config_json: &str) -> Result<Policy, LoadError> {
        self.loader.load(bytes, &How { config: config_json, ..How::default() })
    }

    /// The same for a policy that gets a new instance for each call, or not.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn load_isolated(
        &self,
        bytes: &[u8],
        config_json: &str,
        isolation: Isolation,
    ) -> Result<Policy, LoadError> {
        self.loader.load(bytes, &How { config: config_json, isolation, on_trial: false })
    }

    /// The same for the embedded default policy.
    pub(crate) fn load_default(&self, config_json: &str) -> Result<Policy, LoadError> {
        self.loader.load(DEFAULT, &How { config: config_json, ..How::default() })
    }

    /// In generations from now on this one decides when all else fails.
    pub(crate) fn set_default(&self, policy: Policy) {
        self.default.store(Arc::new(policy));
    }

    /// Puts one policy in force for all instance names, in a link of its own name.
    pub fn install(&self, policy: Policy) -> Arc<Generation> {
        let name = policy.policy().name.clone();
        let link = Link {
            name: name.clone(),
            on_error: OnError::LastGood,
            active: Arc::new(policy),
            previous: None,
            trial: None,
        };
        let links = BTreeMap::from([(name.clone(), Arc::new(link))]);
        self.put_in_force(links, &BTreeMap::from([("".into(), vec![name])]))
    }

    /// Puts links and chains in force for all calls that begin from now on. Calls that are running end with what they
    /// began with.
    pub(crate) fn put_in_force(
        &self,
        links: BTreeMap<Arc<str>, Arc<Link>>,
        chains: &BTreeMap<Arc<str>, Vec<Arc<str>>>,
    ) -> Arc<Generation> {
        count(&self.loader.common.counters.installs);
        let number = self.installed.fetch_add(1, Relaxed) + 1;
        let generation = Arc::new(Generation::new(links, chains, &self.default.load_full()).numbered(number));
        // Two installs at once may come here in either order; the later number must win.
        self.in_force.rcu(|now| if now.number() < number { generation.clone() } else { now.clone() });
        generation
    }

    /// What is in force.
    pub fn in_force(&self) -> Arc<Generation> {
        self.in_force.load_full()
    }

    /// Which policy the embedded default one is.
    pub fn built_in(&self) -> &PolicyId {
        &self.built_in
    }

    /// The bytes of the embedded default policy.
    pub fn default_bytes() -> &'static [u8] {
        DEFAULT
    }

    /// Should the facts of an action with or without a platform come with its Command? Also when only the embedded
    /// default policy wants it, as that may have to decide.
    pub fn wants_command(&self, instance_name: &str, has_platform: bool) -> bool {
        self.in_force.load().chain(instance_name).wants_command(has_platform)
    }

    /// Does anybody in the chain of that instance name have the hook?
    pub fn has_hook(&self, instance_name: &str, hook: Hook) -> bool {
        self.in_force.load().chain(instance_name).has(hook)
    }

    /// Does anybody in any chain have the hook?
    pub fn has_hook_anywhere(&self, hook: Hook) -> bool {
        self.in_force.load().chains().iter().any(|chain| chain.has(hook))
    }

    /// Nobody but the embedded default policy decides about actions of that instance name.
    pub fn is_plain(&self, instance_name: &str) -> bool {
        self.in_force.load().chain(instance_name).is_plain
    }

    /// Do policies of that chain take so long that they should be asked on a thread of their own?
    pub fn is_slow(&self, instance_name: &str) -> bool {
        self.in_force.load().chain(instance_name).is_slow()
    }

    /// Does any chain?
    pub fn is_slow_anywhere(&self) -> bool {
        self.in_force.load().chains().iter().any(Chain::is_slow)
    }

    /// What happened so far.
    pub fn counters(&self) -> CountersSnapshot {
        self.loader.common.counters.snapshot()
    }

    /// Size of the largest file that [`load`](Self::load) accepts.
    pub fn file_bytes_max(&self) -> usize {
        self.loader.common.limits.component_bytes
    }

    // === Hooks ===

    fn walk<'a>(
        &'a self,
        hook: Hook,
        chain: &Chain,
        generation: &'a Generation,
        subject: &'a str,
    ) -> Walk<'a> {
        Walk {
            hook,
            subject,
            generation: generation.number(),
            alone: chain.links.len() == 1,
            last: generation.last(),
            tripwire: &self.tripwire,
            steps: Vec::with_capacity(chain.links.len()),
            failures: Vec::new(),
        }
    }

    fn record(&self, generation: u64, steps: Arc<[Step]>, question: impl FnOnce() -> Question) {
        if let Some(recorder) = &self.recorder {
            let (at, remarks) = (SystemTime::now(), Vec::new());
            recorder(Record { at, generation, question: question(), steps, remarks });
        }
    }

    /// Routes an action. `wishes` is what the client asked for, its platform sorted. Never fails: when a policy does, its
    /// link's `on_error` says who decides.
    pub fn route(&self, facts: &Arc<ActionFacts>, mut wishes: Route) -> Decision {
        let started = Instant::now();
        let generation = self.in_force.load();
        let chain = generation.chain(&facts.instance_name);
        let counters = &self.loader.common.counters;
        count(counters.calls.own());
        wishes.sort_platform();
        let before = Arc::new(wishes);
        let mut walk = self.walk(Hook::OnAction, chain, &generation, &facts.digest);
        let (route, rejection) = self.route_along(chain, facts, &before, &mut walk);
        if rejection.is_some() {
            count(&counters.rejections);
        }
        let fallback = (!walk.failures.is_empty()).then(|| walk.failures.join("; and "));
        if fallback.is_some() {
            count(&counters.fallbacks);
        }
        let policy = walk.decided().or_else(|| walk.steps.last().map(|step| &step.policy));
        let nobody = || chain.links.first().map_or(generation.last(), |link| &link.active).id();
        let policy = policy.unwrap_or_else(nobody).clone();
        let fuel = walk.fuel();
        let steps: Arc<[_]> = walk.steps.into();
        self.record(generation.number(), steps.clone(), || Question::Route { facts: facts.clone(), before });
        let (generation, elapsed) = (generation.number(), started.elapsed());
        Decision { route, rejection, policy, generation, steps, fallback, fuel, elapsed }
    }

    fn route_along(
        &self,
        chain: &Chain,
        facts: &Arc<ActionFacts>,
        before: &Arc<Route>,
        walk: &mut Walk<'_>,
    ) -> (Arc<Route>, Option<Rejection>) {
        let record = self.recorder.is_some();
        let mut route = before.clone();
        for link in &chain.links {
            let found = route.clone();
            let canary = link.trial.as_ref().filter(|trial| trial.decides(facts));
            let mut call = |instance: &mut Instance| {
                let called = instance.route_action(facts, (*found).clone(), record)?;
                Ok(called.map(|(route, rejection)| (Arc::new(route), rejection)))
            };
            let show = |(route, rejection): &(Arc<Route>, Option<Rejection>)| match rejection {
                None => Answer::Route(route.clone()),
                Some(rejection) => Answer::Rejected(rejection.clone()),
            };
            let rejection = match walk.ask(link, canary, &mut call, &show) {
                Outcome::Answer((edited, rejection)) => {
                    route = edited;
                    rejection
                }
                Outcome::Unchanged => None,
                Outcome::Refused(rejection) => Some(rejection),
            };
            if let Some(trial) = link.trial.as_ref().filter(|trial| trial.compares(facts)) {
                self.shadow_one(link, trial, facts, &found, (&route, rejection.as_ref()), walk);
            }
            if rejection.is_some() {
                return (route, rejection);
            }
        }
        (route, None)
    }

    /// Has a version on trial asked the same, later and elsewhere.
    fn shadow_one(
        &self,
        link: &Arc<Link>,
        trial: &Arc<Trial>,
        facts: &Arc<ActionFacts>,
        found: &Arc<Route>,
        (route, rejection): (&Arc<Route>, Option<&Rejection>),
        walk: &Walk<'_>,
    ) {
        let elapsed = walk.steps.last().map(|step| step.elapsed).unwrap_or_default();
        self.shadow.offer(Job {
            link: link.clone(),
            trial: trial.clone(),
            facts: facts.clone(),
            found: found.clone(),
            route: route.clone(),
            rejection: rejection.cloned(),
            elapsed,
        });
    }

    /// Decides on what terms a worker joins. The chain is that of its instance name prefix. Versions on trial are not
    /// asked: a worker can't be of two minds about where it is.
    pub fn admit(&self, worker: &Arc<WorkerFacts>, offered: Terms) -> Admission {
        let generation = self.in_force.load();
        let chain = generation.chain(&worker.instance_name_prefix);
        let subject =
            worker.id.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",");
        let mut walk = self.walk(Hook::OnWorker, chain, &generation, &subject);
        let (record, before) = (self.recorder.is_some(), Arc::new(offered));
        let mut terms = before.clone();
        let mut rejection = None;
        for link in &chain.links {
            let found = terms.clone();
            let mut call = |instance: &mut Instance| {
                let called = instance.admit(worker, (*found).clone(), record)?;
                Ok(called.map(|(terms, rejection)| (Arc::new(terms), rejection)))
            };
            let show = |(terms, rejection): &(Arc<Terms>, Option<Rejection>)| match rejection {
                None => Answer::Terms(terms.clone()),
                Some(rejection) => Answer::Rejected(rejection.clone()),
            };
            match walk.ask(link, None, &mut call, &show) {
                Outcome::Answer((edited, refusal)) => (terms, rejection) = (edited, refusal),
                Outcome::Unchanged => {}
                Outcome::Refused(refusal) => rejection = Some(refusal),
            }
            if rejection.is_some() {
                break;
            }
        }
        let by = walk.steps.last().map(|step| step.policy.clone());
        let (steps, failures): (Arc<[_]>, _) = (walk.steps.into(), walk.failures);
        if !steps.is_empty() {
            self.record(generation.number(), steps, || Question::Admit { worker: worker.clone(), before });
        }
        let terms = Arc::unwrap_or_clone(terms);
        Admission { terms, rejection, by, generation: generation.number(), failures }
    }

    /// Decides what becomes of an attempt that has ended. `facts.attempts` are those before it; `route` is the one by
    /// which it ran. The first policy of the chain that does not accept decides.
    pub fn completed(&self, facts: &Arc<ActionFacts>, attempt: &Attempt, route: Route) -> Completion {
        let generation = self.in_force.load();
        let chain = generation.chain(&facts.instance_name);
        let mut walk = self.walk(Hook::OnResult, chain, &generation, &facts.digest);
        let (record, before) = (self.recorder.is_some(), Arc::new(route));
        let (mut next, mut accepted_by) = (Next::Accept, None);
        for link in &chain.links {
            let canary = link.trial.as_ref().filter(|trial| trial.decides(facts));
            let mut call =
                |instance: &mut Instance| instance.completed(facts, attempt, (*before).clone(), record);
            let show = |(next, _): &(Next, bool)| Answer::Next(next.clone());
            next = match walk.ask(link, canary, &mut call, &show) {
                Outcome::Answer((next, has_edited)) => {
                    if has_edited {
                        accepted_by = walk.steps.last().map(|step| step.policy.clone());
                    }
                    next
                }
                Outcome::Unchanged => Next::Accept,
                Outcome::Refused(rejection) => Next::Fail(rejection),
            };
            if next != Next::Accept {
                break;
            }
        }
        let by = walk.steps.last().filter(|_| next != Next::Accept).map(|step| step.policy.clone());
        let (steps, failures): (Arc<[_]>, _) = (walk.steps.into(), walk.failures);
        if !steps.is_empty() {
            let (facts, attempt) = (facts.clone(), attempt.clone());
            self.record(generation.number(), steps, || Question::Completed { facts, attempt, before });
        }
        Completion { next, by, accepted_by, generation: generation.number(), failures }
    }

    /// Asks in which order workers are to be tried. The first policy of the chain that names any decides.
    pub fn rank(&self, facts: &Arc<ActionFacts>, candidates: &[Candidate]) -> Ranking {
        let generation = self.in_force.load();
        let chain = generation.chain(&facts.instance_name);
        let mut walk = self.walk(Hook::OnAssignment, chain, &generation, &facts.digest);
        let record = self.recorder.is_some();
        let mut order = Vec::new();
        for link in &chain.links {
            let canary = link.trial.as_ref().filter(|trial| trial.decides(facts));
            let mut call = |instance: &mut Instance| instance.rank(facts, candidates, record);
            let show = |order: &Vec<(usize, String)>| Answer::Order(order.clone());
            if let Outcome::Answer(found) = walk.ask(link, canary, &mut call, &show) {
                order = found;
            }
            if !order.is_empty() {
                break;
            }
        }
        let by = walk.decided().filter(|_| !order.is_empty()).cloned();
        let (steps, failures): (Arc<[_]>, _) = (walk.steps.into(), walk.failures);
        if !steps.is_empty() {
            let (facts, candidates) = (facts.clone(), candidates.to_vec());
            self.record(generation.number(), steps, || Question::Rank { facts, candidates });
        }
        Ranking { order, by, generation: generation.number(), failures }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").field("in_force", &self.in_force()).finish_non_exhaustive()
    }
}
