//! Exclusive execution: an action is alone on its host, or one of at most so many of a group. And on the other side: which
//! hosts let that happen, and how often.

mod config;

use pointsman_policy_sdk::{
    Code, CommandWhen, Config, Exclusivity, Group, Rejection, Scope, hint, route, terms, worker,
};

use crate::condition::Condition;
use crate::{Facts, Part};

/// JSON Schema of its configuration.
pub const SCHEMA: &str = include_str!("../../exclusive/config.schema.json");

/// The part, configured.
#[derive(Clone, Debug)]
pub struct Exclusive {
    /// Property that asks for a host alone; `None`: none does.
    property: Option<String>,
    /// Property that names a group; `None`: none does.
    group_property: Option<String>,
    at_most_property: Option<String>,
    scope_property: Option<String>,
    groups: Vec<(String, Limit)>,
    /// What a group has that is not among `groups`; `None`: it is refused.
    other_groups: Option<Limit>,
    /// Only these actions can be exclusive.
    only: Condition,
    keep_properties: bool,
    workers: Workers,
}

/// How many actions of a group may run at once, and where they are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    at_most: u32,
    scope: Scope,
}

/// Which workers' hosts exclusive actions may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Workers {
    /// Property by which a worker says whether it lets them.
    property: Option<String>,
    /// Property with the number of its cores; `None` unless there is a minimum.
    cores_property: Option<String>,
    minimum_cores: u32,
    not_more_often_than_ms: Option<u32>,
    below_in_last_minute: Option<u32>,
}

impl Part for Exclusive {
    fn read(config: &mut Config) -> Self {
        config::read(config)
    }

    fn commands(&self) -> Option<CommandWhen> {
        self.only.commands()
    }

    fn route(&self, facts: &Facts) -> Result<(), Rejection> {
        let names = [&self.property, &self.group_property, &self.at_most_property, &self.scope_property];
        let values = names.map(|name| facts.property(name.as_deref()?));
        // Before its properties go, as it may look at them.
        let is_meant = self.only.holds(facts);
        if !self.keep_properties {
            let there = names.into_iter().zip(&values).filter(|(_, value)| value.is_some());
            there.filter_map(|(name, _)| name.as_deref()).for_each(|name| facts.remove_property(name));
        }
        let wish = Wish::of(values);
        if !wish.is_any() {
            return Ok(());
        }
        if !is_meant {
            // Whatever it says: it is not for this policy to refuse.
            route::note("not exclusive, as `only` does not mean this action");
            return Ok(());
        }
        if let Some(exclusivity) = self.granted(wish)? {
            route::set_exclusive(&exclusivity);
        }
        Ok(())
    }
}

/// What an action asks for, as its properties say it.
struct Wish {
    alone: Option<String>,
    group: Option<String>,
    at_most: Option<String>,
    scope: Option<String>,
}

impl Wish {
    fn of([alone, group, at_most, scope]: [Option<String>; 4]) -> Self {
        Self { alone, group: group.filter(|name| !name.is_empty()), at_most, scope }
    }

    /// Whether it asks for anything, be it a slip.
    fn is_any(&self) -> bool {
        self.group.is_some() || self.alone.as_deref().is_some_and(|value| !matches!(value, "false" | ""))
    }
}

impl Exclusive {
    /// What an action gets that asks so; `None`: nothing.
    fn granted(&self, wish: Wish) -> Result<Option<Exclusivity>, Rejection> {
        let alone = match (&self.property, &wish.alone) {
            (Some(name), Some(value)) => truth(name, value)?,
            _ => false,
        };
        let Some(name) = &wish.group else { return Ok(alone.then_some(Exclusivity::Host)) };
        if alone {
            let text = format!("the action asks to be alone on its host and to be of the group {name:?}");
            return Err(Rejection::new(Code::InvalidArgument, text).help("set one of the two properties"));
        }
        let Limit { at_most, scope } = self.limit(name, &wish)?;
        Ok(Some(Exclusivity::Group(Group { name: name.clone(), scope, at_most })))
    }

