//! Where a route asks for it, policies put the hosts that could run an arriving action at once in order.
//!
//! The core is looked at under its lock and the policy is asked without it, so the order is a wish: who has work by then is
//! passed over, once, and then placement goes by its rule.

use pointsman_policy::{Candidate, Hook, Ranking, Runtime};
use pointsman_proto::v1::routing_decision::Ranked;
use pointsman_proto::{pack, unpack, v1};
use pointsman_scheduler::candidates::CandidateView;

use crate::driver::{Driver, Shown, Submission};

/// So many of the order are shown with the operation.
const SHOWN_MAX: usize = 5;

/// Gives a submission the hosts that policies would have it run on.
pub fn rank(driver: &Driver, policies: &Runtime, submission: &mut Submission) {
    let at_most = submission.route.rank_candidates as usize;
    if at_most == 0 || !policies.has_hook(&submission.payload.instance_name, Hook::OnAssignment) {
        return;
    }
    let found = driver.candidates(submission, at_most);
    // One that can be had is had.
    if found.len() < 2 {
        return;
    }
    let candidates: Vec<Candidate> = found.iter().map(candidate).collect();
    let facts = &submission.payload.facts;
    let Ranking { order, by, failures, .. } = policies.rank(facts, &candidates);
    for failure in failures {
        tracing::warn!(action = &*facts.digest, failure, "a policy failed at an order of workers");
    }
    let Some(by) = by else { return };
    submission.preferred = order.iter().filter_map(|(i, _)| Some(found.get(*i)?.host)).collect();
    // Whoever made it packed it as what it is.
    let mut decision: v1::RoutingDecision = unpack(&submission.payload.shown.decision).unwrap_or_default();
    decision.ranked_by = by.to_string();
    let first = order.into_iter().take(SHOWN_MAX);
    let ranked =
        first.filter_map(|(i, reason)| Some(Ranked { host: found.get(i)?.name.to_string(), reason }));
    decision.ranked = ranked.collect();
    let shown = Shown { decision: pack(&decision), ..(*submission.payload.shown).clone() };
    submission.payload.shown = shown.into();
}

fn candidate(view: &CandidateView) -> Candidate {
    Candidate {
        worker: view.name.clone(),
        pool: view.pool.clone(),
        executing: u32::try_from(view.executing).unwrap_or(u32::MAX),
        affine: view.affine,
        idle: view.idle,
    }
}
