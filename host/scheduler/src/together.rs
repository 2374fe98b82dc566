//! Alone or together: actions that execute alone on their host, and groups of which only so many execute at once.
//!
//! Only *execution* is exclusive. An exclusive action is sent to a worker when all else on the host is idle or uploads its
//! outputs, and others follow as soon as it uploads its own. No protocol lets a worker hold an action that it has
//! fetched, so fetches never overlap with what is exclusive; uploads may.
//!
//! A group within a host is one more thing that there must be room for. One within a pool or the cluster has *tokens*, which
//! are taken before anything else is looked at: lanes of a group without tokens are in no worker's sight.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use crate::classes::Index;
use crate::effect::Output;
use crate::event::{HostExclusive, Terms};
use crate::ids::{HostId, LaneId, PoolId, ShapeId, TaskId, Text, WorkerId};
use crate::lanes::LaneKey;
use crate::route::{Exclusivity, Scope};
use crate::scheduler::Scheduler;
use crate::time::Time;
use crate::workers::{Host, Run};

/// When a host may be taken by an exclusive action, and what that depends on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Admission {
    exclusive: HostExclusive,
    /// Starts in the last minute, at most.
    below: Option<u32>,
    /// When an exclusive action last began.
    last: Option<Time>,
    starts: Starts,
}

/// What was started in the last minute, by seconds.
#[derive(Clone, Debug, Default)]
struct Starts {
    /// Oldest first: the second, and how many.
    by_second: VecDeque<(u64, u32)>,
}

/// So many seconds count.
const MINUTE: u64 = 60;

fn second(at: Time) -> u64 {
    at.0 / 1000
}

impl Starts {
    fn note(&mut self, now: Time) {
        let second = second(now);
        self.by_second.retain(|(s, _)| s + MINUTE > second);
        match self.by_second.back_mut() {
            Some((last, n)) if *last == second => *n += 1,
            _ => self.by_second.push_back((second, 1)),
        }
    }

    /// From when on there are at most so many, if nothing starts; not later than now if there are no more already.
    fn few_from(&self, at_most: u32) -> Time {
        let mut left = self.by_second.iter().map(|(_, n)| n).sum::<u32>();
        let mut from = 0;
        for (second, n) in &self.by_second {
            if left <= at_most {
                break;
            }
            left -= n;
            from = second + MINUTE;
        }
        Time(from * 1000)
    }
}

impl Admission {
    /// A worker has joined on these terms.
    pub(crate) fn set(&mut self, terms: &Terms) {
        (self.exclusive, self.below) = (terms.exclusive, terms.exclusive_below);
        if self.below.is_none() {
            self.starts = Starts::default();
        }
    }

    /// Something has begun.
    fn note(&mut self, now: Time, alone: bool) {
        if alone {
            self.last = Some(now);
        }
        if self.below.is_some() {
            self.starts.note(now);
        }
    }

    /// From when on an exclusive action may take the host, as far as is known now; `None`: never.
    pub(crate) fn from(&self) -> Option<Time> {
        let after = |pause: Duration| self.last.map_or(Time::default(), |last| last + pause);
        let often = match self.exclusive {
            HostExclusive::Never => return None,
            HostExclusive::Allowed => Time::default(),
            HostExclusive::NotMoreOftenThan(pause) => after(pause),
        };
        Some(often.max(self.below.map_or(Time::default(), |n| self.starts.few_from(n))))
    }

    pub(crate) fn admits(&self, now: Time) -> bool {
        self.from().is_some_and(|from| from <= now)
    }
}

impl Host {
    /// A command has begun there.
    pub(crate) fn begins(&mut self, worker: WorkerId, run: &Run, now: Time) {
        self.busy.insert(worker);
        let alone = run.exclusivity == Exclusivity::Host;
        self.alone += usize::from(alone);
        if let Some(group) = group_within_host(&run.exclusivity) {
            *self.groups.entry(group.clone()).or_default() += 1;
        }
        // What nobody gave it says nothing of how busy it is kept.
        if run.task.is_some() {
            self.admission.note(now, alone);
        }
    }

    /// It is over, or given up.
    pub(crate) fn ends(&mut self, worker: WorkerId, run: &Run) {
        self.busy.remove(&worker);
        self.alone -= usize::from(run.exclusivity == Exclusivity::Host);
        if let Some(group) = group_within_host(&run.exclusivity)
            && let Some(n) = self.groups.get_mut(group)
        {
            *n -= 1;
            if *n == 0 {
                self.groups.remove(group);
            }
        }
    }

