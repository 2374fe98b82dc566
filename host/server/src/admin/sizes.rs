//! `pointsman.v1.Sizes`: what is learned of actions, and what follows.

use std::collections::BTreeMap;
use std::sync::Arc;

use pointsman_learning::{ClassCores, ClassCount, Record, Suggestion};
use pointsman_proto::v1::list_sizes_response::{Class, Key, OnClass, Share};
use pointsman_proto::v1::sizes_server::Sizes;
use pointsman_proto::v1::{ListSizesRequest, ListSizesResponse};
use tonic::{Request, Response, Status};

use super::messages::{count, ms};
use crate::learning::Learning;

/// The service.
#[derive(Clone, Debug)]
pub struct SizesService {
    learning: Arc<Learning>,
}

/// Keys in one answer, if the caller doesn't say.
const LIMIT_DEFAULT: usize = 1000;
/// Keys in one answer at most.
const LIMIT_MAX: usize = 10_000;

impl SizesService {
    /// The service over what is learned.
    pub fn new(learning: Arc<Learning>) -> Self {
        Self { learning }
    }
}

#[tonic::async_trait]
impl Sizes for SizesService {
    async fn list_sizes(
        &self,
        request: Request<ListSizesRequest>,
    ) -> Result<Response<ListSizesResponse>, Status> {
        let ListSizesRequest { key, limit } = request.into_inner();
        let limit = match limit as usize {
            0 => LIMIT_DEFAULT,
            n => n.min(LIMIT_MAX),
        };
        let learning = self.learning.clone();
        // Many keys are some milliseconds of work.
        let answer = tokio::task::spawn_blocking(move || answer(&learning, &key, limit)).await;
        answer
            .unwrap_or_else(|_| Err(Status::internal("the list could not be made; see the log")))
            .map(Response::new)
    }
}

fn answer(learning: &Learning, key: &str, limit: usize) -> Result<ListSizesResponse, Status> {
    let classes = learning.classes();
    let mut all = match key {
        "" => learning.all(),
        key => {
            let record = learning.get(key).ok_or_else(|| {
                Status::not_found(format!(
                    "nothing is known under the learning key '{key}': no action with it has ended here, or its record was \
                     dropped for others; `pointsman sizes list` names those that are known"
                ))
            })?;
            vec![(key.into(), record)]
        }
    };
    all.sort_by(|(a_key, a), (b_key, b)| (b.wall_total(), a_key).cmp(&(a.wall_total(), b_key)));
    let mut shares: BTreeMap<Option<u32>, Share> = BTreeMap::new();
    let mut keys = Vec::with_capacity(all.len().min(limit));
    for (key, record) in &all {
        let suggestion = learning.suggest(record, &classes);
        let size_class = suggestion.map(|s| there(s.at_least, &classes));
        let share = shares.entry(size_class).or_insert_with(|| Share { size_class, ..Share::default() });
        share.keys += 1;
        share.runs += u64::from(record.attempts().0);
        share.wall_total_ms += ms(record.wall_total());
        if keys.len() < limit {
            keys.push(message(key, record, size_class, suggestion));
        }
    }
    let class = |c: &ClassCores| Class { size_class: c.size_class, cores: c.cores.unwrap_or_default() };
    Ok(ListSizesResponse {
        keys,
        known: count(learning.keys().0),
        classes: classes.iter().map(class).collect(),
        shares: shares.into_values().collect(),
    })
}

/// The class that a lower bound comes to.
fn there(at_least: u32, classes: &[ClassCores]) -> u32 {
    let fitting = classes.iter().find(|c| c.size_class >= at_least).or(classes.last());
    fitting.map_or(at_least, |c| c.size_class)
}

fn message(key: &str, record: &Record, suggested: Option<u32>, suggestion: Option<Suggestion>) -> Key {
    let (runs, _) = record.attempts();
    let (failed, killed, timed_out) = record.failures();
    let (first_unix_s, last_unix_s) = record.seen();
    let wall = |q| record.wall(q).map(ms).unwrap_or_default();
    let on_class = |c: ClassCount| OnClass {
        size_class: c.size_class,
        runs: c.runs,
        killed: c.killed.into(),
        timed_out: c.timed_out.into(),
        last_unix_s: c.last,
    };
    Key {
        key: key.to_owned(),
        runs,
        failed,
        killed,
        timed_out,
        wall_total_ms: ms(record.wall_total()),
        p50_wall_ms: wall(0.5),
        p95_wall_ms: wall(0.95),
        mean_cores: record.mean_cores().unwrap_or_default(),
        p95_cores: record.cores(0.95).unwrap_or_default(),
        p95_memory_mib: record.memory_mib(0.95).unwrap_or_default(),
        max_memory_mib: record.peak_memory_mib(),
        first_unix_s,
        last_unix_s,
        classes: record.classes().into_iter().map(on_class).collect(),
        suggested,
        why: suggestion.map(|s| s.why.to_string()).unwrap_or_default(),
    }
}
