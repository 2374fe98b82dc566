//! Why an action is still queued: one record, made from data by this module and by nothing else.
//!
//! Every worker is counted once, under the first thing that keeps it from running the action, so the counts add up to
//! all workers that are known. What is slow here is in proportion to the kinds of worker there are, and is done only
//! for who asks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::classes::{Demand, Index};
use crate::declared::Wanted;
use crate::ids::{ActionDigest, HostId, KindId, TaskId, Text};
use crate::lanes::LaneKey;
use crate::properties::{Asked, Atom, PropertyType};
pub use crate::reasons::{Obstacle, Reason};
use crate::route::{Exclusivity, Route};
use crate::scheduler::Scheduler;
use crate::shapes::{Kind, KindKey, first_offered, is_path_prefix};
use crate::task::{Attempt, TaskState};
use crate::workers::{Host, Worker, fits};

/// What is explained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// An action that waits.
    Queued,
    /// One that runs, and on which host.
    Running(Text),
    /// One that nobody has submitted.
    Planned,
}

/// A host whose workers match and that takes nothing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// Its name.
    pub host: Text,
    /// An operator has paused it, it is out of resources, or it is in quarantine.
    pub paused: bool,
    /// An operator drains it.
    pub draining: bool,
    /// What it runs.
    pub inflight: usize,
    /// What it runs at most: `max_inflight_tasks`, or as many as it has workers.
    pub inflight_max: usize,
}

/// So many such hosts are named.
pub const UNAVAILABLE_MAX: usize = 5;

/// An asked property that keeps workers out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The key.
    pub key: Text,
    /// How it is compared; `None` for a key outside the schema.
    pub kind: Option<PropertyType>,
    /// The value asked for.
    pub asked: Text,
    /// Workers that only properties can keep from the action.
    pub candidates: usize,
    /// Those of them that don't have it.
    pub workers: usize,
    /// Values of an `exact` key that they have instead, and how many have each.
    pub values: Vec<(Text, usize)>,
    /// One of those differs only in case or spaces.
    pub nearly: Option<Text>,
}

/// A `minimum` property of which there is too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shortage {
    /// The key.
    pub key: Text,
    /// What the action asks for.
    pub asked: u64,
    /// The most that a matching host has left.
    pub most_free: u64,
    /// The most that a matching host has in all.
    pub most_total: u64,
}

/// Execution strategies that keep workers out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StrategyMismatch {
    /// Those that may be used, most wanted first.
    pub asked: Vec<Text>,
    /// Workers that only strategies keep from the action.
    pub workers: usize,
    /// Those that they offer instead, and how many offer each.
    pub offered: Vec<(Text, usize)>,
    /// So many of them offer nothing.
    pub silent: usize,
}

/// Why an action is still queued, or would be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What is explained.
    pub subject: Subject,
    /// In one word.
    pub reason: Reason,
    /// How long ago it arrived.
    pub age: Duration,
    /// Tries that did not end it.
    pub attempts: Vec<Attempt>,
    /// Workers that are known.
    pub workers: usize,
    /// What keeps how many of them from it. Adds up to `workers`.
    pub counts: Vec<(Obstacle, usize)>,
    /// The declared pool that could run it and has nobody who can.
    pub declared: Option<Text>,
    /// Asked properties that keep workers out.
    pub mismatches: Vec<Mismatch>,
    /// Execution strategies that keep workers out.
    pub strategies: Option<StrategyMismatch>,
    /// What there is too little of.
    pub shortages: Vec<Shortage>,
    /// The host that is kept free for it.
    pub kept: Option<Text>,
    /// Some of the hosts that would do and take nothing now: [`UNAVAILABLE_MAX`] at most.
    pub unavailable: Vec<Unavailable>,
    /// Tasks of its class before it; counted up to [`POSITION_MAX`].
    pub position: usize,
    /// Tasks with the same requirements that wait.
    pub alike: usize,
}

/// Positions are counted so far.
pub const POSITION_MAX: usize = 1000;

