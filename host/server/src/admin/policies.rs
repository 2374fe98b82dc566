//! `pointsman.v1.Policies`: what operators ask about policies.

mod manage;

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _, stream};
use pointsman_policy::{CommandError, Manager, Runtime};
use pointsman_proto::v1::policies_server::Policies;
use pointsman_proto::v1::{
    LogRequest, LogResponse, PolicyCommandResponse, PolicyLinkRequest, PolicyStatusRequest,
    PolicyStatusResponse, PushPolicyRequest,
};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::decisions::{Decisions, Filter, Follower};

/// The service.
#[derive(Clone, Debug)]
pub struct PoliciesService {
    manager: Arc<Manager>,
    policies: Arc<Runtime>,
    decisions: Option<Arc<Decisions>>,
    stop: CancellationToken,
}

/// Records in one answer, if the caller doesn't say.
const LOG_DEFAULT: usize = 100;

type LogStream = Pin<Box<dyn Stream<Item = Result<LogResponse, Status>> + Send>>;

impl PoliciesService {
    /// The service over these, and over a log of decisions, if there is one. Whoever follows it is let go when the server
    /// stops.
    pub fn new(
        manager: Arc<Manager>,
        policies: Arc<Runtime>,
        decisions: Option<Arc<Decisions>>,
        stop: CancellationToken,
    ) -> Self {
        Self { manager, policies, decisions, stop }
    }

    /// Has the manager do something, which may take as long as compiling does.
    async fn command(
        &self,
        command: impl FnOnce(&Manager) -> Result<String, CommandError> + Send + 'static,
    ) -> Result<Response<PolicyCommandResponse>, Status> {
        let manager = self.manager.clone();
        let done = tokio::task::spawn_blocking(move || command(&manager)).await;
        let done = done.map_err(|error| Status::internal(format!("the command was not ended: {error}")))?;
        let text = done.map_err(|error| manage::refused(&error))?;
        Ok(Response::new(PolicyCommandResponse { text }))
    }
}

#[tonic::async_trait]
impl Policies for PoliciesService {
    type LogStream = LogStream;

    async fn log(&self, request: Request<LogRequest>) -> Result<Response<LogStream>, Status> {
        let request = request.into_inner();
        let decisions = self.decisions.clone().ok_or_else(|| {
            Status::failed_precondition(
                "decisions are not recorded: decision_log.memory_records is 0, and there is no decision_log.file",
            )
        })?;
        let (follow, limit) = (request.follow, request.limit as usize);
        let limit = if limit == 0 { LOG_DEFAULT } else { limit };
        let filter = Filter::from(request);
        // First, so that nothing is missed in between; what is there twice is told by its sequence.
        let follower = follow.then(|| decisions.follow());
        let (looked_in, wanted) = (decisions.clone(), filter.clone());
        let latest = tokio::task::spawn_blocking(move || looked_in.latest(&wanted, limit)).await;
        let latest = latest.map_err(|error| Status::internal(format!("records can't be shown: {error}")))?;
        let seen = latest.last().map_or(0, |(sequence, _)| *sequence);
        let latest = latest.into_iter().map(|(_, record)| Ok(response(record.to_string(), 0)));
        let latest = stream::iter(latest);
        match follower {
            None => Ok(Response::new(Box::pin(latest))),
            Some(follower) => {
                let live = Live { decisions, follower, filter, seen, left_out: 0 };
                let live = stream::unfold(live, |mut live| async { Some((Ok(live.next().await?), live)) });
                let live = live.take_until(self.stop.clone().cancelled_owned());
                Ok(Response::new(Box::pin(latest.chain(live))))
            }
        }
    }

    async fn status(
        &self,
        request: Request<PolicyStatusRequest>,
    ) -> Result<Response<PolicyStatusResponse>, Status> {
        let PolicyStatusRequest { link, history } = request.into_inner();
        let manager = self.manager.clone();
        let all = tokio::task::spawn_blocking(move || manager.status()).await;
        let all = all.map_err(|error| Status::internal(format!("the status can't be had: {error}")))?;
        let wanted = all.iter().filter(|status| link.is_empty() || *status.name == *link);
        let links: Vec<_> = wanted.map(|status| manage::link(status, history)).collect();
        if links.is_empty() {
            let known = all.iter().map(|status| status.name.to_string()).collect();
            return Err(manage::refused(&CommandError::UnknownLink { name: link, known }));
        }
        Ok(Response::new(PolicyStatusResponse { generation: self.policies.in_force().number(), links }))
    }

    async fn push(
        &self,
        request: Request<PushPolicyRequest>,
    ) -> Result<Response<PolicyCommandResponse>, Status> {
        let push = manage::push(request.into_inner())?;
        tracing::info!(link = push.link, bytes = push.bytes.len(), "an operator pushes a policy");
        self.command(move |manager| manager.push(push)).await
    }

    async fn promote(
        &self,
        request: Request<PolicyLinkRequest>,
    ) -> Result<Response<PolicyCommandResponse>, Status> {
        let link = request.into_inner().link;
        self.command(move |manager| manager.promote(&link)).await
    }

    async fn rollback(
        &self,
        request: Request<PolicyLinkRequest>,
    ) -> Result<Response<PolicyCommandResponse>, Status> {
        let link = request.into_inner().link;
        self.command(move |manager| manager.rollback(&link)).await
    }

    async fn end_trial(
        &self,
        request: Request<PolicyLinkRequest>,
    ) -> Result<Response<PolicyCommandResponse>, Status> {
        let link = request.into_inner().link;
        self.command(move |manager| manager.end_trial(&link)).await
    }
}

/// Records to come, for one caller.
struct Live {
    decisions: Arc<Decisions>,
    follower: Follower,
    filter: Filter,
    /// What was shown already.
    seen: u64,
    left_out: u64,
}

impl Live {
    /// The next record that is wanted; `None`: there will be no more.
    async fn next(&mut self) -> Option<LogResponse> {
        loop {
            match self.follower.records.recv().await {
                Ok(entry) if entry.sequence() <= self.seen => {}
                Ok(entry) => {
                    if let Some(record) = self.decisions.show(&entry, &self.filter) {
                        return Some(response(record.to_string(), std::mem::take(&mut self.left_out)));
                    }
                }
                Err(RecvError::Lagged(n)) => self.left_out += n,
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

fn response(record: String, left_out: u64) -> LogResponse {
    LogResponse { record, left_out }
}
