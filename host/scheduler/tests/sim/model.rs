//! What an onlooker who sees only events and effects may expect. It knows nothing of classes, lanes, or shapes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::candidates::CandidateView;
use pointsman_scheduler::effect::{Effect, End, OperationStage, Reply};
use pointsman_scheduler::event::{Event, HostExclusive, Report, Stage, Verdict, WorkerSpec};
use pointsman_scheduler::explain::{Explanation, Obstacle, Reason, UNAVAILABLE_MAX};
use pointsman_scheduler::holds::Hold;
use pointsman_scheduler::ids::{ActionDigest, OperationId, PollId, TaskId};
use pointsman_scheduler::route::{Exclusivity, Route, Scope, SizeClass};
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::task::Task;
use pointsman_scheduler::time::Time;
use pointsman_scheduler::views::WorkerView;

use super::gates::Gates;
use crate::support::Ask;

/// Of so many workers those that are gone are forgotten.
const SPECS_MAX: usize = 48;

pub type Checked = Result<(), String>;

/// `ensure!(condition, "text", …)`: what must hold, or the text as an error.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(format!($($text)*));
        }
    };
}

#[derive(Clone, Debug)]
pub struct Op {
    pub name: Arc<str>,
    pub task: TaskId,
    pub watchers: u32,
    unwatched_since: Time,
    sequence: u64,
    pub ended: Option<Time>,
}

#[derive(Clone, Debug)]
struct Call {
    worker: Arc<str>,
    wait_until: Time,
}

/// What a worker was given and has not been heard to stop.
#[derive(Clone, Debug)]
struct Held {
    digest: ActionDigest,
    demand: BTreeMap<Arc<str>, u64>,
    exclusivity: Exclusivity,
    /// Its command is over.
    over: bool,
}

