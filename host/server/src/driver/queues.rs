//! Looks at queues as Buildbarn has them, and what operators do to those. All of something is looked through a slice at a
//! time, so these calls take long where there is much, and are not for a reactor's thread; the lock is held for some tens of
//! microseconds each time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pointsman_proto::rpc;
use pointsman_scheduler::effect::Effect;
use pointsman_scheduler::event::Event;
use pointsman_scheduler::holds::Pattern;
use pointsman_scheduler::ids::{InvocationId, OperationId, TaskId};
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::queue_views::{Member, OperationPhase, OperationView, Turn, WaitingTask};
use pointsman_scheduler::scheduler::Scheduler;
use pointsman_scheduler::time::Time;
use prost_types::Any;

use super::payload::Progress;
use super::{Core, Driver, Shown, failed};

/// Things looked at under one hold of the lock.
const SLICE: usize = 256;
/// The lock goes to whoever is there: without a pause nobody else would be.
const PAUSE: Duration = Duration::from_micros(20);

/// One operation.
#[derive(Clone, Debug)]
pub struct OperationRow {
    /// What the core says of it.
    pub view: OperationView,
    /// What clients see of its action; `None` in the instant before its first state.
    pub shown: Option<Arc<Shown>>,
    /// Its `ExecuteResponse`, if it is over.
    pub response: Option<Arc<Any>>,
}

/// A page of operations.
#[derive(Clone, Debug, Default)]
pub struct OperationPage {
    /// Those on the page.
    pub rows: Vec<OperationRow>,
    /// How many are before it.
    pub before: usize,
    /// How many there are in all.
    pub total: usize,
}

/// The way to each of some invocations, coarsest first.
pub type Paths = BTreeMap<InvocationId, Arc<[(InvocationId, Arc<str>)]>>;