impl Scheduler {
    /// Why a task is where it is; `None` if there is no such task.
    ///
    /// Looks at every worker once.
    pub fn explain(&self, id: TaskId) -> Option<Explanation> {
        self.explain_among(id, &self.workers_by_kind())
    }

    /// The same, with one look at the workers for several tasks.
    pub(crate) fn explain_among(&self, id: TaskId, workers: &ByKind<'_>) -> Option<Explanation> {
        let task = self.tasks.get(id)?;
        // What was accepted can be typed.
        let asked = self.schema.action(&task.route.platform).unwrap_or_default();
        let class = &self.index.classes[task.class];
        let matching = Matching {
            digest: Some(&task.digest),
            task: Some(id),
            demand: self.index.demands[class.key.demand].clone(),
            lane: Some(&self.index.lanes[class.lane].key),
            workers,
            ..self.matching(&task.instance, &task.route, &asked)
        };
        let before = |t: &&TaskId| self.tasks[**t].key < task.key;
        let subject = match task.state {
            TaskState::Running(worker) => {
                Subject::Running(self.fleet.hosts[self.fleet.workers[worker].host].key.clone())
            }
            TaskState::Queued => Subject::Queued,
        };
        Some(Explanation {
            age: self.now.since(task.queued_at),
            attempts: task.attempts.clone(),
            position: class.queued.iter().filter(before).take(POSITION_MAX).count(),
            alike: class.queued.len(),
            ..self.explain_matching(&matching, subject)
        })
    }

    /// What would become of such an action, were it submitted now. Nothing is queued.
    ///
    /// Looks at every worker once.
    pub fn plan(&self, instance: &Text, route: &Route, asked: &Asked) -> Explanation {
        let class = self.index.known_class(instance, route, asked).map(|c| &self.index.classes[c]);
        let matching = Matching {
            lane: class.map(|c| &self.index.lanes[c.lane].key),
            workers: &self.workers_by_kind(),
            ..self.matching(instance, route, asked)
        };
        let alike = class.map_or(0, |c| c.queued.len());
        // Whoever comes last in a second is last of its priority.
        let key = self.queue_key(self.now, route.priority, 0, u64::MAX);
        let queued = class.into_iter().flat_map(|c| &c.queued);
        let before = queued.filter(|t| self.tasks[**t].key < key);
        let position = before.take(POSITION_MAX).count();
        Explanation { position, alike, ..self.explain_matching(&matching, Subject::Planned) }
    }

    fn matching<'a>(&self, instance: &'a str, route: &'a Route, asked: &'a Asked) -> Matching<'a> {
        Matching {
            instance,
            route,
            asked,
            meant: self.index.meant(instance, route, asked),
            digest: None,
            task: None,
            demand: Demand::new(asked),
            lane: None,
            workers: &NOBODY,
        }
    }

    fn explain_matching(&self, matching: &Matching<'_>, subject: Subject) -> Explanation {
        let mut counts: BTreeMap<Obstacle, usize> = BTreeMap::new();
        let mut hosts: BTreeMap<HostId, Taking> = BTreeMap::new();
        for (kind, workers) in matching.workers {
            if let Some(obstacle) = matching.fixed(&self.index.kinds[*kind].key) {
                *counts.entry(obstacle).or_default() += workers.len();
                continue;
            }
            for worker in workers {
                let obstacle = matching.passing(self, worker);
                *counts.entry(obstacle).or_default() += 1;
                if obstacle > Obstacle::NeverFits {
                    hosts.entry(worker.host).or_default().add(obstacle);
                }
            }
        }
        let unavailable = hosts.iter().filter(|(_, taking)| !taking.something);
        let unavailable = unavailable.map(|(id, taking)| taking.unavailable(&self.fleet.hosts[*id]));
        let workers = self.fleet.workers.len();
        let (reason, declared) = match subject {
            Subject::Running(_) => (Reason::Running, None),
            Subject::Queued | Subject::Planned => match reason(matching, &counts, matching.has_claim(self)) {
                reason if reason.is_never() => match self.declared_for(&matching.wanted()) {
                    Some(pool) => (Reason::PoolEmpty, Some(pool.name.clone())),
                    None => (reason, None),
                },
                reason => (reason, None),
            },
        };
        Explanation {
            reason,
            declared,
            subject,
            age: Duration::ZERO,
            attempts: Vec::new(),
            workers,
            counts: counts.into_iter().collect(),
            mismatches: matching.mismatches(self),
            strategies: matching.strategy_mismatch(self),
            shortages: matching.shortages(self),
            kept: matching.task.and_then(|t| self.kept_for(t)).cloned(),
            unavailable: unavailable.take(UNAVAILABLE_MAX).collect(),
            position: 0,
            alike: 0,
        }
    }

    pub(crate) fn workers_by_kind(&self) -> ByKind<'_> {
        let mut workers = ByKind::new();
        for worker in self.fleet.workers.values() {
            workers.entry(worker.kind).or_default().push(worker);
        }
        workers
    }

    /// One queued task of each set of requirements, the longest waiting ones first, with how many are like it.
    pub fn waiting_classes(&self, at_most: usize) -> Vec<(TaskId, usize)> {
        let mut seen = BTreeSet::new();
        // Once each has been seen the rest of the queue needn't be.
        let there = self.index.classes.values().filter(|c| !c.queued.is_empty());
        let at_most = there.take(at_most).count();
        let first = self.queued_by_arrival.values().filter(|t| seen.insert(self.tasks[**t].class));
        first.take(at_most).map(|t| (*t, self.index.classes[self.tasks[*t].class].queued.len())).collect()
    }
}

