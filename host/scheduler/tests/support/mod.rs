//! A scheduler with virtual time, and words short enough for tests of ten lines.

#![allow(dead_code, unreachable_pub, missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::candidates::CandidateView;
use pointsman_scheduler::effect::{Change, Effect, End, Output, Refusal, Reply};
use pointsman_scheduler::event::{
    Again, Event, HostExclusive, Poll, Report, Stage, Submit, Terms, Verdict, WorkerSpec,
};
use pointsman_scheduler::explain::Explanation;
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use pointsman_scheduler::ids::{ActionDigest, HostId, OperationId, PollId, TaskId};
use pointsman_scheduler::properties::{Amounts, Asked, PropertyType, Schema, UnknownProperty};
use pointsman_scheduler::records::{FinishedRecord, HoldRecord, Records, TaskRecord};
use pointsman_scheduler::route::{Affinity, Exclusivity, Property, Route, Scope, SizeClass};
use pointsman_scheduler::scheduler::{Config, Scheduler};
use pointsman_scheduler::time::Time;

/// Keys: `os`, `image` (priority), `gpu`, `tag` (exact), `cpu`, `mem` (minimum), `note` (ignore).
pub fn schema() -> Arc<Schema> {
    let types = [
        ("os", PropertyType::Priority),
        ("image", PropertyType::Priority),
        ("gpu", PropertyType::Exact),
        ("tag", PropertyType::Exact),
        ("cpu", PropertyType::Minimum),
        ("mem", PropertyType::Minimum),
        ("note", PropertyType::Ignore),
    ];
    Arc::new(Schema::new(types.map(|(k, t)| (k.into(), t)), UnknownProperty::Queue))
}

/// An action to submit.
#[derive(Clone, Debug)]
pub struct Ask {
    pub digest: ActionDigest,
    pub instance: Arc<str>,
    pub route: Route,
    /// What it takes of cpu and mem by measurement.
    pub measured: Option<[u64; 2]>,
    pub expected: Option<Duration>,
}

pub fn ask(digest: &str) -> Ask {
    let route = Route { shared: true, ..Route::default() };
    Ask { digest: self::digest(digest), instance: "".into(), route, measured: None, expected: None }
}

pub fn digest(name: &str) -> ActionDigest {
    ActionDigest::new(1, name.as_bytes(), 1)
}

impl Ask {
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.route.platform.push(Property::new(key, value));
        self.route.sort_platform();
        self
    }
    pub fn instance(mut self, name: &str) -> Self {
        self.instance = name.into();
        self
    }
    pub fn priority(mut self, priority: i32) -> Self {
        self.route.priority = priority;
        self
    }
    /// For whom: keys with slashes between, coarsest first.
    pub fn invocation(mut self, path: &str) -> Self {
        self.route.invocation_keys = path.split('/').map(Into::into).collect();
        self
    }
    /// Rather where this key last ran, and for so long nowhere else.
    pub fn affinity(mut self, key: &str, wait: Duration) -> Self {
        self.route.affinity = Some(Affinity { key: key.into(), wait });
        self
    }
    pub fn unshared(mut self) -> Self {
        self.route.shared = false;
        self
    }
    pub fn timeout(mut self, seconds: u64) -> Self {
        self.route.timeout = Some(Duration::from_secs(seconds));
        self
    }
    pub fn pool(mut self, pool: &str) -> Self {
        self.route.pool = Some(pool.into());
        self
    }
    pub fn size(self, class: u32) -> Self {
        self.sized(SizeClass::Exactly(class))
    }
    pub fn sized(mut self, size: SizeClass) -> Self {
        self.route.size = size;
        self
    }
    /// Alone on its host.
    pub fn exclusive(mut self) -> Self {
        self.route.exclusivity = Exclusivity::Host;
        self
    }
    pub fn group(mut self, name: &str, scope: Scope, at_most: u32) -> Self {
        self.route.exclusivity = Exclusivity::Group { name: name.into(), scope, at_most };
        self
    }
    /// Strategies that may be used, most wanted first.
    pub fn strategies(mut self, names: &[&str]) -> Self {
        self.route.strategies = Some(names.iter().map(|n| (*n).into()).collect());
        self
    }
    pub fn measured(mut self, cpu: u64, mem: u64) -> Self {
        self.measured = Some([cpu, mem]);
        self
    }
    pub fn expected(mut self, seconds: u64) -> Self {
        self.expected = Some(Duration::from_secs(seconds));
        self
    }
    pub fn asked(&self, schema: &Schema) -> Asked {
        let measured = self.measured.map(|m| Amounts::from_slice(&m));
        Asked { measured, expected: self.expected, ..schema.action(&self.route.platform).unwrap() }
    }
}

