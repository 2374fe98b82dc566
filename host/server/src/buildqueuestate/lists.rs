//! The lists, from what the driver copies of the core. They look through much, so they are not for a reactor's thread.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pointsman_proto::buildqueuestate as proto;
use pointsman_proto::buildqueuestate::list_invocation_children_request::Filter as ChildFilter;
use pointsman_proto::buildqueuestate::list_workers_request::filter::Type as Workers;
use pointsman_proto::rev2::execution_stage;
use pointsman_scheduler::ids::{InvocationId, OperationId};
use pointsman_scheduler::platform_queues::QueueName;
use pointsman_scheduler::queue_views::{Member, OperationPhase, WaitingTask};
use pointsman_scheduler::time::Time;
use prost_types::Timestamp;
use tonic::Status;

use super::messages;
use super::names::{described, invocation, key, key_message, platform_json, platform_message, queue};
use super::tree::Node;
use crate::admin::count;
use crate::driver::{Driver, Paths};
use crate::workers;

/// Entries of one page at most. Buildbarn has no bound; a caller sees by `pagination_info` that there is more.
const PAGE_MAX: u32 = 10_000;

fn page_size(asked: u32) -> usize {
    asked.min(PAGE_MAX) as usize
}

fn page_info(before: usize, total: usize) -> Option<proto::PaginationInfo> {
    Some(proto::PaginationInfo { start_index: count(before), total_entries: count(total) })
}

/// There is no such queue.
pub(super) fn no_queue(driver: &Driver, queue: &QueueName) -> Status {
    Status::not_found(format!(
        "there is no queue {}: {} queues have workers or are declared, and ListPlatformQueues names them and those where \
         something waits",
        described(queue),
        driver.platform_queues().len()
    ))
}

pub(super) fn known_queue(driver: &Driver, queue: &QueueName) -> Result<(), Status> {
    if driver.has_queue(queue) { Ok(()) } else { Err(no_queue(driver, queue)) }
}

// === Operations ===

pub(super) fn operations(
    driver: &Driver,
    request: &proto::ListOperationsRequest,
) -> Result<proto::ListOperationsResponse, Status> {
    let key = request.filter_invocation_id.as_ref().map(key).transpose()?;
    let phase = match request.filter_stage() {
        execution_stage::Value::Unknown => None,
        execution_stage::Value::Queued => Some(OperationPhase::Queued),
        execution_stage::Value::Executing => Some(OperationPhase::Executing),
        execution_stage::Value::Completed => Some(OperationPhase::Completed),
        execution_stage::Value::CacheCheck => {
            return Err(Status::invalid_argument(
                "filter_stage is CACHE_CHECK: no operation is ever in that stage; say QUEUED, EXECUTING, COMPLETED, or leave it out",
            ));
        }
    };
    let after = request.start_after.as_ref().map(|after| after.operation_name.as_str());
    let page = driver.operation_page(key.as_deref(), phase, after, page_size(request.page_size));
    let operations: Result<_, _> = page.rows.iter().map(messages::operation).collect();
    Ok(proto::ListOperationsResponse {
        operations: operations?,
        pagination_info: page_info(page.before, page.total),
    })
}

pub(super) fn queued_operations(
    driver: &Driver,
    request: proto::ListQueuedOperationsRequest,
) -> Result<proto::ListQueuedOperationsResponse, Status> {
    let (snapshot, keys) = Snapshot::of_invocation(driver, request.invocation_name)?;
    let mut waiting = snapshot.waiting_for(&keys);
    waiting.sort_unstable_by_key(|place| place.order());
    let before = match &request.start_after {
        None => 0,
        Some(after) => {
            let after = place_of(driver, after)?;
            waiting.partition_point(|place| place.order() <= after)
        }
    };
    let page: Vec<&Place> = waiting.iter().skip(before).take(page_size(request.page_size)).collect();
    let ids: Vec<OperationId> = page.iter().map(|place| place.operation).collect();
    let by_id: BTreeMap<OperationId, &Place> = page.iter().map(|place| (place.operation, *place)).collect();
    let rows = driver.operation_rows(&ids);
    let message = |row| -> Result<Option<proto::OperationState>, Status> {
        let row: &crate::driver::OperationRow = row;
        let Some(place) = by_id.get(&row.view.id) else { return Ok(None) };
        // What the next page begins after has to say just where this operation is.
        let queued_timestamp = Some(place.timestamp());
        let (invocation_name, priority) = (None, place.priority);
        Ok(Some(proto::OperationState {
            queued_timestamp,
            invocation_name,
            priority,
            ..messages::operation(row)?
        }))
    };
    let operations: Result<Vec<_>, _> = rows.iter().map(message).collect();
    Ok(proto::ListQueuedOperationsResponse {
        queued_operations: operations?.into_iter().flatten().collect(),
        pagination_info: page_info(before, waiting.len()),
    })
}

/// Where an operation is among those that wait for one invocation.
struct Place {
    operation: OperationId,
    score: i64,
    queued_at: Time,
    priority: i32,
    /// Tells apart what arrived in one millisecond, in order; below a million.
    tie: u32,
}