    /// What executes there tolerates such an action, and it them.
    pub(crate) fn tolerates(&self, exclusivity: &Exclusivity, now: Time) -> bool {
        match exclusivity {
            Exclusivity::Shared | Exclusivity::Group { scope: Scope::Pool | Scope::Cluster, .. } => true,
            Exclusivity::Host => self.busy.is_empty() && self.admission.admits(now),
            Exclusivity::Group { name, scope: Scope::Host, at_most } => {
                self.groups.get(name).is_none_or(|n| n < at_most)
            }
        }
    }
}

fn group_within_host(exclusivity: &Exclusivity) -> Option<&Text> {
    match exclusivity {
        Exclusivity::Group { name, scope: Scope::Host, .. } => Some(name),
        _ => None,
    }
}

// === Tokens ===

/// A group within pools or the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct GroupKey {
    pub(crate) scope: Scope,
    pub(crate) name: Text,
}

/// Who has its tokens, and who may want some. Each lane says how many there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Group {
    /// Executing; by pool if the scope is pools.
    pub(crate) executing: BTreeMap<Option<PoolId>, u32>,
    pub(crate) lanes: BTreeSet<LaneId>,
}

impl Group {
    fn is_unused(&self) -> bool {
        self.executing.is_empty() && self.lanes.is_empty()
    }
}

/// The tokens that an action needs, and how many there are.
pub(crate) fn tokens(exclusivity: &Exclusivity) -> Option<(GroupKey, u32)> {
    match exclusivity {
        Exclusivity::Group { name, scope: scope @ (Scope::Pool | Scope::Cluster), at_most } => {
            Some((GroupKey { scope: *scope, name: name.clone() }, *at_most))
        }
        _ => None,
    }
}

fn within(scope: Scope, pool: PoolId) -> Option<PoolId> {
    (scope == Scope::Pool).then_some(pool)
}

impl Index {
    /// An action of this kind may begin in that pool, as far as tokens go.
    pub(crate) fn has_token(&self, exclusivity: &Exclusivity, pool: PoolId) -> bool {
        let Some((key, at_most)) = tokens(exclusivity) else { return true };
        let group = self.groups.get(&key);
        group.and_then(|g| g.executing.get(&within(key.scope, pool))).is_none_or(|n| *n < at_most)
    }

    /// Workers of that shape may run tasks of a lane, as far as tokens go.
    pub(crate) fn is_served_by(&self, lane: &LaneKey, shape: ShapeId) -> bool {
        lane.eligible.contains(&shape) && self.has_token(&lane.exclusivity, self.shapes[shape].pool)
    }

    /// An action has begun in a pool.
    pub(crate) fn take_token(&mut self, exclusivity: &Exclusivity, pool: PoolId) {
        let Some((key, _)) = tokens(exclusivity) else { return };
        let place = within(key.scope, pool);
        let group = self.groups.entry(key.clone()).or_default();
        *group.executing.entry(place).or_default() += 1;
        self.mark_group(&key);
    }

    /// It is over. Returned: whose token that was.
    pub(crate) fn give_token(&mut self, exclusivity: &Exclusivity, pool: PoolId) -> Option<GroupKey> {
        let (key, _) = tokens(exclusivity)?;
        let group = self.groups.get_mut(&key)?;
        let place = within(key.scope, pool);
        if let Some(n) = group.executing.get_mut(&place) {
            *n -= 1;
            if *n == 0 {
                group.executing.remove(&place);
            }
        }
        if group.is_unused() {
            self.groups.remove(&key);
        }
        self.mark_group(&key);
        Some(key)
    }

    fn mark_group(&mut self, key: &GroupKey) {
        let lanes = self.groups.get(key).map(|g| g.lanes.clone()).unwrap_or_default();
        lanes.into_iter().for_each(|lane| self.mark(lane));
    }

    pub(crate) fn enter_group(&mut self, lane: LaneId) {
        if let Some((key, _)) = tokens(&self.lanes[lane].key.exclusivity) {
            self.groups.entry(key).or_default().lanes.insert(lane);
        }
    }

    pub(crate) fn leave_group(&mut self, lane: LaneId) {
        let Some((key, _)) = tokens(&self.lanes[lane].key.exclusivity) else { return };
        let Some(group) = self.groups.get_mut(&key) else { return };
        group.lanes.remove(&lane);
        if group.is_unused() {
            self.groups.remove(&key);
        }
    }
}

