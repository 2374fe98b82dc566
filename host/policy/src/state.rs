//! What the host functions of one instance work on.

use std::sync::Arc;

use pointsman_scheduler::route::Route;

use crate::decision::PolicyId;
use crate::facts::{ActionFacts, CommandFacts};
use crate::failure::Fault;
use crate::kv::{Pending, Store};
use crate::limiter::Limiter;
use crate::options::{Limits, PoolsSnapshot};

/// Which Commands a policy asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CommandWhen {
    WithoutPlatform,
    Always,
}

impl CommandWhen {
    /// Does an action with or without a platform come with its Command?
    pub(crate) fn covers(self, has_platform: bool) -> bool {
        match self {
            Self::WithoutPlatform => !has_platform,
            Self::Always => true,
        }
    }
}

/// What the instance is doing.
#[derive(Debug)]
pub(crate) enum Now {
    Idle,
    Configuring,
    Routing(Arc<ActionFacts>),
}

/// Data of one instance's store.
pub(crate) struct State {
    pub(crate) limits: Arc<Limits>,
    pub(crate) limiter: Limiter,
    pub(crate) now: Now,
    /// Seconds since the Unix epoch, as `host.now` tells.
    pub(crate) clock: f64,
    pub(crate) route: Route,
    /// Notes that the current call may still add.
    pub(crate) notes_left: usize,
    /// What `configure` asked for; later the generation's answer, so that all instances see the same.
    pub(crate) command_when: Option<CommandWhen>,
    pub(crate) log_lines: u32,
    pub(crate) pending: Vec<Pending>,
    pub(crate) pools: PoolsSnapshot,
    /// Who this is; unknown until `configure` has told.
    pub(crate) identity: Option<(PolicyId, Arc<Store>)>,
}

impl State {
    pub(crate) fn new(limits: &Arc<Limits>, pools: &PoolsSnapshot) -> Self {
        Self {
            limiter: Limiter::new(limits),
            limits: limits.clone(),
            now: Now::Idle,
            clock: 0.0,
            route: Route::default(),
            notes_left: 0,
            command_when: None,
            log_lines: 0,
            pending: Vec::new(),
            pools: pools.clone(),
            identity: None,
        }
    }

    /// Gets everything ready for one call of the guest.
    pub(crate) fn begin(&mut self, now: Now, clock: f64, route: Route) {
        self.limiter.forget();
        self.pending.clear();
        self.log_lines = 0;
        self.notes_left = self.limits.notes;
        self.clock = clock;
        self.route = route;
        self.now = now;
    }

    /// Takes the edited route out and puts what the call stored in force.
    pub(crate) fn end(&mut self) -> Route {
        self.now = Now::Idle;
        if !self.pending.is_empty()
            && let Some((_, store)) = &self.identity
        {
            store.commit(self.pending.drain(..));
        }
        std::mem::take(&mut self.route)
    }

    fn misplaced(&self, function: &'static str, rule: &'static str) -> wasmtime::Error {
        let place = match self.now {
            Now::Idle => "outside of any call",
            Now::Configuring => "in configure",
            Now::Routing(_) => "in route-action",
        };
        Fault::Misplaced { function, place, rule }.into()
    }

    /// The action of the current call.
    pub(crate) fn action(&self, function: &'static str) -> wasmtime::Result<&ActionFacts> {
        match &self.now {
            Now::Routing(facts) => Ok(facts),
            _ => Err(self.misplaced(function, "it speaks of an action, so only route-action can call it")),
        }
    }

    /// The action's Command, if the policy asked for it: what it did not ask for it must not see, or the decision
    /// would depend on what others asked for.
    pub(crate) fn command(&self, function: &'static str) -> wasmtime::Result<Option<&CommandFacts>> {
        let facts = self.action(function)?;
        let asked = self.command_when.is_some_and(|when| when.covers(facts.platform.is_some()));
        Ok(facts.command.as_ref().filter(|_| asked))
    }

    /// The route of the current call.
    pub(crate) fn route(&mut self, function: &'static str) -> wasmtime::Result<&mut Route> {
        self.action(function)?;
        Ok(&mut self.route)
    }

    /// Notes which Commands the policy wants.
    pub(crate) fn request_command(&mut self, when: CommandWhen) -> wasmtime::Result<()> {
        if !matches!(self.now, Now::Configuring) {
            return Err(self.misplaced("command.request", "only configure can call it"));
        }
        self.command_when = Some(when);
        Ok(())
    }

    /// For functions of hooks that are not called yet.
    pub(crate) fn no_worker<T>(&self, function: &'static str) -> wasmtime::Result<T> {
        Err(self.misplaced(function, "it speaks of a worker that asks to join, so only admit can call it"))
    }

    /// Checks a string of an answer.
    pub(crate) fn text(&self, what: &str, text: String) -> wasmtime::Result<Arc<str>> {
        let limit = self.limits.string_bytes;
        if text.len() > limit {
            let bytes = text.len();
            return Err(bad(format!("{what} has {bytes} bytes, allowed are {limit}")));
        }
        Ok(text.into())
    }

    /// Checks a string of an answer that must say something.
    pub(crate) fn name(&self, what: &str, text: String) -> wasmtime::Result<Arc<str>> {
        if text.is_empty() {
            return Err(bad(format!("{what} is empty")));
        }
        self.text(what, text)
    }
}

/// An answer that can't be.
pub(crate) fn bad(text: impl Into<String>) -> wasmtime::Error {
    Fault::BadAnswer(text.into()).into()
}
