//! What policies make of results: take them, have the action run again, or end it with a word of their own.
//!
//! They are asked by the worker's own call, before anything is written or told, and outside the lock. What infrastructure
//! fails at is the scheduler's to repeat, and no policy is asked.

use std::sync::Arc;

use pointsman_policy::{Attempt, Completion, Hook, Next, Outcome, PolicyId, Rejection, Runtime};
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::v1::routing_decision::RunAgain;
use pointsman_proto::{pack, rpc, unpack, v1};
use pointsman_scheduler::event::{Again, Report, Verdict};
use pointsman_scheduler::route::Route;
use tonic::Status;

use crate::attempts;
use crate::driver::{CacheLook, Driver, Given, Payload, Rerun, Shown, WorkerCall, failed};
use crate::routing::{self, Router};

/// Asks policies about results.
pub(super) struct Judge {
    driver: Arc<Driver>,
    policies: Arc<Runtime>,
    router: Arc<Router>,
    max_attempts: usize,
}

impl Judge {
    pub(super) fn new(
        driver: Arc<Driver>,
        policies: Arc<Runtime>,
        router: Arc<Router>,
        max_attempts: usize,
    ) -> Self {
        Self { driver, policies, router, max_attempts }
    }

    /// Judges where that keeps nobody waiting.
    ///
    /// # Errors
    /// `INTERNAL` when that failed; the worker then reports once more.
    pub(super) async fn judge_aside(self: &Arc<Self>, mut call: WorkerCall) -> Result<WorkerCall, Status> {
        let is_result = matches!(call.report, Report::Completed(_, Verdict::Answer));
        let slow =
            is_result && self.policies.has_hook_anywhere(Hook::OnResult) && self.policies.is_slow_anywhere();
        if !slow {
            self.judge(&mut call);
            return Ok(call);
        }
        let judge = self.clone();
        let judged = self.router.aside().run(true, move || {
            judge.judge(&mut call);
            call
        });
        judged.await.ok_or_else(|| Status::internal("the thread that asked the policies ended; see the log"))
    }

    /// Lets the policies of its instance name decide about the result that a call brings, if one of them wants to, and if
    /// it is the result of what the worker was given.
    pub(super) fn judge(&self, call: &mut WorkerCall) {
        let Report::Completed(digest, Verdict::Answer) = &call.report else { return };
        if !self.policies.has_hook_anywhere(Hook::OnResult) {
            return;
        }
        let Some(given) = self.driver.given_to(&call.worker, digest) else { return };
        let Some(response) = &mut call.response else { return };
        if !self.policies.has_hook(&given.payload.instance_name, Hook::OnResult) {
            return;
        }
        let facts = routing::facts_now(&attempts::with_attempts(&given.payload.facts, &given.attempts));
        let facts = Arc::new(facts);
        let attempt = attempts::ended(response, &given);
        let Completion { next, by, failures, generation } =
            self.policies.completed(&facts, &attempt, (*given.route).clone());
        for failure in failures {
            tracing::warn!(action = &*facts.digest, failure, "a policy failed at a result");
        }
        let Some(by) = by else { return };
        match next {
            Next::Accept => {}
            Next::Fail(rejection) => *response = refused(response, &by, &rejection, &given, &attempt),
            Next::Again(_) if given.attempts.len() + 1 >= self.max_attempts => {
                let text = format!(
                    "policy {by} asked for another attempt; this was the last of {} that max_attempts allows",
                    self.max_attempts
                );
                tracing::info!(action = &*facts.digest, "{text}");
                if response.message.is_empty() {
                    response.message = text;
                }
            }
            Next::Again(route) => {
                let mut facts = Arc::unwrap_or_clone(facts);
                facts.attempts.push(attempt);
                let given = (&given, Arc::new(facts));
                let Some((again, rerun)) = self.again(given, route, (&by, generation)) else { return };
                call.report = Report::Completed(digest.clone(), Verdict::Again(Box::new(again)));
                call.rerun = Some(Box::new(rerun));
            }
        }
    }

