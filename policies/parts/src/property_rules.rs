//! Ordered rules that edit the properties of actions, choose their pool, or refuse them.
//!
//! Each rule has a condition and effects. Rules are asked one after the other, and a rule sees what those before it have
//! done. Within a rule the order is: refuse, rename, map, replace, add, default, remove, keep only.

mod config;
mod effects;
mod suspicion;

use pointsman_policy_sdk::{CommandWhen, Config, Rejection, route};

use crate::condition::Condition;
use crate::{Facts, Part};

use effects::Effects;

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../property-rules/config.schema.json");

/// The part, configured.
#[derive(Clone, Debug)]
pub struct PropertyRules {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    when: Condition,
    effects: Effects,
    /// Ends the action.
    reject: Option<Rejection>,
    pool: Option<String>,
    note: Option<String>,
    /// Later rules are not asked about actions that this one is about.
    last: bool,
}

impl Part for PropertyRules {
    fn read(config: &mut Config) -> Self {
        config::read(config)
    }

    fn commands(&self) -> Option<CommandWhen> {
        self.rules.iter().find_map(|rule| rule.when.commands())
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        for rule in &self.rules {
            if !rule.when.holds(facts) {
                continue;
            }
            if let Some(rejection) = &rule.reject {
                return Err(rejection.clone());
            }
            if let Some(platform) = facts.platform(|platform| rule.effects.on(platform)) {
                facts.set_platform(&platform);
            }
            if let Some(pool) = &rule.pool {
                route::set_pool(Some(pool));
            }
            if let Some(note) = &rule.note {
                route::note(note);
            }
            if rule.last {
                break;
            }
        }
        Ok(())
    }
}
