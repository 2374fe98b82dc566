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
use crate::facts::ActionFacts;
use crate::failure::Failure;
use crate::interface::{ConfigProblem, Manifest};
use crate::kv;
use crate::options::{Limits, PoolsSnapshot};
use crate::state::{CommandWhen, Now, State};

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

use bindings::exports::pointsman::policy::{lifecycle, on_action};
use bindings::pointsman::policy as imports;

/// A component, compiled and linked: what instances are made from.
pub(crate) struct Loaded {
    pre: InstancePre<State>,
    lifecycle: lifecycle::GuestIndices,
    on_action: Option<on_action::GuestIndices>,
    hooks: Vec<Hook>,
}

impl Loaded {
    /// Links a component. Whether it fits the interface has been checked before, so that errors here are rare and
    /// may be terse.
    pub(crate) fn new(engine: &Engine, component: &Component) -> Result<Self, String> {
        let pre = linker(engine)
            .and_then(|linker| linker.instantiate_pre(component))
            .map_err(|error| format!("{error:#}"))?;
        let exports = |interface: &str| {
            // Looked up by the version we have; the engine finds compatible ones too.
            component.get_export_index(None, format!("pointsman:policy/{interface}@0.1.0")).is_some()
        };
        let hooks: Vec<Hook> = Hook::ALL.into_iter().filter(|hook| exports(hook.name())).collect();
        let lifecycle =
            lifecycle::GuestIndices::new(&pre).map_err(|error| format!("lifecycle: {error:#}"))?;
        let on_action = match hooks.contains(&Hook::OnAction) {
            true => {
                Some(on_action::GuestIndices::new(&pre).map_err(|error| format!("on-action: {error:#}"))?)
            }
            false => None,
        };
        Ok(Self { pre, lifecycle, on_action, hooks })
    }

    /// Hooks that the component exports.
    pub(crate) fn hooks(&self) -> &[Hook] {
        &self.hooks
    }
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

/// One instance, configured. After a failed call it is dead and must be dropped.
pub(crate) struct Instance {
    store: Store<State>,
    on_action: Option<on_action::Guest>,
    limits: Arc<Limits>,
}

/// What an instance said when it was configured.
pub(crate) type Configured = Result<(Manifest, Option<CommandWhen>), Vec<ConfigProblem>>;

/// What `route-action` answered: the route, whether it was refused, and the fuel it took.
pub(crate) type Answer = (Route, Option<Rejection>, u64);

impl Instance {
    /// Makes an instance and configures it. `identity` is unknown for the first instance of a policy, as only its
    /// manifest tells.
    pub(crate) fn new(
        loaded: &Loaded,
        config: &str,
        limits: &Arc<Limits>,
        pools: &PoolsSnapshot,
        identity: Option<(PolicyId, Arc<kv::Store>)>,
    ) -> Result<(Self, Configured), Failure> {
        let mut state = State::new(limits, pools);
        state.identity = identity;
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        state.begin(Now::Configuring, clock, Route::default());
        let mut store = Store::new(loaded.pre.engine(), state);
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(limits.hostcall_bytes);
        let result = Self::start(&mut store, loaded, config, limits);
        let (on_action, answer) =
            result.map_err(|error| Failure::of(&error, &store.data().limiter, limits.fuel_per_call))?;
        let state = store.data_mut();
        state.end();
        let configured = match answer {
            Ok(manifest) => Ok((convert::manifest(manifest), state.command_when)),
            Err(errors) => Err(errors.into_iter().map(convert::config_problem).collect()),
        };
        Ok((Self { store, on_action, limits: limits.clone() }, configured))
    }

    #[allow(clippy::type_complexity)]
    fn start(
        store: &mut Store<State>,
        loaded: &Loaded,
        config: &str,
        limits: &Limits,
    ) -> wasmtime::Result<(Option<on_action::Guest>, Result<lifecycle::Manifest, Vec<lifecycle::ConfigError>>)>
    {
        arm(store, limits)?;
        let instance = loaded.pre.instantiate(&mut *store)?;
        let lifecycle = loaded.lifecycle.load(&mut *store, &instance)?;
        let on_action = match &loaded.on_action {
            Some(indices) => Some(indices.load(&mut *store, &instance)?),
            None => None,
        };
        Ok((on_action, lifecycle.call_configure(&mut *store, config)?))
    }

    /// Tells the first instance who it is.
    pub(crate) fn identify(&mut self, policy: PolicyId, store: Arc<kv::Store>) {
        self.store.data_mut().identity = Some((policy, store));
    }

    /// Asks about an action. A policy without that hook changes nothing.
    pub(crate) fn route_action(&mut self, facts: &Arc<ActionFacts>, route: Route) -> Result<Answer, Failure> {
        let Some(on_action) = &self.on_action else { return Ok((route, None, 0)) };
        let limit = self.limits.fuel_per_call;
        self.store.data_mut().begin(Now::Routing(facts.clone()), facts.now_unix_seconds, route);
        let result = arm(&mut self.store, &self.limits)
            .and_then(|()| on_action.call_route_action(&mut self.store))
            .and_then(|answer| match answer {
                Ok(()) => Ok(None),
                Err(rejection) => convert::rejection(self.store.data(), rejection).map(Some),
            });
        match result {
            Ok(rejection) => {
                let fuel = limit.saturating_sub(self.store.get_fuel().unwrap_or(limit));
                Ok((self.store.data_mut().end(), rejection, fuel))
            }
            Err(error) => Err(Failure::of(&error, &self.store.data().limiter, limit)),
        }
    }
}

/// Sets what bounds the next call.
fn arm(store: &mut Store<State>, limits: &Limits) -> wasmtime::Result<()> {
    store.set_epoch_deadline(Ticking::ticks());
    store.set_fuel(limits.fuel_per_call)
}
