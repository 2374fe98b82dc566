//! What becomes of results: they are taken, or the action runs again, or it ends with a policy's words.
//!
//! Policies are asked first, then the scheduler's own rule ([`too_small`](super::too_small)): by the worker's own call,
//! before anything is written or told, and outside the lock. What infrastructure fails at is the scheduler's to repeat, and
//! nobody is asked.

use std::sync::Arc;

use pointsman_policy::{ActionFacts, Attempt, Completion, Hook, Next, Outcome, PolicyId, Rejection, Runtime};
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::v1::routing_decision::RunAgain;
use pointsman_proto::{rpc, unpack, v1};
use pointsman_scheduler::event::{Again, Report, Verdict};
use pointsman_scheduler::route::Route;
use tonic::Status;

use super::too_small::{self, Rule};
use crate::attempts;
use crate::config::TooSmall;
use crate::driver::{CacheLook, Driver, Given, Payload, Rerun, Shown, WorkerCall, failed};
use crate::routing::{self, Routed, Router};

/// Decides about results.
pub(super) struct Judge {
    driver: Arc<Driver>,
    policies: Arc<Runtime>,
    router: Arc<Router>,
    rule: Rule,
    max_attempts: usize,
}

/// What policies say of a result.
enum Said {
    /// Nothing, so that the rule may have it run again.
    Nothing,
    /// It is one.
    Take,
    /// The action runs again by this route.
    Again(Box<Route>, By),
    /// It ends with this.
    Fail(Rejection, Arc<PolicyId>),
}

/// Who has an action run again.
#[derive(Clone)]
enum By {
    /// A policy, of that generation.
    Policy(Arc<PolicyId>, u64),
    /// The scheduler's own rule.
    Rule,
}