static NOBODY: ByKind<'static> = ByKind::new();

/// All workers.
pub(crate) type ByKind<'a> = BTreeMap<KindId, Vec<&'a Worker>>;

/// What the workers of a host that match have in their way.
#[derive(Clone, Copy, Debug, Default)]
struct Taking {
    /// One of them could take something, if not this.
    something: bool,
    paused: bool,
    /// One of them is not drained.
    not_drained: bool,
}

impl Taking {
    fn add(&mut self, obstacle: Obstacle) {
        use Obstacle::{Busy, Drained, ExclusiveThere, MaxInflight, Paused, Quarantined, Reserved};
        let takes_nothing = matches!(obstacle, Drained | Paused | Quarantined | Busy | MaxInflight);
        self.something |= !takes_nothing && !matches!(obstacle, Reserved | ExclusiveThere);
        self.paused |= matches!(obstacle, Paused | Quarantined);
        self.not_drained |= obstacle != Drained;
    }

    fn unavailable(self, host: &Host) -> Unavailable {
        Unavailable {
            host: host.key.clone(),
            paused: self.paused,
            draining: !self.not_drained,
            inflight: host.running.len(),
            inflight_max: host.max_inflight(),
        }
    }
}

/// Which workers are meant of those that could run an action, given who is there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meant {
    /// The prefix that they have, where it asks for a whole property list.
    prefix: Option<Text>,
    /// Their size class; `None`: any.
    size: Option<u32>,
    /// The strategy that they offer; `None`: any, or nobody offers one.
    strategy: Option<Text>,
}

impl Meant {
    /// Of any size and strategy.
    pub(crate) fn of_prefix(prefix: Option<Text>) -> Self {
        Self { prefix, ..Self::default() }
    }
}

impl Index {
    pub(crate) fn meant(&self, instance: &str, route: &Route, asked: &Asked) -> Meant {
        let mut meant = Meant {
            prefix: self.longest_prefix(&asked.atoms, instance),
            size: route.size.exact(),
            strategy: None,
        };
        let could =
            |meant: &Meant, kind: &&Kind| obstacle_of(&kind.key, instance, route, asked, meant).is_none();
        if route.size.is_relative() {
            let size = |k: &Kind| k.key.size_class;
            let wanted = Wanted {
                instance,
                pool: route.pool.as_ref(),
                size_class: None,
                strategies: route.strategies.as_deref(),
                atoms: asked.atoms.iter().collect(),
                demand: &asked.demand,
            };
            let there = || self.kinds.values().filter(|k| could(&meant, k));
            let able = there().filter(|k| k.has_in_all(&asked.demand)).map(size);
            let one = route.size.among(able.chain(self.sizes_of_pools(wanted)));
            meant.size = one.or_else(|| route.size.among(there().map(size)));
        }
        if let Some(wanted) = &route.strategies {
            let there = || self.kinds.values().filter(|k| could(&meant, k));
            meant.strategy = first_offered(wanted, &asked.demand, there).cloned();
        }
        meant
    }
}