/// A worker: `host` or `host/thread`.
#[derive(Clone, Debug)]
pub struct Worker {
    pub key: Arc<str>,
    pub properties: Vec<Property>,
    pub prefix: Arc<str>,
    pub size_class: u32,
    pub pool: Arc<str>,
    pub max_inflight_tasks: u32,
    pub terms: Terms,
    spec: Option<Arc<WorkerSpec>>,
}

pub fn worker(key: &str) -> Worker {
    Worker {
        key: key.into(),
        properties: vec![],
        prefix: "".into(),
        size_class: 0,
        pool: "".into(),
        max_inflight_tasks: 0,
        terms: Terms::default(),
        spec: None,
    }
}

impl Worker {
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.properties.push(Property::new(key, value));
        self
    }
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.into();
        self
    }
    pub fn size(mut self, class: u32) -> Self {
        self.size_class = class;
        self
    }
    pub fn pool(mut self, pool: &str) -> Self {
        self.pool = pool.into();
        self
    }
    pub fn at_once(mut self, tasks: u32) -> Self {
        self.max_inflight_tasks = tasks;
        self
    }
    /// When an exclusive action may have its host.
    pub fn admits(mut self, exclusive: HostExclusive) -> Self {
        self.terms.exclusive = exclusive;
        self
    }
    pub fn admits_below(mut self, actions_in_last_minute: u32) -> Self {
        self.terms.exclusive_below = Some(actions_in_last_minute);
        self
    }
    pub fn offers(mut self, strategies: &[&str]) -> Self {
        self.terms.strategies = Some(strategies.iter().map(|n| (*n).into()).collect());
        self
    }
    pub fn host(&self) -> &str {
        self.key.split('/').next().unwrap()
    }
    /// `host` and, if it has one, `thread`.
    pub fn id(&self) -> Vec<(Arc<str>, Arc<str>)> {
        let mut id = vec![("host".into(), self.host().into())];
        id.extend(self.key.split('/').nth(1).map(|thread| ("thread".into(), thread.into())));
        id
    }
    /// The specification, typed once: workers that are kept should call it before they are cloned.
    pub fn spec(&mut self, schema: &Schema) -> Arc<WorkerSpec> {
        let spec = self.spec.take().unwrap_or_else(|| {
            Arc::new(WorkerSpec {
                id: self.id(),
                host: self.host().into(),
                instance_name_prefix: self.prefix.clone(),
                properties: self.properties.clone(),
                offered: schema.worker(&self.properties).unwrap(),
                size_class: self.size_class,
                pool: self.pool.clone(),
                max_inflight_tasks: self.max_inflight_tasks,
                terms: self.terms.clone(),
            })
        });
        self.spec.insert(spec).clone()
    }
}

/// What must survive, as a driver without a disk would keep it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Store {
    pub tasks: BTreeMap<u64, TaskRecord>,
    pub finished: BTreeMap<Arc<str>, FinishedRecord>,
    pub holds: BTreeMap<(Hold, Pattern), HoldRecord>,
}

impl Store {
    pub fn apply(&mut self, scheduler: &Scheduler, changes: &[Change]) {
        for change in changes {
            match change {
                Change::PutTask(id) => {
                    if let Some(record) = scheduler.task_record(*id) {
                        self.tasks.insert(record.sequence, record);
                    }
                }
                Change::DeleteTask(sequence) => _ = self.tasks.remove(sequence),
                Change::PutFinished(id) => {
                    if let Some(record) = scheduler.finished_record(*id) {
                        self.finished.insert(record.name.clone(), record);
                    }
                }
                Change::DeleteFinished(name) => _ = self.finished.remove(name),
                Change::PutHold(hold, pattern) => {
                    let record = scheduler.hold_record(*hold, pattern).unwrap();
                    self.holds.insert((*hold, pattern.clone()), record);
                }
                Change::DeleteHold(hold, pattern) => _ = self.holds.remove(&(*hold, pattern.clone())),
            }
        }
    }

