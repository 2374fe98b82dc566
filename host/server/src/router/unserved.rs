//! Edits of a route that a router can't hand on: Buildbarn's scheduler takes a platform, a time limit, `do_not_cache` and
//! invocation keys, and nothing else.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use pointsman_policy::{Answer, PolicyId, Question, Record, Step};
use pointsman_scheduler::route::Route;

/// What a policy may set in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Edit {
    Pool,
    Size,
    Exclusivity,
    Strategies,
    Priority,
    Affinity,
    LearningKey,
    Environment,
    Candidates,
    Sharing,
}

impl Edit {
    pub(crate) const ALL: [Self; 10] = [
        Self::Pool,
        Self::Size,
        Self::Exclusivity,
        Self::Strategies,
        Self::Priority,
        Self::Affinity,
        Self::LearningKey,
        Self::Environment,
        Self::Candidates,
        Self::Sharing,
    ];

    /// As it is called in texts and labels.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Size => "size",
            Self::Exclusivity => "exclusivity",
            Self::Strategies => "strategies",
            Self::Priority => "priority",
            Self::Affinity => "affinity",
            Self::LearningKey => "learning_key",
            Self::Environment => "environment",
            Self::Candidates => "rank_candidates",
            Self::Sharing => "shared",
        }
    }

    fn is_in(self, before: &Route, after: &Route) -> bool {
        match self {
            Self::Pool => before.pool != after.pool,
            Self::Size => before.size != after.size,
            Self::Exclusivity => before.exclusivity != after.exclusivity,
            Self::Strategies => before.strategies != after.strategies,
            Self::Priority => before.priority != after.priority,
            Self::Affinity => before.affinity != after.affinity,
            Self::LearningKey => before.learning_key != after.learning_key,
            Self::Environment => before.environment != after.environment,
            Self::Candidates => before.rank_candidates != after.rank_candidates,
            // The client said that its result must not be cached, and there is one word for both.
            Self::Sharing => after.shared && !before.shared,
        }
    }
}

/// All that are in a route which are not in what the policies found.
pub(crate) fn edits(before: &Route, after: &Route) -> impl Iterator<Item = Edit> {
    Edit::ALL.into_iter().filter(|edit| edit.is_in(before, after))
}

/// What is said of such edits.
pub(crate) fn text(edits: impl Iterator<Item = Edit>) -> Option<String> {
    let names: Vec<_> = edits.map(Edit::name).collect();
    (!names.is_empty()).then(|| {
        format!(
            "sets {}, which a router can't hand on: Buildbarn's scheduler takes a platform, a time limit, do_not_cache \
             and invocation keys, and decides the rest itself",
            names.join(", ")
        )
    })
}

/// For the gate that new versions pass.
pub(crate) fn check(before: &Route, after: &Route) -> Option<String> {
    text(edits(before, after))
}

/// For decision records.
pub(crate) fn remarks(record: &Record) -> Vec<String> {
    let Question::Route { before, .. } = &record.question else { return Vec::new() };
    let last = record.steps.iter().rev().find_map(left);
    let dropped = last.into_iter().flat_map(|after| edits(before, after));
    dropped.map(|edit| format!("{} is not handed on: this is a router", edit.name())).collect()
}

fn left(step: &Step) -> Option<&Arc<Route>> {
    match &step.answer {
        Ok(Answer::Route(route)) => Some(route),
        _ => None,
    }
}

/// Who set it first.
pub(crate) fn set_by<'a>(edit: Edit, before: &Route, steps: &'a [Step]) -> Option<&'a Arc<PolicyId>> {
    steps
        .iter()
        .find(|step| left(step).is_some_and(|after| edit.is_in(before, after)))
        .map(|step| &step.policy)
}

/// The log has said it.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<BTreeSet<(Edit, Arc<str>)>>);

/// So many are remembered; after that nothing more is told.
const TOLD_MAX: usize = 1000;

impl Told {
    /// Says of a version that it sets something in vain, once for each.
    pub(crate) fn tell(&self, edit: Edit, policy: &PolicyId) {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() < TOLD_MAX && told.insert((edit, policy.digest_hex.clone())) {
            tracing::warn!(
                edit = edit.name(),
                %policy,
                "the policy sets what a router can't hand on, and it is dropped; router.unsupported: \"reject\" refuses such \
                 actions instead"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use pointsman_policy::ActionFacts;
    use pointsman_scheduler::route::{Exclusivity, Property, SizeClass};

    use super::*;

    #[test]
    fn what_can_be_handed_on_is_not_among_them() {
        let before = ActionFacts::default().wishes();
        let after = Route {
            platform: vec![Property::new("a", "1")],
            timeout: Some(std::time::Duration::from_secs(1)),
            shared: false,
            invocation_keys: vec!["k".into()],
            notes: vec!["n".into()],
            ..before.clone()
        };
        assert_eq!(check(&before, &after), None);
    }

    #[test]
    fn all_others_are_named() {
        let before = Route { shared: false, ..Route::default() };
        let after = Route {
            pool: Some("p".into()),
            size: SizeClass::Largest,
            exclusivity: Exclusivity::Host,
            strategies: Some(Vec::new()),
            priority: 1,
            affinity: Some(pointsman_scheduler::route::Affinity {
                key: "k".into(),
                wait: std::time::Duration::ZERO,
            }),
            learning_key: Some("l".into()),
            environment: vec![("n".into(), "v".into())],
            rank_candidates: 3,
            shared: true,
            ..Route::default()
        };
        assert_eq!(edits(&before, &after).collect::<Vec<_>>(), Edit::ALL);
        let text = check(&before, &after).unwrap();
        assert!(Edit::ALL.iter().all(|edit| text.contains(edit.name())), "{text}");
    }
}