/// What keeps a kind of worker from an action for good.
pub(crate) fn obstacle_of(
    kind: &KindKey,
    instance: &str,
    route: &Route,
    asked: &Asked,
    meant: &Meant,
) -> Option<Obstacle> {
    let offers = |strategies: &[Text]| strategies.iter().any(|s| kind.strategies.contains(s));
    if !is_path_prefix(&kind.prefix, instance) {
        Some(Obstacle::OtherInstance)
    } else if route.pool.as_ref().is_some_and(|p| *p != kind.pool) {
        Some(Obstacle::OtherPool)
    } else if meant.size.is_some_and(|n| n != kind.size_class) {
        Some(Obstacle::OtherSizeClass)
    } else if !asked.atoms.iter().all(|a| has(kind, a)) {
        Some(Obstacle::PropertyMismatch)
    } else if meant.prefix.as_ref().is_some_and(|p| *p != kind.prefix) {
        Some(Obstacle::OtherInstance)
    } else if route.strategies.as_deref().is_some_and(|wanted| !offers(wanted)) {
        Some(Obstacle::NoStrategy)
    } else if meant.strategy.as_ref().is_some_and(|s| !kind.strategies.contains(s)) {
        Some(Obstacle::OtherStrategy)
    } else if route.exclusivity == Exclusivity::Host && !kind.admits_exclusive {
        Some(Obstacle::NoExclusive)
    } else {
        None
    }
}

/// What an action asks, held against workers one thing at a time.
struct Matching<'a> {
    instance: &'a str,
    route: &'a Route,
    asked: &'a Asked,
    /// Who is meant of those that could run it.
    meant: Meant,
    digest: Option<&'a ActionDigest>,
    task: Option<TaskId>,
    demand: Demand,
    /// Where it waits, or would.
    lane: Option<&'a LaneKey>,
    workers: &'a ByKind<'a>,
}

