//! Who calls, and what it offers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use pointsman_policy::Runtime;
use pointsman_proto::remoteworker::SynchronizeRequest;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::event::{Terms, WorkerSpec};
use pointsman_scheduler::properties::{Offered, Schema};
use smallvec::SmallVec;
use tonic::Status;

use super::admission::{Admissions, Admitted};
use super::refused::RefusedWorkers;
use crate::config::HostKey;
use crate::rev2::instance_name;
use crate::routing::{check_sorted, properties};

/// What workers are, by identity: typing their properties with every call would be most of a call's cost.
pub(super) struct Workers {
    schema: Arc<Schema>,
    pools: Arc<[DeclaredPool]>,
    host_key: HostKey,
    admissions: Admissions,
    specs: Mutex<Specs>,
    refused: Arc<RefusedWorkers>,
}

/// Workers by [`key`].
#[derive(Default)]
struct Specs {
    by_key: hashbrown::HashMap<Vec<u8>, Known>,
    /// Roughly what they take.
    bytes: usize,
}

/// Who calls.
pub(super) struct Who {
    pub(super) name: Arc<str>,
    /// What it is, or with what a policy turns it away.
    pub(super) spec: Result<Arc<WorkerSpec>, Status>,
}

/// What is known of a worker.
#[derive(Clone)]
struct Known {
    name: Arc<str>,
    /// What it says it is.
    offered: Arc<WorkerSpec>,
    /// Its properties can't be typed as they are, which a policy may mend.
    bad: Option<Status>,
    /// What policies make of it, if any was asked.
    admitted: Option<Arc<Answer>>,
}

/// What policies make of a worker.
struct Answer {
    spec: Result<Arc<WorkerSpec>, Status>,
    /// Of the policies.
    generation: u64,
    /// When they are asked again, should they be the same then: one has failed.
    again_at: Option<Instant>,
}

/// After so long a policy that failed is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(60);

/// Bytes of identities that are kept, as [`Specs`] counts them; then all are read anew.
const SPECS_MAX_BYTES: usize = 256 << 20;
/// How often the texts of an identity are in one entry of [`Specs`], roughly.
const COPIES: usize = 4;

/// Bytes of one identity. It is kept in several places for each worker there is or was lately.
const IDENTITY_MAX_BYTES: usize = 64 << 10;

/// The pool of workers that no declared pool has.
pub(super) const DEFAULT_POOL: &str = "default";

impl Workers {
    pub(super) fn new(
        schema: Arc<Schema>,
        pools: Arc<[DeclaredPool]>,
        policies: Arc<Runtime>,
        refused: Arc<RefusedWorkers>,
        host_key: HostKey,
    ) -> Self {
        let admissions = Admissions::new(policies, schema.clone(), pools.clone());
        Self { schema, pools, host_key, admissions, specs: Mutex::default(), refused }
    }

    /// Identity and description of the caller, as policies admit it. The same `worker_id` with another prefix, platform or
    /// size class is another worker, as in Buildbarn; what policies make of it does not make it another.
    ///
    /// # Errors
    /// It describes itself wrongly. Then it is listed among those that are refused.
    pub(super) fn who(&self, request: &SynchronizeRequest) -> Result<Who, Status> {
        let key = key(request);
        let known = self.specs().by_key.get(&key).cloned();
        let known = match known {
            Some(known) => known,
            None => self.read(key.clone(), request)?,
        };
        let Some(generation) = self.admissions.generation(&known.offered.instance_name_prefix) else {
            let spec = known.bad.map_or(Ok(known.offered), Err);
            return Ok(Who { name: known.name, spec });
        };
        let is_valid = |answer: &Arc<Answer>| {
            answer.generation == generation && answer.again_at.is_none_or(|at| Instant::now() < at)
        };
        let answer = match known.admitted.filter(is_valid) {
            Some(answer) => answer,
            None => self.ask(key, &known.offered, known.bad.as_ref(), generation),
        };
        Ok(Who { name: known.name, spec: answer.spec.clone() })
    }

    /// Lists a worker that policies turn away.
    pub(super) fn turned_away(&self, request: &SynchronizeRequest, status: &Status) {
        self.refused.note(&id(request), status.message());
    }

    /// Reads what a worker says that it is.
    fn read(&self, key: Vec<u8>, request: &SynchronizeRequest) -> Result<Known, Status> {
        let id = id(request);
        let name = name(request, &id);
        if name.len() > IDENTITY_MAX_BYTES {
            return Err(Status::invalid_argument(format!(
                "worker_id, instance_name_prefix and platform have {} bytes together, at most {IDENTITY_MAX_BYTES} \
                 are allowed",
                name.len()
            )));
        }
        let (spec, bad) = self.describe(request, &id).inspect_err(|e| self.refused.note(&id, e.message()))?;
        if bad.is_none() {
            self.refused.forget(&id);
        }
        let known = Known { name: name.into(), offered: Arc::new(spec), bad, admitted: None };
        let mut specs = self.specs();
        specs.bytes += COPIES * key.len();
        if specs.bytes > SPECS_MAX_BYTES {
            *specs = Specs { bytes: COPIES * key.len(), ..Specs::default() };
        }
        specs.by_key.insert(key, known.clone());
        Ok(known)
    }