// === What is put off until the step is done ===

/// What may have become possible by the way, on hosts other than the one that a step is about.
#[derive(Clone, Debug, Default)]
pub(crate) struct Later {
    /// These groups have tokens.
    groups: BTreeSet<GroupKey>,
    /// These hosts may take something.
    pub(crate) hosts: BTreeSet<HostId>,
    /// What is exclusive may find a host, or claim one.
    pub(crate) exclusive: bool,
}

impl Scheduler {
    /// A worker's action is over, or given up.
    pub(crate) fn stop(&mut self, worker: WorkerId) -> Option<Run> {
        let pool = self.pool_of(worker);
        let run = self.fleet.stop(&self.index, worker, self.now)?;
        if !run.is_over {
            self.give_token(&run.exclusivity, pool);
        }
        Some(run)
    }

    /// A worker's command is over: what it took is free, and others may begin. `false`: that was known, or changes nothing.
    pub(crate) fn command_over(&mut self, worker: WorkerId) -> bool {
        let pool = self.pool_of(worker);
        let Some((exclusivity, matters)) = self.fleet.command_over(&self.index, worker) else { return false };
        self.give_token(&exclusivity, pool);
        matters
    }

    fn give_token(&mut self, exclusivity: &Exclusivity, pool: PoolId) {
        self.later.groups.extend(self.index.give_token(exclusivity, pool));
    }

    /// Does what was put off.
    pub(crate) fn settle(&mut self, out: &mut Output) {
        self.give_up_last_resorts(out);
        loop {
            if let Some(host) = self.later.hosts.pop_first() {
                if self.fleet.hosts.contains_key(host) {
                    self.offer(host, out);
                }
            } else if let Some(key) = self.later.groups.pop_first() {
                let lanes = self.index.groups.get(&key).map(|g| g.lanes.clone()).unwrap_or_default();
                // What a host is kept free for has had its turn. Nobody sees that host as open.
                lanes.iter().for_each(|lane| self.offer_where_kept(*lane, out));
                lanes.into_iter().for_each(|lane| self.offer_where_open(lane, out));
            } else if std::mem::take(&mut self.later.exclusive) {
                for lane in self.index.exclusive.clone() {
                    self.offer_where_open(lane, out);
                }
            } else {
                return;
            }
        }
    }

    /// Lets the host choose that is kept free for a task of a lane, if one is.
    fn offer_where_kept(&mut self, lane: LaneId, out: &mut Output) {
        let only = self.index.lanes.get(lane).and_then(|lane| lane.key.only.as_ref());
        let host = only.and_then(|host| self.fleet.host_by_key.get(host)).copied();
        if let Some(host) = host.filter(|host| self.fleet.hosts[*host].reserved.is_some()) {
            self.offer(host, out);
        }
    }

    /// Lets hosts choose that wait and could run, or claim, something of a lane, until none could.
    fn offer_where_open(&mut self, lane: LaneId, out: &mut Output) {
        while let Some(host) = self.open_to(lane) {
            let before = (self.index.waiting.len(), self.claims.len());
            self.offer(host, out);
            if before == (self.index.waiting.len(), self.claims.len()) {
                return;
            }
        }
    }

    fn open_to(&self, id: LaneId) -> Option<HostId> {
        let lane = self.index.lanes.get(id).filter(|lane| !lane.queue.is_empty())?;
        let is_somewhere = lane.key.eligible.iter().any(|s| self.fleet.open.contains_key(s));
        if !is_somewhere {
            return None;
        }
        // First whether there is one for any of them: there may be many, and what waits together mostly waits for the same.
        let open = self.open_in(&lane.key, None).and_then(|_| {
            let mut tasks = lane.classes.iter().flat_map(|c| &self.index.classes[*c].queued);
            tasks.find_map(|task| self.open_for(*task))
        });
        open.map(|open| open.host).or_else(|| self.open_to_claims_of(&lane.key))
    }

    /// A host that waits, where something exclusive could have its turn and claim a host.
    fn open_to_claims_of(&self, lane: &LaneKey) -> Option<HostId> {
        if lane.exclusivity != Exclusivity::Host || !self.may_claim(lane) {
            return None;
        }
        let groups = lane.eligible.iter().filter_map(|s| self.fleet.open.get(s));
        let mut hosts = groups.flat_map(BTreeMap::values).flatten().map(|open| open.host);
        hosts.find(|host| {
            self.index.probe();
            let host = &self.fleet.hosts[*host];
            !self.avoids(lane, host) && host.admission.admits(self.now)
        })
    }

