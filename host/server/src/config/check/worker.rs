//! `worker`: what the bundled worker offers.

use std::collections::BTreeMap;
use std::path::Path;

use pointsman_worker::{PlatformQuery, Strategy};

use super::super::checked::{BundledWorker, PlatformValues, PropertyType};
use super::super::error::At;
use super::super::nearest;
use super::super::path::{KeyPath, Segment};
use super::super::raw::{RawPlatformValues, RawWorker};
use super::{Checker, GIB, SECOND};

impl Checker {
    pub(super) fn worker(
        &mut self,
        raw: RawWorker,
        state_dir: &Path,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> BundledWorker {
        let platform = self.platform(&KeyPath::of("worker.platform"), raw.platform, schema);
        let processors = std::thread::available_parallelism().map_or(1, |count| count.get());
        BundledWorker {
            enabled: raw.enabled.unwrap_or(false),
            concurrency: self.positive(
                "worker.concurrency",
                raw.concurrency,
                u32::try_from(processors).unwrap_or(u32::MAX),
            ),
            platform,
            strategies: self.strategies(raw.strategies),
            query_timeout: self.timer("worker.query_timeout", raw.query_timeout, 10 * SECOND),
            dir: raw.dir.unwrap_or_else(|| state_dir.join("worker")),
            cache_size_bytes: self.size("worker.cache_size", raw.cache_size, 10 * GIB),
            storage_patience: self.timer("worker.storage_patience", raw.storage_patience, 30 * SECOND),
        }
    }

    fn strategies(&mut self, raw: Option<Vec<String>>) -> Option<Vec<Strategy>> {
        let at = KeyPath::of("worker.strategies");
        let mut strategies = Vec::new();
        for (index, name) in raw?.iter().enumerate() {
            let mut at = at.clone();
            at.0.push(Segment::Index(index));
            match Strategy::parse(name) {
                Ok(strategy) if strategies.contains(&strategy) => {
                    self.complain(at, At::Value, format!("{name:?} is there twice"));
                }
                Ok(strategy) => strategies.push(strategy),
                Err(text) => self.complain(at, At::Value, text),
            }
        }
        if strategies.is_empty() {
            let text = "names none, so that nothing could be run; give [\"local\"], or leave it out";
            self.complain(at, At::Value, text);
        }
        Some(strategies)
    }

    /// What workers offer; `at` says where that is.
    pub(super) fn platform(
        &mut self,
        at: &KeyPath,
        raw: BTreeMap<String, RawPlatformValues>,
        schema: Option<&BTreeMap<String, PropertyType>>,
    ) -> BTreeMap<String, PlatformValues> {
        let mut platform = BTreeMap::new();
        for (key, values) in raw {
            let at = at.key(&key);
            let kind = schema.and_then(|schema| schema.get(&key));
            if let Some(schema) = schema.filter(|_| kind.is_none()) {
                let guess = nearest(&key, schema.keys().map(String::as_str));
                let guess = guess.map_or_else(String::new, |guess| format!(" (did you mean {guess:?}?)"));
                let text = format!(
                    "such a worker would be refused: {key:?} is not in supported_platform_properties{guess}; add it there, \
                     or leave it out here"
                );
                self.complain(at.clone(), At::Key, text);
            }
            match platform_values(&key, values, kind) {
                Ok(values) => _ = platform.insert(key, values),
                Err(text) => self.complain(at, At::Value, text),
            }
        }
        platform
    }
}

fn platform_values(
    key: &str,
    raw: RawPlatformValues,
    kind: Option<&PropertyType>,
) -> Result<PlatformValues, String> {
    match (raw.values, raw.query_cmd) {
        (Some(values), None) => {
            // As the scheduler reads it, to which `+8` is no number.
            let number = |value: &String| value.parse::<u64>().is_ok() && !value.starts_with('+');
            if kind == Some(&PropertyType::Minimum) && !values.iter().all(number) {
                return Err(format!("{key:?} is of type minimum, so its value must be a whole number"));
            }
            Ok(PlatformValues::Listed(values))
        }
        (None, Some(command)) => {
            let query = PlatformQuery::new(key, &command).map_err(|error| error.to_string())?;
            Ok(PlatformValues::Queried(query))
        }
        (Some(_), Some(_)) => Err("has both values and query_cmd; keep one of the two".to_owned()),
        (None, None) => Err("says nothing; give values: [\"…\"] or query_cmd: \"…\"".to_owned()),
    }
}
