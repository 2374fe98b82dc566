//! The two sides of `dynamic`, where a platform's list takes one of them away.

use std::collections::BTreeSet;

use super::{Finding, Look, Severity};
use crate::model::Restriction;

pub(super) fn findings(look: &Look<'_>, findings: &mut Vec<Finding>) {
    let registry = &look.model.registry;
    let is_dynamic = |items: &[String]| items.iter().any(|item| registry.stands_for(item) == Some("dynamic"));
    let by_default = look.flags.spawn_strategy.as_ref().is_some_and(|flag| is_dynamic(&flag.value));
    let by_regexp = look.flags.strategy_regexp.iter().any(|flag| is_dynamic(&flag.value.items));
    let mut mnemonics: BTreeSet<&str> = look
        .flags
        .strategy
        .iter()
        .filter(|flag| is_dynamic(&flag.value.items))
        .map(|flag| &*flag.value.key)
        .collect();
    if by_default || by_regexp {
        mnemonics.insert("");
        let sides = look.flags.dynamic_local.iter().chain(&look.flags.dynamic_remote);
        mnemonics.extend(sides.map(|flag| &*flag.value.key));
    }
    for (label, restriction) in look.restricted() {
        // Where it is not allowed itself, nothing is left of the list, which is told elsewhere.
        if !is_dynamic(&restriction.allowed) {
            continue;
        }
        for mnemonic in &mnemonics {
            let legs = look.model.legs(mnemonic, Some(&restriction));
            let who = if mnemonic.is_empty() { "actions".to_owned() } else { format!("{mnemonic} actions") };
            let empty: Vec<_> = ["here", "remotely"]
                .into_iter()
                .zip(&legs.left)
                .filter(|(_, left)| left.is_empty())
                .collect();
            match &empty[..] {
                [(side, _)] => findings.push(one_side(&who, side, &legs.asked, label, &restriction)),
                [_, _] => findings.push(Finding {
                    place: Some(restriction.place.clone()),
                    severity: Severity::Error,
                    code: "dynamic-empty",
                    what: format!("dynamic can run {who} on {label} neither here nor remotely"),
                    why: format!(
                        "the list [{}] is applied to both of its sides, [{}] here and [{}] remotely, and leaves nothing",
                        restriction.allowed.join(", "),
                        legs.asked[0].join(", "),
                        legs.asked[1].join(", ")
                    ),
                    advice: "add remote, and what is to run here, to the list".to_owned(),
                }),
                _ => {}
            }
        }
    }
}

fn one_side(
    who: &str,
    side: &str,
    asked: &[Vec<String>; 2],
    label: &crate::Label,
    restriction: &Restriction,
) -> Finding {
    let asked = if side == "here" { &asked[0] } else { &asked[1] };
    Finding {
        place: Some(restriction.place.clone()),
        severity: Severity::Warning,
        code: "dynamic-one-side",
        what: format!("dynamic can't run {who} on {label} {side}"),
        why: format!(
            "the list [{}] has none of [{}], so the race has one side only",
            restriction.allowed.join(", "),
            asked.join(", ")
        ),
        advice: "add one of them to the list; or take dynamic out of it, if there is to be no race"
            .to_owned(),
    }
}