impl Place {
    fn order(&self) -> (i64, Time, u32) {
        (self.score, self.queued_at, self.tie)
    }

    /// When it arrived. The core counts milliseconds, so what is left of a nanosecond's digits tells those of one apart.
    fn timestamp(&self) -> Timestamp {
        let whole = crate::driver::timestamp(self.queued_at);
        Timestamp { nanos: whole.nanos + self.tie.cast_signed(), ..whole }
    }
}

/// Where a page begins that comes after this.
fn place_of(
    driver: &Driver,
    after: &proto::list_queued_operations_request::StartAfter,
) -> Result<(i64, Time, u32), Status> {
    let at = after
        .queued_timestamp
        .ok_or_else(|| Status::invalid_argument("start_after.queued_timestamp is not set"))?;
    let (seconds, nanos) = (u64::try_from(at.seconds), u32::try_from(at.nanos));
    let (Ok(seconds), Ok(nanos)) = (seconds, nanos) else {
        return Err(Status::invalid_argument("start_after.queued_timestamp is before 1970"));
    };
    let expected = after.expected_duration.map(std::time::Duration::try_from).transpose();
    let expected = expected
        .map_err(|error| Status::invalid_argument(format!("start_after.expected_duration: {error}")))?;
    let at = Time(seconds.saturating_mul(1000).saturating_add(u64::from(nanos / 1_000_000)));
    Ok((driver.score_of(at, after.priority, expected), at, nanos % 1_000_000))
}

// === Queues and invocations ===

/// What one queue has at about one moment.
struct Snapshot {
    members: Vec<Member>,
    waiting: Vec<WaitingTask>,
    paths: Paths,
}

impl Snapshot {
    fn of(driver: &Driver, queue: &QueueName) -> Result<Self, Status> {
        let (members, waiting) = (driver.queue_members(queue), driver.waiting(Some(queue)));
        if members.is_empty() && waiting.is_empty() {
            known_queue(driver, queue)?;
        }
        let paths = driver.invocation_paths(invocations(&members, waiting.iter()));
        Ok(Self { members, waiting, paths })
    }

    fn root(&self) -> Node {
        Node::of_queue(&self.members, &self.waiting, &self.paths)
    }

    /// That of the queue of an invocation, which has to have something there, and the invocation's keys.
    fn of_invocation(
        driver: &Driver,
        name: Option<proto::InvocationName>,
    ) -> Result<(Self, Vec<String>), Status> {
        let (queue, keys) = invocation(name)?;
        let snapshot = Self::of(driver, &queue)?;
        match snapshot.root().find(&keys) {
            Some(_) => Ok((snapshot, keys)),
            None => Err(no_invocation(&queue, &keys)),
        }
    }

    fn is_at(&self, id: InvocationId, keys: &[String]) -> bool {
        let path = self.paths.get(&id).map_or(&[][..], |path| path);
        path.len() == keys.len() && self.is_below(id, keys)
    }

    fn is_below(&self, id: InvocationId, keys: &[String]) -> bool {
        let path = self.paths.get(&id).map_or(&[][..], |path| path);
        path.len() >= keys.len() && path.iter().zip(keys).all(|((_, a), b)| **a == **b)
    }

    /// What waits for an invocation itself.
    fn waiting_for(&self, keys: &[String]) -> Vec<Place> {
        let places = self.waiting.iter().flat_map(|task| {
            let own = task.operations.iter().enumerate().filter(|(_, (_, id))| self.is_at(*id, keys));
            own.map(|(i, (operation, _))| Place {
                operation: *operation,
                score: task.score,
                queued_at: task.queued_at,
                priority: task.priority,
                // Of one task a hundred operations can be told apart, and ten thousand tasks that arrived in one millisecond.
                tie: (task.sequence % 10_000) as u32 * 100 + count(i).min(99),
            })
        });
        places.collect()
    }
}

fn no_invocation(queue: &QueueName, keys: &[String]) -> Status {
    Status::not_found(format!(
        "nothing waits or runs in the queue {} for the invocation {keys:?}: ListInvocationChildren names those for which \
         something does",
        described(queue)
    ))
}

fn invocations<'a>(
    members: &'a [Member],
    tasks: impl Iterator<Item = &'a WaitingTask> + 'a,
) -> impl Iterator<Item = InvocationId> + 'a {
    let waiting = tasks.flat_map(|task| task.operations.iter().map(|(_, id)| *id));
    members.iter().flat_map(|member| member.invocations.iter().copied()).chain(waiting)
}

