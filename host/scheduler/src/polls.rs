//! What workers say, and what they are told (the rows of Buildbarn's Synchronize).

use std::sync::Arc;

use crate::attempts::Tried;
use crate::effect::{End, Output, Reply};
use crate::event::{Poll, Report, Stage, Verdict, WorkerSpec};
use crate::ids::{ActionDigest, PollId, TaskId, Text, WorkerId};
use crate::metrics::Retry;
use crate::properties::Amounts;
use crate::route::Exclusivity;
use crate::scheduler::{Scheduler, reply};
use crate::task::Failure;
use crate::task_metrics::Outcome;
use crate::timers::Subject;
use crate::workers::{Gone, Run};

/// A worker that never said it had the task it was given is given it once more, since the answer may have been lost.
/// After that the task goes elsewhere.
const SENT_AGAIN_MAX: u32 = 1;

/// So often a worker may ask for nothing although it was given the task, and the task is tried as often as before.
/// Buildbarn workers do so when they shut down, and whenever they could not read the answer.
const UNDELIVERED_MAX: u32 = 1;

impl Scheduler {
    pub(crate) fn poll(&mut self, poll: Poll, out: &mut Output) {
        let worker = match self.fleet.worker_by_key.get(&poll.worker) {
            Some(worker) => *worker,
            None if self.fleet.workers.len() >= self.config.workers_max => {
                return out.effects.push(reply(poll.poll, Reply::TooManyWorkers));
            }
            // It may bring capacity to a host whose workers wait; they are offered it with what the call brings.
            None => {
                let worker = self.fleet.register(&mut self.index, &poll.worker, &poll.spec, self.now);
                self.count_worker_came(worker);
                self.hold_worker(worker);
                // It may come back with what is remembered of it.
                self.arm_host(self.fleet.workers[worker].host);
                worker
            }
        };
        // Of two calls of one worker the older is a connection that died unnoticed.
        if let Some(old) = self.fleet.stop_waiting(&self.index, worker) {
            out.effects.push(reply(old, Reply::Superseded));
        }
        self.call_again(worker);
        match self.fleet.workers[worker].run.as_ref().and_then(|r| r.task) {
            Some(task) => self.poll_with_task(worker, task, &poll, out),
            None => self.poll_without_task(worker, None, &poll, out),
        }
    }

    fn poll_with_task(&mut self, worker: WorkerId, task: TaskId, poll: &Poll, out: &mut Output) {
        let Some(run) = self.fleet.workers[worker].run.as_mut() else { return };
        match &poll.report {
            Report::Executing(digest, stage) if run.digest.is_reported_as(digest) => {
                run.stage = Some(*stage);
                out.effects.push(reply(poll.poll, Reply::Continue));
                // The command is over: what it took can serve another. The slot is free when the result comes.
                if *stage == Stage::UploadingOutputs && self.command_over(worker) {
                    self.offer(self.fleet.workers[worker].host, out);
                }
            }
            Report::Completed(digest, verdict) if run.digest.is_reported_as(digest) => {
                let tried = Tried { worker, since: run.since };
                self.count_left_worker(worker, poll.outcome);
                self.tally.executed(self.fleet.workers[worker].slot, self.now.since(tried.since));
                self.stop(worker);
                let again = self.completed(tried, task, verdict, out);
                self.poll_without_task(worker, again, poll, out);
            }
            // It knows nothing of the task: the answer was lost, or the worker has started anew.
            _ if run.stage.is_none() && run.sent_again < SENT_AGAIN_MAX && !poll.prefer_idle => {
                run.sent_again += 1;
                out.effects.push(reply(poll.poll, Reply::Execute(task)));
            }
            _ => {
                let (tried, started) = (Tried { worker, since: run.since }, run.stage.is_some());
                self.count_left_worker(worker, Outcome::GIVEN_BACK);
                self.stop(worker);
                let again = self.take_back(tried, task, started, poll.prefer_idle, out);
                self.poll_without_task(worker, again, poll, out);
            }
        }
    }

