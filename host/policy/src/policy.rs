//! One version of a policy with the instances that answer for it.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::breaker::Breaker;
use crate::chores::Chores;
use crate::decision::{Hook, PolicyId};
use crate::failure::{Failure, FailureKind};
use crate::interface::{Called, Instance, Loaded};
use crate::kv::{self, Values};
use crate::options::{EditCheck, Limits, Sources};
use crate::probation::Probation;
use crate::state::CommandWhen;
use crate::tally::{Counters, Tally, TallySnapshot, count, thread_index};
use crate::throttle::Throttle;

/// What all versions of a runtime have in common.
pub(crate) struct Common {
    pub(crate) limits: Arc<Limits>,
    pub(crate) sources: Sources,
    pub(crate) edits: Option<EditCheck>,
    pub(crate) counters: Counters,
    pub(crate) stores: kv::Stores,
    pub(crate) chores: Chores,
}

/// Whether what one call leaves behind in a policy's memory may be there in the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// Instances are kept warm: fast, but a policy can remember what it saw.
    #[default]
    Instance,
    /// Each call gets a new instance: some ten microseconds more (Rust) to a millisecond (Python).
    Call,
}

/// A policy, loaded, checked and configured. It owns its instances: they are freed when it is.
pub struct Policy {
    id: Arc<PolicyId>,
    config: Arc<str>,
    config_schema: Option<Arc<str>>,
    loaded: Loaded,
    command_when: Option<CommandWhen>,
    isolation: Isolation,
    values: Values,
    slots: Box<[Mutex<Option<Instance>>]>,
    common: Arc<Common>,
    pub(crate) tally: Tally,
    pub(crate) breaker: Breaker,
    pub(crate) probation: Probation,
    pub(crate) warnings: Throttle,
}

/// What is known once a policy has been configured for the first time.
pub(crate) struct Parts {
    pub(crate) id: PolicyId,
    pub(crate) config: Arc<str>,
    pub(crate) config_schema: Option<Arc<str>>,
    pub(crate) loaded: Loaded,
    pub(crate) command_when: Option<CommandWhen>,
    pub(crate) isolation: Isolation,
    /// What it stores goes to a scratch store until it is promoted.
    pub(crate) on_trial: bool,
    pub(crate) first: Instance,
    pub(crate) instances: usize,
}

/// A call that has ended.
pub(crate) struct Ended<T> {
    pub(crate) result: Result<Called<T>, Failure>,
    pub(crate) elapsed: Duration,
}

impl Policy {
    pub(crate) fn new(parts: Parts, common: Arc<Common>) -> Self {
        let Parts { id, config, config_schema, loaded, command_when, isolation, .. } = parts;
        let values = Values::new(common.stores.of(&id.name, &common.limits), parts.on_trial);
        let mut first = parts.first;
        first.identify(id.clone(), values.clone());
        let mut slots: Vec<_> = (1..parts.instances.max(1)).map(|_| Mutex::new(None)).collect();
        slots.push(Mutex::new(Some(first)));
        Self {
            id: Arc::new(id),
            config,
            config_schema,
            loaded,
            command_when,
            isolation,
            values,
            slots: slots.into(),
            common,
            tally: Tally::default(),
            breaker: Breaker::default(),
            probation: Probation::default(),
            warnings: Throttle::new(Duration::from_secs(10)),
        }
    }

    /// Which policy it is.
    pub fn policy(&self) -> &PolicyId {
        &self.id
    }

    /// The same, to be kept.
    pub(crate) fn id(&self) -> &Arc<PolicyId> {
        &self.id
    }

    /// The configuration it was given, as JSON.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// JSON Schema of its configuration, when it has one.
    pub fn config_schema(&self) -> Option<&str> {
        self.config_schema.as_deref()
    }

    /// Hooks that it exports.
    pub fn hooks(&self) -> &[Hook] {
        self.loaded.hooks()
    }

    /// Does it want the Command of an action with or without a platform?
    pub fn wants_command(&self, has_platform: bool) -> bool {
        self.command_when.is_some_and(|when| when.covers(has_platform))
    }

    /// What it did so far.
    pub fn tally(&self) -> TallySnapshot {
        self.tally.snapshot()
    }

    /// It is not called for a while, as it failed too often in a row.
    pub fn is_circuit_open(&self) -> bool {
        self.breaker.is_open()
    }

    /// From now on what it stores is stored for good.
    pub(crate) fn leave_trial(&self) {
        self.values.promote();
    }