impl Driver {
    /// Looks at all of something: `look` takes the last of the slice before, and says `None` when there is no more.
    fn in_slices<K>(&self, mut look: impl FnMut(&Core, Option<&K>) -> Option<K>) {
        let mut last = None;
        loop {
            last = look(&self.lock(), last.as_ref());
            if last.is_none() {
                return;
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn slices<T, K: Clone>(
        &self,
        slice: impl Fn(&Scheduler, Option<&K>) -> Vec<T>,
        key: impl Fn(&T) -> K,
    ) -> Vec<T> {
        let mut all = Vec::new();
        self.in_slices(|core, last| {
            let found = slice(&core.scheduler, last);
            let last = found.last().map(&key).filter(|_| found.len() == SLICE);
            all.extend(found);
            last
        });
        all
    }

    // === Queues ===

    /// Queues that have workers, and those of declared pools that have none.
    pub fn platform_queues(&self) -> Vec<Arc<QueueName>> {
        let mut queues = self.slices(
            |s, last: Option<&Arc<QueueName>>| s.queues_after(last.map(|q| &**q), SLICE),
            Clone::clone,
        );
        queues.extend(self.lock().scheduler.queues_declared().into_iter().map(Arc::new));
        queues
    }

    /// There is such a queue: it has workers, is that of a declared pool, or something waits in it.
    pub fn has_queue(&self, queue: &QueueName) -> bool {
        let is_known = {
            let scheduler = &self.lock().scheduler;
            scheduler.has_workers(queue) || scheduler.queues_declared().contains(queue)
        };
        is_known || !self.waiting(Some(queue)).is_empty()
    }

    /// There are workers in it.
    pub fn has_workers(&self, queue: &QueueName) -> bool {
        self.lock().scheduler.has_workers(queue)
    }

    /// Its workers.
    pub fn queue_members(&self, queue: &QueueName) -> Vec<Member> {
        self.slices(|s, last| s.queue_members(queue, last.copied(), SLICE), |member| member.id)
    }

    /// What waits: in that queue, or in any.
    pub fn waiting(&self, queue: Option<&QueueName>) -> Vec<WaitingTask> {
        let mut all = Vec::new();
        self.in_slices(|core, last| {
            let found = core.scheduler.waiting_after(last.copied(), SLICE);
            let last = found.last().map(|task| task.sequence).filter(|_| found.len() == SLICE);
            all.extend(found.into_iter().filter(|task| queue.is_none_or(|q| *q == *task.queue)));
            last
        });
        all
    }

    /// What an action's place within its invocation would be; see [`Scheduler::score_of`].
    pub fn score_of(&self, queued_at: Time, priority: i32, expected: Option<Duration>) -> i64 {
        self.lock().scheduler.score_of(queued_at, priority, expected)
    }

    /// Drains that hold workers of a queue, and since when.
    pub fn drains_of(&self, queue: &QueueName) -> Vec<(Pattern, Time)> {
        self.lock().scheduler.drains_of(queue)
    }

    // === Invocations ===

    /// The ways to these invocations.
    pub fn invocation_paths(&self, ids: impl IntoIterator<Item = InvocationId>) -> Paths {
        let mut ids: Vec<InvocationId> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        let mut paths = Paths::new();
        for slice in ids.chunks(SLICE) {
            let core = self.lock();
            paths.extend(slice.iter().map(|id| (*id, core.scheduler.invocation_path(*id).into())));
        }
        paths
    }

    /// Whose turn each of these invocations is, which have the same parent; see [`Scheduler::turn`].
    pub fn turns(&self, queue: &QueueName, invocations: &[(InvocationId, i32)]) -> Vec<Turn> {
        let slices = invocations.chunks(SLICE).flat_map(|slice| {
            let scheduler = &self.lock().scheduler;
            slice.iter().map(|(id, priority)| scheduler.turn(queue, *id, *priority)).collect::<Vec<_>>()
        });
        slices.collect()
    }

    // === Operations ===

    /// The operation of that name.
    pub fn operation_row(&self, name: &str) -> Option<OperationRow> {
        let core = self.lock();
        core.operation_row(core.scheduler.operation(name)?)
    }

    /// These operations, without those that are gone.
    pub fn operation_rows(&self, ids: &[OperationId]) -> Vec<OperationRow> {
        let mut rows = Vec::with_capacity(ids.len());
        for slice in ids.chunks(SLICE) {
            let core = self.lock();
            rows.extend(slice.iter().filter_map(|id| core.operation_row(*id)));
        }
        rows
    }

    /// The first `page_size` operations, by name, after the one of that name: those in that phase, one of whose invocation's
    /// keys is this.
    pub fn operation_page(
        &self,
        key: Option<&str>,
        phase: Option<OperationPhase>,
        after: Option<&str>,
        page_size: usize,
    ) -> OperationPage {
        let mut page = OperationPage::default();
        let mut ids = Vec::new();
        self.in_slices(|core, last: Option<&Arc<str>>| {
            let scheduler = &core.scheduler;
            // No name is empty.
            let slice = scheduler.operations_after(last.map_or("", |name| &**name)).take(SLICE);
            let (mut seen, mut latest) = (0, None);
            for (name, id) in slice {
                (seen, latest) = (seen + 1, Some(name));
                let Some(operation) = scheduler.operation_by_id(id) else { continue };
                let takes = phase.is_none_or(|p| scheduler.phase(operation) == p)
                    && key.is_none_or(|key| scheduler.has_invocation_key(operation, key));
                page.total += usize::from(takes);
                match after.is_some_and(|after| **name <= *after) {
                    true => page.before += usize::from(takes),
                    false if takes && ids.len() < page_size => ids.push(id),
                    false => {}
                }
            }
            latest.filter(|_| seen == SLICE).cloned()
        });
        page.rows = self.operation_rows(&ids);
        page
    }

    // === What operators do ===

    /// Ends the task of the operation of that name for everybody, with this answer. `false`: there is none, or it is over.
    pub fn kill_operation(&self, name: &str, status: &rpc::Status) -> bool {
        let task = {
            let scheduler = &self.lock().scheduler;
            scheduler.operation(name).and_then(|id| scheduler.operation_by_id(id)?.task)
        };
        task.is_some_and(|task| self.kill(task, false, status))
    }

    /// Ends what waits in a queue, with this answer; how much that was.
    pub fn kill_waiting(&self, queue: &QueueName, status: &rpc::Status) -> usize {
        let waiting = self.waiting(Some(queue));
        waiting.iter().filter(|waiting| self.kill(waiting.task, true, status)).count()
    }

    fn kill(&self, task: TaskId, only_queued: bool, status: &rpc::Status) -> bool {
        let code = rpc::Code::try_from(status.code).unwrap_or(rpc::Code::Unknown);
        let response = failed(code, status.message.clone(), status.details.clone());
        let event = Event::Kill { task, only_queued, code: status.code };
        self.step(event, Some(&response), |_, effects| effects.contains(&Effect::Dropped(task)))
    }

    /// Tells workers that are known that they get nothing more: how many match, and which of them execute something.
    pub fn terminate(&self, pattern: Pattern) -> (usize, Vec<Arc<str>>) {
        self.step(Event::Terminate(pattern), None, |_, effects| {
            let told = effects.iter().find_map(|effect| match effect {
                Effect::Terminated { workers, busy } => Some((*workers, busy.clone())),
                _ => None,
            });
            // The core answers each time.
            told.unwrap_or_default()
        })
    }

    /// Those of these workers that execute something still.
    pub fn still_busy(&self, workers: Vec<Arc<str>>) -> Vec<Arc<str>> {
        let mut busy = workers;
        let scheduler = &self.lock().scheduler;
        busy.retain(|worker| scheduler.is_busy(worker));
        busy
    }
}

impl Core {
    fn operation_row(&self, id: OperationId) -> Option<OperationRow> {
        let view = self.scheduler.operation_view(id)?;
        let snapshot = self.cells.get(id).and_then(|cell| cell.latest());
        let response = snapshot.as_ref().and_then(|snapshot| match &snapshot.progress {
            Progress::Done(response) => Some(response.clone()),
            Progress::Ongoing(_) => None,
        });
        Some(OperationRow { view, shown: snapshot.map(|snapshot| snapshot.shown), response })
    }
}
