//! Tries golden cases, each on an instance of its own.

use std::sync::Arc;

use super::{Case, GoldenError, Mismatch, cases};
use crate::decision::{Answer, Hook};
use crate::error::LoadError;
use crate::facts::Pool;
use crate::failure::{Failure, FailureKind};
use crate::hooks::Terms;
use crate::interface::{Called, Instance};
use crate::kv::{Pending, Store, Values};
use crate::options::Sources;
use crate::policy::Policy;

/// Tries all golden cases that `file`, of which `policy` was made, carries.
///
/// # Errors
/// When they can't be read, at least one of them goes otherwise than it says (then with all that differs), or ends with what
/// the server can't carry out.
pub(crate) fn check(policy: &Policy, file: &[u8]) -> Result<(), LoadError> {
    let mut mismatches = Vec::new();
    for case in cases(file)? {
        let values = values(policy, &case);
        match call(policy, &case, &values) {
            Ok(answer) => {
                unserved(policy, &case, &answer)?;
                let stored = |key: &str| values.get(key, case.host.now);
                mismatches.extend(case.expect.mismatches(&case.name, &case.candidates, &answer, stored));
            }
            Err(failure) => mismatches.push(Mismatch {
                field: format!("the answer of {}", case.hook),
                expected: "given".into(),
                found: format!("none, as it failed: {failure}"),
                case: case.name,
            }),
        }
    }
    if mismatches.is_empty() { Ok(()) } else { Err(GoldenError::Failed(mismatches).into()) }
}

/// What a case shows that the server can't carry out. Not one with a configuration of its own: it says nothing of what the
/// policy does by the operator's.
fn unserved(policy: &Policy, case: &Case, answer: &Answer) -> Result<(), LoadError> {
    let (Some(check), None, Answer::Route(after)) = (policy.edits(), &case.config, answer) else {
        return Ok(());
    };
    if case.hook != Hook::OnAction {
        return Ok(());
    }
    let before = case.route.clone().unwrap_or_else(|| case.facts.wishes());
    match check(&before, after) {
        Some(edit) => Err(LoadError::Unserved { case: case.name.clone(), edit }),
        None => Ok(()),
    }
}

/// A store with what the case says is in it, and nothing of any other.
fn values(policy: &Policy, case: &Case) -> Values {
    let limits = policy.limits();
    let store = Store::new(limits.stored_values, limits.stored_bytes);
    store.commit(case.host.stored.iter().filter_map(|(key, value)| {
        Some(Pending { key: key.as_str().into(), value: value.clone()?, expires: f64::INFINITY })
    }));
    Values::new(Arc::new(store), false)
}

fn sources(case: &Case) -> Sources {
    let pools: Arc<[Pool]> = case.host.pools.as_slice().into();
    let statistics = case.host.statistics.clone();
    Sources {
        pools: Arc::new(move || pools.clone()),
        statistics: Arc::new(move |key| statistics.get(key).cloned().flatten()),
    }
}

fn call(policy: &Policy, case: &Case, values: &Values) -> Result<Answer, Failure> {
    if !policy.hooks().contains(&case.hook) {
        let text = format!("the policy does not export {}", case.hook);
        return Err(Failure::new(FailureKind::Start, text));
    }
    let config = case.config.as_ref().map(ToString::to_string);
    let mut instance = policy.fresh_with(config.as_deref(), values.clone(), &sources(case))?;
    let answer = match case.hook {
        Hook::OnAction => route(&mut instance, case)?,
        Hook::OnWorker => admit(&mut instance, case)?,
        Hook::OnResult => completed(&mut instance, case)?,
        Hook::OnAssignment => {
            let facts = Arc::new(case.timed_facts());
            instance.rank(&facts, &case.candidates, false)?.map(Answer::Order)
        }
    };
    Ok(answer.answer)
}

fn route(instance: &mut Instance, case: &Case) -> Result<Called<Answer>, Failure> {
    let facts = Arc::new(case.timed_facts());
    let route = case.route.clone().unwrap_or_else(|| facts.wishes());
    let called = instance.route_action(&facts, route, false)?;
    Ok(called
        .map(|(route, rejection)| rejection.map_or_else(|| Answer::Route(route.into()), Answer::Rejected)))
}

fn admit(instance: &mut Instance, case: &Case) -> Result<Called<Answer>, Failure> {
    let mut worker = case.worker.clone();
    worker.now_unix_seconds = case.host.now;
    let terms = case.terms.clone().unwrap_or_else(|| Terms {
        platform: worker.platform.clone(),
        size_class: worker.size_class,
        ..Terms::default()
    });
    let called = instance.admit(&Arc::new(worker), terms, false)?;
    Ok(called
        .map(|(terms, rejection)| rejection.map_or_else(|| Answer::Terms(terms.into()), Answer::Rejected)))
}

fn completed(instance: &mut Instance, case: &Case) -> Result<Called<Answer>, Failure> {
    let facts = Arc::new(case.timed_facts());
    let route = case.route.clone().unwrap_or_else(|| facts.wishes());
    let Some(attempt) = &case.attempt else {
        return Err(Failure::new(FailureKind::Start, "the case has no attempt"));
    };
    Ok(instance.completed(&facts, attempt, route, false)?.map(|(next, _)| Answer::Next(next)))
}

impl Case {
    fn timed_facts(&self) -> crate::facts::ActionFacts {
        let mut facts = self.facts.clone();
        facts.now_unix_seconds = self.host.now;
        facts
    }
}