    /// The limit of a group: from the configuration, else from the action's own properties, else what all others have.
    fn limit(&self, name: &str, wish: &Wish) -> Result<Limit, Rejection> {
        if let Some((_, limit)) = self.groups.iter().find(|(known, _)| known == name) {
            return Ok(*limit);
        }
        let scope = match &wish.scope {
            None => self.other_groups.map_or(Scope::Host, |limit| limit.scope),
            Some(word) => scope(word).ok_or_else(|| {
                let text = format!("the scope of the group {name:?} is {word:?}");
                Rejection::new(Code::InvalidArgument, text).help("known are host, pool and cluster")
            })?,
        };
        let at_most = match &wish.at_most {
            None => self.other_groups.map(|limit| limit.at_most),
            Some(number) => Some(number.parse().ok().filter(|number| *number > 0).ok_or_else(|| {
                let text = format!("the group {name:?} is to be of at most {number:?} actions");
                Rejection::new(Code::InvalidArgument, text).help("give a whole number from 1 on")
            })?),
        };
        at_most.map(|at_most| Limit { at_most, scope }).ok_or_else(|| {
            let known: Vec<&str> = self.groups.iter().map(|(name, _)| &**name).collect();
            let known = if known.is_empty() {
                "; there are no groups".to_owned()
            } else {
                hint(name, &known, "; known are ")
            };
            let text = format!("there is no group {name:?} of exclusive actions{known}");
            Rejection::new(Code::InvalidArgument, text).help(
                "name a group that is configured, or have the operator of the scheduler add it to `groups`",
            )
        })
    }

    /// Does it say anything about workers? Then it has to be asked about them.
    pub fn is_about_workers(&self) -> bool {
        self.workers != Workers::default()
    }

    /// Sets the terms of a worker that joins. To be called in `admit`.
    pub fn admit(&self) {
        let Workers { property, cores_property, minimum_cores, not_more_often_than_ms, below_in_last_minute } =
            &self.workers;
        if let Some(name) = property
            && let Some(value) = worker::platform_value(name)
        {
            terms::remove_property(name);
            if !matches!(&*value, "true" | "allowed") {
                terms::set_exclusive(None);
                return terms::note(&format!("no exclusive actions, as its {name} is {value:?}"));
            }
        }
        if let Some(name) = cores_property {
            let found = worker::platform_value(name);
            let cores = found.as_deref().and_then(|text| text.parse::<u32>().ok());
            if cores.is_none_or(|cores| cores < *minimum_cores) {
                terms::set_exclusive(None);
                let found = found.map_or("not given".to_owned(), |found| format!("{found:?}"));
                let text =
                    format!("no exclusive actions, as its {name} is {found}, wanted are {minimum_cores}");
                return terms::note(&text);
            }
        }
        if let Some(ms) = not_more_often_than_ms {
            terms::set_exclusive(Some(*ms));
        }
        if let Some(actions) = below_in_last_minute {
            terms::set_exclusive_below(*actions);
        }
    }
}

/// Neither true nor false is refused: an action that was meant to be alone must not run among others for a slip.
fn truth(name: &str, value: &str) -> Result<bool, Rejection> {
    match value {
        "true" => Ok(true),
        "false" | "" => Ok(false),
        other => {
            let text = format!("the property {name} is {other:?}, which is neither true nor false");
            Err(Rejection::new(Code::InvalidArgument, text)
                .help(format!("ask for {name}=true, or leave it out")))
        }
    }
}

const SCOPES: [(&str, Scope); 3] =
    [("host", Scope::Host), ("pool", Scope::Pool), ("cluster", Scope::Cluster)];

fn scope(word: &str) -> Option<Scope> {
    SCOPES.iter().find(|(known, _)| *known == word).map(|(_, scope)| *scope)
}
