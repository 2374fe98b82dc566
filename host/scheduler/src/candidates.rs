//! Hosts that could run an arriving action at once, for a policy to put in order, and what becomes of that order.
//!
//! The policy is asked between a look at the state and the step that submits the action, so its order is a wish: the step
//! checks anew what each host still has, once, and otherwise goes by the rule of placement.

use std::collections::BTreeSet;
use std::time::Duration;

use smallvec::SmallVec;

use crate::classes::Demand;
use crate::explain::obstacle_of;
use crate::ids::{ActionDigest, HostId, KindId, ShapeId, TaskId, Text};
use crate::placement::{Caller, FITTING_MAX};
use crate::properties::Asked;
use crate::route::Route;
use crate::scheduler::Scheduler;
use crate::sharing::ShareKey;
use crate::workers::{Open, fits};

/// So many hosts are offered at most, however many a route asks for.
pub const CANDIDATES_MAX: usize = 64;

/// Of hosts with the same free so many are looked at.
const LOOKED_AT: usize = 4 * CANDIDATES_MAX;

/// Who may run an action.
struct Eligible {
    shapes: SmallVec<[ShapeId; 4]>,
    /// These kinds of those shapes; `None`: all of them.
    kinds: Option<BTreeSet<KindId>>,
}

/// A host that could run an action at once, by the worker of it that would get the action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CandidateView {
    /// For [`Submit::preferred`](crate::event::Submit).
    pub host: HostId,
    /// The host's name, as clients see it while it runs something.
    pub name: Text,
    /// Pool of the worker.
    pub pool: Text,
    /// Actions that the host executes.
    pub executing: usize,
    /// It was the last to run the route's affinity key.
    pub affine: bool,
    /// How long the worker has had nothing to do.
    pub idle: Duration,
}

impl Scheduler {
    /// Hosts that could run such an action at once, were it submitted now: the one that placement would take first, each
    /// once, and `at_most` of them. None if it would join an action in flight, or wait for the host of its affinity key.
    ///
    /// Looks at a bounded number of hosts; at each kind of worker too when no action like this has been here lately.
    pub fn candidates(
        &self,
        instance: &Text,
        digest: &ActionDigest,
        route: &Route,
        asked: &Asked,
        at_most: usize,
    ) -> Vec<CandidateView> {
        let at_most = at_most.min(CANDIDATES_MAX);
        let joins = || route.shared && self.task_to_join(&ShareKey::new(instance, digest, route)).is_some();
        if at_most == 0 || joins() {
            return Vec::new();
        }
        let eligible = self.eligible_for(instance, route, asked);
        let demand = Demand::new(asked);
        let affine = route.affinity.as_ref().and_then(|a| self.last_hosts.get(&a.key));
        let affine = affine.and_then(|key| self.fleet.host_by_key.get(key).copied());
        let mut found = Vec::with_capacity(at_most);
        if let Some(id) = affine {
            let host = &self.fleet.hosts[id];
            let serves = |k| self.may_serve(&eligible, k) && host.serves(k, &demand);
            if host.kinds().any(serves) {
                let has_room = host.has_room_for(&demand, &route.exclusivity, self.now);
                if has_room && !host.running.contains(digest) {
                    found.extend(self.candidate_on(id, &eligible, route, true));
                }
                if found.is_empty() && route.affinity.as_ref().is_some_and(|a| !a.wait.is_zero()) {
                    return found;
                }
            }
        }
        let first = found.first().map(|c: &CandidateView| c.host);
        for host in self.open_hosts(digest, &demand, route, &eligible, at_most) {
            if found.len() < at_most && Some(host) != first {
                found.extend(self.candidate_on(host, &eligible, route, false));
            }
        }
        found
    }

    fn candidate_on(
        &self,
        id: HostId,
        eligible: &Eligible,
        route: &Route,
        affine: bool,
    ) -> Option<CandidateView> {
        let host = &self.fleet.hosts[id];
        let mut kinds = host.kinds().filter(|k| self.may_begin_there(eligible, route, *k));
        let worker = &self.fleet.workers[kinds.find_map(|k| host.idle_of(k))?];
        Some(CandidateView {
            host: id,
            name: host.key.clone(),
            pool: worker.spec.pool.clone(),
            executing: host.running.len(),
            affine,
            idle: self.now.since(worker.idle_since),
        })
    }

