//! What must hold after every step. Slow: for tests and simulation.

use std::collections::{BTreeMap, BTreeSet};

use crate::attempts::used_up;
use crate::ids::{ClassId, TaskId, Text, WorkerId};
use crate::route::Exclusivity;
use crate::scheduler::Scheduler;
use crate::shapes::{KindKey, is_path_prefix};
use crate::task::{Task, TaskState};
use crate::workers::{Worker, fits};

impl Scheduler {
    /// Looks at everything.
    ///
    /// # Errors
    /// The first thing found wrong.
    pub fn check(&self) -> Result<(), String> {
        self.index.check()?;
        self.fleet.check(&self.index)?;
        self.check_tasks()?;
        self.check_operations()?;
        self.check_sharing()?;
        self.check_timers()?;
        self.check_aside()?;
        self.check_claims()?;
        self.check_together()?;
        self.check_fairness()?;
        self.check_metrics()?;
        self.check_nobody_waits_in_vain()
    }

    fn check_tasks(&self) -> Result<(), String> {
        let mut on_worker: BTreeSet<WorkerId> = BTreeSet::new();
        let mut queued = 0;
        let mut of_class: BTreeMap<ClassId, usize> = BTreeMap::new();
        for (id, task) in &self.tasks {
            *of_class.entry(task.class).or_default() += 1;
            if task.operations.is_empty() {
                return Err(format!("nobody waits for task {}", task.sequence));
            }
            match task.state {
                TaskState::Running(worker) => {
                    let run = self.fleet.workers.get(worker).and_then(|w| w.run.as_ref());
                    if run.and_then(|r| r.task) != Some(id) || !on_worker.insert(worker) {
                        return Err(format!("task {} is not on its worker", task.sequence));
                    }
                }
                TaskState::Queued => {
                    queued += 1;
                    let waiting = self.index.waiting.get(id).map(|w| (w.class, w.key, &w.digest));
                    if self.queued_by_arrival.get(&task.sequence) != Some(&id)
                        || waiting != Some((task.class, task.key, &task.digest))
                    {
                        return Err(format!("task {} is not in the queue", task.sequence));
                    }
                }
            }
            if self.index.classes[task.class].key.avoid != task.avoid() {
                return Err(format!("task {} has failed elsewhere than its class says", task.sequence));
            }
            if used_up(&self.config, &task.attempts) {
                return Err(format!("task {} was tried too often", task.sequence));
            }
        }
        for (id, class) in &self.index.classes {
            let tasks = of_class.get(&id).copied().unwrap_or(0);
            if tasks != class.tasks {
                return Err(format!("class {id:?} has {tasks} tasks, {} counted", class.tasks));
            }
        }
        if queued != self.index.waiting.len() || queued != self.queued_by_arrival.len() {
            return Err(format!("{queued} tasks queued, {} in queues", self.index.waiting.len()));
        }
        let bound = self.fleet.workers.values().filter_map(|w| w.run.as_ref()?.task);
        match bound.collect::<Vec<TaskId>>() {
            tasks if tasks.len() == on_worker.len() => Ok(()),
            tasks => Err(format!("workers hold {} tasks, {} say so", tasks.len(), on_worker.len())),
        }
    }

    fn check_operations(&self) -> Result<(), String> {
        for (id, operation) in &self.operations {
            if self.operation_by_name.get(&operation.name) != Some(&id) {
                return Err(format!("operation {} is not found by name", operation.name));
            }
            if let Some(task) = operation.task
                && !self.tasks.get(task).is_some_and(|t| t.operations.contains(&id))
            {
                return Err(format!("operation {} waits for a task that doesn't know it", operation.name));
            }
        }
        Ok(())
    }

    /// Whoever has a deadline has one timer, and nobody else has.
    fn check_timers(&self) -> Result<(), String> {
        let unwatched = self.operations.values().filter(|o| o.ended.is_none() && o.watchers == 0);
        if let Some(operation) = unwatched.into_iter().find(|o| o.armed.is_none()) {
            return Err(format!("operation {} is unwatched and has no timer", operation.name));
        }
        if let Some(worker) = self.fleet.workers.values().find(|w| w.armed.is_none_or(|a| a > w.deadline)) {
            return Err(format!("worker {} has no timer for its deadline", worker.key));
        }
        if let Some(task) =
            self.tasks.values().find(|t| (t.rests || t.aside_until.is_some()) != t.armed.is_some())
        {
            return Err(format!("task {} rests and has no timer, or the other way round", task.sequence));
        }
        let looks = self.look.armed.is_some() || self.config.unschedulable_timeout.is_zero();
        if !looks && !self.queued_by_arrival.is_empty() {
            return Err("tasks wait and nobody will look at them".to_owned());
        }
        let armed = self.operations.values().filter(|o| o.armed.is_some()).count()
            + self.tasks.values().filter(|t| t.armed.is_some()).count()
            + self.fleet.hosts.values().filter(|h| h.armed.is_some()).count()
            + usize::from(self.look.armed.is_some());
        if armed + self.fleet.workers.len() != self.timers.len() {
            return Err(format!("{} timers for {armed} others and all workers", self.timers.len()));
        }
        Ok(())
    }

