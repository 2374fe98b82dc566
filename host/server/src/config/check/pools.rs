//! `pools`: kinds of workers that may be absent.

use std::collections::{BTreeMap, BTreeSet};

use super::super::checked::{PlatformValues, Pool, PropertyType};
use super::super::error::At;
use super::super::path::{KeyPath, Segment};
use super::super::raw::RawPool;
use super::Checker;
use crate::rev2::instance_name;

impl Checker {
    pub(super) fn pools(
        &mut self,
        raw: Vec<RawPool>,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> Vec<Pool> {
        let mut names = BTreeSet::new();
        let pools = raw.into_iter().enumerate();
        let pools: Vec<Pool> =
            pools.map(|(index, pool)| self.pool(index, pool, &mut names, schema)).collect();
        for (index, pool) in pools.iter().enumerate() {
            if let Some(before) = pools[..index].iter().find(|before| takes_all_of(before, pool, schema)) {
                let text = format!(
                    "no worker is ever of pool {:?}: pool {:?} before it has all that it could have; move the one that \
                     asks for more up",
                    pool.name, before.name
                );
                self.complain(at(index), At::Value, text);
            }
        }
        pools
    }

    fn pool(
        &mut self,
        index: usize,
        raw: RawPool,
        names: &mut BTreeSet<String>,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> Pool {
        let at = at(index);
        let name = raw.name.unwrap_or_default();
        if name.is_empty() {
            self.complain(at.clone(), At::Value, "has no name; give name: \"…\"");
        } else if !names.insert(name.clone()) {
            self.complain(at.key("name"), At::Value, format!("the pool {name:?} is declared twice"));
        }
        let platform_at = at.key("platform");
        let mut platform = BTreeMap::new();
        for (key, values) in self.platform(&platform_at, raw.platform, schema) {
            match values {
                PlatformValues::Listed(values) => {
                    let is_amount = schema.and_then(|s| s.get(&key)) == Some(&PropertyType::Minimum);
                    if is_amount && values.len() != 1 {
                        let text = "is of type minimum: give the one amount that each worker has at least";
                        self.complain(platform_at.key(&key), At::Value, text);
                    }
                    platform.insert(key, values);
                }
                PlatformValues::Queried(_) => {
                    let text = "query_cmd is for the bundled worker's own machine; give the values that the pool's workers have";
                    self.complain(platform_at.key(&key), At::Value, text);
                }
            }
        }
        if let Some(Err(status)) = raw.instance_name_prefix.as_deref().map(instance_name::validate) {
            self.complain(at.key("instance_name_prefix"), At::Value, status.message());
        }
        let mut strategies = BTreeSet::new();
        for (index, strategy) in raw.strategies.iter().enumerate() {
            let mut at = at.key("strategies");
            at.0.push(Segment::Index(index));
            if strategy.is_empty() {
                self.complain(at, At::Value, "a strategy has no name; give one, or leave the entry out");
            } else if !strategies.insert(strategy) {
                self.complain(at, At::Value, format!("the strategy {strategy:?} is there twice"));
            }
        }
        Pool {
            strategies: raw.strategies,
            name,
            platform,
            instance_name_prefix: raw.instance_name_prefix,
            size_class: raw.size_class,
            max_inflight_tasks: raw.max_inflight_tasks.unwrap_or(0),
        }
    }
}

fn at(index: usize) -> KeyPath {
    KeyPath(vec![Segment::Key("pools".to_owned()), Segment::Index(index)])
}

/// Whether each worker that has what `after` says has what `before` says.
fn takes_all_of(before: &Pool, after: &Pool, schema: Option<&BTreeMap<String, PropertyType>>) -> bool {
    let Some(schema) = schema else {
        return before.platform == after.platform && is_wider(before, after);
    };
    let has = |(key, values): (&String, &Vec<String>)| {
        let others = after.platform.get(key);
        match schema.get(key) {
            Some(PropertyType::Exact) => values.iter().all(|v| others.is_some_and(|o| o.contains(v))),
            Some(PropertyType::Priority) => others.is_some() || values.is_empty(),
            Some(PropertyType::Minimum) => amount(Some(values)) <= amount(others),
            Some(PropertyType::Ignore) | None => true,
        }
    };
    is_wider(before, after) && before.platform.iter().all(has)
}

fn is_wider(before: &Pool, after: &Pool) -> bool {
    (before.instance_name_prefix.is_none() || before.instance_name_prefix == after.instance_name_prefix)
        && (before.size_class.is_none() || before.size_class == after.size_class)
}

fn amount(values: Option<&Vec<String>>) -> u64 {
    values.and_then(|v| v.first()).and_then(|v| v.parse().ok()).unwrap_or(0)
}
