//! A core, clients, workers and misfortunes on one virtual clock, all of it from one seed.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

pub mod bot;
pub mod gates;
pub mod model;
pub mod rng;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::candidates::CandidateView;
use pointsman_scheduler::effect::{Effect, Output, Reply};
use pointsman_scheduler::event::{Again, Event, HostExclusive, Report, Stage, Submit, Verdict};
use pointsman_scheduler::holds::{Hold, Pattern};
use pointsman_scheduler::ids::{HostId, OperationId, PollId, TaskId};
use pointsman_scheduler::placement::Placement;
use pointsman_scheduler::properties::Schema;
use pointsman_scheduler::route::{Affinity, Scope, SizeClass};
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::task::Task;
use pointsman_scheduler::time::Time;

use crate::support::{Ask, Store, Worker, ask, digest, pattern, schema, worker};
use bot::{Bot, Doing};
use model::{Checked, Model, is_eligible};
use rng::Rng;

/// More than so many queued tasks tell nothing new, and invariants take long.
const QUEUED_MAX: usize = 30;
const BOTS_MAX: usize = 14;

/// Up to so many queued tasks times workers a state is small; others are looked at every so many steps.
const SMALL: usize = 12;
const SAMPLE: u64 = 16;

pub struct Sim {
    rng: Rng,
    config: Config,
    schema: Arc<Schema>,
    pub core: Scheduler,
    pub now: Time,
    store: Store,
    pub model: Model,
    bots: Vec<Bot>,
    names: u64,
    history: DefaultHasher,
    /// Handed over and then found in the action cache.
    found: Vec<TaskId>,
    /// Misfortunes happen.
    faults: bool,
    /// Policies want more than routes, and workers become others. Not in all seeds, so that those played again as
    /// regression tests keep their meaning.
    hooks: bool,
    /// Actions are exclusive, belong to groups, and want sizes that are relative to what there is; some are measured, and workers
    /// have terms. Not in all seeds either.
    together: bool,
    /// Actions name strategies, and workers offer some. Not in all seeds either.
    strategies: bool,
    /// A host that was a candidate at some time.
    stale: Option<HostId>,
    /// All invariants are looked at after every step. What is looked at changes nothing: a seed plays the same.
    pub thorough: bool,
    steps: u64,
}

