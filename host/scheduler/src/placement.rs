//! Who runs what: a worker that is free takes the first task that it may run; a task that arrives goes to the host
//! that was used least recently.

use smallvec::SmallVec;

use crate::effect::{Change, Output, Reply};
use crate::ids::{HostId, KindId, PollId, ShapeId, TaskId, WorkerId};
use crate::scheduler::{PASSED_OVER_MAX, Scheduler, reply};
use crate::task::{Task, TaskState};
use crate::workers::{Host, Open, Run};

impl Scheduler {
    /// The first task, by queue order over all lanes, that this worker may run now.
    pub(crate) fn task_for(&self, worker: WorkerId) -> Option<TaskId> {
        let worker = &self.fleet.workers[worker];
        let host = &self.fleet.hosts[worker.host];
        let shape = self.index.kinds[worker.kind].shape;
        let mut best = None;
        for lane in &self.index.shapes[shape].waiting {
            self.index.probe();
            let key = &self.index.lanes[*lane].key;
            if !host.has_room_for(&self.index.demands[key.demand].amounts) {
                continue;
            }
            let first = self
                .index
                .first(*lane, PASSED_OVER_MAX, |t| self.may_run(&self.tasks[t], host, &key.eligible));
            if let Some(first) = first
                && best.is_none_or(|b| first < b)
            {
                best = Some(first);
            }
        }
        best.map(|(_, task)| task)
    }

    /// Gives a queued task to a worker that waits, if there is one for it.
    pub(crate) fn place(&mut self, id: TaskId, out: &mut Output) -> bool {
        let Some(task) = self.tasks.get(id).filter(|t| t.is_queued()) else { return false };
        let key = &self.index.lanes[self.index.classes[task.class].lane].key;
        let mut best: Option<Open> = None;
        for shape in &key.eligible {
            for open in self.fleet.open(*shape, key.demand) {
                self.index.probe();
                if best.is_some_and(|b| b < open) {
                    break;
                }
                if self.may_run(task, &self.fleet.hosts[open.host], &key.eligible) {
                    best = Some(open);
                    break;
                }
            }
        }
        let Some(open) = best else { return false };
        let Some(worker) = self.fleet.hosts[open.host].idle_of(open.kind) else { return false };
        let Some(poll) = self.fleet.stop_waiting(&self.index, worker) else { return false };
        self.assign(id, worker, poll, out);
        true
    }

    /// Lets a host's waiting workers take what they now may.
    pub(crate) fn offer(&mut self, host: HostId, out: &mut Output) {
        while let Some((worker, task)) = self.work_for(host) {
            let Some(poll) = self.fleet.stop_waiting(&self.index, worker) else { return };
            self.assign(task, worker, poll, out);
        }
    }

    fn work_for(&self, host: HostId) -> Option<(WorkerId, TaskId)> {
        let mut kinds: SmallVec<[KindId; 2]> = SmallVec::new();
        let idle: SmallVec<[WorkerId; 8]> = self.fleet.hosts.get(host)?.idle_workers().collect();
        for worker in idle {
            let kind = self.fleet.workers[worker].kind;
            // What one of a kind can't take, the others can't either.
            if kinds.contains(&kind) {
                continue;
            }
            kinds.push(kind);
            if let Some(task) = self.task_for(worker) {
                return Some((worker, task));
            }
        }
        None
    }

    pub(crate) fn assign(&mut self, id: TaskId, worker: WorkerId, poll: PollId, out: &mut Output) {
        self.dequeue(id);
        let task = &mut self.tasks[id];
        task.state = TaskState::Running(worker);
        let demand = self.index.demands[self.index.classes[task.class].key.demand].amounts.clone();
        let run = Run { task: Some(id), digest: task.digest.clone(), demand, stage: None, sent_again: 0 };
        let operations = task.operations.clone();
        self.fleet.start(&self.index, worker, run);
        self.fleet.workers[worker].deadline = self.now + self.config.worker_expiry;
        self.arm(worker);
        out.effects.push(reply(poll, Reply::Execute(id)));
        for operation in operations {
            self.tell(operation, out);
        }
        out.changes.push(Change::PutTask(id));
    }

    /// A host runs one of a digest at a time (Buildbarn workers name their build directory after it), and a task goes
    /// back to a host that failed it only if there is no other.
    fn may_run(&self, task: &Task, host: &Host, eligible: &[ShapeId]) -> bool {
        if host.running.contains_key(&task.digest) {
            return false;
        }
        let elsewhere = || {
            let kinds = eligible.iter().flat_map(|s| &self.index.shapes[*s].kinds);
            let mut hosts = kinds.flat_map(|k| &self.index.kinds[*k].hosts);
            hosts.any(|h| !task.failed_on(&self.fleet.hosts[*h].key))
        };
        !task.failed_on(&host.key) || !elsewhere()
    }
}
