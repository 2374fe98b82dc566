//! What an operator can set.

use pointsman_policy_sdk::{Code, Config, Rejection};
use serde_json::Value;

use super::effects::{Effects, Pairs};
use super::suspicion::{self, Suspects};
use super::{PropertyRules, Rule};
use crate::condition::Condition;
use crate::pattern::Patterns;

pub(super) const CODES: [(&str, Code); 5] = [
    ("invalid_argument", Code::InvalidArgument),
    ("failed_precondition", Code::FailedPrecondition),
    ("permission_denied", Code::PermissionDenied),
    ("resource_exhausted", Code::ResourceExhausted),
    ("unavailable", Code::Unavailable),
];

pub(super) fn read(config: &mut Config) -> PropertyRules {
    let path = config.path_of("rules");
    if !config.has("rules") {
        config.error(path, "is needed: a list of rules, as in [{ \"default\": { \"Pool\": \"small\" } }]");
    }
    let mut suspects = Suspects::default();
    let mut rules = Vec::new();
    for mut item in config.objects("rules").unwrap_or_default() {
        let when = item.object("when").map(|mut inner| {
            let text = inner.text();
            let condition = Condition::read(&mut inner);
            item.close(inner);
            (condition, text)
        });
        let (when, text) = when.unwrap_or_default();
        let rule = rule(&mut item, when);
        suspicion::within(&rule, &mut item);
        suspects.look(&rule, &text, &mut item);
        config.close(item);
        rules.push(rule);
    }
    PropertyRules { rules }
}

fn rule(config: &mut Config, when: Condition) -> Rule {
    let [rename, replace, add, default] =
        ["rename", "replace", "add", "default"].map(|key| named(config, key));
    for (old, new) in &rename {
        config.not_empty(new, config.below(&["rename", old]));
    }
    let effects = Effects {
        rename,
        map: value_maps(config),
        replace,
        add,
        default,
        remove: Patterns::read(config, "remove"),
        keep_only: Patterns::read(config, "keep_only"),
    };
    let reject = config.object("reject").map(|mut inner| {
        let rejection = rejection(&mut inner);
        config.close(inner);
        rejection
    });
    Rule {
        when,
        effects,
        reject,
        pool: config.name("pool"),
        note: config.string("note"),
        last: config.bool("last", false),
    }
}

/// Values by the names of properties.
fn named(config: &mut Config, key: &'static str) -> Pairs {
    let pairs = config.string_pairs(key);
    for (name, _) in &pairs {
        config.not_empty(name, config.below(&[key, name]));
    }
    pairs
}

fn value_maps(config: &mut Config) -> Vec<(String, Pairs)> {
    let mut maps = Vec::new();
    for (name, path, value) in config.map("map").unwrap_or_default() {
        config.not_empty(&name, &*path);
        let Value::Object(values) = value else {
            config.error(path, "expected an object of old values and new ones, as in { \"big\": \"large\" }");
            continue;
        };
        let mut read = Vec::new();
        for (old, new) in values {
            match new {
                Value::String(new) => read.push((old, new)),
                _ => config.error(path.clone(), format!("the new value of {old:?} is to be a string")),
            }
        }
        maps.push((name, read));
    }
    maps
}

fn rejection(config: &mut Config) -> Rejection {
    let reason = config.string("reason").unwrap_or_default();
    if reason.is_empty() {
        let text = "is needed: what is wrong, for the person whose build it is";
        config.error(config.path_of("reason"), text);
    }
    let code = config.word("code", &CODES).unwrap_or(Code::FailedPrecondition);
    Rejection { code, reason, help: config.string("help") }
}