    /// Asks one of the instances. The instance of a failed call is thrown away, and with it all it did.
    pub(crate) fn call<T>(
        self: &Arc<Self>,
        hook: Hook,
        call: impl FnOnce(&mut Instance) -> Result<Called<T>, Failure>,
    ) -> Ended<T> {
        let started = Instant::now();
        if let Err(left) = self.breaker.allows() {
            let text = format!("not called for {left:?}, as it failed too often in a row");
            let failure = Failure::new(FailureKind::CircuitOpen, text);
            self.tally.call(hook, started.elapsed(), 0, Some(failure.kind));
            return Ended { result: Err(failure), elapsed: started.elapsed() };
        }
        let result = match self.isolation {
            Isolation::Instance => self.call_warm(call),
            Isolation::Call => self.instance().and_then(|mut instance| call(&mut instance)),
        };
        let elapsed = started.elapsed();
        match &result {
            Ok(called) => {
                self.tally.call(hook, elapsed, called.fuel, None);
                if self.breaker.success() {
                    tracing::info!(policy = %self.policy(), "policy answers again, so it is asked again");
                }
            }
            Err(failure) => {
                self.tally.call(hook, elapsed, 0, Some(failure.kind));
                self.common.counters.failure(failure.kind);
                if let Some(pause) = self.breaker.failure() {
                    tracing::error!(policy = %self.policy(), ?pause, "policy fails each time, so it is not asked for a while");
                }
            }
        }
        Ended { result, elapsed }
    }

    fn call_warm<T>(
        self: &Arc<Self>,
        call: impl FnOnce(&mut Instance) -> Result<Called<T>, Failure>,
    ) -> Result<Called<T>, Failure> {
        let mut slot = self.slot();
        // Taken out, so that nobody finds it half-way through a call, should a host function panic.
        let mut instance = match slot.take() {
            Some(instance) => instance,
            None => self.instance()?,
        };
        let result = call(&mut instance);
        let limits = &self.common.limits;
        let keep = result.is_ok() && instance.calls < limits.calls_per_instance && !instance.has_grown_much();
        if keep {
            *slot = Some(instance);
        } else {
            // Dropping it, which may take milliseconds, and making another one are nothing for a caller to wait for.
            drop(slot);
            self.common.chores.replace(instance, self);
        }
        result
    }

    /// Makes an instance for each slot that has none. Callers find others, or make their own, meanwhile.
    pub(crate) fn refill(&self) {
        for slot in &self.slots {
            let empty = slot.try_lock().is_ok_and(|instance| instance.is_none());
            // A failure shows again, and is counted, when somebody calls.
            if empty
                && let Ok(instance) = self.instance()
                && let Ok(mut slot) = slot.try_lock()
                && slot.is_none()
            {
                *slot = Some(instance);
            }
        }
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
        self.fresh(self.values.clone(), &self.common.sources)
    }

    /// A new instance over these values and sources, configured as all others.
    pub(crate) fn fresh(&self, values: Values, sources: &Sources) -> Result<Instance, Failure> {
        count(&self.common.counters.instances);
        let identity = Some((PolicyId::clone(self.policy()), values));
        let (instance, configured) =
            Instance::new(&self.loaded, &self.config, &self.common.limits, sources, identity)?;
        let refused = |why| Failure::new(FailureKind::Start, format!("a new instance {why}"));
        match configured {
            Ok((manifest, _)) if *manifest.name != *self.policy().name => Err(refused("has another name")),
            Ok((_, command_when)) if command_when != self.command_when => {
                Err(refused("wants other Commands"))
            }
            Ok(_) => Ok(instance),
            Err(_) => Err(refused("refuses the configuration that the first one accepted")),
        }
    }

    /// A new instance like [`fresh`](Self::fresh), with another configuration if one is given.
    pub(crate) fn fresh_with(
        &self,
        config: Option<&str>,
        values: Values,
        sources: &Sources,
    ) -> Result<Instance, Failure> {
        let Some(config) = config else { return self.fresh(values, sources) };
        count(&self.common.counters.instances);
        let identity = Some((PolicyId::clone(self.policy()), values));
        let (instance, configured) =
            Instance::new(&self.loaded, config, &self.common.limits, sources, identity)?;
        match configured {
            Ok(_) => Ok(instance),
            Err(problems) => {
                let text = format!("it refuses the configuration: {}", crate::error::listed(&problems));
                Err(Failure::new(FailureKind::Start, text))
            }
        }
    }

    pub(crate) fn edits(&self) -> Option<&EditCheck> {
        self.common.edits.as_ref()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.common.limits
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("id", self.policy())
            .field("hooks", &self.hooks())
            .finish_non_exhaustive()
    }
}
