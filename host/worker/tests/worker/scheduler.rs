//! A scheduler of the simplest kind that keeps the rules of `Synchronize` for one queue, with faults on
//! demand.
use pointsman_proto::{
    remoteworker::{
        DesiredState, SynchronizeRequest, SynchronizeResponse, current_state,
        current_state::executing::ExecutionState, desired_state, operation_queue_server::OperationQueue,
    },
    rev2::ExecuteResponse,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use tokio::sync::Notify;
use tonic::{Request, Response, Status};

#[derive(Clone, Default)]
pub(crate) struct Scheduler(pub(crate) Arc<Shared>);

#[derive(Default)]
pub(crate) struct Shared {
    pub(crate) inner: Mutex<Inner>,
    pub(crate) changed: Notify,
}

#[derive(Default)]
pub(crate) struct Inner {
    pub(crate) queue: VecDeque<desired_state::Executing>,
    pub(crate) bound: HashMap<String, desired_state::Executing>,
    pub(crate) results: HashMap<String, ExecuteResponse>,
    /// All requests in order of arrival.
    pub(crate) log: Vec<SynchronizeRequest>,
    /// Answers that get lost after their work was done.
    pub(crate) lose: usize,
    /// Refuses all calls.
    pub(crate) down: bool,
    /// Completed reports that were seen, by hash.
    pub(crate) completions: HashMap<String, usize>,
}

pub(crate) fn worker_key(request: &SynchronizeRequest) -> String {
    format!("{:?}", request.worker_id.iter().collect::<BTreeMap<_, _>>())
}

fn reply(state: Option<desired_state::WorkerState>, next: Duration) -> SynchronizeResponse {
    SynchronizeResponse {
        next_synchronization_at: Some((SystemTime::now() + next).into()),
        desired_state: state.map(|state| DesiredState { worker_state: Some(state) }),
    }
}

const HEARTBEAT: Duration = Duration::from_millis(300);

impl Scheduler {
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut Inner) -> T) -> T {
        let done = f(&mut self.0.inner.lock().unwrap());
        self.0.changed.notify_waiters();
        done
    }

    /// Waits for something to become true.
    pub(crate) async fn until<T>(&self, what: &str, mut f: impl FnMut(&mut Inner) -> Option<T>) -> T {
        let waiting = async {
            loop {
                let changed = self.0.changed.notified();
                if let Some(found) = f(&mut self.0.inner.lock().unwrap()) {
                    return found;
                }
                let _ = tokio::time::timeout(Duration::from_millis(50), changed).await;
            }
        };
        match tokio::time::timeout(Duration::from_secs(30), waiting).await {
            Ok(found) => found,
            Err(_) => panic!("did not happen: {what}"),
        }
    }

    async fn answer(&self, request: &SynchronizeRequest) -> Result<SynchronizeResponse, Status> {
        let key = worker_key(request);
        let mut may_wait = !request.prefer_being_idle;
        let state = request.current_state.as_ref().and_then(|s| s.worker_state.as_ref());
        if let Some(current_state::WorkerState::Executing(executing)) = state {
            let hash = &executing.action_digest.as_ref().unwrap().hash;
            let mut inner = self.0.inner.lock().unwrap();
            let bound =
                inner.bound.get(&key).is_some_and(|b| b.action_digest.as_ref().unwrap().hash == *hash);
            match executing.execution_state.as_ref().unwrap() {
                ExecutionState::Completed(response) => {
                    *inner.completions.entry(hash.clone()).or_default() += 1;
                    if bound {
                        inner.bound.remove(&key);
                        inner.results.insert(hash.clone(), response.clone());
                    }
                }
                _ if bound => return Ok(reply(None, HEARTBEAT)),
                _ => may_wait = false,
            }
        }
        let until = tokio::time::Instant::now() + Duration::from_secs(5);
        loop {
            let changed = self.0.changed.notified();
            {
                let mut inner = self.0.inner.lock().unwrap();
                let next = match inner.bound.get(&key) {
                    Some(bound) => Some(bound.clone()),
                    None if request.prefer_being_idle => None,
                    None => inner.queue.pop_front(),
                };
                if let Some(next) = next {
                    inner.bound.insert(key, next.clone());
                    return Ok(reply(Some(desired_state::WorkerState::Executing(next)), HEARTBEAT));
                }
                if !may_wait || tokio::time::Instant::now() >= until {
                    return Ok(reply(Some(desired_state::WorkerState::Idle(())), Duration::ZERO));
                }
            }
            let _ = tokio::time::timeout(Duration::from_millis(100), changed).await;
        }
    }
}

#[tonic::async_trait]
impl OperationQueue for Scheduler {
    async fn synchronize(
        &self,
        request: Request<SynchronizeRequest>,
    ) -> Result<Response<SynchronizeResponse>, Status> {
        let request = request.into_inner();
        let down = self.with(|inner| {
            inner.log.push(request.clone());
            inner.down
        });
        if down {
            return Err(Status::unavailable("down"));
        }
        let answer = self.answer(&request).await;
        let lost = self.with(|inner| {
            let lost = inner.lose > 0 && !matches!(answer, Ok(ref a) if a.desired_state.is_none());
            inner.lose -= usize::from(lost);
            lost
        });
        if lost { Err(Status::unavailable("lost")) } else { answer.map(Response::new) }
    }
}