#[derive(Default)]
pub struct Model {
    pub ops: BTreeMap<OperationId, Op>,
    /// Digest of every task that is not over.
    tasks: BTreeMap<TaskId, ActionDigest>,
    /// Who has a task.
    running: BTreeMap<TaskId, Arc<str>>,
    held: BTreeMap<Arc<str>, Held>,
    /// All tasks as they were after the last step.
    was: BTreeMap<TaskId, Task>,
    /// Tasks that waited for one host after the last step.
    were_aside: BTreeSet<TaskId>,
    /// Those of them for which it was kept free.
    had_claim: BTreeSet<TaskId>,
    /// What a worker last said it executed, whoever wants it.
    says: BTreeMap<Arc<str>, ActionDigest>,
    /// What ran, and where, on workers that are lost in this step, which is after the event.
    gone_now: Vec<(Arc<str>, ActionDigest)>,
    /// Tasks whose worker was lost in this step, and so maybe after another was handed out in it.
    lost_now: BTreeSet<TaskId>,
    calls: BTreeMap<PollId, Call>,
    /// What workers are, as far as it counts.
    specs: BTreeMap<Arc<str>, Arc<WorkerSpec>>,
    /// What the caller of this step was.
    spec_was: Option<Arc<WorkerSpec>>,
    /// Until when a worker may be silent.
    silence: BTreeMap<Arc<str>, Time>,
    /// By how much executing workers may call later than while few execute.
    grown: Duration,
    pub gates: Gates,
    /// Counts, so that a test can see that it tests something.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Model {
    fn count(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Forgets workers that are gone, so that a long run takes no longer for each step than a short one.
    fn forget_the_gone(&mut self, now: Time) {
        if self.specs.len() < SPECS_MAX {
            return;
        }
        let mut kept: BTreeSet<Arc<str>> = self.running.values().cloned().collect();
        kept.extend(self.held.keys().chain(self.says.keys()).cloned());
        kept.extend(self.specs.keys().filter(|w| self.is_there(w, now)).cloned());
        self.specs.retain(|w, _| kept.contains(w));
        self.silence.retain(|w, _| kept.contains(w));
    }

    fn heard(&mut self, worker: &Arc<str>, now: Time, config: &Config) {
        self.silence.insert(worker.clone(), now + config.worker_expiry + self.grown);
    }

    /// What is known before the core is told.
    pub fn before(&mut self, now: Time, event: &Event, config: &Config) {
        self.forget_the_gone(now);
        self.lost_now.clear();
        let executing =
            Duration::from_millis(1000 * self.running.len() as u64 / config.heartbeats_per_s as u64);
        self.grown = executing.min(config.heartbeat_max).saturating_sub(config.heartbeat);
        let caller = match event {
            Event::Poll(poll) => Some(&poll.worker),
            _ => None,
        };
        let gone = |model: &Self, w: &Arc<str>| !model.is_there(w, now) && caller != Some(w);
        let lost: Vec<Arc<str>> =
            self.held.keys().chain(self.says.keys()).filter(|w| gone(self, w)).cloned().collect();
        self.gone_now.clear();
        for worker in lost {
            let digests = [self.held.remove(&worker).map(|h| h.digest), self.says.remove(&worker)];
            let host = &self.specs[&worker].host;
            self.gone_now.extend(digests.into_iter().flatten().map(|d| (host.clone(), d)));
        }
        match event {
            Event::Poll(poll) => {
                self.spec_was = self.specs.insert(poll.worker.clone(), poll.spec.clone());
                self.heard(&poll.worker, now, config);
                let call = Call { worker: poll.worker.clone(), wait_until: poll.wait_until };
                self.calls.insert(poll.poll, call);
                self.says.remove(&poll.worker);
                // Who says it runs what its sibling runs is not believed.
                if let Report::Executing(digest, _) = &poll.report
                    && !self.runs(&poll.spec.host, digest)
                {
                    self.says.insert(poll.worker.clone(), digest.clone());
                }
                match (&poll.report, self.held.get_mut(&poll.worker)) {
                    (Report::Executing(d, Stage::UploadingOutputs), Some(held)) if *d == held.digest => {
                        held.demand.clear();
                        held.over = true;
                    }
                    (Report::Executing(d, _), Some(held)) if *d == held.digest => {}
                    _ => _ = self.held.remove(&poll.worker),
                }
            }
            Event::PollDropped(poll) => {
                if let Some(call) = self.calls.remove(poll) {
                    self.heard(&call.worker, now, config);
                }
            }
            Event::Watch(id) => {
                if let Some(op) = self.ops.get_mut(id) {
                    op.watchers += 1;
                }
            }
            Event::Unwatch(id) => {
                if let Some(op) = self.ops.get_mut(id) {
                    op.watchers -= 1;
                    op.unwatched_since = now;
                }
            }
            _ => {}
        }
    }

    pub fn after(
        &mut self,
        now: Time,
        event: &Event,
        effects: &[Effect],
        core: &Scheduler,
        config: &Config,
    ) -> Checked {
        self.spec_in_force(event, core)?;
        let mut assigned = Vec::new();
        let mut submitted = 0;
        for effect in effects {
            match effect {
                Effect::Submitted { operation, task, joined } => {
                    submitted += 1;
                    self.submitted(now, event, *operation, *task, *joined)?;
                    if core.waits_for(*task).is_some() {
                        self.count("waits for a host");
                    }
                }
                Effect::Refused(_) => {
                    submitted += 1;
                    self.count("refused submission");
                }
                Effect::Stage { operation, task, sequence, stage } => {
                    self.newer(*operation, *sequence)?;
                    self.stage(now, event, *task, stage)?;
                }
                Effect::Finished { operation, task, sequence, end } => {
                    self.newer(*operation, *sequence)?;
                    self.finished(now, event, *operation, *task, end, config)?;
                }
                Effect::Forgotten(operation) => self.forgotten(now, *operation, config)?,
                Effect::Dropped(task) => {
                    ensure!(self.tasks.remove(task).is_some(), "{task:?} is dropped twice");
                    self.running.remove(task);
                }
                Effect::Hold { hold, pattern, outcome } => self.gates.held(*hold, pattern, *outcome)?,
                Effect::Host { host, news } => {
                    let what = self.gates.news(now, event, host, news)?;
                    self.count(what);
                }
                Effect::Retried(task) => {
                    let failed =
                        core.task(*task).is_none_or(|t| t.attempts.last().is_some_and(|a| a.has_failed()));
                    ensure!(failed, "{task:?} is said to have failed, and has not");
                }
                Effect::Reply { poll, reply } => {
                    assigned.extend(self.reply(now, event, *poll, *reply, core, config)?);
                }
            }
        }
        ensure!(
            submitted == usize::from(matches!(event, Event::Submit(_))),
            "{submitted} answers to a submission"
        );
        self.must_be_answered(event)?;
        if let [(worker, task)] = &assigned[..] {
            self.nothing_more_urgent_was_passed_over(worker, *task, core)?;
        }
        self.was = self.tasks.keys().filter_map(|id| Some((*id, core.task(*id)?.clone()))).collect();
        self.were_aside =
            core.queued_after(None).map(|(_, id, _)| id).filter(|id| core.waits_for(*id).is_some()).collect();
        self.had_claim = self.were_aside.iter().filter(|id| core.kept_for(**id).is_some()).copied().collect();
        if !self.had_claim.is_empty() {
            self.count("keeps a host free");
        }
        self.nothing_is_lost(core)?;
        self.deadlines_are_known(now, core, config)
    }

    /// Whoever runs nothing is what it says it is.
    fn spec_in_force(&mut self, event: &Event, core: &Scheduler) -> Checked {
        let Event::Poll(poll) = event else { return Ok(()) };
        // Lost in this step, or one too many.
        let Some(spec) = core.spec_of(&poll.worker) else { return Ok(()) };
        let had = self.running.iter().find(|(_, w)| **w == poll.worker).map(|(t, _)| *t);
        let has_it_still = had.is_some() && core.task_on(&poll.worker) == had;
        if spec != &poll.spec {
            let busy = matches!(poll.report, Report::Executing(..)) || has_it_still;
            ensure!(busy, "{} runs nothing and is not what it says it is", poll.worker);
            self.count("not yet what it says it is");
        } else if self.spec_was.take().is_some_and(|was| was != *spec) {
            self.count("another than before");
        }
        self.specs.insert(poll.worker.clone(), spec.clone());
        Ok(())
    }

    /// They are hosts that have a worker waiting for such an action, each once.
    pub fn are_candidates(&mut self, candidates: &[CandidateView], ask: &Ask, at_most: usize) -> Checked {
        ensure!(candidates.len() <= at_most, "{} candidates, not {at_most}", candidates.len());
        let hosts: BTreeSet<_> = candidates.iter().map(|c| c.host).collect();
        ensure!(hosts.len() == candidates.len(), "a candidate is there twice: {candidates:?}");
        for candidate in candidates {
            let waits = self.calls.values().map(|c| &self.specs[&c.worker]).any(|spec| {
                spec.host == candidate.name
                    && spec.pool == candidate.pool
                    && meets(spec, &ask.instance, &ask.route)
            });
            ensure!(waits, "{candidate:?} has no worker that waits for {ask:?}");
            ensure!(!self.runs(&candidate.name, &ask.digest), "{candidate:?} runs {ask:?} already");
        }
        Ok(())
    }

    /// It went to the host that was wanted most.
    pub fn count_preferred(&mut self) {
        self.count("to a preferred host");
    }

    // === Operations ===

    fn submitted(
        &mut self,
        now: Time,
        event: &Event,
        operation: OperationId,
        task: TaskId,
        joined: bool,
    ) -> Checked {
        let Event::Submit(submit) = event else { return Err("accepted what nobody sent".into()) };
        self.count(if joined { "joined" } else { "accepted" });
        match self.tasks.get(&task) {
            Some(digest) => ensure!(joined && *digest == submit.digest, "joined another action"),
            None => ensure!(!joined, "joined a task that is over"),
        }
        self.tasks.insert(task, submit.digest.clone());
        let op = Op {
            name: submit.name.clone(),
            task,
            watchers: 1,
            unwatched_since: now,
            sequence: 0,
            ended: None,
        };
        ensure!(self.ops.insert(operation, op).is_none(), "{operation:?} is used twice");
        Ok(())
    }

    fn newer(&mut self, operation: OperationId, sequence: u64) -> Checked {
        let op = self.ops.get_mut(&operation).ok_or("a state of an operation that nobody has")?;
        ensure!(op.ended.is_none(), "{} has ended and has a new state", op.name);
        ensure!(sequence > op.sequence, "{} goes back to state {sequence}", op.name);
        op.sequence = sequence;
        Ok(())
    }

    fn stage(&mut self, now: Time, event: &Event, task: TaskId, stage: &OperationStage) -> Checked {
        match stage {
            OperationStage::Executing { host } => {
                let worker = self.running.get(&task).ok_or("an operation executes on no worker")?;
                ensure!(self.specs[worker].host == *host, "an operation executes on another host");
            }
            OperationStage::Queued => {
                let Some(worker) = self.running.remove(&task) else { return Ok(()) };
                let silent = now >= self.silence[&worker];
                let said_so = matches!(event, Event::Poll(poll) if poll.worker == worker);
                if silent {
                    self.lost_now.insert(task);
                }
                ensure!(silent || said_so, "a task was taken from {worker} for no reason");
                let again = matches!(event, Event::Poll(poll) if poll.worker == worker
                    && matches!(poll.report, Report::Completed(_, Verdict::Again(_))));
                self.count(match () {
                    () if again => "run again",
                    () if silent => "lost",
                    () => "given back",
                });
            }
        }
        Ok(())
    }

    fn finished(
        &mut self,
        now: Time,
        event: &Event,
        operation: OperationId,
        task: TaskId,
        end: &End,
        config: &Config,
    ) -> Checked {
        let digest = self.tasks.get(&task).ok_or("an operation of no task ended")?;
        let right = match (end, event) {
            (End::Reported, Event::Poll(poll)) => {
                let holds = self.running.get(&task) == Some(&poll.worker);
                let enough = || {
                    let tries = self.was.get(&task).map_or(0, |t| t.attempts.len() + 1);
                    tries >= config.max_attempts || config.classes_max < 1000 || config.demands_max < 64
                };
                holds
                    && match &poll.report {
                        Report::Completed(d, Verdict::Answer) => d == digest,
                        Report::Completed(d, Verdict::Again(_)) => d == digest && enough(),
                        _ => false,
                    }
            }
            (End::Reported, Event::FoundInCache(found)) => *found == task,
            (End::Cancelled, Event::Cancel(id)) => *id == operation,
            (End::Refused(_), Event::Refuse { task: refused, .. }) => *refused == task,
            (End::GaveUp(text), _) => text.contains("; attempt 1 on h"),
            (End::Unschedulable(_), _) => {
                let was = self.was.get(&task).ok_or("ended before it was seen")?;
                let could =
                    |(w, s): (&Arc<str>, &Arc<WorkerSpec>)| is_eligible(s, was) && self.is_there(w, now);
                let other = self.specs.iter().find(|o| could(*o));
                ensure!(other.is_none(), "{other:?} could have run {was:?}");
                now.since(was.queued_at) >= config.unschedulable_timeout
            }
            _ => false,
        };
        ensure!(right, "{operation:?} ended with {end:?} by {event:?}");
        let wanted_again = matches!(event, Event::Poll(poll) if matches!(poll.report, Report::Completed(_, Verdict::Again(_))));
        self.count(match end {
            End::Reported if matches!(event, Event::FoundInCache(_)) => "answered by the cache",
            End::Reported if wanted_again => "not run again",
            End::Reported => "reported",
            End::Cancelled => "cancelled",
            End::Refused(_) => "refused",
            End::GaveUp(_) => "gave up",
            End::Unschedulable(_) => "unschedulable",
        });
        if let Some(op) = self.ops.get_mut(&operation) {
            op.ended = Some(now);
        }
        Ok(())
    }

    fn forgotten(&mut self, now: Time, operation: OperationId, config: &Config) -> Checked {
        let op = self.ops.remove(&operation).ok_or("an operation is forgotten twice")?;
        let due = match op.ended {
            Some(ended) => ended + config.completed_retention,
            None => op.unwatched_since + config.abandoned,
        };
        ensure!(due <= now, "{} is forgotten early", op.name);
        ensure!(op.ended.is_some() || op.watchers == 0, "{} is forgotten under its listeners", op.name);
        self.count(if op.ended.is_some() { "forgotten" } else { "abandoned" });
        Ok(())
    }

    // === Workers ===

    fn reply(
        &mut self,
        now: Time,
        event: &Event,
        poll: PollId,
        reply: Reply,
        core: &Scheduler,
        config: &Config,
    ) -> Result<Option<(Arc<str>, TaskId)>, String> {
        let call = self.calls.remove(&poll).ok_or("a call is answered that is not open")?;
        let is_this = matches!(event, Event::Poll(p) if p.poll == poll);
        let is_busy = matches!(event, Event::Poll(p) if is_this && matches!(p.report, Report::Executing(..)));
        match reply {
            Reply::Execute(task) => return self.execute(now, event, &call, task, core, config),
            Reply::Continue => ensure!(is_busy, "who has nothing to do is told to go on"),
            Reply::Idle => ensure!(is_this || call.wait_until <= now, "a call is given up early"),
            Reply::Superseded => {
                let newer = matches!(event, Event::Poll(p) if p.worker == call.worker && !is_this);
                ensure!(newer, "a call is superseded by nothing");
                return Ok(None);
            }
            Reply::TooManyWorkers => {
                self.silence.remove(&call.worker);
                return Ok(None);
            }
        }
        self.heard(&call.worker, now, config);
        Ok(None)
    }

    fn execute(
        &mut self,
        now: Time,
        event: &Event,
        call: &Call,
        id: TaskId,
        core: &Scheduler,
        config: &Config,
    ) -> Result<Option<(Arc<str>, TaskId)>, String> {
        let (worker, spec) = (&call.worker, self.specs[&call.worker].clone());
        let Some(task) = core.task(id) else {
            // Time ended it in the same step.
            let digest = self.tasks.get(&id).ok_or("a worker is given a task that was over before")?.clone();
            let exclusivity = Exclusivity::Shared;
            self.held
                .insert(worker.clone(), Held { digest, demand: BTreeMap::new(), exclusivity, over: false });
            self.running.insert(id, worker.clone());
            self.heard(worker, now, config);
            return Ok(None);
        };
        let preferred_idle = matches!(event, Event::Poll(p) if p.worker == *worker && p.prefer_idle);
        ensure!(!preferred_idle, "{worker} wanted nothing and was given a task");
        let again = self.running.get(&id);
        ensure!(again.is_none_or(|w| w == worker), "a task is on {again:?} and on {worker}");
        let is_new = again.is_none();
        ensure!(is_eligible(&spec, task), "{worker} may not run {:?}", task.route);
        let failed_on = |host: &str| task.attempts.iter().any(|a| a.has_failed() && &*a.host == host);
        let elsewhere = |(w, s): (&Arc<str>, &Arc<WorkerSpec>)| {
            (!is_relative_size(task) || s.size_class == spec.size_class)
                && same_strategy(s, &spec, task)
                && is_eligible(s, task)
                && !failed_on(&s.host)
                && self.is_there(w, now)
                && self.gates.serves(s)
        };
        if is_new && failed_on(&spec.host) {
            let other = self.specs.iter().find(|o| elsewhere(*o));
            ensure!(other.is_none(), "a task goes back to {worker}, and there is {other:?}");
            self.count("back to where it failed");
        }
        if is_new {
            let runs = |t: TaskId| self.running.get(&t).is_some_and(|w| self.specs[w].host == spec.host);
            self.gates.given(now, &spec, id, task, runs, config)?;
        }
        let digest = &task.digest;
        let said =
            self.says.iter().find(|(w, d)| *w != worker && *d == digest && self.specs[*w].host == spec.host);
        let said = said.filter(|(w, _)| self.is_there(w, now));
        ensure!(said.is_none(), "{worker} is given {digest:?}, and {said:?} has not stopped");
        self.heard(worker, now, config);
        self.running.insert(id, worker.clone());
        // It stops whatever else it does before it begins.
        self.says.remove(worker);
        let (digest, exclusivity) = (task.digest.clone(), task.route.exclusivity.clone());
        if is_new {
            self.tolerates(now, &spec, &exclusivity)?;
            self.is_meant_size(now, &spec, task)?;
            self.is_meant_strategy(now, &spec, id, task, core)?;
        }
        let demand = demand(core, id, &spec);
        self.held.insert(worker.clone(), Held { digest, demand, exclusivity, over: false });
        self.host_is_sound(now, &spec)?;
        self.count(if is_new { "assigned" } else { "sent again" });
        Ok(is_new.then(|| (worker.clone(), id)))
    }

    /// The core knows of the worker.
    fn is_there(&self, worker: &Arc<str>, now: Time) -> bool {
        let silent = self.silence.get(worker).is_none_or(|until| now >= *until);
        !silent || self.calls.values().any(|c| c.worker == *worker)
    }

    /// What workers of a host hold that are not lost.
    fn held_on<'a>(&'a self, host: &'a str, now: Time) -> impl Iterator<Item = &'a Held> {
        self.held.iter().filter_map(move |(worker, held)| {
            let is_there = self.is_there(worker, now);
            (is_there && &*self.specs[worker].host == host).then_some(held)
        })
    }

    /// What executes on the host, in the pool, and everywhere lets such an action begin.
    fn tolerates(&mut self, now: Time, spec: &WorkerSpec, exclusivity: &Exclusivity) -> Checked {
        let there = || self.held.iter().filter(|(w, h)| !h.over && self.is_there(w, now));
        let here: Vec<_> = there().filter(|(w, _)| self.specs[*w].host == spec.host).collect();
        let alone = here.iter().find(|(_, h)| h.exclusivity == Exclusivity::Host);
        ensure!(alone.is_none(), "{} executes {alone:?}, which is exclusive, and is given more", spec.host);
        match exclusivity {
            Exclusivity::Shared => {}
            Exclusivity::Host => {
                let strays =
                    self.says.keys().filter(|w| self.is_there(w, now) && self.specs[*w].host == spec.host);
                let busy = here.len() + strays.count();
                ensure!(busy == 0, "{} executes {here:?} and is given something exclusive", spec.host);
                self.count("alone");
            }
            Exclusivity::Group { name, scope, at_most } => {
                let same = |h: &Held| matches!(&h.exclusivity, Exclusivity::Group { name: n, scope: s, .. } if (n, s) == (name, scope));
                let within = |w: &Arc<str>| match scope {
                    Scope::Host => self.specs[w].host == spec.host,
                    Scope::Pool => self.specs[w].pool == spec.pool,
                    Scope::Cluster => true,
                };
                let n = there().filter(|(w, h)| same(h) && within(w)).count();
                ensure!(n < *at_most as usize, "{n} of {exclusivity:?} execute, and one more begins");
                self.count("in a group");
            }
        }
        Ok(())
    }

    /// Nobody who is there has a size that is meant more.
    fn is_meant_size(&mut self, now: Time, spec: &WorkerSpec, task: &Task) -> Checked {
        let there = self.specs.iter().filter(|(w, s)| self.is_there(w, now) && is_eligible(s, task));
        let sizes: BTreeSet<u32> = there.map(|(_, s)| s.size_class).collect();
        let meant = match task.route.size {
            SizeClass::Learned | SizeClass::Exactly(_) => return Ok(()),
            SizeClass::Smallest => sizes.first(),
            SizeClass::Largest => sizes.last(),
            SizeClass::AtLeast(n) => sizes.range(n..).next().or(sizes.last()),
        };
        ensure!(meant == Some(&spec.size_class), "{:?} of {sizes:?} is {}", task.route.size, spec.size_class);
        self.count("of a relative size");
        Ok(())
    }

    /// Nobody who is there and takes work offers a strategy that is wanted more.
    fn is_meant_strategy(
        &mut self,
        now: Time,
        spec: &WorkerSpec,
        id: TaskId,
        task: &Task,
        core: &Scheduler,
    ) -> Checked {
        let Some(wanted) = &task.route.strategies else { return Ok(()) };
        let drained = |s: &WorkerSpec| {
            self.gates.holds.iter().any(|(hold, pattern)| *hold == Hold::Drain && pattern.matches(&s.id))
        };
        let there = |s: &&Arc<WorkerSpec>| {
            (!is_relative_size(task) || s.size_class == spec.size_class)
                && is_eligible(s, task)
                && !drained(s)
        };
        let workers =
            || self.specs.iter().filter(|(w, _)| self.is_there(w, now)).map(|(_, s)| s).filter(there);
        let meant = wanted.iter().find(|w| workers().any(|s| s.strategies().contains(w)));
        ensure!(
            meant.is_some() && core.strategy_of(id) == meant,
            "{wanted:?} by {:?} on {spec:?}, and {meant:?} is offered",
            core.strategy_of(id)
        );
        let what = if meant == wanted.first() { "by the first strategy" } else { "by another strategy" };
        self.count(what);
        Ok(())
    }

    fn host_is_sound(&self, now: Time, spec: &WorkerSpec) -> Checked {
        let held: Vec<&Held> = self.held_on(&spec.host, now).collect();
        let digests: BTreeSet<_> = held.iter().map(|h| &h.digest).collect();
        ensure!(digests.len() == held.len(), "{} runs one digest twice", spec.host);
        let max = spec.max_inflight_tasks as usize;
        ensure!(max == 0 || held.len() <= max, "{} runs {} at once", spec.host, held.len());
        for key in ["cpu", "mem"] {
            let taken: u64 = held.iter().filter_map(|h| h.demand.get(key)).sum();
            let total = amount(spec, key).unwrap_or(0);
            ensure!(taken <= total, "{} has {total} {key}, and {taken} are taken", spec.host);
        }
        Ok(())
    }

    fn must_be_answered(&self, event: &Event) -> Checked {
        let Event::Poll(poll) = event else { return Ok(()) };
        let at_once = poll.prefer_idle || matches!(poll.report, Report::Executing(..));
        ensure!(!at_once || !self.calls.contains_key(&poll.poll), "{} must be answered at once", poll.worker);
        let open = self.calls.values().filter(|c| c.worker == poll.worker).count();
        ensure!(open <= 1, "{} has {open} open calls", poll.worker);
        Ok(())
    }

    /// One task was handed out in this step, so what was free before is what is free now and what it takes. Between
    /// invocations it is the core's own check that looks at every choice; here, within one.
    fn nothing_more_urgent_was_passed_over(&self, worker: &str, id: TaskId, core: &Scheduler) -> Checked {
        let spec = &self.specs[worker];
        let Some(assigned) = core.task(id) else { return Ok(()) };
        // Its host was kept free for it, or had nothing better to do.
        if self.had_claim.contains(&id) {
            return Ok(());
        }
        let [path] = &paths(core, id)[..] else { return Ok(()) };
        for (_, other, _) in core.queued_after(None) {
            let task = core.task(other).ok_or("a queued task is gone")?;
            let failed_here = task.attempts.iter().any(|a| a.has_failed() && a.host == spec.host);
            let ran_here = self.gone_now.iter().any(|(h, d)| *h == spec.host && *d == task.digest);
            let runs_here = ran_here || self.runs(&spec.host, &task.digest);
            let lost_now = self.lost_now.contains(&other);
            // What is due in one step happens in order of time: it may have come back after the other was handed out.
            let back_now = self.were_aside.contains(&other) && core.waits_for(other).is_none();
            let is_sibling = paths(core, other).contains(path);
            let waits_elsewhere = core.waits_for(other).is_some_and(|(host, _)| *host != spec.host);
            if !is_sibling
                || waits_elsewhere
                || lost_now
                || back_now
                // A host was kept for it; should that change in this step, it is after others have chosen.
                || self.had_claim.contains(&other)
                // It may not be tolerated now, or its size is meant elsewhere.
                || task.route.exclusivity != Exclusivity::Shared
                || is_relative(task)
                || task.key > assigned.key
                || failed_here
                || runs_here
                || !is_eligible(spec, task)
            {
                continue;
            }
            // It takes no more than the one that was preferred, so it had room.
            let (asked, given) = (demand(core, other, spec), demand(core, id, spec));
            let fits = asked.iter().all(|(k, v)| given.get(k).is_some_and(|g| v <= g) || *v == 0);
            ensure!(
                !fits,
                "{worker} was given {} before {}: {assigned:?} before {task:?}",
                assigned.sequence,
                task.sequence
            );
        }
        Ok(())
    }

    fn runs(&self, host: &str, digest: &ActionDigest) -> bool {
        let held = self.held.iter().map(|(w, h)| (w, &h.digest));
        held.chain(&self.says).any(|(w, d)| &*self.specs[w].host == host && d == digest)
    }

    // === All ===

    fn nothing_is_lost(&self, core: &Scheduler) -> Checked {
        for (id, op) in &self.ops {
            let there = core.operation_by_id(*id).ok_or_else(|| format!("{} is lost", op.name))?;
            ensure!(there.task.is_none() == op.ended.is_some(), "{} ends without saying so", op.name);
            ensure!(op.ended.is_some() || self.tasks.contains_key(&op.task), "{}: no task", op.name);
        }
        let counts = core.counts();
        ensure!(counts.operations == self.ops.len(), "{} operations nobody has", counts.operations);
        ensure!(counts.queued + counts.running == self.tasks.len(), "tasks nobody has: {counts:?}");
        ensure!(counts.running == self.running.len(), "{} run, {counts:?}", self.running.len());
        Ok(())
    }

    /// The core asks to be called no later than something changes by time alone.
    fn deadlines_are_known(&self, now: Time, core: &Scheduler, config: &Config) -> Checked {
        let calls = self.calls.values().map(|c| c.wait_until);
        let ops = self.ops.values().filter_map(|op| match op.ended {
            Some(ended) => Some(ended + config.completed_retention),
            None if op.watchers == 0 => Some(op.unwatched_since + config.abandoned),
            None => None,
        });
        let running = self.running.values().map(|w| self.silence[w]);
        let next = calls.chain(ops).chain(running).chain(self.gates.due()).min();
        let told = core.next_deadline();
        ensure!(told.is_none_or(|t| t > now), "a deadline stays due: {told:?} at {now:?}");
        ensure!(next.is_none_or(|n| told.is_some_and(|t| t <= n)), "{next:?} is due, and {told:?} told");
        Ok(())
    }

    // === What people are told ===

    /// It adds up, and says that nobody could ever run it just when nobody could.
    pub fn is_explained(&mut self, now: Time, why: &Explanation, task: &Task) -> Checked {
        let counted: usize = why.counts.iter().map(|(_, n)| n).sum();
        ensure!(counted == why.workers, "{counted} of {} workers are counted: {why:?}", why.workers);
        let there = || self.specs.iter().filter(|(w, _)| self.is_there(w, now));
        let could = there().find(|(_, s)| is_eligible(s, task));
        if why.reason != Reason::Running {
            ensure!(could.is_none() == why.reason.is_never(), "{could:?} could run {task:?}: {why:?}");
        }
        let count = |o: Obstacle| why.counts.iter().filter(|(c, _)| *c == o).map(|(_, n)| n).sum::<usize>();
        let held =
            |hold| there().filter(|(_, s)| is_eligible(s, task) && self.gates.is_held(s, hold)).count();
        let drained = held(Hold::Drain);
        ensure!(is_relative(task) || count(Obstacle::Drained) == drained, "{drained} are drained: {why:?}");
        ensure!(why.unavailable.len() <= UNAVAILABLE_MAX, "too many are named: {why:?}");
        ensure!(!why.to_string().is_empty() && why.log_lines().iter().all(|l| !l.is_empty()), "{why:?}");
        self.count(why.reason.code());
        Ok(())
    }

    pub fn workers_are_shown(&self, views: impl Iterator<Item = WorkerView>, known: usize) -> Checked {
        let mut shown = 0;
        for view in views {
            shown += 1;
            let (drained, paused) =
                (self.gates.is_held(&view.spec, Hold::Drain), self.gates.is_held(&view.spec, Hold::Pause));
            ensure!(view.drained == drained, "drained: {drained}, and {view:?}");
            ensure!(!paused || view.paused.is_some(), "paused, and {view:?}");
        }
        ensure!(shown == known, "{shown} of {known} workers are shown");
        Ok(())
    }

    /// Another core has taken the place of the one that was looked at.
    pub fn restarted(&mut self, now: Time, core: &Scheduler) -> Checked {
        self.tasks.clear();
        self.running.clear();
        self.held.clear();
        self.says.clear();
        self.silence.clear();
        self.calls.clear();
        self.gates.restarted();
        for (_, mut op) in std::mem::take(&mut self.ops) {
            let id = core.operation(&op.name).ok_or_else(|| format!("{} did not survive", op.name))?;
            if let Some(task) = core.operation_by_id(id).and_then(|o| o.task) {
                let digest = core.task(task).ok_or("an operation of no task")?.digest.clone();
                self.tasks.insert(task, digest);
                op.task = task;
                op.unwatched_since = now;
            }
            (op.watchers, op.sequence) = (0, 0);
            self.ops.insert(id, op);
        }
        self.nothing_is_lost(core)
    }
}

/// For whom a task waits.
fn paths(core: &Scheduler, id: TaskId) -> Vec<Vec<Arc<str>>> {
    let operations = core.task_record(id).map(|r| r.operations).unwrap_or_default();
    let mut paths: Vec<_> = operations.into_iter().map(|o| o.invocation_keys).collect();
    paths.sort();
    paths.dedup();
    paths
}

/// Which size class it wants depends on who is there.
fn is_relative(task: &Task) -> bool {
    is_relative_size(task) || task.route.strategies.is_some()
}

fn same_strategy(one: &WorkerSpec, other: &WorkerSpec, task: &Task) -> bool {
    task.route.strategy_on(one.strategies()) == task.route.strategy_on(other.strategies())
}

fn is_relative_size(task: &Task) -> bool {
    matches!(task.route.size, SizeClass::Smallest | SizeClass::Largest | SizeClass::AtLeast(_))
}

/// By the text of both, and what the host has in all.
pub fn is_eligible(spec: &WorkerSpec, task: &Task) -> bool {
    meets(spec, &task.instance, &task.route)
}

fn meets(spec: &WorkerSpec, instance: &str, route: &Route) -> bool {
    let has = |key: &str| spec.properties.iter().any(|p| &*p.name == key);
    let has_all = route.platform.iter().all(|p| match &*p.name {
        "gpu" | "tag" => spec.properties.contains(p),
        "os" | "image" => has(&p.name),
        "cpu" | "mem" => amount(spec, &p.name).is_some_and(|total| p.value.parse::<u64>().unwrap() <= total),
        "note" => true,
        _ => false,
    });
    let prefix = &*spec.instance_name_prefix;
    let named = prefix.is_empty()
        || *instance == *prefix
        || instance.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'));
    let sized = match route.size {
        SizeClass::Exactly(size) => size == spec.size_class,
        _ => true,
    };
    let admitted = route.exclusivity != Exclusivity::Host || spec.terms.exclusive != HostExclusive::Never;
    let wanted = route.strategies.as_ref();
    let offered = wanted.is_none_or(|list| list.iter().any(|s| spec.strategies().contains(s)));
    has_all && named && sized && admitted && offered && route.pool.as_ref().is_none_or(|p| *p == spec.pool)
}

fn amount(spec: &WorkerSpec, key: &str) -> Option<u64> {
    spec.properties.iter().find(|p| &*p.name == key).map(|p| p.value.parse().unwrap())
}

/// What it takes of a host, or as much as that has.
fn demand(core: &Scheduler, id: TaskId, spec: &WorkerSpec) -> BTreeMap<Arc<str>, u64> {
    let task = core.task(id).unwrap();
    if let Some(measured) = core.task_record(id).unwrap().measured {
        let taken = ["cpu", "mem"].iter().zip(measured);
        return taken.map(|(key, n)| ((*key).into(), n.min(amount(spec, key).unwrap_or(0)))).collect();
    }
    let asked = task.route.platform.iter().filter(|p| matches!(&*p.name, "cpu" | "mem"));
    asked.map(|p| (p.name.clone(), p.value.parse().unwrap())).collect()
}
