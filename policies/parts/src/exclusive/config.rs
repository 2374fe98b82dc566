//! What an operator can set.

use pointsman_policy_sdk::{Config, Scope};

use super::{Exclusive, Limit, SCOPES, Workers};
use crate::condition::Condition;

pub(super) fn read(config: &mut Config) -> Exclusive {
    let property = name(config, "property", "exclusive");
    let group_property = name(config, "group_property", "exclusive-group");
    let at_most_property = config.name("at_most_property");
    let scope_property = config.name("scope_property");
    let groups = config.object_map("groups").unwrap_or_default().into_iter().map(|(name, mut group)| {
        config.not_empty(&name, group.path());
        let limit = limit(&mut group);
        config.close(group);
        (name, limit)
    });
    let groups = groups.collect();
    let other_groups = config.object("other_groups").map(|mut group| {
        let limit = limit(&mut group);
        config.close(group);
        limit
    });
    let only = Condition::under(config, "only").unwrap_or_default();
    let keep_properties = config.bool("keep_properties", false);
    let workers = config.object("workers").map(|mut inner| {
        let workers = workers(&mut inner);
        config.close(inner);
        workers
    });
    let read = Exclusive {
        property,
        group_property,
        at_most_property,
        scope_property,
        groups,
        other_groups,
        only,
        keep_properties,
        workers: workers.unwrap_or_default(),
    };
    if read.group_property.is_none() {
        for (key, given) in [
            ("groups", !read.groups.is_empty()),
            ("other_groups", read.other_groups.is_some()),
            ("at_most_property", read.at_most_property.is_some()),
            ("scope_property", read.scope_property.is_some()),
        ] {
            if given {
                config.error(
                    config.path_of(key),
                    "has no effect, as `group_property` is empty; set that, or leave this out",
                );
            }
        }
    }
    read
}

/// Name of a property; the empty one switches it off.
fn name(config: &mut Config, key: &'static str, default: &str) -> Option<String> {
    let name = config.string(key).unwrap_or_else(|| default.to_owned());
    (!name.is_empty()).then_some(name)
}

fn limit(config: &mut Config) -> Limit {
    if !config.has("at_most") {
        config.error(config.path().to_owned(), "needs `at_most`: how many of its actions may run at once");
    }
    let at_most = config.integer("at_most", 1..=u32::MAX.into()).and_then(|number| number.try_into().ok());
    Limit { at_most: at_most.unwrap_or(1), scope: config.word("scope", &SCOPES).unwrap_or(Scope::Host) }
}

fn workers(config: &mut Config) -> Workers {
    let number = |config: &mut Config, key| {
        config.integer(key, 0..=u32::MAX.into()).and_then(|number| u32::try_from(number).ok())
    };
    let minimum_cores = number(config, "minimum_cores");
    let cores_property = name(config, "cores_property", "cpu_count");
    if minimum_cores.is_some_and(|cores| cores > 0) && cores_property.is_none() {
        let text =
            "can't be told without `cores_property`, the property in which a worker says how many it has";
        config.error(config.path_of("minimum_cores"), text);
    }
    Workers {
        property: config.name("property"),
        cores_property: cores_property.filter(|_| minimum_cores > Some(0)),
        minimum_cores: minimum_cores.unwrap_or(0),
        not_more_often_than_ms: config.duration_ms("not_more_often_than"),
        below_in_last_minute: number(config, "at_most_in_last_minute"),
    }
}