    /// The worker has something to say of the task it had. Returned if the task goes back into the queue.
    fn completed(
        &mut self,
        tried: Tried,
        task: TaskId,
        verdict: &Verdict,
        out: &mut Output,
    ) -> Option<TaskId> {
        let host = self.fleet.workers[tried.worker].host;
        match verdict {
            Verdict::Answer => {
                self.end_task(task, &End::Reported, out);
                self.host_is_well(host, out);
                None
            }
            Verdict::Again(again) => {
                let again = self.run_again(task, tried, again, out);
                if again.is_none() {
                    self.end_task(task, &End::Reported, out);
                }
                self.host_is_well(host, out);
                again
            }
            Verdict::Failed(cause) => {
                self.requeue(task, Some((tried, Failure::Reported, cause.clone())), out)
            }
            Verdict::Exhausted(cause) => {
                self.host_exhausted(host, cause, out);
                let failed = match self.forgives_exhaustion(task) {
                    true => None,
                    false => Some((tried, Failure::Reported, cause.clone())),
                };
                if failed.is_none() {
                    self.tally.retried(Retry::Exhausted);
                }
                self.requeue(task, failed, out)
            }
        }
    }

    /// The worker doesn't do what it was given.
    fn take_back(
        &mut self,
        tried: Tried,
        id: TaskId,
        started: bool,
        polite: bool,
        out: &mut Output,
    ) -> Option<TaskId> {
        let task = &mut self.tasks[id];
        if polite && !started && task.undelivered < UNDELIVERED_MAX {
            task.undelivered += 1;
            self.tally.retried(Retry::Undelivered);
            return self.requeue(id, None, out);
        }
        let cause = match (started, polite) {
            (true, _) => "the worker had begun the action and then did something else: it may have crashed",
            (false, true) => {
                "the worker was given the action and asked for nothing instead: it may be unable to read it"
            }
            (false, false) => {
                "the worker was given the action twice and did something else: it may have crashed"
            }
        };
        self.requeue(id, Some((tried, Failure::GivenBack, cause.into())), out)
    }

    /// The worker has no task, or has it no more. `again` is one that went back into the queue.
    fn poll_without_task(&mut self, worker: WorkerId, again: Option<TaskId>, poll: &Poll, out: &mut Output) {
        if let Report::Executing(digest, _) = &poll.report {
            // Told to do nothing it stops. Until it says so, its host runs that digest and has that much less free.
            self.note_stray(worker, digest);
            out.effects.push(reply(poll.poll, Reply::Idle));
            self.offer(self.fleet.workers[worker].host, out);
        } else {
            self.stop(worker);
            self.take_spec(worker, &poll.spec, out);
            self.next_work(worker, poll, out);
        }
        if let Some(task) = again {
            self.place(task, out);
        }
    }

    /// Gives the worker something to do, or lets its call wait. What it has given back may let others begin.
    fn next_work(&mut self, worker: WorkerId, poll: &Poll, out: &mut Output) {
        let host = self.fleet.workers[worker].host;
        if poll.prefer_idle {
            out.effects.push(reply(poll.poll, Reply::Idle));
            return self.offer(host, out);
        }
        if self.fleet.workers[worker].is_held() {
            self.offer(host, out);
        } else if self.share_out(host, Some((worker, poll.poll)), out).is_none() {
            return;
        }
        if poll.wait_until > self.now {
            self.fleet.wait(&self.index, worker, poll.poll, poll.wait_until);
            self.arm(worker);
        } else {
            out.effects.push(reply(poll.poll, Reply::Idle));
        }
    }

    /// The worker executes what nobody wants.
    fn note_stray(&mut self, worker: WorkerId, digest: &ActionDigest) {
        if self.fleet.workers[worker].run.as_ref().is_some_and(|r| r.digest.is_reported_as(digest)) {
            return;
        }
        self.stop(worker);
        let host = &self.fleet.hosts[self.fleet.workers[worker].host];
        // One of its siblings has it too: two of a digest don't run on one host, so this one is wrong.
        if host.running.contains(digest) {
            return;
        }
        let demand = Amounts::from_elem(0, host.totals.len());
        let run = Run {
            task: None,
            digest: digest.clone(),
            demand,
            exclusivity: Exclusivity::Shared,
            is_over: false,
            expected: None,
            since: self.now,
            stage: None,
            sent_again: 0,
            counted_in: 0,
        };
        self.fleet.start(&self.index, worker, run);
    }

