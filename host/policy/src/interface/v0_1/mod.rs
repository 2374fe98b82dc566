//! Version 0.1 of the interface.

mod action;
mod convert;
mod host;
mod route;
mod worker;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use pointsman_scheduler::route::Route;
use wasmtime::component::{Component, HasSelf, InstancePre, Linker};
use wasmtime::{Engine, Store};

use crate::decision::{Hook, PolicyId, Rejection};
use crate::engine::Ticking;
use crate::facts::{ActionFacts, Attempt};
use crate::failure::Failure;
use crate::hooks::{Candidate, Next, Terms, WorkerFacts};
use crate::interface::{Called, ConfigProblem, Manifest};
use crate::kv::Values;
use crate::options::{Limits, Sources};
use crate::state::{CommandWhen, Now, State, bad};

/// The text of the interface, for comparing what a component wants with it.
pub(crate) const WIT: &str = include_str!("../../../../../wit/policy.wit");
/// The world that has all of it.
pub(crate) const WORLD: &str = "full";

#[allow(missing_docs, unreachable_pub, clippy::all)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "full",
        imports: { default: trappable },
    });
}

use bindings::exports::pointsman::policy::{lifecycle, on_action, on_assignment, on_result, on_worker};
use bindings::pointsman::policy as imports;

/// A component, compiled and linked: what instances are made from.
pub(crate) struct Loaded {
    pre: InstancePre<State>,
    lifecycle: lifecycle::GuestIndices,
    on_action: Option<on_action::GuestIndices>,
    on_worker: Option<on_worker::GuestIndices>,
    on_result: Option<on_result::GuestIndices>,
    on_assignment: Option<on_assignment::GuestIndices>,
    hooks: Vec<Hook>,
}

impl Loaded {
    /// Links a component. Whether it fits the interface has been checked before, so that errors here are rare and
    /// may be terse.
    pub(crate) fn new(engine: &Engine, component: &Component) -> Result<Self, String> {
        let pre = linker(engine)
            .and_then(|linker| linker.instantiate_pre(component))
            .map_err(|error| format!("{error:#}"))?;
        let exports = |hook: &Hook| {
            // Looked up by the version we have; the engine finds compatible ones too.
            component.get_export_index(None, format!("pointsman:policy/{hook}@0.1.0")).is_some()
        };
        let hooks: Vec<Hook> = Hook::ALL.into_iter().filter(exports).collect();
        Ok(Self {
            lifecycle: named("lifecycle", lifecycle::GuestIndices::new(&pre))?,
            on_action: indices(&hooks, Hook::OnAction, || on_action::GuestIndices::new(&pre))?,
            on_worker: indices(&hooks, Hook::OnWorker, || on_worker::GuestIndices::new(&pre))?,
            on_result: indices(&hooks, Hook::OnResult, || on_result::GuestIndices::new(&pre))?,
            on_assignment: indices(&hooks, Hook::OnAssignment, || on_assignment::GuestIndices::new(&pre))?,
            pre,
            hooks,
        })
    }

    /// Hooks that the component exports.
    pub(crate) fn hooks(&self) -> &[Hook] {
        &self.hooks
    }
}

/// The indices of a hook's functions, if the component has the hook.
fn indices<T>(
    hooks: &[Hook],
    hook: Hook,
    find: impl FnOnce() -> wasmtime::Result<T>,
) -> Result<Option<T>, String> {
    hooks.contains(&hook).then(|| named(hook.name(), find())).transpose()
}

