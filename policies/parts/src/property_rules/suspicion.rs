//! Rules that can't be meant as they are written: an operator hears of them before a build does.

use pointsman_policy_sdk::Config;

use super::Rule;
use super::effects::get;

/// What is wrong within one rule.
pub(super) fn within(rule: &Rule, config: &mut Config) {
    let Rule { effects, reject, pool, note, last, .. } = rule;
    let here = config.path().to_owned();
    let edits = !effects.is_empty() || pool.is_some();
    if reject.is_some() && (edits || note.is_some() || *last) {
        config
            .error(here.clone(), "refuses the action, so its other effects are lost; leave one of both out");
    }
    if reject.is_none() && !edits && note.is_none() && !last {
        let text = "has no effect; give one of reject, rename, map, replace, add, default, remove, keep_only, pool, \
                    note, last";
        config.error(here, text);
    }
    for (old, new) in &effects.rename {
        if old == new {
            config.error(config.path_of("rename"), format!("renames {old:?} to itself"));
        }
    }
    for (name, values) in &effects.map {
        if get(&effects.rename, name).is_some() && !effects.rename.iter().any(|(_, new)| new == name) {
            let text = format!(
                "maps values of {name:?}, which `rename` has given another name before; use that one"
            );
            config.error(config.path_of("map"), text);
        }
        if values.is_empty() {
            config.error(config.path_of("map"), format!("has no values for {name:?}"));
        }
        if get(&effects.replace, name).is_some() {
            config.error(
                config.path_of("map"),
                format!("maps values of {name:?}, all of which `replace` replaces"),
            );
        }
    }
    // What a rule sets and takes away again is one of two mistakes.
    for (key, set) in [("replace", &effects.replace), ("add", &effects.add), ("default", &effects.default)] {
        for (name, _) in set {
            if effects.remove.as_ref().is_some_and(|patterns| patterns.matches(name)) {
                let text = format!("sets {name:?}, which `remove` of the same rule takes away again");
                config.error(config.path_of(key), text);
            }
            if effects.keep_only.as_ref().is_some_and(|patterns| !patterns.matches(name)) {
                let text = format!("sets {name:?}, which is not in `keep_only` of the same rule");
                config.error(config.path_of(key), text);
            }
        }
    }
    for (name, _) in &effects.default {
        if get(&effects.replace, name).is_some() || get(&effects.add, name).is_some() {
            let text =
                format!("gives {name:?} a value where it has none, and the same rule always gives it one");
            config.error(config.path_of("default"), text);
        }
    }
}

/// What rules before this one leave for it.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Path of the rule after which none is asked.
    end: Option<String>,
    /// Conditions that end the matter, as text, with the path of their rule. Those that look at properties are not among
    /// them, as rules between may have edited these.
    settled: Vec<(String, String)>,
}

impl Suspects {
    pub(super) fn look(&mut self, rule: &Rule, when: &str, config: &mut Config) {
        let here = config.path().to_owned();
        let before = self.end.as_ref().or_else(|| {
            let same = self.settled.iter().find(|(text, _)| text == when);
            same.map(|(_, path)| path)
        });
        if let Some(path) = before {
            let text = format!("is never asked: the rule at {path} has the last word on all these actions");
            config.error(here.clone(), text);
        }
        if rule.reject.is_none() && !rule.last {
            return;
        }
        if rule.when.is_always() {
            self.end.get_or_insert(here);
        } else if !rule.when.looks_at_properties() {
            self.settled.push((when.to_owned(), here));
        }
    }
}