pub(super) fn platform_queues(driver: &Driver) -> Result<proto::ListPlatformQueuesResponse, Status> {
    let mut waiting: BTreeMap<Arc<QueueName>, Vec<WaitingTask>> = BTreeMap::new();
    for task in driver.waiting(None) {
        waiting.entry(task.queue.clone()).or_default().push(task);
    }
    let names: BTreeSet<Arc<QueueName>> =
        driver.platform_queues().into_iter().chain(waiting.keys().cloned()).collect();
    let mut queues: BTreeMap<(Arc<str>, String), proto::PlatformQueueState> = BTreeMap::new();
    // By size class first, so that those of one queue come in order.
    for name in names {
        let (members, tasks) = (driver.queue_members(&name), waiting.remove(&name).unwrap_or_default());
        let paths = driver.invocation_paths(invocations(&members, tasks.iter()));
        let state = proto::SizeClassQueueState {
            size_class: name.size_class,
            // Nothing ends a queue here but that nothing waits in it.
            timeout: None,
            workers_count: count(members.len()),
            drains_count: count(driver.drains_of(&name).len()),
            root_invocation: Some(Node::of_queue(&members, &tasks, &paths).message()),
        };
        let queue = queues.entry((name.prefix.clone(), platform_json(&name.platform)));
        let new = || proto::PlatformQueueState {
            name: Some(platform_message(&name)),
            size_class_queues: Vec::new(),
        };
        queue.or_insert_with(new).size_class_queues.push(state);
    }
    Ok(proto::ListPlatformQueuesResponse { platform_queues: queues.into_values().collect() })
}

pub(super) fn invocation_children(
    driver: &Driver,
    request: proto::ListInvocationChildrenRequest,
) -> Result<proto::ListInvocationChildrenResponse, Status> {
    let only_queued = request.filter() == ChildFilter::Queued;
    let (queue, keys) = invocation(request.invocation_name)?;
    let root = Snapshot::of(driver, &queue)?.root();
    let node = root.find(&keys).ok_or_else(|| no_invocation(&queue, &keys))?;
    let mut children: Vec<_> = node.children().collect();
    if only_queued {
        let queued =
            children.into_iter().filter_map(|(key, child)| Some((key, child, child.id?, child.priority?)));
        let queued: Vec<_> = queued.collect();
        let ids: Vec<_> = queued.iter().map(|(_, _, id, priority)| (*id, *priority)).collect();
        let mut in_turn: Vec<_> = driver.turns(&queue, &ids).into_iter().zip(queued).collect();
        in_turn.sort_by(|(a, one), (b, other)| (a, one.0).cmp(&(b, other.0)));
        children = in_turn.into_iter().map(|(_, (key, child, ..))| (key, child)).collect();
    }
    let child = |(key, child): (&Arc<str>, &Node)| proto::InvocationChildState {
        id: Some(key_message(key)),
        state: Some(child.message()),
    };
    Ok(proto::ListInvocationChildrenResponse { children: children.into_iter().map(child).collect() })
}

// === Workers ===

pub(super) fn workers(
    driver: &Driver,
    request: proto::ListWorkersRequest,
) -> Result<proto::ListWorkersResponse, Status> {
    let filter = request.filter.and_then(|filter| filter.r#type);
    let filter = filter.ok_or_else(|| {
        Status::invalid_argument(
            "filter is not set: say all of a queue, executing or idle_synchronizing for an invocation",
        )
    })?;
    let mut members = match filter {
        Workers::All(name) => {
            let name = queue(Some(name))?;
            let members = driver.queue_members(&name);
            if members.is_empty() {
                known_queue(driver, &name)?;
            }
            members
        }
        Workers::Executing(name) => {
            let (snapshot, keys) = Snapshot::of_invocation(driver, Some(name))?;
            let is_of = |m: &&Member| {
                m.is_busy && (keys.is_empty() || m.invocations.iter().any(|i| snapshot.is_below(*i, &keys)))
            };
            snapshot.members.iter().filter(is_of).cloned().collect()
        }
        Workers::IdleSynchronizing(name) => {
            let (snapshot, keys) = Snapshot::of_invocation(driver, Some(name))?;
            // Workers that do nothing belong to no invocation.
            let is_of = |m: &&Member| m.waits && !m.is_busy && keys.is_empty();
            snapshot.members.iter().filter(is_of).cloned().collect()
        }
    };
    members.sort_by_cached_key(id_json);
    let after = request
        .start_after
        .map(|after| workers::id_json(&after.worker_id.iter().map(|(k, v)| (&**k, &**v)).collect()));
    let before = match after {
        None => 0,
        Some(after) => members.partition_point(|member| id_json(member) <= after),
    };
    let page: Vec<&Member> = members.iter().skip(before).take(page_size(request.page_size)).collect();
    let ids: Vec<OperationId> = page.iter().filter_map(|member| member.operation).collect();
    let rows: BTreeMap<_, _> =
        driver.operation_rows(&ids).into_iter().map(|row| (row.view.id, row)).collect();
    let worker = |member: &&Member| messages::worker(member, member.operation.and_then(|id| rows.get(&id)));
    let workers: Result<_, _> = page.iter().map(worker).collect();
    Ok(proto::ListWorkersResponse { workers: workers?, pagination_info: page_info(before, members.len()) })
}

/// As JSON, in the order of which workers are listed.
fn id_json(member: &Member) -> String {
    workers::id_json(&member.spec.id.iter().map(|(k, v)| (&**k, &**v)).collect())
}