    /// Asks the policies about a worker, and keeps their answer until there are others.
    fn ask(
        &self,
        key: Vec<u8>,
        offered: &Arc<WorkerSpec>,
        bad: Option<&Status>,
        generation: u64,
    ) -> Arc<Answer> {
        let id: BTreeMap<&str, &str> = offered.id.iter().map(|(k, v)| (&**k, &**v)).collect();
        let Admitted { spec, in_doubt } = self.admissions.admit(offered, bad);
        let again_at = in_doubt.then(|| Instant::now() + ASK_AGAIN);
        let answer = Arc::new(Answer { spec, generation, again_at });
        if answer.spec.is_ok() {
            self.refused.forget(&id);
        }
        if let Some(known) = self.specs().by_key.get_mut(&key) {
            known.admitted = Some(answer.clone());
        }
        answer
    }

    fn specs(&self) -> std::sync::MutexGuard<'_, Specs> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Second, what is wrong with its properties, if policies are to be asked about it: they may take some off, or add some.
    fn describe(
        &self,
        request: &SynchronizeRequest,
        id: &BTreeMap<&str, &str>,
    ) -> Result<(WorkerSpec, Option<Status>), Status> {
        if id.is_empty() {
            return Err(Status::invalid_argument("worker_id is empty: workers can't be told apart"));
        }
        instance_name::validate(&request.instance_name_prefix)
            .map_err(|e| Status::invalid_argument(format!("instance_name_prefix: {}", e.message())))?;
        let platform = request.platform.clone().unwrap_or_default();
        check_sorted(&platform).map_err(|text| Status::invalid_argument(format!("platform: {text}")))?;
        let properties = properties(&platform);
        let typed = self.schema.worker(&properties).map_err(|error| {
            Status::invalid_argument(format!(
                "Bad Property: {error}; correct the worker's platform, or declare the key in the scheduler's \
                 supported_platform_properties"
            ))
        });
        let (offered, bad) = match typed {
            Ok(offered) => (offered, None),
            Err(bad) if self.admissions.generation(&request.instance_name_prefix).is_some() => {
                (Offered::default(), Some(bad))
            }
            Err(bad) => return Err(bad),
        };
        let host: BTreeMap<&str, &str> = match &self.host_key {
            HostKey::AllButThread => {
                id.iter().filter(|(k, _)| **k != "thread").map(|(k, v)| (*k, *v)).collect()
            }
            HostKey::Only(keys) => {
                keys.iter().filter_map(|k| id.get_key_value(k.as_str())).map(|(k, v)| (*k, *v)).collect()
            }
        };
        let (prefix, size) = (&request.instance_name_prefix, request.size_class);
        let pool = self.pools.iter().find(|pool| pool.has(prefix, size, &offered));
        // A worker whose id has none of the configured keys is a host of its own.
        let host = if host.is_empty() { id.clone() } else { host };
        let spec = WorkerSpec {
            id: id.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
            host: json(&host).into(),
            instance_name_prefix: request.instance_name_prefix.as_str().into(),
            properties,
            offered,
            size_class: request.size_class,
            pool: pool.map_or_else(|| DEFAULT_POOL.into(), |pool| pool.name.clone()),
            max_inflight_tasks: pool.map_or(0, |pool| pool.max_inflight_tasks),
            terms: Terms::default(),
        };
        Ok((spec, bad))
    }
}

/// All that makes a worker another one, one text after another with its length before it.
fn key(request: &SynchronizeRequest) -> Vec<u8> {
    // The map has no order of its own.
    let mut id: SmallVec<[_; 4]> = request.worker_id.iter().collect();
    id.sort_unstable();
    let id = id.into_iter().flat_map(|(k, v)| [k, v]);
    let platform = request.platform.iter().flat_map(|p| &p.properties).flat_map(|p| [&p.name, &p.value]);
    let mut key = Vec::with_capacity(256);
    for text in id.chain([&request.instance_name_prefix]).chain(platform) {
        key.extend_from_slice(&text.len().to_le_bytes());
        key.extend_from_slice(text.as_bytes());
    }
    key.extend_from_slice(&request.size_class.to_le_bytes());
    // Where the id ends and the platform begins.
    key.extend_from_slice(&request.worker_id.len().to_le_bytes());
    key
}

fn id(request: &SynchronizeRequest) -> BTreeMap<&str, &str> {
    request.worker_id.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect()
}

/// The same for people.
fn name(request: &SynchronizeRequest, id: &BTreeMap<&str, &str>) -> String {
    let mut name = json(id);
    name.push('\n');
    name.push_str(&request.instance_name_prefix);
    for property in request.platform.iter().flat_map(|p| &p.properties) {
        name.extend(["\n", &property.name, "\0", &property.value]);
    }
    name.push_str(&format!("\n{}", request.size_class));
    name
}

/// A worker's id as JSON, keys in order.
pub(crate) fn json(map: &BTreeMap<&str, &str>) -> String {
    // A map of strings always has a JSON form.
    serde_json::to_string(map).unwrap_or_default()
}
