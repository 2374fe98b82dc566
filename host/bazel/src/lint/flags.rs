//! Flags of which another counts, that this Bazel lacks, or whose expression or names can't be.

use super::{Finding, Look, Severity};
use crate::flags::{Assignment, Flag};
use crate::place::Place;

const LISTS: &str = "--allowed_strategies_by_exec_platform";

pub(super) fn findings(look: &Look<'_>, findings: &mut Vec<Finding>) {
    version(look, findings);
    executor(look, findings);
    names(look, findings);
    for (flag, why) in look.model.unreadable() {
        findings.push(Finding {
            place: Some(flag.place.clone()),
            severity: Severity::Error,
            code: "bad-expression",
            what: format!("the filter of --strategy_regexp={} can't be judged", flag.value.key),
            why: why.clone(),
            advice: "close what is open; looking ahead or behind and references back, which only Java knows, are to be written \
                     otherwise"
                .to_owned(),
        });
    }
}

fn version(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let version = look.around.version;
    if version.has_allow_lists() {
        return;
    }
    for flag in &look.flags.allowed {
        findings.push(Finding {
            place: Some(flag.place.clone()),
            severity: Severity::Error,
            code: "needs-bazel-9",
            what: format!("{LISTS} is not known to Bazel {version}"),
            why: "it came with 9.0.0; older ones end with \"Unrecognized option\"".to_owned(),
            advice: "take it out; give the host platform the property no-remote-exec, and name mnemonics with --strategy (`pointsman \
                     bazel flags --bazel VERSION` writes both)"
                .to_owned(),
        });
    }
}

/// Lists that name `remote`, and nobody to send anything to.
fn executor(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let given = look.flags.remote_executor.as_ref().is_some_and(|flag| !flag.value.is_empty());
    let Some(flag) =
        look.flags.allowed.iter().find(|flag| flag.value.items.iter().any(|item| item == "remote"))
    else {
        return;
    };
    if !given && !look.around.remote {
        findings.push(Finding {
            place: Some(flag.place.clone()),
            severity: Severity::Warning,
            code: "no-executor",
            what: "remote is allowed here, and no --remote_executor is given".to_owned(),
            why: "without one the strategy remote runs nothing, so what may only run remotely fails".to_owned(),
            advice: "give --remote_executor=grpc://HOST:PORT; or name the config that does with --rc-config, or say --remote if it comes \
                     from the command line"
                .to_owned(),
        });
    }
}

/// Names of strategies that are not registered on this host. Bazel stops at the first.
fn names(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let flags = look.flags;
    let lists =
        [(&flags.spawn_strategy, "--spawn_strategy"), (&flags.genrule_strategy, "--genrule_strategy")];
    for (flag, name) in lists {
        if let Some(flag) = flag {
            check(look, name, &flag.value, &flag.place, findings);
        }
    }
    let assigned: [(&Vec<Flag<Assignment>>, &str); 5] = [
        (&flags.strategy, "--strategy"),
        (&flags.strategy_regexp, "--strategy_regexp"),
        (&flags.allowed, LISTS),
        (&flags.dynamic_local, "--dynamic_local_strategy"),
        (&flags.dynamic_remote, "--dynamic_remote_strategy"),
    ];
    for (list, name) in assigned {
        for flag in list {
            check(look, name, &flag.value.items, &flag.place, findings);
        }
    }
}

fn check(look: &Look<'_>, flag: &str, items: &[String], place: &Place, findings: &mut Vec<Finding>) {
    let registry = &look.model.registry;
    for item in items.iter().filter(|item| registry.stands_for(item).is_none()) {
        let advice = if item.starts_with("dynamic") {
            "add --internal_spawn_scheduler, without which Bazel before 9 has no dynamic".to_owned()
        } else {
            format!(
                "use one of {}, or give --os if Bazel runs on another system",
                registry.names().join(", ")
            )
        };
        findings.push(Finding {
            place: Some(place.clone()),
            severity: Severity::Error,
            code: "unknown-strategy",
            what: format!(
                "{flag} names {item:?}, and no such strategy is registered on {:?}",
                look.around.os
            ),
            why: "Bazel stops before the build, also if no action ever asks for it".to_owned(),
            advice,
        });
    }
}