    /// A task waits. If it is exclusive, it might have its turn on a host that has a worker to spare.
    pub(crate) fn note_exclusive(&mut self, id: TaskId) {
        let is_exclusive = |class| self.index.classes[class].key.exclusivity == Exclusivity::Host;
        self.later.exclusive |= self.index.waiting.get(id).is_some_and(|w| is_exclusive(w.class));
    }
}

impl Scheduler {
    /// What is exclusive executes alone, no group exceeds what its last action was told, and what is counted is so.
    pub(crate) fn check_together(&self) -> Result<(), String> {
        let mut executing: BTreeMap<(GroupKey, Option<PoolId>), u32> = BTreeMap::new();
        for (id, host) in &self.fleet.hosts {
            let runs = self.fleet.workers.iter().filter(|(_, w)| w.host == id);
            let runs: Vec<_> = runs.filter_map(|(id, w)| Some((id, w.run.as_ref()?))).collect();
            let busy: BTreeSet<WorkerId> =
                runs.iter().filter(|(_, r)| !r.is_over).map(|(id, _)| *id).collect();
            let of = |kind: fn(&Exclusivity) -> bool| {
                runs.iter().filter(|(_, r)| !r.is_over && kind(&r.exclusivity)).count()
            };
            let alone = of(|e| *e == Exclusivity::Host);
            let grouped = of(|e| group_within_host(e).is_some());
            if (&busy, alone, grouped as u32) != (&host.busy, host.alone, host.groups.values().sum()) {
                return Err(format!("{busy:?} execute on {}, {alone} alone: {host:?}", host.key));
            }
            // Strays may run on where nobody has sent them.
            let given = runs
                .iter()
                .filter(|(_, r)| !r.is_over && (r.task.is_some() || r.exclusivity == Exclusivity::Host));
            if alone > 0 && given.count() > 1 {
                return Err(format!("{} executes something that is exclusive, and more: {runs:?}", host.key));
            }
            for (worker, run) in runs.iter().filter(|(_, r)| !r.is_over) {
                if let Some((key, _)) = tokens(&run.exclusivity) {
                    let pool = within(key.scope, self.pool_of(*worker));
                    *executing.entry((key, pool)).or_default() += 1;
                }
            }
        }
        let kept = self
            .index
            .groups
            .iter()
            .flat_map(|(key, group)| group.executing.iter().map(|(pool, n)| ((key.clone(), *pool), *n)));
        let kept: BTreeMap<_, _> = kept.collect();
        let mut lanes: BTreeSet<(GroupKey, LaneId)> = BTreeSet::new();
        for (id, lane) in &self.index.lanes {
            lanes.extend(tokens(&lane.key.exclusivity).map(|(key, _)| (key, id)));
        }
        let listed = self.index.groups.iter().flat_map(|(key, g)| g.lanes.iter().map(|l| (key.clone(), *l)));
        match executing == kept && lanes == listed.collect() {
            true => Ok(()),
            false => Err(format!("{executing:?} execute in groups, {lanes:?} wait: {:?}", self.index.groups)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_is_counted_by_seconds() {
        let mut starts = Starts::default();
        for ms in [500, 900, 2_000, 59_400] {
            starts.note(Time(ms));
        }
        assert_eq!(starts.few_from(4), Time(0));
        assert_eq!(starts.few_from(3), Time(60_000));
        assert_eq!(starts.few_from(2), Time(60_000));
        assert_eq!(starts.few_from(1), Time(62_000));
        assert_eq!(starts.few_from(0), Time(119_000));
        starts.note(Time(60_999));
        // Those of the first second are a minute ago.
        assert_eq!(starts.by_second, [(2, 1), (59, 1), (60, 1)]);
    }

    #[test]
    fn a_host_is_taken_on_its_terms() {
        let mut admission = Admission::default();
        let pause = Duration::from_secs(10);
        assert_eq!(admission.from(), Some(Time(0)));
        admission.set(&Terms { exclusive: HostExclusive::NotMoreOftenThan(pause), ..Terms::default() });
        admission.note(Time(1_000), false);
        assert!(admission.admits(Time(1_000)));
        admission.note(Time(5_000), true);
        assert_eq!(admission.from(), Some(Time(15_000)));
        admission.set(&Terms { exclusive: HostExclusive::Never, ..Terms::default() });
        assert!(!admission.admits(Time(u64::MAX)));
    }
}