    pub fn restore(
        &self,
        config: Config,
        schema: &Arc<Schema>,
        now: Time,
    ) -> (Scheduler, Vec<(TaskRecord, String)>) {
        // Newest first: the order in which records come must not matter.
        let records = Records {
            tasks: self.tasks.values().rev().cloned().collect(),
            finished: self.finished.values().cloned().collect(),
            holds: self.holds.values().rev().cloned().collect(),
        };
        let (scheduler, _, refused) = Scheduler::restore(config, schema.clone(), now, records);
        (scheduler, refused)
    }
}

/// A scheduler, its clock, and what it said.
pub struct World {
    pub core: Scheduler,
    pub config: Config,
    pub schema: Arc<Schema>,
    pub now: Time,
    pub store: Store,
    /// Effects of the last step.
    pub effects: Vec<Effect>,
    /// Every end, by operation.
    pub ends: BTreeMap<OperationId, End>,
    pub forgotten: Vec<OperationId>,
    /// What was said of hosts since it was last asked.
    pub news: Vec<String>,
    /// Replies that nobody has read, in order: `worker: text`.
    replies: Vec<(PollId, String)>,
    polls: BTreeMap<PollId, Arc<str>>,
    names: u64,
    /// Look at all invariants after every step.
    pub checked: bool,
}

impl Default for World {
    fn default() -> Self {
        Self::new(Config::default())
    }
}

impl World {
    pub fn new(config: Config) -> Self {
        Self::with_schema(config, schema())
    }

    pub fn with_schema(config: Config, schema: Arc<Schema>) -> Self {
        Self {
            core: Scheduler::new(config, schema.clone()),
            config,
            schema,
            now: Time(1_000_000),
            store: Store::default(),
            effects: vec![],
            ends: BTreeMap::new(),
            forgotten: vec![],
            news: vec![],
            replies: vec![],
            polls: BTreeMap::new(),
            names: 0,
            checked: true,
        }
    }

    pub fn step(&mut self, event: Event) {
        let mut out = Output::default();
        self.core.step(self.now, event, &mut out);
        self.store.apply(&self.core, &out.changes);
        for effect in &out.effects {
            match effect {
                Effect::Finished { operation, end, .. } => {
                    assert!(self.ends.insert(*operation, end.clone()).is_none(), "ended twice");
                }
                Effect::Host { host, news } => self.news.push(format!("{host} {news}")),
                Effect::Forgotten(operation) => self.forgotten.push(*operation),
                Effect::Reply { poll, reply } => {
                    let text = match reply {
                        Reply::Execute(task) => {
                            format!("run {}", name(&self.core.task(*task).unwrap().digest))
                        }
                        Reply::Continue => "continue".to_owned(),
                        Reply::Idle => "idle".to_owned(),
                        Reply::Superseded => "superseded".to_owned(),
                        Reply::TooManyWorkers => "too many workers".to_owned(),
                    };
                    self.replies.push((*poll, text));
                }
                _ => {}
            }
        }
        self.effects = out.effects;
        if self.checked {
            self.core.check().unwrap();
        }
    }

    // === Clients ===

    /// Submits what must be accepted.
    pub fn submit(&mut self, ask: &Ask) -> OperationId {
        self.try_submit(ask).unwrap().0
    }

    pub fn try_submit(&mut self, ask: &Ask) -> Result<(OperationId, TaskId, bool), Refusal> {
        self.submit_to(ask, Vec::new())
    }

    /// Hosts that could run it at once, by name.
    pub fn candidates(&self, ask: &Ask, at_most: usize) -> Vec<CandidateView> {
        let asked = ask.asked(&self.schema);
        self.core.candidates(&ask.instance, &ask.digest, &ask.route, &asked, at_most)
    }

