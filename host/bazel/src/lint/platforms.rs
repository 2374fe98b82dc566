//! Execution platforms and their lists: who has none, and which belong to nobody.

use super::{Finding, Look, Severity};
use crate::label::Label;

pub(super) fn findings(look: &Look<'_>, findings: &mut Vec<Finding>) {
    registrations(look, findings);
    pools(look, findings);
    if look.around.version.has_allow_lists() {
        without_line(look, findings);
    }
}

/// The list of platforms itself.
fn registrations(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let lists = &look.flags.extra_execution_platforms;
    if let Some((last, before)) = lists.split_last() {
        for flag in before.iter().filter(|flag| flag.value.iter().any(|item| !last.value.contains(item))) {
            findings.push(Finding {
                place: Some(flag.place.clone()),
                severity: Severity::Warning,
                code: "platforms-replaced",
                what: format!("--extra_execution_platforms={} has no effect", flag.value.join(",")),
                why: format!(
                    "only the last one counts, which is {} at {}; they are not added up",
                    last.value.join(","),
                    last.place
                ),
                advice: "name all platforms in one list, the first choice first".to_owned(),
            });
        }
    }
    for (pattern, place) in &look.unresolved {
        findings.push(Finding {
            place: Some(place.clone()),
            severity: Severity::Warning,
            code: "unknown-pattern",
            what: format!("{pattern} finds no platform that is known here"),
            why: "a pattern is looked up by Bazel, in an order that nobody wrote down; what it finds can't be checked".to_owned(),
            advice: "name the platforms one by one, or tell them with --platform, --platforms or --config".to_owned(),
        });
    }
    for (item, why, place) in &look.broken {
        findings.push(bad_label("--extra_execution_platforms", item, why, place));
    }
    if let Some(flag) = &look.flags.host_platform
        && let Err(why) = Label::parse(&flag.value)
    {
        findings.push(bad_label("--host_platform", &flag.value, &why, &flag.place));
    }
}

pub(super) fn bad_label(flag: &str, label: &str, why: &str, place: &crate::place::Place) -> Finding {
    Finding {
        place: Some(place.clone()),
        severity: Severity::Error,
        code: "bad-label",
        what: format!("{flag} names {label:?}, which is no label"),
        why: why.to_owned(),
        advice: "write //package:name or @repository//package:name".to_owned(),
    }
}

/// Pools that no build ever uses, and the order of the others.
fn pools(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let place_of = |label: &Label| look.platforms.iter().position(|platform| platform.label == *label);
    let source = look.around.pools_file.as_deref().unwrap_or("the configuration");
    let mut last: Option<(usize, &str)> = None;
    for pool in &look.around.pools {
        let Some(at) = place_of(&pool.platform) else {
            findings.push(Finding {
                place: None,
                severity: Severity::Warning,
                code: "pool-not-registered",
                what: format!("the platform {} of the pool {:?} is not registered", pool.platform, pool.pool),
                why: "no action is ever given it, so the pool's workers get none of this build's work".to_owned(),
                advice: format!(
                    "add it to --extra_execution_platforms, or say --platform {} if it is registered in MODULE.bazel",
                    pool.platform
                ),
            });
            continue;
        };
        if let Some((before, name)) = last.filter(|(before, _)| *before > at) {
            findings.push(Finding {
                place: look.platforms[at].place.clone(),
                severity: Severity::Warning,
                code: "order-differs",
                what: format!("{} comes before {}, and in {source} it is the other way round", pool.platform, look.platforms[before].label),
                why: "Bazel takes the first platform that is compatible, so what either could run goes to the one that is first".to_owned(),
                advice: format!("list the platform of {name:?} first, or change the order of the pools"),
            });
        }
        last = last.max(Some((at, &pool.pool)));
    }
}

/// What the flag that was never merged would have asked for: a list for each platform.
fn without_line(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let has_line = |label: &Label| {
        look.flags.allowed.iter().any(|flag| Label::parse(&flag.value.key).as_ref() == Ok(label))
    };
    for platform in look.platforms.iter().filter(|platform| !has_line(&platform.label)) {
        findings.push(Finding {
            place: platform.place.clone(),
            severity: Severity::Warning,
            code: "platform-without-line",
            what: format!("the registered platform {} has no --allowed_strategies_by_exec_platform", platform.label),
            why: "nothing is taken out for it: its actions may run on this host too, whatever the platform says".to_owned(),
            advice: format!("add build --allowed_strategies_by_exec_platform={}=remote", platform.label),
        });
    }
    // Without any list nobody meant to have one.
    let is_known = look.flags.host_platform.as_ref().is_none_or(|flag| Label::parse(&flag.value).is_ok());
    if is_known && !look.flags.allowed.is_empty() && !has_line(&look.host) {
        findings.push(Finding {
            place: look.flags.host_platform.as_ref().map(|flag| flag.place.clone()),
            severity: Severity::Warning,
            code: "host-without-line",
            what: format!("the host platform {} has no --allowed_strategies_by_exec_platform", look.host),
            why: "its actions may go to remote workers, which need not have what this host has".to_owned(),
            advice: format!(
                "add build --allowed_strategies_by_exec_platform={}=worker,sandboxed,local",
                look.host
            ),
        });
    }
}
