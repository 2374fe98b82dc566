//! What each flag comes to on each platform: lists that a platform's empties.

use super::{Finding, Look, Severity};
use crate::label::Label;
use crate::model::Restriction;
use crate::place::Place;

/// A list, and which actions have it.
struct Asked {
    who: String,
    by: String,
    list: Vec<String>,
    place: Option<Place>,
}

pub(super) fn findings(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let asked = asked(look);
    for (label, restriction) in look.restricted() {
        for one in &asked {
            if look.model.registry.allowed(&one.list, &restriction.allowed).is_empty() {
                findings.push(empty(one, label, &restriction));
            }
        }
    }
}

/// All lists that an action may have, those that are in force.
fn asked(look: &Look<'_>) -> Vec<Asked> {
    let flags = look.flags;
    let mut all = vec![match &flags.spawn_strategy {
        Some(flag) if !flag.value.is_empty() => Asked {
            who: "actions that no other flag names".to_owned(),
            by: "--spawn_strategy".to_owned(),
            list: flag.value.clone(),
            place: Some(flag.place.clone()),
        },
        _ => Asked {
            who: "actions that no flag names".to_owned(),
            by: "the default".to_owned(),
            list: look.model.registry.default_list(),
            place: None,
        },
    }];
    let overruled = |key: &str| flags.strategy.iter().any(|flag| flag.value.key == key);
    if let Some(flag) =
        flags.genrule_strategy.as_ref().filter(|flag| !flag.value.is_empty() && !overruled("Genrule"))
    {
        all.push(Asked {
            who: "actions with the mnemonic Genrule".to_owned(),
            by: "--genrule_strategy".to_owned(),
            list: flag.value.clone(),
            place: Some(flag.place.clone()),
        });
    }
    for (index, flag) in flags.strategy.iter().enumerate() {
        let later = flags.strategy[index + 1..].iter().any(|later| later.value.key == flag.value.key);
        if !later && !flag.value.items.is_empty() {
            all.push(Asked {
                who: format!("actions with the mnemonic {}", flag.value.key),
                by: format!("--strategy={}", flag.value.key),
                list: flag.value.items.clone(),
                place: Some(flag.place.clone()),
            });
        }
    }
    for flag in flags.strategy_regexp.iter().filter(|flag| !flag.value.items.is_empty()) {
        all.push(Asked {
            who: format!("actions whose description {} matches", flag.value.key),
            by: format!("--strategy_regexp={}", flag.value.key),
            list: flag.value.items.clone(),
            place: Some(flag.place.clone()),
        });
    }
    all
}

fn empty(asked: &Asked, label: &Label, restriction: &Restriction) -> Finding {
    Finding {
        place: asked.place.clone().or_else(|| Some(restriction.place.clone())),
        severity: Severity::Error,
        code: "nothing-left",
        what: format!("{} fail on {label}: nothing is left of [{}]", asked.who, asked.list.join(", ")),
        why: format!(
            "{} asks for [{}], and {} allows [{}]; no other execution platform is tried",
            asked.by,
            asked.list.join(", "),
            restriction.place,
            restriction.allowed.join(", ")
        ),
        advice: format!(
            "add one of [{}] to {}, or one of the others to the list of {label}",
            restriction.allowed.join(", "),
            asked.by
        ),
    }
}