    /// Rather to these hosts, the first one first.
    pub fn submit_to(
        &mut self,
        ask: &Ask,
        preferred: Vec<HostId>,
    ) -> Result<(OperationId, TaskId, bool), Refusal> {
        self.names += 1;
        let mut effects = vec![];
        self.step(Event::Submit(Submit {
            name: format!("operation-{}", self.names).into(),
            instance: ask.instance.clone(),
            digest: ask.digest.clone(),
            route: Arc::new(ask.route.clone()),
            asked: ask.asked(&self.schema),
            preferred,
        }));
        effects.extend(self.effects.iter());
        match effects[0] {
            Effect::Submitted { operation, task, joined } => Ok((*operation, *task, *joined)),
            Effect::Refused(refusal) => Err(*refusal),
            other => panic!("a submission was answered by {other:?}"),
        }
    }

    /// The other has asked for the same while it was in flight.
    pub fn joins(&mut self, ask: &Ask) -> bool {
        self.try_submit(ask).unwrap().2
    }

    pub fn reroute(&mut self, operation: OperationId, ask: &Ask) {
        let task = self.task(operation);
        let asked = ask.asked(&self.schema);
        self.step(Event::Reroute { task, route: Arc::new(ask.route.clone()), asked });
    }

    pub fn task(&self, operation: OperationId) -> TaskId {
        self.core.operation_by_id(operation).unwrap().task.unwrap()
    }

    /// `queued`, `on HOST`, or how it ended.
    pub fn state(&self, operation: OperationId) -> String {
        match self.ends.get(&operation) {
            Some(End::GaveUp(text)) => return format!("gave up: {text}"),
            Some(End::Unschedulable(text)) => return format!("unschedulable: {text}"),
            Some(End::Refused(text)) => return format!("refused: {text}"),
            Some(end) => return format!("{end:?}").to_lowercase(),
            None => {}
        }
        match self.core.operation_by_id(operation).and_then(|o| o.task) {
            None => "gone".to_owned(),
            Some(task) => match self.core.running_on(task) {
                Some((host, _)) => format!("on {host}"),
                None => "queued".to_owned(),
            },
        }
    }

    /// Digests in the order in which a worker would get them.
    pub fn queue(&self) -> Vec<String> {
        let mut tasks: Vec<_> =
            self.core.queued_after(None).map(|(_, id, _)| self.core.task(id).unwrap()).collect();
        tasks.sort_by_key(|t| t.key);
        tasks.iter().map(|t| name(&t.digest)).collect()
    }

    // === Workers ===

    pub fn poll(&mut self, worker: &Worker, report: Report) -> String {
        self.poll_as(worker, report, false, 120)
    }

    /// The answer, or `waits`.
    pub fn poll_as(&mut self, worker: &Worker, report: Report, prefer_idle: bool, wait: u64) -> String {
        self.names += 1;
        let poll = PollId(self.names);
        self.polls.insert(poll, worker.key.clone());
        self.step(Event::Poll(Poll {
            poll,
            worker: worker.key.clone(),
            spec: worker.clone().spec(&self.schema),
            report,
            prefer_idle,
            wait_until: self.now + Duration::from_secs(wait),
        }));
        let own = self.replies.iter().position(|(p, _)| *p == poll);
        own.map_or("waits".to_owned(), |i| self.replies.remove(i).1)
    }

    pub fn idle(&mut self, worker: &Worker) -> String {
        self.poll(worker, Report::Idle)
    }

    pub fn executing(&mut self, worker: &Worker, name: &str) -> String {
        self.poll(worker, Report::Executing(digest(name), Stage::Running))
    }

    pub fn uploading(&mut self, worker: &Worker, name: &str) -> String {
        self.poll(worker, Report::Executing(digest(name), Stage::UploadingOutputs))
    }

    pub fn completed(&mut self, worker: &Worker, name: &str) -> String {
        self.poll(worker, Report::Completed(digest(name), Verdict::Answer))
    }