    // === Silence ===

    pub(crate) fn poll_dropped(&mut self, poll: PollId) {
        let Some(worker) = self.fleet.worker_by_poll.get(&poll).copied() else { return };
        self.fleet.stop_waiting(&self.index, worker);
        self.call_again(worker);
    }

    /// The worker is to call before it expires.
    pub(crate) fn call_again(&mut self, id: WorkerId) {
        let grown = self.heartbeat.saturating_sub(self.config.heartbeat);
        self.fleet.workers[id].deadline = self.now + self.config.worker_expiry + grown;
        self.arm(id);
    }

    fn arm(&mut self, id: WorkerId) {
        let worker = &mut self.fleet.workers[id];
        self.timers.arm(Subject::Worker(id), &mut worker.armed, worker.deadline);
    }

    pub(crate) fn worker_due(&mut self, id: WorkerId, out: &mut Output) {
        let Some(worker) = self.fleet.workers.get_mut(id) else { return };
        worker.armed = None;
        if worker.deadline > self.now {
            return self.arm(id);
        }
        match self.fleet.stop_waiting(&self.index, id) {
            Some(poll) => {
                out.effects.push(reply(poll, Reply::Idle));
                self.call_again(id);
            }
            None => self.lost(id, out),
        }
    }

    fn lost(&mut self, id: WorkerId, out: &mut Output) {
        self.count_left_worker(id, Outcome::LOST);
        self.count_worker_gone(id);
        let run = self.stop(id);
        let again = run.and_then(|run| Some((run.task?, run.since))).and_then(|(task, since)| {
            let after = self.config.worker_expiry.as_secs();
            let cause: Text = format!("the worker disappeared: it has not called for {after} s").into();
            self.requeue(task, Some((Tried { worker: id, since }, Failure::Lost, cause)), out)
        });
        let host = self.fleet.hosts[self.fleet.workers[id].host].key.clone();
        let Some(mut gone) = self.fleet.remove(&mut self.index, id) else { return };
        // Before anybody chooses: what has its turn then claims a host, and is of another class.
        let resized = self.index.waiting_of(&gone.resized);
        if gone.last_of_host {
            self.timers.disarm(Subject::Host(gone.host), &mut gone.armed);
        } else {
            self.offer(gone.host, out);
        }
        self.host_has_less(&host, &gone, &resized, out);
        if let Some(task) = again {
            self.place(task, out);
        }
    }

    /// A host has a worker less of that kind: what could have gone there may go elsewhere, and for what is `resized` other workers
    /// are meant.
    fn host_has_less(&mut self, host: &Text, gone: &Gone, resized: &[TaskId], out: &mut Output) {
        if gone.last_of_kind {
            self.place_what_may_go_elsewhere(&gone.spec.offered.atoms, out);
        }
        for task in resized {
            self.let_choose(*task, out);
        }
        if gone.serves_less && !self.has_many_hosts(gone.kind, &gone.totals) {
            self.offer_what_was_avoided(out);
        }
        self.return_what_waits_for(host, out);
    }

    // === Other terms ===

    /// A worker that neither executes nor waits says what it is. If that is another thing than before, it is what counts
    /// from now on: a policy may have admitted the worker anew.
    fn take_spec(&mut self, id: WorkerId, spec: &Arc<WorkerSpec>, out: &mut Output) {
        let old = &self.fleet.workers[id].spec;
        if Arc::ptr_eq(old, spec) || old == spec {
            return;
        }
        let host = old.host.clone();
        let Some(gone) = self.fleet.change(&mut self.index, id, spec) else { return };
        if self.task_tally.slot(&spec.pool) != self.fleet.workers[id].task_slot {
            self.count_worker_gone(id);
            self.count_worker_came(id);
        }
        if self.holds.keys().any(|(_, pattern)| pattern.queue().is_some()) {
            self.hold_matching(&[id], out, |scheduler, id| scheduler.hold_worker(id));
        }
        // Its host's workers are offered what is new with what the call brings.
        let resized = self.index.waiting_of(&gone.resized);
        self.host_has_less(&host, &gone, &resized, out);
    }
}
