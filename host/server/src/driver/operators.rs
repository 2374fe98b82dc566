//! What operators ask and tell.

use std::sync::Arc;
use std::time::Duration;

use pointsman_scheduler::capacities::Capacity;
use pointsman_scheduler::effect::{Effect, HostNews};
use pointsman_scheduler::event::Event;
use pointsman_scheduler::explain::Explanation;
use pointsman_scheduler::holds::{Hold, HoldOutcome, Pattern};
use pointsman_scheduler::ids::OperationId;
use pointsman_scheduler::properties::Asked;
use pointsman_scheduler::route::Route;
use pointsman_scheduler::views::{ClassView, HoldView, WorkerView};

use super::{Driver, Payload};

/// Which operations an operator means.
#[derive(Clone, Debug)]
pub enum Selection {
    /// The one of that name.
    One(String),
    /// Those that wait with the same requirements as the one of that name.
    Alike(String),
    /// Those one of whose invocation keys is this.
    Invocation(String),
}

impl Driver {
    /// Why the operation of that name is where it is. `None`: there is none; `Some(None)`: it is over.
    pub fn explain(&self, name: &str) -> Option<Option<(Explanation, Arc<Payload>)>> {
        let core = self.lock();
        let operation = core.scheduler.operation_by_id(core.scheduler.operation(name)?)?;
        Some(operation.task.and_then(|t| Some((core.scheduler.explain(t)?, core.payloads.get(t)?.clone()))))
    }

    /// What would become of an action, without queueing one.
    pub fn plan(&self, instance_name: &Arc<str>, route: &Route, asked: &Asked) -> Explanation {
        self.lock().scheduler.plan(instance_name, route, asked)
    }

    /// What waits, by sets of requirements, longest waiting first.
    pub fn queue(&self, at_most: usize) -> Vec<(ClassView, Arc<Payload>)> {
        let classes = self.lock().scheduler.waiting_classes(at_most);
        // Each looks at every worker, so others get the lock in between.
        let explained = classes.into_iter().filter_map(|(task, count)| {
            let core = self.lock();
            Some((core.scheduler.waiting_class(task, count)?, core.payloads.get(task)?.clone()))
        });
        explained.collect()
    }

    /// The operations that have waited longest, `at_most` of them, with their ages.
    pub fn oldest_queued(&self, at_most: usize) -> Vec<(Arc<str>, Duration)> {
        let core = self.lock();
        let now = self.clock.now();
        let tasks = core.scheduler.queued_after(None).take(at_most);
        let named = tasks.filter_map(|(_, id, _)| {
            let task = core.scheduler.task(id)?;
            let operation = core.scheduler.operation_by_id(*task.operations.first()?)?;
            Some((operation.name.clone(), now.since(task.queued_at)))
        });
        named.collect()
    }

    /// All workers.
    pub fn workers(&self) -> Vec<WorkerView> {
        self.lock().scheduler.workers().collect()
    }

    /// What there is of a `minimum` key by pool and size class. The lock is held for some nanoseconds for each host.
    pub fn capacities(&self, minimum: Option<&str>) -> Vec<Capacity> {
        self.lock().scheduler.capacities(minimum)
    }

    /// Drains and pauses in force.
    pub fn holds(&self) -> Vec<HoldView> {
        self.lock().scheduler.drains()
    }

    /// Puts a drain or pause in force, or ends it.
    pub fn hold(&self, hold: Hold, pattern: Pattern, add: bool) -> HoldOutcome {
        let event = if add { Event::AddHold(hold, pattern) } else { Event::RemoveHold(hold, pattern) };
        let outcome = self.step(event, None, |_, effects| {
            effects.iter().find_map(|effect| match effect {
                Effect::Hold { outcome, .. } => Some(*outcome),
                _ => None,
            })
        });
        // The core answers every hold.
        outcome.unwrap_or(HoldOutcome::Unknown)
    }

    /// Lets hosts of these workers out of quarantine, and ends pauses that they asked for. Names them.
    pub fn release(&self, pattern: Pattern) -> Vec<Arc<str>> {
        self.step(Event::Release(pattern), None, |_, effects| {
            let hosts = effects.iter().filter_map(|effect| match effect {
                Effect::Host { host, news: HostNews::Released | HostNews::Resumed } => Some(host.clone()),
                _ => None,
            });
            hosts.collect()
        })
    }

    /// Ends the operations meant, and names them.
    pub fn cancel_selected(&self, selection: &Selection) -> Vec<String> {
        let chosen: Vec<(OperationId, String)> = {
            let core = self.lock();
            let scheduler = &core.scheduler;
            let in_flight =
                |id: &OperationId| scheduler.operation_by_id(*id).is_some_and(|o| o.task.is_some());
            let ids = match selection {
                Selection::One(name) => scheduler.operation(name).into_iter().filter(in_flight).collect(),
                Selection::Alike(name) => {
                    let task = scheduler.operation(name).and_then(|id| scheduler.operation_by_id(id)?.task);
                    task.map(|t| scheduler.operations_alike(t)).unwrap_or_default()
                }
                Selection::Invocation(key) => {
                    let is_of = |r: &Arc<Route>| r.invocation_keys.iter().any(|k| **k == **key);
                    let all = scheduler.operations().filter(|(_, o)| o.submitted.as_ref().is_some_and(is_of));
                    all.map(|(id, _)| id).collect()
                }
            };
            let named =
                ids.into_iter().filter_map(|id| Some((id, scheduler.operation_by_id(id)?.name.to_string())));
            named.collect()
        };
        for (id, _) in &chosen {
            self.step(Event::Cancel(*id), None, |core, _| core.ended_by_operator = Some(*id));
        }
        chosen.into_iter().map(|(_, name)| name).collect()
    }
}