    /// No worker waits while a task is queued that it may run. Said once more without lanes, shapes and lists.
    fn check_nobody_waits_in_vain(&self) -> Result<(), String> {
        for worker in self.fleet.workers.values().filter(|w| w.waiting.is_some() && !w.is_held()) {
            let could_run = |id: &TaskId| {
                let task = &self.tasks[*id];
                let host = &self.fleet.hosts[worker.host];
                let avoid = task.avoid();
                let waits_for = &self.index.classes[task.class].key.only;
                waits_for.as_ref().is_none_or(|h| *h == host.key)
                    && self.has_room(worker, task)
                    && self.is_eligible(worker, task)
                    && !host.running.contains(&task.digest)
                    && !(avoid.contains(&host.key) && (avoid.always || self.may_go_elsewhere(task)))
            };
            if let Some(id) = self.queued_by_arrival.values().find(|id| could_run(id)) {
                let task = &self.tasks[*id];
                return Err(format!("worker {} waits while task {} could run", worker.key, task.sequence));
            }
        }
        Ok(())
    }

    fn has_room(&self, worker: &Worker, task: &Task) -> bool {
        let class = &self.index.classes[task.class].key;
        let demand = &self.index.demands[class.demand];
        self.fleet.hosts[worker.host].has_room_for(demand, &task.route.exclusivity, self.now)
            && self.index.has_token(
                &task.route.exclusivity,
                self.index.shapes[self.index.kinds[worker.kind].shape].pool,
            )
    }

    pub(crate) fn is_eligible(&self, worker: &Worker, task: &Task) -> bool {
        let kind = &self.index.kinds[worker.kind].key;
        let size = |w: &Worker| self.index.kinds[w.kind].key.size_class;
        let able = |w: &&Worker| self.is_able(&self.index.kinds[w.kind].key, task);
        let demand = &self.index.demands[self.index.classes[task.class].key.demand].asked;
        let large = |w: &&Worker| fits(demand, &self.fleet.hosts[w.host].totals);
        let workers = || self.fleet.workers.values().filter(able);
        let declared = self.index.declared_sizes(&self.index.classes[task.class].key);
        let meant = task.route.size.among(workers().filter(large).map(size).chain(declared));
        let meant = meant.or_else(|| task.route.size.among(workers().map(size)));
        let of_size = |w: &Worker| meant.is_none_or(|meant| meant == size(w));
        // The first strategy that somebody offers who takes work, or will again; if nobody does, that anybody offers.
        let offers = |w: &Worker, s: &Text| w.spec.strategies().contains(s);
        let first = |who: &dyn Fn(&Worker) -> bool| {
            let wanted = task.route.strategies.iter().flatten();
            { wanted }.find(|s| workers().any(|w| of_size(w) && who(w) && offers(w, s)))
        };
        let strategy = first(&|w| large(&w) && !w.drained);
        let strategy = strategy.or_else(|| first(&|w| large(&w))).or_else(|| first(&|_| true));
        of_size(worker) && self.is_able(kind, task) && strategy.is_none_or(|s| offers(worker, s))
    }

    /// But for its size class.
    fn is_able(&self, kind: &KindKey, task: &Task) -> bool {
        let route = &task.route;
        let Ok(asked) = self.schema.action(&route.platform) else { return false };
        (route.exclusivity != Exclusivity::Host || kind.admits_exclusive)
            && route.strategies.as_ref().is_none_or(|list| list.iter().any(|s| kind.strategies.contains(s)))
            && route.pool.as_ref().is_none_or(|p| *p == kind.pool)
            && is_path_prefix(&kind.prefix, &task.instance)
            && self.index.longest_prefix(&asked.atoms, &task.instance).is_none_or(|p| p == kind.prefix)
            && asked.atoms.iter().all(|a| kind.atoms.contains(a))
    }

    pub(crate) fn may_go_elsewhere(&self, task: &Task) -> bool {
        let avoid = task.avoid();
        let eligible = self.fleet.workers.values().filter(|w| self.is_eligible(w, task));
        let demand = &self.index.demands[self.index.classes[task.class].key.demand].asked;
        let takes = |w: &Worker| {
            let host = &self.fleet.hosts[w.host];
            !w.is_held()
                && host.health.quarantine.is_none()
                && fits(demand, &host.totals)
                && !avoid.contains(&host.key)
        };
        eligible.into_iter().any(takes)
    }
}
