//! One loaded policy with the instances that answer for it.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

use pointsman_scheduler::route::Route;

use crate::counters::Counters;
use crate::decision::{Hook, PolicyId, Rejection};
use crate::facts::ActionFacts;
use crate::failure::{Failure, FailureKind};
use crate::interface::{Instance, Loaded};
use crate::kv;
use crate::options::{Limits, PoolsSnapshot};
use crate::state::CommandWhen;
use crate::throttle::Throttle;

/// What all generations of a runtime have in common.
pub(crate) struct Common {
    pub(crate) limits: Arc<Limits>,
    pub(crate) pools: PoolsSnapshot,
    pub(crate) counters: Counters,
    pub(crate) stores: kv::Stores,
}

/// A policy, loaded, checked and configured. It owns its instances: they are freed when it is.
pub struct Generation {
    number: u64,
    policy: PolicyId,
    config: Arc<str>,
    config_schema: Option<Arc<str>>,
    loaded: Loaded,
    command_when: Option<CommandWhen>,
    store: Arc<kv::Store>,
    slots: Box<[Mutex<Option<Instance>>]>,
    common: Arc<Common>,
    pub(crate) warnings: Throttle,
}

/// What is known once a policy has been configured for the first time.
pub(crate) struct Parts {
    pub(crate) policy: PolicyId,
    pub(crate) config: Arc<str>,
    pub(crate) config_schema: Option<Arc<str>>,
    pub(crate) loaded: Loaded,
    pub(crate) command_when: Option<CommandWhen>,
    pub(crate) first: Instance,
    pub(crate) instances: usize,
}

/// An answer: the route, whether it was refused, and the fuel it took.
pub(crate) type Answer = (Route, Option<Rejection>, u64);

impl Generation {
    pub(crate) fn new(parts: Parts, common: Arc<Common>) -> Self {
        let Parts { policy, config, config_schema, loaded, command_when, mut first, instances } = parts;
        let store = common.stores.of(&policy.name, &common.limits);
        first.identify(policy.clone(), store.clone());
        let mut slots: Vec<_> = (1..instances.max(1)).map(|_| Mutex::new(None)).collect();
        slots.push(Mutex::new(Some(first)));
        Self {
            number: 0,
            policy,
            config,
            config_schema,
            loaded,
            command_when,
            store,
            slots: slots.into(),
            common,
            warnings: Throttle::new(Duration::from_secs(10)),
        }
    }

    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Which policy it is.
    pub fn policy(&self) -> &PolicyId {
        &self.policy
    }

    /// Position in the sequence of installed generations, from 1; 0 before it is installed.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The configuration it was given, as JSON.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// JSON Schema of its configuration, when it has one.
    pub fn config_schema(&self) -> Option<&str> {
        self.config_schema.as_deref()
    }

    /// Hooks that it exports. Of these only [`Hook::OnAction`] is called yet.
    pub fn hooks(&self) -> &[Hook] {
        self.loaded.hooks()
    }

    /// Does it want the Command of an action with or without a platform?
    pub fn wants_command(&self, has_platform: bool) -> bool {
        self.command_when.is_some_and(|when| when.covers(has_platform))
    }

    /// Asks one of the instances. The instance of a failed call is thrown away, and with it all it did.
    pub(crate) fn route(&self, facts: &Arc<ActionFacts>, route: Route) -> Result<Answer, Failure> {
        let mut slot = self.slot();
        // Taken out, so that nobody finds it half-way through a call, should a host function panic.
        let mut instance = match slot.take() {
            Some(instance) => instance,
            None => self.instance()?,
        };
        let answer = instance.route_action(facts, route)?;
        *slot = Some(instance);
        Ok(answer)
    }

    /// A slot that nobody uses, best one with an instance in it, as new ones cost some ten microseconds (Rust) to a
    /// millisecond (Python). When all are used, the thread's own one as soon as it is free: to wait is cheaper than to
    /// make another instance, since a call takes microseconds and there are as many slots as cores.
    fn slot(&self) -> MutexGuard<'_, Option<Instance>> {
        let own = thread_index() % self.slots.len();
        let mut empty = None;
        for slot in self.slots[own..].iter().chain(&self.slots[..own]) {
            let guard = match slot.try_lock() {
                Ok(guard) => guard,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => continue,
            };
            if guard.is_some() {
                return guard;
            }
            empty.get_or_insert(guard);
        }
        empty.unwrap_or_else(|| self.slots[own].lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn instance(&self) -> Result<Instance, Failure> {
        self.common.counters.instance();
        let identity = Some((self.policy.clone(), self.store.clone()));
        let (instance, configured) =
            Instance::new(&self.loaded, &self.config, &self.common.limits, &self.common.pools, identity)?;
        let refused = |why| Failure::new(FailureKind::Start, format!("a new instance {why}"));
        match configured {
            Ok((manifest, _)) if *manifest.name != *self.policy.name => Err(refused("has another name")),
            Ok((_, command_when)) if command_when != self.command_when => {
                Err(refused("wants other Commands"))
            }
            Ok(_) => Ok(instance),
            Err(_) => Err(refused("refuses the configuration that the first one accepted")),
        }
    }
}

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("number", &self.number)
            .field("policy", &self.policy)
            .field("hooks", &self.hooks())
            .finish_non_exhaustive()
    }
}

/// Small numbers for threads, so that each comes back to the same slot, whose instance its core has in its cache.
fn thread_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static INDEX: usize = NEXT.fetch_add(1, Relaxed);
    }
    INDEX.with(|index| *index)
}