impl Matching<'_> {
    fn wanted(&self) -> Wanted<'_> {
        Wanted {
            instance: self.instance,
            pool: self.route.pool.as_ref(),
            size_class: self.meant.size,
            strategies: self.route.strategies.as_deref(),
            atoms: self.asked.atoms.iter().collect(),
            demand: &self.asked.demand,
        }
    }

    /// What keeps a kind of worker from it for good.
    fn fixed(&self, kind: &KindKey) -> Option<Obstacle> {
        obstacle_of(kind, self.instance, self.route, self.asked, &self.meant)
    }

    /// What keeps a worker from it now.
    fn passing(&self, scheduler: &Scheduler, worker: &Worker) -> Obstacle {
        let (exclusivity, host) = (&self.route.exclusivity, &scheduler.fleet.hosts[worker.host]);
        let is_kept = host.reserved.is_some() && host.reserved == self.task;
        let pool = || scheduler.index.shapes[scheduler.index.kinds[worker.kind].shape].pool;
        if !fits(&self.demand.asked, &host.totals) {
            Obstacle::NeverFits
        } else if worker.drained {
            Obstacle::Drained
        } else if worker.paused || host.health.pause.is_some() {
            Obstacle::Paused
        } else if host.health.is_closed() {
            Obstacle::Quarantined
        } else if let Some(lane) = self.lane.filter(|lane| scheduler.avoids(lane, host)) {
            match scheduler.is_elsewhere(lane) {
                true => Obstacle::FailedThere,
                false => Obstacle::BackingOff,
            }
        } else if !self.has_claim(scheduler)
            && self.lane.is_some_and(|lane| lane.only.as_ref().is_some_and(|h| *h != host.key))
        {
            Obstacle::Affinity
        } else if host.reserved.is_some() && !is_kept {
            Obstacle::Reserved
        } else if worker.run.is_some() {
            Obstacle::Busy
        } else if host.alone > 0 {
            Obstacle::ExclusiveThere
        } else if self.digest.is_some_and(|d| host.running.contains(d)) {
            Obstacle::SameActionThere
        } else if !host.has_slot() {
            Obstacle::MaxInflight
        } else if !self.demand.fits(&host.free(), &host.totals) {
            Obstacle::NotEnoughFree
        } else if *exclusivity == Exclusivity::Host && !host.busy.is_empty() {
            Obstacle::OthersThere
        } else if *exclusivity == Exclusivity::Host && !is_kept && !host.tolerates(exclusivity, scheduler.now)
        {
            Obstacle::NotAdmitted
        } else if *exclusivity != Exclusivity::Host && !host.tolerates(exclusivity, scheduler.now)
            || !scheduler.index.has_token(exclusivity, pool())
        {
            Obstacle::GroupFull
        } else if worker.waiting.is_none() {
            Obstacle::NotCalling
        } else {
            Obstacle::Nothing
        }
    }

    /// A host is kept free for it.
    fn has_claim(&self, scheduler: &Scheduler) -> bool {
        self.task.is_some_and(|task| scheduler.claimed_by(task).is_some())
    }

    /// Kinds that only properties can keep from it, with their workers.
    fn candidates<'s>(&'s self, scheduler: &'s Scheduler) -> impl Iterator<Item = (&'s Kind, usize)> + 's {
        let kinds = self.workers.iter().map(|(id, workers)| (&scheduler.index.kinds[*id], workers.len()));
        kinds.filter(|(k, _)| matches!(self.fixed(&k.key), None | Some(Obstacle::PropertyMismatch)))
    }

    fn mismatches(&self, scheduler: &Scheduler) -> Vec<Mismatch> {
        let lacking = |atom: &Atom| {
            self.candidates(scheduler).filter(|(k, _)| !has(&k.key, atom)).map(|(_, n)| n).sum()
        };
        let atoms = self.asked.atoms.iter().map(|a| (a, lacking(a)));
        let wrong = atoms.filter(|(atom, workers)| *workers > 0 || matches!(atom, Atom::Unknown(_)));
        wrong.map(|(atom, workers)| self.mismatch(scheduler, atom, workers)).collect()
    }

    fn mismatch(&self, scheduler: &Scheduler, atom: &Atom, workers: usize) -> Mismatch {
        let key = match atom {
            Atom::Has(key) | Atom::Equals(key, _) | Atom::Unknown(key) => key.clone(),
            Atom::Whole(_) => WHOLE.into(),
        };
        let asked = match atom {
            Atom::Equals(_, value) | Atom::Whole(value) => value.clone(),
            Atom::Has(key) | Atom::Unknown(key) => self.route.property(key).cloned().unwrap_or_default(),
        };
        let mut values: BTreeMap<Text, usize> = BTreeMap::new();
        if matches!(atom, Atom::Equals(..) | Atom::Whole(_)) {
            for (kind, workers) in self.candidates(scheduler) {
                for value in kind.key.atoms.iter().filter_map(|a| value_of(a, &key)) {
                    *values.entry(value.clone()).or_default() += workers;
                }
            }
        }
        let fold = |text: &str| text.split_whitespace().collect::<String>().to_lowercase();
        let nearly = values.keys().find(|v| **v != asked && fold(v) == fold(&asked)).cloned();
        let kind = match atom {
            Atom::Whole(_) => Some(PropertyType::Exact),
            _ => scheduler.schema.type_of(&key),
        };
        let candidates = self.candidates(scheduler).map(|(_, n)| n).sum();
        Mismatch { key, kind, asked, candidates, workers, values: values.into_iter().collect(), nearly }
    }

    fn strategy_mismatch(&self, scheduler: &Scheduler) -> Option<StrategyMismatch> {
        let asked = self.route.strategies.clone()?;
        let kinds = self.workers.iter().map(|(id, workers)| (&scheduler.index.kinds[*id].key, workers.len()));
        let (mut all, mut silent, mut offered) = (0, 0, BTreeMap::<Text, usize>::new());
        for (kind, workers) in kinds.filter(|(k, _)| self.fixed(k) == Some(Obstacle::NoStrategy)) {
            all += workers;
            silent += if kind.strategies.is_empty() { workers } else { 0 };
            for strategy in &kind.strategies {
                *offered.entry(strategy.clone()).or_default() += workers;
            }
        }
        (all > 0).then(|| StrategyMismatch {
            asked,
            workers: all,
            offered: offered.into_iter().collect(),
            silent,
        })
    }

    fn shortages(&self, scheduler: &Scheduler) -> Vec<Shortage> {
        let kinds = self.candidates(scheduler).filter(|(k, _)| self.fixed(&k.key).is_none());
        let hosts: BTreeSet<_> = kinds.flat_map(|(k, _)| &k.hosts).copied().collect();
        let keys = scheduler.schema.minimums().iter().zip(&self.asked.demand).enumerate();
        let asked = keys.filter(|(_, (_, asked))| **asked > 0);
        let shortage = |(i, (key, asked)): (usize, (&Text, &u64))| {
            let of =
                |f: fn(&Host, usize) -> u64| hosts.iter().map(|h| f(&scheduler.fleet.hosts[*h], i)).max();
            let most_free = of(|host, i| host.free()[i])?;
            let most_total = of(|host, i| host.totals[i])?;
            (most_free < *asked).then(|| Shortage { key: key.clone(), asked: *asked, most_free, most_total })
        };
        asked.filter_map(shortage).collect()
    }
}