impl Sim {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let config = Config {
            max_attempts: 2 + rng.below(3) as usize,
            unschedulable_timeout: Duration::from_secs([120, 900][rng.below(2) as usize]),
            queued_tasks_max: QUEUED_MAX - rng.below(5) as usize,
            classes_max: if rng.percent(30) { 12 } else { 1000 },
            demands_max: if rng.percent(30) { 3 } else { 64 },
            workers_max: if rng.percent(30) { BOTS_MAX / 2 } else { 1000 },
            placement: [Placement::Spread, Placement::Pack, Placement::BestFit][rng.below(3) as usize],
            ..Config::default()
        };
        // Where it grows it does so with each worker that executes.
        let config = match seed.is_multiple_of(2) {
            true => Config { heartbeat: Duration::from_secs(2), heartbeats_per_s: 1, ..config },
            false => config,
        };
        let salt = Cell::new(rng.next());
        let config = gates::limits(config, |n| {
            salt.set(Rng::new(salt.get()).next());
            salt.get() % n
        });
        let config = match seed % 7 {
            3 => Config { reservation_after: Duration::from_secs(5), reserved_share: 50, ..config },
            5 => Config {
                reservation_after: Duration::ZERO,
                reservation_timeout: Duration::from_secs(20),
                ..config
            },
            _ => config,
        };
        let schema = schema();
        Self {
            core: Scheduler::new(config, schema.clone()),
            rng,
            config,
            schema,
            now: Time(5_000_000),
            store: Store::default(),
            model: Model::default(),
            bots: vec![],
            names: 0,
            history: DefaultHasher::new(),
            found: vec![],
            faults: true,
            hooks: !matches!(seed % 5, 1 | 2),
            together: matches!(seed % 7, 0 | 3 | 4),
            strategies: matches!(seed % 11, 0 | 3 | 7 | 8),
            stale: None,
            thorough: true,
            steps: 0,
        }
    }

    /// A hash of all that was done so far.
    pub fn history(&self) -> u64 {
        self.history.finish()
    }

    /// Lets something happen.
    pub fn turn(&mut self) -> Checked {
        match self.rng.below(100) {
            0..15 => self.client(),
            15..18 => self.policy(),
            18..24 => self.misfortune(),
            24..27 => self.compare_restored(),
            27 => self.restart_rarely(),
            28 => self.call_too_early(),
            29 => self.operator(),
            30..33 => self.look_at_views(),
            _ => self.worker_or_time(),
        }
    }

    fn step(&mut self, event: Event) -> Checked {
        let mut out = Output::default();
        self.model.before(self.now, &event, &self.config);
        self.core.step(self.now, event.clone(), &mut out);
        write!(Text(&mut self.history), "{:?}{:?}", out.effects, out.changes).unwrap();
        self.store.apply(&self.core, &out.changes);
        self.steps += 1;
        if self.thorough || self.is_small() || self.steps.is_multiple_of(SAMPLE) {
            self.core.check()?;
        }
        self.model.after(self.now, &event, &out.effects, &self.core, &self.config)?;
        for effect in out.effects {
            if let Effect::Reply { poll, reply } = effect {
                self.answer(poll, reply);
            }
        }
        Ok(())
    }

    /// Small states are quick to look at, and most of what is wrong shows there.
    fn is_small(&self) -> bool {
        let c = self.core.counts();
        c.queued * c.workers <= SMALL
    }

    // === Clients ===

    fn client(&mut self) -> Checked {
        let ops: Vec<OperationId> = self.model.ops.keys().copied().collect();
        let some = self.rng.pick(&ops).copied();
        match (self.rng.below(10), some) {
            (0, Some(id)) => self.step(Event::Cancel(id)),
            (1..3, Some(id)) if self.model.ops[&id].watchers > 0 => self.step(Event::Unwatch(id)),
            (3, Some(id)) => self.step(Event::Watch(id)),
            _ => {
                let ask = self.ask();
                self.submit(&ask)
            }
        }
    }

    fn submit(&mut self, ask: &Ask) -> Checked {
        let asked = ask.asked(&self.schema);
        self.names += 1;
        let name: Arc<str> = format!("op{}", self.names).into();
        let Ask { digest, instance, route, .. } = ask.clone();
        let (name, route) = (name.clone(), Arc::new(route));
        let mut submit = Submit { name, instance, digest, route, asked, preferred: vec![] };
        if !self.hooks || !self.rng.percent(40) {
            return self.step(Event::Submit(submit));
        }
        let at_most = 1 + self.rng.below(4) as usize;
        let Submit { instance, digest, route, asked, .. } = &submit;
        let mut candidates = self.core.candidates(instance, digest, route, asked, at_most);
        self.model.are_candidates(&candidates, ask, at_most)?;
        self.first_is_where_it_would_go(&submit, candidates.first())?;
        if self.rng.percent(50) {
            candidates.reverse();
        }
        submit.preferred = candidates.iter().map(|c| c.host).collect();
        if self.rng.percent(20) {
            submit.preferred.splice(0..0, self.stale);
        }
        let wished = submit.preferred.first().copied();
        self.stale = candidates.last().map(|c| c.host).or(self.stale);
        let name = submit.name.clone();
        self.step(Event::Submit(submit))?;
        let Some(first) = candidates.first().filter(|c| Some(c.host) == wished) else { return Ok(()) };
        let task = self.core.operation(&name).and_then(|o| self.core.operation_by_id(o)?.task);
        let on = task.and_then(|t| self.core.running_on(t));
        // A bound may have been in its way.
        if task.is_some() && on.is_none_or(|(host, _)| *host != first.name) {
            return Err(format!("{ask:?} is on {on:?}, and {first:?} was preferred"));
        }
        self.model.count_preferred();
        Ok(())
    }

    /// Without a wish, placement takes the first candidate; without a candidate, nobody.
    fn first_is_where_it_would_go(&self, submit: &Submit, first: Option<&CandidateView>) -> Checked {
        let mut core = self.core.clone();
        let mut out = Output::default();
        core.step(self.now, Event::Submit(submit.clone()), &mut out);
        let Some(Effect::Submitted { task, joined, .. }) = out.effects.first() else { return Ok(()) };
        let host = core.running_on(*task).map(|(host, _)| host);
        match *joined && first.is_none() || host == first.map(|c| &c.name) {
            true => Ok(()),
            false => Err(format!("{first:?} is the first candidate for {submit:?}, and {host:?} gets it")),
        }
    }

    fn ask(&mut self) -> Ask {
        let name = self.rng.below(12);
        let priority = match self.rng.below(8) {
            0 => 100,
            1 => -100,
            _ => self.rng.below(4) as i32 - 1,
        };
        // Who asks is not what is asked: clients share what others want too.
        let depth = self.rng.below(4) as usize;
        let path: Vec<Arc<str>> =
            (0..depth).map(|i| ["a", "b", "c", "d"][self.rng.below(4 >> i.min(1)) as usize].into()).collect();
        let affinity = self.rng.percent(25).then(|| Affinity {
            key: ["k", "l", "m"][self.rng.below(3) as usize].into(),
            wait: self.rng.within(60),
        });
        // Most clients ask for the same in the same way, so that they can share it.
        let rng = &mut match self.rng.percent(60) {
            true => Rng::new(name),
            false => Rng::new(self.rng.next()),
        };
        let mut a = ask(&format!("d{name}")).priority(priority);
        (a.route.invocation_keys, a.route.affinity) = (path, affinity);
        a.route.shared = rng.percent(75);
        if rng.percent(15) {
            a = a.timeout(rng.below(2));
        }
        if rng.percent(40) {
            a = a.instance(["x", "x/y", "z"][rng.below(3) as usize]);
        }
        for (percent, key, values) in ASKED {
            if rng.percent(percent) {
                a = a.with(key, rng.pick(values).unwrap());
            }
        }
        a = match rng.below(12) {
            0 => a.pool("p"),
            1 => a.size(1),
            _ => a,
        };
        if self.strategies && rng.percent(50) {
            let lists: [&[&str]; 5] = [&["s"], &["s", "t"], &["t", "s"], &["u", "t", "s"], &["u"]];
            a = a.strategies(rng.pick(&lists).unwrap());
        }
        if !self.together {
            return a;
        }
        let scope = *rng.pick(&[Scope::Host, Scope::Pool, Scope::Cluster]).unwrap();
        a = match rng.below(12) {
            0..3 => a.exclusive(),
            3..6 => a.group(rng.pick(&["g", "i"]).unwrap(), scope, 1 + rng.below(2) as u32),
            _ => a,
        };
        a = match rng.below(12) {
            0 => a.sized(SizeClass::Smallest),
            1 => a.sized(SizeClass::Largest),
            2 => a.sized(SizeClass::AtLeast(1)),
            _ => a,
        };
        if rng.percent(20) {
            a = a.measured(rng.below(10), rng.below(5));
        }
        if rng.percent(30) {
            a = a.expected(rng.below(100));
        }
        a
    }

    fn policy(&mut self) -> Checked {
        let queued: Vec<TaskId> = self.core.queued_after(None).map(|(_, id, _)| id).collect();
        let Some(task) = self.rng.pick(&queued).copied() else { return Ok(()) };
        if self.rng.percent(10) {
            return self.step(Event::Refuse { task, reason: "not any more".into() });
        }
        let ask = self.ask();
        let asked = ask.asked(&self.schema);
        self.step(Event::Reroute { task, route: Arc::new(ask.route), asked })
    }

    // === Operators ===

    fn operator(&mut self) -> Checked {
        let hold = if self.rng.percent(50) { Hold::Drain } else { Hold::Pause };
        let host = format!("h{}", self.rng.below(5));
        let own = match self.rng.below(6) {
            0 => pattern(&[]),
            _ => pattern(&[("host", &host)]),
        };
        let there: Vec<(Hold, Pattern)> = self.model.gates.holds.iter().cloned().collect();
        match self.rng.pick(&there).cloned().filter(|_| self.rng.percent(60)) {
            Some((hold, pattern)) => self.step(Event::RemoveHold(hold, pattern)),
            None if self.rng.percent(10) => self.step(Event::RemoveHold(hold, own)),
            None if self.rng.percent(10) => self.step(Event::Release(own)),
            None => self.step(Event::AddHold(hold, own)),
        }
    }

    /// What people are told is true, and it adds up.
    fn look_at_views(&mut self) -> Checked {
        let counts = self.core.counts();
        let queue = self.core.queue(usize::MAX);
        if queue.iter().map(|c| c.count).sum::<usize>() != counts.queued {
            return Err(format!("the queue of {} is shown as {queue:?}", counts.queued));
        }
        let ids: Vec<TaskId> =
            self.model.ops.values().filter(|o| o.ended.is_none()).map(|o| o.task).collect();
        for id in ids {
            let (Some(why), Some(task)) = (self.core.explain(id), self.core.task(id)) else { continue };
            self.model.is_explained(self.now, &why, task)?;
            let asked = self.schema.action(&task.route.platform).unwrap();
            let plan = self.core.plan(&task.instance, &task.route, &asked);
            self.model.is_explained(self.now, &plan, task)?;
        }
        self.model.workers_are_shown(self.core.workers(), counts.workers)
    }

    // === Workers ===

    fn worker_or_time(&mut self) -> Checked {
        if let Some(task) = self.found.pop() {
            return self.step(Event::FoundInCache(task));
        }
        let due = self.bots.iter().filter_map(|b| b.due()).min();
        if due.is_some_and(|t| t <= self.now) {
            let due: Vec<usize> =
                (0..self.bots.len()).filter(|i| self.bots[*i].due().is_some_and(|t| t <= self.now)).collect();
            let i = *self.rng.pick(&due).unwrap();
            return self.call(i);
        }
        let nap = self.now + Duration::from_millis(1) + self.rng.within(8);
        let deadline = self.core.next_deadline();
        self.now = [Some(nap), due, deadline].into_iter().flatten().min().unwrap();
        if deadline == Some(self.now) {
            if self.rng.percent(20) {
                self.now = self.now + self.rng.within(1);
            }
            return self.step(Event::Deadline);
        }
        Ok(())
    }

    fn call(&mut self, i: usize) -> Checked {
        self.names += 1;
        let (bot, rng) = (&mut self.bots[i], &mut self.rng);
        let mut poll = bot.call(PollId(self.names), self.now, rng);
        if bot.liar && rng.percent(25) {
            let other = digest(&format!("d{}", rng.below(12)));
            poll.report = match rng.below(3) {
                0 => Report::Executing(other, Stage::Running),
                1 => Report::Completed(other, Verdict::Answer),
                _ => Report::Idle,
            };
        }
        if self.faults
            && self.hooks
            && self.rng.percent(45)
            && let Report::Completed(_, verdict @ Verdict::Answer) = &mut poll.report
        {
            let ask = self.ask();
            let asked = ask.asked(&self.schema);
            let again = Again { route: Arc::new(ask.route), asked, cause: "not good enough".into() };
            *verdict = Verdict::Again(Box::new(again));
        }
        self.step(Event::Poll(poll))
    }

    fn answer(&mut self, poll: PollId, reply: Reply) {
        // Nobody reads the answer to a call that broke.
        let Some(bot) = self.bots.iter_mut().find(|b| b.call == Some(poll)) else { return };
        let (now, rng) = (self.now, &mut self.rng);
        if self.faults && rng.percent(4) {
            return bot.failed_call(now, rng);
        }
        match reply {
            Reply::Execute(task) => match self.core.task(task) {
                // Whoever hands the task over may find its result in the action cache; no draw, so that seeds keep their meaning.
                Some(_) if Rng::new(poll.0).percent(10) => {
                    self.found.push(task);
                    bot.do_nothing(now, rng);
                }
                Some(task) => bot.execute(task.digest.clone(), now, self.core.heartbeat(), rng),
                None => bot.failed_call(now, rng),
            },
            Reply::Continue => bot.go_on(now, self.core.heartbeat()),
            Reply::Idle => bot.do_nothing(now, rng),
            Reply::Superseded | Reply::TooManyWorkers => bot.failed_call(now, rng),
        }
    }

    fn misfortune(&mut self) -> Checked {
        self.bots.retain(|b| !b.gone);
        let n = self.bots.len();
        if n < 3 || (n < BOTS_MAX && self.rng.percent(30)) {
            self.spawn();
            return Ok(());
        }
        let i = self.rng.below(n as u64) as usize;
        if self.hooks && self.rng.percent(25) {
            let host = self.bots[i].spec.host.trim_start_matches('h').parse();
            self.bots[i].spec = self.some_worker(host.unwrap()).spec(&self.schema);
            return Ok(());
        }
        let (now, rng) = (self.now, &mut self.rng);
        let bot = &mut self.bots[i];
        match rng.below(9) {
            0..2 => {
                let away = if rng.percent(50) { 20 } else { 150 };
                let back = now + rng.within(away);
                let call = bot.call.filter(|_| rng.percent(50));
                bot.crash(back);
                return call.map_or(Ok(()), |poll| self.step(Event::PollDropped(poll)));
            }
            2 => bot.gone = true,
            3 => bot.leaving = true,
            4 => bot.silent_until(now + rng.within(100)),
            5 => bot.liar = !bot.liar,
            6 => bot.flaky = !bot.flaky,
            // The call breaks, and who notices first?
            7 => {
                let Some(poll) = bot.call else { return Ok(()) };
                bot.failed_call(now, rng);
                return self.step(Event::PollDropped(poll));
            }
            _ if bot.call.is_some() => {
                bot.failed_call(now, rng);
                return self.call(i);
            }
            _ => {}
        }
        Ok(())
    }

    fn spawn(&mut self) {
        let host = self.rng.below(5);
        let worker = self.some_worker(host);
        self.add_bot(worker);
    }

    fn some_worker(&mut self, host: u64) -> Worker {
        let rng = &mut self.rng;
        let mut w = worker(&format!("h{host}"));
        // What a host has is the host's, and what its threads serve is theirs.
        for (key, total) in [("cpu", HOSTS[host as usize].0), ("mem", HOSTS[host as usize].1)] {
            if total > 0 {
                w = w.with(key, &total.to_string());
            }
        }
        w = w.at_once(HOSTS[host as usize].2);
        for (percent, key, values) in OFFERED {
            if rng.percent(percent) {
                w = w.with(key, rng.pick(values).unwrap());
            }
        }
        w = match rng.below(8) {
            0 => w.prefix("x"),
            1 => w.prefix("x/y"),
            2 => w.pool("p"),
            3 => w.size(1),
            _ => w,
        };
        if self.strategies {
            w = match rng.below(6) {
                0..2 => w.offers(&["s"]),
                2 => w.offers(&["t", "s"]),
                3 => w.offers(&["t"]),
                4 => w.offers(&["u"]),
                _ => w,
            };
        }
        if !self.together {
            return w;
        }
        match rng.below(8) {
            0 => w.admits(HostExclusive::Never),
            1 => w.admits(HostExclusive::NotMoreOftenThan(Duration::from_secs(20))),
            2 => w.admits_below(2),
            3 => w.size(2),
            _ => w,
        }
    }

    fn add_bot(&mut self, mut w: Worker) {
        self.names += 1;
        let spec = w.spec(&self.schema);
        let key = format!("{}/{}", spec.host, self.names).into();
        let mut bot = Bot::new(key, spec, self.now);
        bot.flaky = self.faults && self.rng.percent(30);
        self.bots.push(bot);
    }

    // === Time and restarts ===

    fn call_too_early(&mut self) -> Checked {
        if self.core.next_deadline().is_some_and(|t| t <= self.now) {
            return Ok(());
        }
        let mut out = Output::default();
        self.core.step(self.now, Event::Deadline, &mut out);
        match out.effects.is_empty() && out.changes.is_empty() {
            true => Ok(()),
            false => Err(format!("something was due before the deadline: {out:?}")),
        }
    }

    /// What was written down is what there is, and what comes of it is the same queue.
    fn compare_restored(&mut self) -> Checked {
        let live: Vec<Task> =
            self.core.operations().filter_map(|(_, o)| self.core.task(o.task?)).cloned().collect();
        let same = self.store.tasks.len() <= live.len()
            && live.iter().all(|t| self.store.tasks.contains_key(&t.sequence))
            && self.model.ops.values().filter(|o| o.ended.is_some()).count() == self.store.finished.len();
        if !same {
            return Err("records and state differ".into());
        }
        let (restored, refused) = self.store.restore(self.limits_off(), &self.schema, self.now);
        if !refused.is_empty() {
            return Err(format!("refused to restore {refused:?}"));
        }
        restored.check()?;
        let holds: BTreeMap<_, _> = self.core.holds().map(|r| ((r.hold, r.pattern.clone()), r)).collect();
        if holds != self.store.holds || !restored.holds().eq(self.core.holds()) {
            return Err(format!("{holds:?} are restored as {:?}", self.store.holds));
        }
        let now_queued: Vec<&Task> =
            restored.queued_after(None).filter_map(|(_, id, _)| restored.task(id)).collect();
        for task in &now_queued {
            let was = live.iter().find(|t| t.sequence == task.sequence).ok_or("restored what is over")?;
            let names = |core: &Scheduler, t: &Task| {
                let id = core.operation_by_id(t.operations[0]).unwrap().task.unwrap();
                core.task_record(id).unwrap().operations
            };
            if task.key != was.key
                || task.attempts != was.attempts
                || (&task.route, &task.digest, &task.instance) != (&was.route, &was.digest, &was.instance)
                || names(&restored, task) != names(&self.core, was)
            {
                return Err(format!("task {} is restored as another: {task:?}, was {was:?}", was.sequence));
            }
        }
        Ok(())
    }

    /// What waits over the bounds of new submissions must survive too.
    fn limits_off(&self) -> Config {
        Config { classes_max: 1000, demands_max: 1000, ..self.config }
    }

    /// The scheduler dies, and another takes over.
    fn restart_rarely(&mut self) -> Checked {
        if !self.faults || !self.rng.percent(25) {
            return Ok(());
        }
        self.compare_restored()?;
        self.config = self.limits_off();
        self.restart_with_config()?;
        for bot in &mut self.bots {
            if bot.call.is_some() {
                bot.failed_call(self.now, &mut self.rng);
            }
        }
        Ok(())
    }

    // === The end ===

    /// All goes well from here: what can be done gets done, and nothing is left over.
    pub fn drain(&mut self) -> Checked {
        self.faults = false;
        self.config = Config { workers_max: 1000, ..self.limits_off() };
        self.restart_with_config()?;
        self.bots.iter_mut().for_each(|b| b.gone = true);
        for (i, size) in [(0, 0), (1, 1)] {
            for pool in ["", "p"] {
                let all = OFFERED.iter().flat_map(|(_, key, values)| values.iter().map(move |v| (*key, *v)));
                let healthy = all.fold(worker(&format!("hh{i}{pool}")), |w, (key, value)| w.with(key, value));
                self.add_bot(healthy.with("cpu", "8").with("mem", "8").pool(pool).size(size));
            }
        }
        for (hold, pattern) in self.model.gates.holds.clone() {
            self.step(Event::RemoveHold(hold, pattern))?;
        }
        let ops: Vec<OperationId> = self.model.ops.keys().copied().collect();
        for id in ops {
            self.step(Event::Watch(id))?;
        }
        for _ in 0..20_000 {
            if self.open().is_empty() {
                return self.nothing_is_left();
            }
            self.worker_or_time()?;
        }
        Err(format!("healthy workers leave undone: {:?}", self.open()))
    }

    fn restart_with_config(&mut self) -> Checked {
        self.found.clear();
        self.core = self.store.restore(self.config, &self.schema, self.now).0;
        self.model.restarted(self.now, &self.core)
    }

    /// Tasks that some worker could run.
    fn open(&self) -> Vec<&Task> {
        let bots: Vec<&Bot> = self.bots.iter().filter(|b| !b.gone).collect();
        let tasks =
            self.model.ops.values().filter(|o| o.ended.is_none()).filter_map(|o| self.core.task(o.task));
        tasks.filter(|t| bots.iter().any(|b| is_eligible(&b.spec, t))).collect()
    }

    fn nothing_is_left(&mut self) -> Checked {
        let rest: Vec<OperationId> = self.model.ops.keys().copied().collect();
        for id in rest {
            self.step(Event::Cancel(id))?;
        }
        self.bots.clear();
        while let Some(next) = self.core.next_deadline() {
            self.now = next;
            self.step(Event::Deadline)?;
        }
        let c = self.core.counts();
        let left = [c.queued, c.running, c.operations, c.hosts, c.workers, c.shapes];
        match left == [0; 6] && self.store == Store::default() {
            true => Ok(()),
            false => Err(format!("something is left over: {c:?} {:?}", self.store)),
        }
    }

    pub fn busy_bots(&self) -> usize {
        self.bots.iter().filter(|b| !matches!(b.doing, Doing::Nothing)).count()
    }
}

/// How many percent of actions ask for a key, and for which value.
const ASKED: [(u64, &str, &[&str]); 7] = [
    (40, "cpu", &["0", "1", "2", "3", "8", "9"]),
    (10, "mem", &["1", "4"]),
    (15, "gpu", &["a", "b"]),
    (15, "tag", &["t0", "t1", "t2", "t3"]),
    (30, "os", &["linux", ""]),
    (10, "note", &["n"]),
    (3, "typo", &["y"]),
];

/// The same for workers.
const OFFERED: [(u64, &str, &[&str]); 3] =
    [(40, "gpu", &["a", "b"]), (40, "tag", &["t0", "t1", "t2", "t3"]), (80, "os", &["linux"])];

/// Total `cpu`, total `mem`, and how many tasks at once.
const HOSTS: [(u64, u64, u32); 5] = [(0, 0, 0), (2, 0, 0), (4, 4, 0), (8, 2, 2), (0, 0, 1)];

/// Text that goes into a hash.
struct Text<'a>(&'a mut DefaultHasher);

impl std::fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}