    /// Hosts with a waiting worker and room, as placement would take them, each once.
    fn open_hosts(
        &self,
        digest: &ActionDigest,
        demand: &Demand,
        route: &Route,
        eligible: &Eligible,
        at_most: usize,
    ) -> Vec<HostId> {
        let mut open: Vec<_> = Vec::new();
        for shape in &eligible.shapes {
            let groups = self.fleet.open.get(shape).into_iter().flat_map(|g| g.range(demand.least.clone()..));
            let fitting = groups.filter(|(free, _)| fits(&demand.least, free));
            for (free, group) in fitting.take(FITTING_MAX) {
                self.index.probe();
                let merit = self.config.placement.merit(&demand.packed, free);
                let takes = |o: &&Open| {
                    self.index.probe();
                    let host = &self.fleet.hosts[o.host];
                    self.may_begin_there(eligible, route, o.kind)
                        && host.has_room_for(demand, &route.exclusivity, self.now)
                        && !host.running.contains(digest)
                };
                // One more, as the host of the affinity key may be among them.
                let others = group.iter().take(LOOKED_AT).filter(takes).take(at_most + 1);
                open.extend(others.map(|o| (merit, *o)));
            }
        }
        open.sort_unstable();
        let mut hosts: Vec<HostId> = Vec::with_capacity(at_most + 1);
        for (_, Open { host, .. }) in open {
            if hosts.len() > at_most {
                break;
            }
            // One with workers of two kinds is there twice.
            if !hosts.contains(&host) {
                hosts.push(host);
            }
        }
        hosts
    }

    /// Whose workers may run such an action.
    fn eligible_for(&self, instance: &Text, route: &Route, asked: &Asked) -> Eligible {
        if let Some(class) = self.index.known_class(instance, route, asked) {
            let lane = &self.index.lanes[self.index.classes[class].lane].key;
            return Eligible { shapes: lane.eligible.clone(), kinds: None };
        }
        // Shapes don't show what nobody has asked for yet.
        let meant = self.index.meant(instance, route, asked);
        let kinds = self.index.kinds.iter().filter(|(_, kind)| {
            self.index.probe();
            obstacle_of(&kind.key, instance, route, asked, &meant).is_none()
        });
        let kinds: BTreeSet<KindId> = kinds.map(|(id, _)| id).collect();
        let mut shapes: SmallVec<[ShapeId; 4]> = kinds.iter().map(|k| self.index.kinds[*k].shape).collect();
        shapes.sort_unstable();
        shapes.dedup();
        Eligible { shapes, kinds: Some(kinds) }
    }

    /// Workers of that kind may run it, as far as tokens go.
    fn may_begin_there(&self, eligible: &Eligible, route: &Route, kind: KindId) -> bool {
        let pool = self.index.shapes[self.index.kinds[kind].shape].pool;
        self.may_serve(eligible, kind) && self.index.has_token(&route.exclusivity, pool)
    }

    fn may_serve(&self, eligible: &Eligible, kind: KindId) -> bool {
        match &eligible.kinds {
            Some(kinds) => kinds.contains(&kind),
            None => eligible.shapes.contains(&self.index.kinds[kind].shape),
        }
    }

    /// A worker on the first of these hosts that waits and may run a task now. It waits no longer.
    pub(crate) fn worker_on_one_of(&mut self, id: TaskId, hosts: &[HostId]) -> Option<Caller> {
        hosts.iter().take(CANDIDATES_MAX).find_map(|host| self.worker_on(id, *host))
    }

    /// A worker that waits on a host and may run a task now. It waits no longer.
    pub(crate) fn worker_on(&mut self, id: TaskId, host: HostId) -> Option<Caller> {
        self.index.probe();
        let host = self.fleet.hosts.get(host)?;
        let task = &self.tasks[id];
        let lane = &self.index.lanes[self.index.classes[task.class].lane].key;
        let demand = &self.index.demands[lane.demand];
        if !host.has_room_for(demand, &lane.exclusivity, self.now)
            || host.running.contains(&task.digest)
            || self.avoids(lane, host)
        {
            return None;
        }
        let kinds = host.kinds().filter(|k| self.index.is_served_by(lane, self.index.kinds[*k].shape));
        let worker = { kinds }.find_map(|k| host.idle_of(k))?;
        Some((worker, self.fleet.stop_waiting(&self.index, worker)?))
    }
}
