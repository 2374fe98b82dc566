//! `pools`: kinds of workers that may be absent.

use std::collections::{BTreeMap, BTreeSet};

use super::super::checked::{PlatformValues, Pool, PropertyType};
use super::super::error::At;
use super::super::path::{KeyPath, Segment};
use super::super::raw::RawPool;
use super::Checker;

impl Checker {
    pub(super) fn pools(
        &mut self,
        raw: Vec<RawPool>,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> Vec<Pool> {
        let mut names = BTreeSet::new();
        let pools = raw.into_iter().enumerate();
        pools.map(|(index, pool)| self.pool(index, pool, &mut names, schema)).collect()
    }

    fn pool(
        &mut self,
        index: usize,
        raw: RawPool,
        names: &mut BTreeSet<String>,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> Pool {
        let at = KeyPath(vec![Segment::Key("pools".to_owned()), Segment::Index(index)]);
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
        Pool {
            name,
            platform,
            instance_name_prefix: raw.instance_name_prefix,
            size_class: raw.size_class,
            max_inflight_tasks: raw.max_inflight_tasks.unwrap_or(0),
        }
    }
}
