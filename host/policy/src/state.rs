//! What the host functions of one instance work on.

use std::sync::Arc;

use pointsman_scheduler::route::Route;

use crate::asked::{Asked, HostAnswer};
use crate::decision::PolicyId;
use crate::facts::{ActionFacts, CommandFacts};
use crate::failure::Fault;
use crate::hooks::{Terms, WorkerFacts};
use crate::kv::{Pending, Values};
use crate::limiter::Limiter;
use crate::options::{Limits, Sources};

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
    Completing(Arc<ActionFacts>),
    Ranking(Arc<ActionFacts>),
    Admitting(Arc<WorkerFacts>),
}

/// Data of one instance's store.
pub(crate) struct State {
    pub(crate) limits: Arc<Limits>,
    pub(crate) limiter: Limiter,
    pub(crate) now: Now,
    /// Seconds since the Unix epoch, as `host.now` tells.
    pub(crate) clock: f64,
    pub(crate) route: Route,
    pub(crate) terms: Terms,
    /// The current call has edited the route, if only to what it was.
    pub(crate) has_edited: bool,
    /// Notes that the current call may still add.
    pub(crate) notes_left: usize,
    /// What `configure` asked for; later the policy's answer, so that all instances see the same.
    pub(crate) command_when: Option<CommandWhen>,
    pub(crate) log_lines: u32,
    pub(crate) pending: Vec<Pending>,
    pub(crate) sources: Sources,
    /// Who this is; unknown until `configure` has told.
    pub(crate) identity: Option<(PolicyId, Values)>,
    /// What the current call asked for, if somebody wants to know.
    asked: Option<Vec<Asked>>,
}

impl State {
    pub(crate) fn new(limits: &Arc<Limits>, sources: &Sources) -> Self {
        Self {
            limiter: Limiter::new(limits),
            limits: limits.clone(),
            now: Now::Idle,
            clock: 0.0,
            route: Route::default(),
            terms: Terms::default(),
            has_edited: false,
            notes_left: 0,
            command_when: None,
            log_lines: 0,
            pending: Vec::new(),
            sources: sources.clone(),
            identity: None,
            asked: None,
        }
    }

    /// Gets everything ready for one call of the guest. What it may edit is put in after this.
    pub(crate) fn begin(&mut self, now: Now, clock: f64, record: bool) {
        self.limiter.forget();
        self.pending.clear();
        self.log_lines = 0;
        self.has_edited = false;
        self.notes_left = self.limits.notes;
        self.clock = clock;
        self.now = now;
        self.asked = record.then(Vec::new);
    }

    /// Puts what the call stored in force, and tells what it asked for.
    pub(crate) fn end(&mut self) -> Vec<Asked> {
        self.now = Now::Idle;
        if !self.pending.is_empty()
            && let Some((_, values)) = &self.identity
        {
            values.commit(self.pending.drain(..));
        }
        self.asked.take().unwrap_or_default()
    }

    /// Notes that a function was called, for the decision record.
    pub(crate) fn note_asked(
        &mut self,
        function: &'static str,
        argument: Option<&str>,
        answer: impl FnOnce() -> Option<HostAnswer>,
    ) {
        if let Some(asked) = &mut self.asked
            && asked.len() < ASKED_MAX
        {
            asked.push(Asked { function, argument: argument.map(Into::into), answer: answer() });
        }
    }

    fn misplaced(&self, function: &'static str, rule: &'static str) -> wasmtime::Error {
        let place = match self.now {
            Now::Idle => "outside of any call",
            Now::Configuring => "in configure",
            Now::Routing(_) => "in route-action",
            Now::Completing(_) => "in completed",
            Now::Ranking(_) => "in rank",
            Now::Admitting(_) => "in admit",
        };
        Fault::Misplaced { function, place, rule }.into()
    }

    /// The action of the current call.
    pub(crate) fn action(&mut self, function: &'static str) -> wasmtime::Result<&ActionFacts> {
        self.action_about(function, None)
    }

    /// The same for a function that has an argument.
    pub(crate) fn action_about(
        &mut self,
        function: &'static str,
        argument: Option<&str>,
    ) -> wasmtime::Result<&ActionFacts> {
        self.note_asked(function, argument, || None);
        match &self.now {
            Now::Routing(facts) | Now::Completing(facts) | Now::Ranking(facts) => Ok(facts),
            _ => Err(self.misplaced(
                function,
                "it speaks of an action, so only route-action, completed and rank can call it",
            )),
        }
    }

    /// The action's Command, if the policy asked for it: what it did not ask for it must not see, or the decision
    /// would depend on what others asked for.
    pub(crate) fn command(
        &mut self,
        function: &'static str,
        argument: Option<&str>,
    ) -> wasmtime::Result<Option<&CommandFacts>> {
        let when = self.command_when;
        let facts = self.action_about(function, argument)?;
        let asked = when.is_some_and(|when| when.covers(facts.platform.is_some()));
        Ok(facts.command.as_deref().filter(|_| asked))
    }

    /// The route of the current call, to be read.
    pub(crate) fn route(
        &mut self,
        function: &'static str,
        argument: Option<&str>,
    ) -> wasmtime::Result<&Route> {
        self.note_asked(function, argument, || None);
        self.route_now(function).map(|route| &*route)
    }

    /// The route of the current call, to be edited: what comes of it is recorded as a whole.
    pub(crate) fn edit_route(&mut self, function: &'static str) -> wasmtime::Result<&mut Route> {
        self.has_edited = true;
        self.route_now(function)
    }

    fn route_now(&mut self, function: &'static str) -> wasmtime::Result<&mut Route> {
        match &self.now {
            Now::Routing(_) | Now::Completing(_) => Ok(&mut self.route),
            _ => Err(self.misplaced(
                function,
                "it speaks of a route that can be edited, so only route-action and completed can call it",
            )),
        }
    }

    /// Notes which Commands the policy wants.
    pub(crate) fn request_command(&mut self, when: CommandWhen) -> wasmtime::Result<()> {
        if !matches!(self.now, Now::Configuring) {
            return Err(self.misplaced("command.request", "only configure can call it"));
        }
        self.command_when = Some(when);
        Ok(())
    }

    /// The worker of the current call.
    pub(crate) fn worker(
        &mut self,
        function: &'static str,
        argument: Option<&str>,
    ) -> wasmtime::Result<&WorkerFacts> {
        self.note_asked(function, argument, || None);
        match &self.now {
            Now::Admitting(worker) => Ok(worker),
            _ => Err(self.misplaced(function, ONLY_ADMIT)),
        }
    }

    /// The terms of the current call.
    pub(crate) fn terms(&mut self, function: &'static str) -> wasmtime::Result<&mut Terms> {
        match &self.now {
            Now::Admitting(_) => Ok(&mut self.terms),
            _ => Err(self.misplaced(function, ONLY_ADMIT)),
        }
    }

    /// Takes one note from those that the call may make, and checks its text.
    pub(crate) fn one_note(&mut self, text: String) -> wasmtime::Result<Arc<str>> {
        let text = self.text("a note", text)?;
        let limit = self.limits.notes;
        self.notes_left = self
            .notes_left
            .checked_sub(1)
            .ok_or_else(|| bad(format!("it made more than {limit} notes in one call")))?;
        Ok(text)
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

const ONLY_ADMIT: &str = "it speaks of a worker that asks to join, so only admit can call it";

/// A record names so many calls of functions; a policy that makes more is not followed further.
const ASKED_MAX: usize = 256;

/// An answer that can't be.
pub(crate) fn bad(text: impl Into<String>) -> wasmtime::Error {
    Fault::BadAnswer(text.into()).into()
}