    /// It has completed it, and a policy wants it to run once more by this route.
    pub fn again(&mut self, worker: &Worker, name: &str, ask: &Ask) -> String {
        let asked = ask.asked(&self.schema);
        let route = Arc::new(ask.route.clone());
        let again = Again { route, asked, cause: "policy p asked for another attempt".into() };
        self.poll(worker, Report::Completed(digest(name), Verdict::Again(Box::new(again))))
    }

    pub fn failed(&mut self, worker: &Worker, name: &str, cause: &str) -> String {
        self.poll(worker, Report::Completed(digest(name), Verdict::Failed(cause.into())))
    }

    pub fn exhausted(&mut self, worker: &Worker, name: &str) -> String {
        self.poll(worker, Report::Completed(digest(name), Verdict::Exhausted("no memory".into())))
    }

    /// The call of a waiting worker breaks.
    pub fn drop_poll(&mut self, worker: &Worker) {
        let poll = *self.polls.iter().rfind(|(_, w)| **w == worker.key).unwrap().0;
        self.step(Event::PollDropped(poll));
    }

    /// Replies to calls that waited, since it was last asked.
    pub fn answers(&mut self) -> Vec<String> {
        std::mem::take(&mut self.replies)
            .into_iter()
            .map(|(poll, text)| format!("{}: {text}", self.polls[&poll]))
            .collect()
    }

    // === Operators ===

    pub fn hold(&mut self, hold: Hold, pattern: &[(&str, &str)]) -> HoldOutcome {
        self.step(Event::AddHold(hold, self::pattern(pattern)));
        self.outcome()
    }

    pub fn let_go(&mut self, hold: Hold, pattern: &[(&str, &str)]) -> HoldOutcome {
        self.step(Event::RemoveHold(hold, self::pattern(pattern)));
        self.outcome()
    }

    fn outcome(&self) -> HoldOutcome {
        let Effect::Hold { outcome, .. } = &self.effects[0] else { panic!("{:?}", self.effects) };
        *outcome
    }

    /// Why an operation's action is where it is.
    pub fn why(&self, operation: OperationId) -> Explanation {
        let explanation = self.core.explain(self.task(operation)).unwrap();
        let counted: usize = explanation.counts.iter().map(|(_, n)| n).sum();
        assert_eq!(counted, explanation.workers, "the counts don't add up");
        explanation
    }

    pub fn plan(&self, ask: &Ask) -> Explanation {
        let asked = ask.asked(&self.schema);
        self.core.plan(&ask.instance, &ask.route, &asked)
    }

    // === Time ===

    /// Lets time pass, from deadline to deadline.
    pub fn pass(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        while let Some(next) = self.core.next_deadline().filter(|t| *t <= end) {
            assert!(next >= self.now, "a deadline was missed");
            self.now = next;
            self.step(Event::Deadline);
            assert!(self.core.next_deadline().is_none_or(|t| t > self.now), "a deadline stays due");
        }
        self.now = end;
        self.step(Event::Deadline);
        assert!(self.effects.is_empty(), "something changed before the deadline: {:?}", self.effects);
    }

    /// What would be there after a restart.
    pub fn restart(&mut self) {
        let (core, refused) = self.store.restore(self.config, &self.schema, self.now);
        assert!(refused.is_empty(), "{refused:?}");
        self.core = core;
        self.core.check().unwrap();
    }
}

/// Whether a worker that waits gets the action, and one that comes later, too.
pub fn meets(world: impl Fn() -> World, worker: &Worker, ask: &Ask) -> bool {
    let mut w = world();
    assert_eq!(w.idle(worker), "waits");
    let arriving = w.submit(ask);
    let met = w.state(arriving) != "queued";
    let mut later = world();
    later.submit(ask);
    assert_eq!(later.idle(worker) != "waits", met, "{worker:?} {ask:?}");
    met
}

pub fn pattern(entries: &[(&str, &str)]) -> Pattern {
    Pattern::new(entries.iter().map(|(k, v)| ((*k).into(), (*v).into())))
}

pub fn name(digest: &ActionDigest) -> String {
    String::from_utf8_lossy(digest.hash()).into_owned()
}