    /// The action as it runs again; `None`: not by such a route, so its result is the answer.
    fn again(
        &self,
        (given, facts): (&Given, Arc<pointsman_policy::ActionFacts>),
        route: Route,
        (by, generation): (&PolicyId, u64),
    ) -> Option<(Again, Rerun)> {
        let attempt = facts.attempts.last()?;
        let how = how(attempt);
        let decision = pack(&decided(given, &route, (by, generation), attempt));
        let routed = match self.router.typed(Arc::new(route), by, decision) {
            Ok(routed) => routed,
            Err(status) => {
                let why = status.message();
                tracing::warn!(
                    action = &*facts.digest,
                    "an action is not run again, as it can't be by the route for that: {why}"
                );
                return None;
            }
        };
        tracing::info!(
            action = &*facts.digest,
            host = &*given.host,
            "{how}: policy {by} asked for another attempt"
        );
        let cause = format!("{how}, and policy {by} asked for another attempt").into();
        let old = &*given.payload;
        let payload = Payload {
            action: routing::routed_action(old.action.clone(), &routed),
            shown: Arc::new(Shown { decision: routed.decision, ..(*old.shown).clone() }),
            // It may have the result that was not taken.
            cache_look: CacheLook::forbidden(),
            facts,
            ..old.clone()
        };
        let rerun = Rerun { task: given.task, attempts: given.attempts.len(), payload };
        Some((Again { route: routed.route, asked: routed.asked, cause }, rerun))
    }
}

/// How an attempt with a result ended.
fn how(attempt: &Attempt) -> String {
    let signal = attempt.signal.as_ref().map(|s| format!(", signal {s}")).unwrap_or_default();
    match attempt.outcome {
        Outcome::Succeeded => "it succeeded".to_owned(),
        Outcome::Failed | Outcome::Killed => format!("it ended with exit code {}{signal}", attempt.exit_code),
        Outcome::TimedOut => "it timed out".to_owned(),
        Outcome::WorkerLost | Outcome::InfrastructureError => "the worker could not run it".to_owned(),
    }
}

/// The client is told what the policy says, and nothing that could be taken for a result.
fn refused(
    response: &ExecuteResponse,
    by: &PolicyId,
    rejection: &Rejection,
    given: &Given,
    attempt: &Attempt,
) -> ExecuteResponse {
    let text = format!(
        "rejected by policy {by} after attempt {} on {} ({}): {rejection}",
        given.attempts.len() + 1,
        given.host,
        how(attempt)
    );
    tracing::info!(action = &*given.payload.facts.digest, "{text}");
    let code = rpc::Code::try_from(rejection.code.grpc()).unwrap_or(rpc::Code::FailedPrecondition);
    ExecuteResponse { server_logs: response.server_logs.clone(), ..failed(code, text, Vec::new()) }
}

/// What is shown of an action that runs again: who decided so, by which route, and what became of the attempts before.
fn decided(
    given: &Given,
    route: &Route,
    (by, generation): (&PolicyId, u64),
    attempt: &Attempt,
) -> v1::RoutingDecision {
    // Whoever made the old one packed it as what it is.
    let old: v1::RoutingDecision = unpack(&given.payload.shown.decision).unwrap_or_default();
    let mut run_again = old.run_again;
    run_again.push(RunAgain {
        attempt: u32::try_from(given.attempts.len() + 1).unwrap_or(u32::MAX),
        host: attempt.worker.to_string(),
        outcome: attempts::name(attempt.outcome).to_owned(),
        exit_code: attempt.exit_code,
        policy_name: by.name.to_string(),
        policy_version: by.version.to_string(),
        policy_digest: by.digest_hex.to_string(),
    });
    v1::RoutingDecision { run_again, ..routing::message(route, by, generation) }
}