/// The engine's own error does not say which interface it is about.
fn named<T>(interface: &str, found: wasmtime::Result<T>) -> Result<T, String> {
    found.map_err(|error| format!("{interface}: {error:#}"))
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<State>> {
    let mut linker = Linker::new(engine);
    imports::types::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::host::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::action::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::command::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::route::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::worker::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    imports::terms::add_to_linker::<_, HasSelf<State>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// Functions of an instance.
struct Guests {
    on_action: Option<on_action::Guest>,
    on_worker: Option<on_worker::Guest>,
    on_result: Option<on_result::Guest>,
    on_assignment: Option<on_assignment::Guest>,
}

/// One instance, configured. After a failed call it is dead and must be dropped.
pub(crate) struct Instance {
    store: Store<State>,
    guests: Guests,
    limits: Arc<Limits>,
    /// Calls of hooks that it has answered.
    pub(crate) calls: u64,
    /// Bytes of memory that it had when it was configured.
    memory_at_start: usize,
}

/// What an instance said when it was configured.
pub(crate) type Configured = Result<(Manifest, Option<CommandWhen>), Vec<ConfigProblem>>;

impl Instance {
    /// Makes an instance and configures it. `identity` is unknown for the first instance of a policy, as only its
    /// manifest tells.
    pub(crate) fn new(
        loaded: &Loaded,
        config: &str,
        limits: &Arc<Limits>,
        sources: &Sources,
        identity: Option<(PolicyId, Values)>,
    ) -> Result<(Self, Configured), Failure> {
        let mut state = State::new(limits, sources);
        state.identity = identity;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        state.begin(Now::Configuring, clock, false);
        let mut store = Store::new(loaded.pre.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes);
        let result = Self::start(&mut store, loaded, config, limits);
        let (guests, answer) =
            result.map_err(|error| Failure::of(&error, &store.data().limiter, limits.fuel_per_call))?;
        let state = store.data_mut();
        state.end();
        let configured = match answer {
            Ok(manifest) => Ok((convert::manifest(manifest), state.command_when)),
            Err(errors) => Err(errors.into_iter().map(convert::config_problem).collect()),
        };
        let memory_at_start = store.data().limiter.memory_bytes();
        let instance = Self { store, guests, limits: limits.clone(), calls: 0, memory_at_start };
        Ok((instance, configured))
    }

    fn start(
        mut store: &mut Store<State>,
        loaded: &Loaded,
        config: &str,
        limits: &Limits,
    ) -> wasmtime::Result<(Guests, ConfigureResult)> {
        arm(store, limits)?;
        let instance = loaded.pre.instantiate(&mut *store)?;
        let lifecycle = loaded.lifecycle.load(&mut *store, &instance)?;
        let guests = Guests {
            on_action: loaded.on_action.as_ref().map(|i| i.load(&mut store, &instance)).transpose()?,
            on_worker: loaded.on_worker.as_ref().map(|i| i.load(&mut store, &instance)).transpose()?,
            on_result: loaded.on_result.as_ref().map(|i| i.load(&mut store, &instance)).transpose()?,
            on_assignment: loaded
                .on_assignment
                .as_ref()
                .map(|i| i.load(&mut store, &instance))
                .transpose()?,
        };
        Ok((guests, lifecycle.call_configure(&mut *store, config)?))
    }

    /// Tells the first instance who it is.
    pub(crate) fn identify(&mut self, policy: PolicyId, values: Values) {
        self.store.data_mut().identity = Some((policy, values));
    }

    /// Has it taken half of the memory that was left to it when it was configured?
    pub(crate) fn has_grown_much(&self) -> bool {
        let left = self.limits.memory_bytes.saturating_sub(self.memory_at_start);
        self.store.data().limiter.memory_bytes() > self.memory_at_start + left / 2
    }

    /// One call of a hook: `hook` makes it, with everything ready.
    fn call<T>(
        &mut self,
        now: Now,
        clock: f64,
        record: bool,
        hook: impl FnOnce(&mut Store<State>, &Guests) -> wasmtime::Result<T>,
    ) -> Result<Called<T>, Failure> {
        let limit = self.limits.fuel_per_call;
        self.store.data_mut().begin(now, clock, record);
        let answer = arm(&mut self.store, &self.limits).and_then(|()| hook(&mut self.store, &self.guests));
        match answer {
            Ok(answer) => {
                self.calls += 1;
                let fuel = limit.saturating_sub(self.store.get_fuel().unwrap_or(limit));
                Ok(Called { answer, fuel, asked: self.store.data_mut().end() })
            }
            Err(error) => Err(Failure::of(&error, &self.store.data().limiter, limit)),
        }
    }

    /// Asks about an action. A policy without that hook changes nothing.
    pub(crate) fn route_action(
        &mut self,
        facts: &Arc<ActionFacts>,
        route: Route,
        record: bool,
    ) -> Result<Called<(Route, Option<Rejection>)>, Failure> {
        self.store.data_mut().route = route;
        let now = Now::Routing(facts.clone());
        self.call(now, facts.now_unix_seconds, record, |store, guests| {
            let Some(guest) = &guests.on_action else { return Ok((take_route(store), None)) };
            let rejection = match guest.call_route_action(&mut *store)? {
                Ok(()) => None,
                Err(rejection) => Some(convert::rejection(store.data(), rejection)?),
            };
            Ok((take_route(store), rejection))
        })
    }

    /// Asks about a worker that wants to join.
    pub(crate) fn admit(
        &mut self,
        worker: &Arc<WorkerFacts>,
        terms: Terms,
        record: bool,
    ) -> Result<Called<(Terms, Option<Rejection>)>, Failure> {
        self.store.data_mut().terms = terms;
        let now = Now::Admitting(worker.clone());
        self.call(now, worker.now_unix_seconds, record, |store, guests| {
            let rejection = match guests.on_worker.as_ref().map(|g| g.call_admit(&mut *store)).transpose()? {
                None | Some(Ok(())) => None,
                Some(Err(rejection)) => Some(convert::rejection(store.data(), rejection)?),
            };
            Ok((std::mem::take(&mut store.data_mut().terms), rejection))
        })
    }

    /// Asks about an attempt that has ended. What comes with the answer: it has edited the route.
    pub(crate) fn completed(
        &mut self,
        facts: &Arc<ActionFacts>,
        attempt: &Attempt,
        route: Route,
        record: bool,
    ) -> Result<Called<(Next, bool)>, Failure> {
        self.store.data_mut().route = route;
        let now = Now::Completing(facts.clone());
        self.call(now, facts.now_unix_seconds, record, |store, guests| {
            let Some(guest) = &guests.on_result else { return Ok((Next::Accept, false)) };
            let next = match guest.call_completed(&mut *store, &convert::attempt_out(attempt))? {
                on_result::Next::Accept => Next::Accept,
                on_result::Next::Again => Next::Again(take_route(store)),
                on_result::Next::Fail(rejection) => Next::Fail(convert::rejection(store.data(), rejection)?),
            };
            Ok((next, store.data().has_edited))
        })
    }

    /// Asks which of several workers is best.
    pub(crate) fn rank(
        &mut self,
        facts: &Arc<ActionFacts>,
        candidates: &[Candidate],
        record: bool,
    ) -> Result<Called<Vec<(usize, String)>>, Failure> {
        let now = Now::Ranking(facts.clone());
        self.call(now, facts.now_unix_seconds, record, |store, guests| {
            let Some(guest) = &guests.on_assignment else { return Ok(Vec::new()) };
            let list: Vec<_> = candidates.iter().map(convert::candidate_out).collect();
            let choices = guest.call_rank(&mut *store, &list)?;
            order(store.data(), choices, candidates.len())
        })
    }
}

type ConfigureResult = Result<lifecycle::Manifest, Vec<lifecycle::ConfigError>>;

fn take_route(store: &mut Store<State>) -> Route {
    std::mem::take(&mut store.data_mut().route)
}

/// Choices as indices, each in range and once.
fn order(
    state: &State,
    choices: Vec<on_assignment::Choice>,
    candidates: usize,
) -> wasmtime::Result<Vec<(usize, String)>> {
    let mut seen = vec![false; candidates];
    let mut order = Vec::with_capacity(choices.len().min(candidates));
    for on_assignment::Choice { index, reason } in choices {
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        match seen.get_mut(at) {
            Some(seen) if !*seen => *seen = true,
            Some(_) => return Err(bad(format!("rank named candidate {index} twice"))),
            None => return Err(bad(format!("rank named candidate {index}, there were {candidates}"))),
        }
        order.push((at, state.text("the reason of a choice", reason)?.to_string()));
    }
    Ok(order)
}

/// Sets what bounds the next call.
fn arm(store: &mut Store<State>, limits: &Limits) -> wasmtime::Result<()> {
    store.set_epoch_deadline(Ticking::ticks());
    store.set_fuel(limits.fuel_per_call)
}
