//! The lists of platforms one by one.

use super::platforms::bad_label;
use super::{Finding, Look, Severity};
use crate::flags::{Assignment, Flag};
use crate::label::Label;

const FLAG: &str = "--allowed_strategies_by_exec_platform";

pub(super) fn findings(look: &Look<'_>, findings: &mut Vec<Finding>) {
    if !look.around.version.has_allow_lists() {
        return;
    }
    let mut labelled: Vec<(Label, &Flag<Assignment>)> = Vec::new();
    for flag in &look.flags.allowed {
        match Label::parse(&flag.value.key) {
            Ok(label) => labelled.push((label, flag)),
            Err(why) => findings.push(bad_label(FLAG, &flag.value.key, &why, &flag.place)),
        }
    }
    for (index, (label, flag)) in labelled.iter().enumerate() {
        match labelled[index + 1..].iter().find(|(later, _)| later == label) {
            Some((_, later)) => findings.push(replaced(label, flag, later)),
            None => in_force(look, label, flag, findings),
        }
    }
}

fn replaced(label: &Label, flag: &Flag<Assignment>, later: &Flag<Assignment>) -> Finding {
    Finding {
        place: Some(flag.place.clone()),
        severity: Severity::Warning,
        code: "list-replaced",
        what: format!("the list [{}] of {label} has no effect", flag.value.items.join(", ")),
        why: format!(
            "{} gives it [{}], and the last list of a label replaces those before",
            later.place,
            later.value.items.join(", ")
        ),
        advice: "keep one of them".to_owned(),
    }
}

/// A list that counts.
fn in_force(look: &Look<'_>, label: &Label, flag: &Flag<Assignment>, findings: &mut Vec<Finding>) {
    let place = || Some(flag.place.clone());
    if flag.value.items.is_empty() {
        findings.push(Finding {
            place: place(),
            severity: Severity::Warning,
            code: "empty-list",
            what: format!("the list of {label} is empty"),
            why: "an empty list allows everything, not nothing".to_owned(),
            advice: "name the strategies, or take the line out".to_owned(),
        });
        return;
    }
    if label.is_alias_of_host() {
        findings.push(Finding {
            place: place(),
            severity: Severity::Warning,
            code: "alias-label",
            what: format!("{label} is another name for the host platform"),
            why: "lists are looked up by the label that the platform itself has".to_owned(),
            advice: format!("write {}", look.host),
        });
        return;
    }
    let registered = *label == look.host || look.platforms.iter().any(|platform| platform.label == *label);
    if !registered {
        findings.push(Finding {
            place: place(),
            severity: Severity::Warning,
            code: "line-without-platform",
            what: format!("{label} has a list, and is not registered as an execution platform"),
            why: "no action is ever given it, so the list has no effect; a slip in the label looks the same".to_owned(),
            advice: format!("add it to --extra_execution_platforms, correct it, or say --platform {label} if it is registered in MODULE.bazel"),
        });
    }
    if let Some(pool) = look.around.pools.iter().find(|pool| pool.platform == *label) {
        let allows =
            |name: &str| !look.model.registry.allowed(&[name.to_owned()], &flag.value.items).is_empty();
        let lacking: Vec<_> =
            pool.strategies.iter().filter(|name| !allows(name)).map(String::as_str).collect();
        if !lacking.is_empty() {
            findings.push(Finding {
                place: place(),
                severity: Severity::Error,
                code: "pool-out-of-reach",
                what: format!(
                    "the list of {label} lacks {}, by which the pool {:?} is reached",
                    lacking.join(", "),
                    pool.pool
                ),
                why: "its actions then run elsewhere or not at all, and never on the pool's workers"
                    .to_owned(),
                advice: format!("write {FLAG}={label}={}", pool.strategies.join(",")),
            });
        }
    }
    fallback(look, label, flag, findings);
}

/// Whoever falls back needs the strategy that it falls back to.
fn fallback(look: &Look<'_>, label: &Label, flag: &Flag<Assignment>, findings: &mut Vec<Finding>) {
    let Some(on) = look.flags.remote_local_fallback.as_ref().filter(|on| on.value) else { return };
    let strategy = look.flags.fallback_strategy.as_ref().map_or("local", |flag| &flag.value);
    let allows = |name: &str| !look.model.registry.allowed(&[name.to_owned()], &flag.value.items).is_empty();
    if allows("remote") && !allows(strategy) {
        findings.push(Finding {
            place: Some(flag.place.clone()),
            severity: Severity::Error,
            code: "fallback-not-allowed",
            what: format!("{} falls back to {strategy}, which the list of {label} does not allow", on.place),
            why: "the list is applied to the fallback too, and with none left Bazel crashes (\"A remote local fallback strategy must be \
                  set\") when a remote execution fails"
                .to_owned(),
            advice: format!("add {strategy} to the list, or take --remote_local_fallback out"),
        });
    }
}