impl Judge {
    pub(super) fn new(
        driver: Arc<Driver>,
        policies: Arc<Runtime>,
        router: Arc<Router>,
        rerun: Vec<TooSmall>,
        max_attempts: usize,
    ) -> Self {
        let rule = Rule { driver: driver.clone(), router: router.clone(), rerun };
        Self { driver, policies, router, rule, max_attempts }
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

    /// Decides about the result that a call brings, if it is the result of what the worker was given.
    pub(super) fn judge(&self, call: &mut WorkerCall) {
        let Report::Completed(digest, Verdict::Answer) = &call.report else { return };
        let Some(response) = &mut call.response else { return };
        if !self.policies.has_hook_anywhere(Hook::OnResult) && !self.rule.looks_at(response) {
            return;
        }
        let Some(given) = self.driver.given_to(&call.worker, digest) else { return };
        let attempt = attempts::ended(response, &given);
        let facts = routing::facts_now(&attempts::with_attempts(&given.payload.facts, &given.attempts));
        let facts = Arc::new(facts);
        let (route, by) = match self.policies_say(&facts, &attempt, &given) {
            Said::Again(route, by) => (*route, by),
            Said::Take => return,
            Said::Fail(rejection, by) => {
                call.ran = attempts::run(response, given.spec.size_class);
                *response = refused(response, &by, &rejection, &given, &attempt);
                return;
            }
            Said::Nothing => match self.rule.route(&given, &attempt) {
                Some(route) => (route, By::Rule),
                None => return,
            },
        };
        match self.routed_again(&given, &attempt, route, &by) {
            Ok(routed) => {
                let (again, rerun) = again(&given, facts, attempt, routed, &by);
                call.report = Report::Completed(digest.clone(), Verdict::Again(Box::new(again)));
                call.rerun = Some(Box::new(rerun));
            }
            Err(Some(why)) => {
                tracing::info!(action = &*facts.digest, "{why}");
                // Workers put links there.
                let separator = if response.message.is_empty() { "" } else { "\n" };
                response.message = format!("{}{separator}{why}", response.message);
            }
            Err(None) => {}
        }
    }

    fn policies_say(&self, facts: &Arc<ActionFacts>, attempt: &Attempt, given: &Given) -> Said {
        if !self.policies.has_hook(&given.payload.instance_name, Hook::OnResult) {
            return Said::Nothing;
        }
        let Completion { next, by, accepted_by, failures, generation } =
            self.policies.completed(facts, attempt, (*given.route).clone());
        for failure in failures {
            tracing::warn!(action = &*facts.digest, failure, "a policy failed at a result");
        }
        match (next, by) {
            (Next::Again(route), Some(by)) => Said::Again(Box::new(route), By::Policy(by, generation)),
            (Next::Fail(rejection), Some(by)) => Said::Fail(rejection, by),
            _ if accepted_by.is_some() => Said::Take,
            _ => Said::Nothing,
        }
    }

    /// The action as it is routed for another attempt. An error is why there is none, if the client is to be told.
    fn routed_again(
        &self,
        given: &Given,
        attempt: &Attempt,
        route: Route,
        by: &By,
    ) -> Result<Routed, Option<String>> {
        let is_last = given.attempts.len() + 1 >= self.max_attempts;
        let last = || format!("this was the last of {} that max_attempts allows", self.max_attempts);
        if let By::Policy(policy, _) = by
            && is_last
        {
            return Err(Some(format!("policy {policy} asked for another attempt; {}", last())));
        }
        let decision = decided(given, &route, by, attempt);
        let routed = match by {
            By::Policy(policy, _) => {
                self.router.typed(Arc::new(route), &format_args!("policy {policy}"), decision)
            }
            By::Rule => self.router.typed(Arc::new(route), &"the rule sizes.rerun", decision),
        };
        let routed = routed.map_err(|status| {
            let (action, why) = (&*given.payload.facts.digest, status.message());
            tracing::warn!(action, "an action is not run again, as it can't be by the route for that: {why}");
            None
        })?;
        if matches!(by, By::Policy(..)) {
            return Ok(routed);
        }
        let routed = self.rule.larger(given, routed).ok_or_else(|| {
            // Of a first attempt there is nothing more to say than its result does.
            let is_first = given.attempts.is_empty();
            (!is_first).then(|| too_small::why_not(given, attempt, "and there is no larger one for it"))
        })?;
        if is_last {
            let why = format!("and there is a larger one, but {}", last());
            return Err(Some(too_small::why_not(given, attempt, &why)));
        }
        Ok(routed)
    }
}

/// The action as it runs again.
fn again(
    given: &Given,
    mut facts: Arc<ActionFacts>,
    attempt: Attempt,
    routed: Routed,
    by: &By,
) -> (Again, Rerun) {
    let cause = match by {
        By::Policy(policy, _) => format!("{}, and policy {policy} asked for another attempt", how(&attempt)),
        By::Rule => too_small::cause(&attempt),
    };
    tracing::info!(action = &*facts.digest, host = &*given.host, "{cause}");
    let old = &*given.payload;
    let enlarged = match by {
        By::Policy(..) => old.enlarged,
        By::Rule => Some(routed.route.size),
    };
    Arc::make_mut(&mut facts).attempts.push(attempt);
    let payload = Payload {
        action: routing::routed_action(old.action.clone(), &routed),
        shown: Arc::new(Shown { decision: routed.decision, ..(*old.shown).clone() }),
        // It may have the result that was not taken.
        cache_look: CacheLook::forbidden(),
        environment: routing::environment(&routed.route),
        enlarged,
        facts,
        ..old.clone()
    };
    let rerun = Rerun { task: given.task, attempts: given.attempts.len(), payload };
    (Again { route: routed.route, asked: routed.asked, cause: cause.into() }, rerun)
}

/// How an attempt with a result ended.
pub(super) fn how(attempt: &Attempt) -> String {
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
fn decided(given: &Given, route: &Route, by: &By, attempt: &Attempt) -> v1::RoutingDecision {
    // Whoever made the old one packed it as what it is.
    let mut old: v1::RoutingDecision = unpack(&given.payload.shown.decision).unwrap_or_default();
    let mut this = RunAgain {
        attempt: u32::try_from(given.attempts.len() + 1).unwrap_or(u32::MAX),
        host: attempt.worker.to_string(),
        outcome: attempts::name(attempt.outcome).to_owned(),
        exit_code: attempt.exit_code,
        size_class: attempt.size_class,
        ..RunAgain::default()
    };
    if let By::Policy(policy, generation) = by {
        this.policy_name = policy.name.to_string();
        this.policy_version = policy.version.to_string();
        this.policy_digest = policy.digest_hex.to_string();
        let run_again = std::mem::take(&mut old.run_again);
        old = v1::RoutingDecision { run_again, ..routing::message(route, policy, *generation) };
    }
    // The rule changes nothing that is shown: the route is still its policy's.
    old.run_again.push(this);
    old
}