/// What a whole property list is called where there is room for a key.
const WHOLE: &str = "platform";

fn has(kind: &KindKey, atom: &Atom) -> bool {
    kind.atoms.binary_search(atom).is_ok()
}

fn value_of<'a>(atom: &'a Atom, key: &Text) -> Option<&'a Text> {
    match atom {
        Atom::Equals(k, value) if k == key => Some(value),
        Atom::Whole(value) if **key == *WHOLE => Some(value),
        _ => None,
    }
}

fn reason(matching: &Matching<'_>, counts: &BTreeMap<Obstacle, usize>, is_kept: bool) -> Reason {
    if matching.asked.atoms.iter().any(|a| matches!(a, Atom::Unknown(_))) {
        return Reason::UnknownProperty;
    }
    if is_kept {
        return Reason::Reserved;
    }
    if matching.lane.is_some_and(|lane| lane.only.is_some()) {
        return Reason::Affinity;
    }
    // What stops the worker that comes furthest is what stops the action.
    let Some(furthest) = counts.keys().next_back() else { return Reason::NoWorkerRegistered };
    match furthest {
        Obstacle::OtherInstance => Reason::NoInstanceMatch,
        Obstacle::OtherPool => Reason::NoPool,
        Obstacle::OtherSizeClass => Reason::NoSizeClass,
        Obstacle::PropertyMismatch => Reason::NoPropertyMatch,
        Obstacle::NoStrategy | Obstacle::OtherStrategy => Reason::NoStrategy,
        Obstacle::NoExclusive => Reason::NoExclusive,
        Obstacle::NeverFits => Reason::NeverFits,
        Obstacle::Drained => Reason::Drained,
        Obstacle::Paused => Reason::Paused,
        Obstacle::Quarantined => Reason::Quarantined,
        Obstacle::BackingOff => Reason::BackingOff,
        Obstacle::OthersThere | Obstacle::NotAdmitted => Reason::Exclusive,
        Obstacle::GroupFull => Reason::GroupFull,
        Obstacle::FailedThere
        | Obstacle::Affinity
        | Obstacle::Reserved
        | Obstacle::ExclusiveThere
        | Obstacle::Busy
        | Obstacle::SameActionThere
        | Obstacle::MaxInflight
        | Obstacle::NotEnoughFree
        | Obstacle::NotCalling => Reason::AllBusy,
        Obstacle::Nothing => Reason::Next,
    }
}
