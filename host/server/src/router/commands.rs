//! Commands, read from the CAS when a policy wants one, and kept as the facts that policies see.
//!
//! Whoever asks for what is being fetched waits for the same fetch. A fetch goes on when those who wait have given up, so that
//! whoever comes next finds it; how many bytes are on their way at once is bounded, and how large one Command may be is known
//! from its digest before anything is read.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use pointsman_policy::CommandFacts;
use pointsman_proto::rev2::Command;
use pointsman_proto::rpc;
use pointsman_storage::{BoundedCache, Digest, Storage, StorageError};
use prost::Message as _;
use tokio::sync::Semaphore;
use tonic::Status;

use super::counts::{Counts, Fetch};
use crate::rev2::status;
use crate::routing;

/// Why there is no Command. Some ask and are told the same, so it can be copied.
#[derive(Clone, Debug)]
pub(super) enum NoCommand {
    /// The CAS does not have it.
    Missing(Digest),
    /// It can't be used, whoever asks: too large, no Command, too many properties.
    Bad(String),
    /// The CAS failed, or was too slow. Another time it may do better.
    Storage(String),
}

impl fmt::Display for NoCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(digest) => write!(f, "the Command {digest} is not in the CAS"),
            Self::Bad(text) | Self::Storage(text) => f.write_str(text),
        }
    }
}

impl NoCommand {
    /// What the client is told. Buildbarn's scheduler hands code and details on, so a client that can upload what is missing
    /// does.
    pub(super) fn status(&self, text: String) -> Status {
        match self {
            Self::Missing(digest) => {
                let status = rpc::Status {
                    code: rpc::Code::FailedPrecondition.into(),
                    message: text.clone(),
                    details: vec![status::missing("Command", digest)],
                };
                let details = status.encode_to_vec().into();
                Status::with_details(tonic::Code::FailedPrecondition, text, details)
            }
            Self::Bad(_) => Status::invalid_argument(text),
            Self::Storage(_) => Status::unavailable(text),
        }
    }

    pub(super) fn kind(&self) -> Fetch {
        match self {
            Self::Missing(_) => Fetch::Missing,
            Self::Bad(_) => Fetch::Bad,
            Self::Storage(_) => Fetch::Failed,
        }
    }
}

/// What bounds it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of one Command (`limits.command_size`).
    pub(super) command_max_bytes: u64,
    /// Bytes of all that are kept (`storage.remote.small_blob_cache`).
    pub(super) kept_max_bytes: u64,
    /// Platform properties of one (`limits.properties_per_action`).
    pub(super) properties_max: usize,
}

type Facts = Result<Arc<CommandFacts>, NoCommand>;
type Key = (Arc<str>, Digest);
type Flight = Shared<BoxFuture<'static, Facts>>;

/// The Commands of a CAS.
pub(super) struct Commands {
    storage: Arc<dyn Storage>,
    limits: Limits,
    kept: BoundedCache<Key, Arc<CommandFacts>>,
    flights: Mutex<HashMap<Key, Flight>>,
    /// In [`PERMIT_BYTES`].
    room: Semaphore,
    counts: Arc<Counts>,
}

/// What a permit of [`Commands::room`] stands for.
const PERMIT_BYTES: u64 = 1 << 10;
/// So many bytes may be on their way at once, or one Command of the largest size.
const IN_FLIGHT_BYTES: u64 = 64 << 20;
/// What is kept of an entry beside its texts, roughly: key, links, lists.
const ENTRY_BYTES: usize = 300;
/// What a text takes beside its bytes: pointer, length, counters.
const TEXT_BYTES: usize = 32;

impl Commands {
    pub(super) fn new(storage: Arc<dyn Storage>, limits: Limits, counts: Arc<Counts>) -> Arc<Self> {
        let room = permits(IN_FLIGHT_BYTES.max(limits.command_max_bytes));
        Arc::new(Self {
            storage,
            limits,
            kept: BoundedCache::new(limits.kept_max_bytes),
            flights: Mutex::default(),
            room: Semaphore::new(room as usize),
            counts,
        })
    }

    /// A Command, if it is there at once.
    pub(super) fn kept(&self, instance_name: &Arc<str>, digest: &Digest) -> Option<Arc<CommandFacts>> {
        let found = self.kept.get(&(instance_name.clone(), *digest))?;
        self.counts.fetch(Fetch::Kept);
        Some(found)
    }

    /// A Command, from memory or the CAS. Whoever drops this leaves the fetch to others.
    pub(super) async fn get(self: &Arc<Self>, instance_name: &Arc<str>, digest: &Digest) -> Facts {
        if let Some(found) = self.kept(instance_name, digest) {
            return Ok(found);
        }
        if digest.size_bytes() > self.limits.command_max_bytes {
            self.counts.fetch(Fetch::Bad);
            return Err(NoCommand::Bad(format!(
                "the Command {digest} is larger than {} bytes, the most that is read (limits.command_size)",
                self.limits.command_max_bytes
            )));
        }
        self.flight((instance_name.clone(), *digest)).await
    }

    /// Number of Commands that are kept, and bytes that they take.
    pub(super) fn size(&self) -> (usize, u64) {
        self.kept.size()
    }

    fn flight(self: &Arc<Self>, key: Key) -> Flight {
        let mut flights = self.flights();
        if let Some(flight) = flights.get(&key) {
            self.counts.fetch(Fetch::Joined);
            return flight.clone();
        }
        let (commands, asked) = (self.clone(), key.clone());
        let flight = async move {
            let facts = commands.fetch(&asked).await;
            commands.counts.fetch(facts.as_ref().map_or_else(NoCommand::kind, |_| Fetch::Fetched));
            if let Ok(facts) = &facts {
                commands.kept.insert(asked.clone(), facts.clone(), weight(facts));
            }
            // After it was kept: who finds no flight finds that.
            commands.flights().remove(&asked);
            facts
        };
        let flight = flight.boxed().shared();
        flights.insert(key, flight.clone());
        drop(flights);
        tokio::spawn(flight.clone());
        flight
    }

    async fn fetch(&self, (instance_name, digest): &Key) -> Facts {
        let closed = || NoCommand::Storage("the router is stopping".to_owned());
        let room = self.room.acquire_many(permits(digest.size_bytes())).await;
        let _room = room.map_err(|_| closed())?;
        let storage = self.storage.clone().for_instance(instance_name);
        let bytes = storage.read_blob(digest, self.limits.command_max_bytes).await.map_err(no_command)?;
        let command = Command::decode(bytes)
            .map_err(|error| NoCommand::Bad(format!("the blob {digest} is not a valid Command: {error}")))?;
        #[allow(deprecated, reason = "clients still send Command.platform")]
        if let Some(platform) = &command.platform {
            routing::check_count("Command", platform, self.limits.properties_max)
                .map_err(|status| NoCommand::Bad(status.message().to_owned()))?;
        }
        Ok(Arc::new(routing::command_facts(&command)))
    }

    /// Nothing panics while it is held.
    fn flights(&self) -> MutexGuard<'_, HashMap<Key, Flight>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Commands {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Commands").field("limits", &self.limits).finish_non_exhaustive()
    }
}

fn permits(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(PERMIT_BYTES)).unwrap_or(u32::MAX).max(1)
}

fn no_command(error: StorageError) -> NoCommand {
    match error {
        StorageError::NotFound { digest } => NoCommand::Missing(digest),
        StorageError::TooLarge { .. } => NoCommand::Bad(error.to_string()),
        // Codes of other failures differ for those who upload; here all of them mean that it can't be read now.
        _ => NoCommand::Storage(status::from_storage(&error).message().to_owned()),
    }
}

fn weight(facts: &CommandFacts) -> u64 {
    let texts = facts.arguments.iter().chain(&facts.output_paths);
    let pairs = facts.environment.iter().flat_map(|(name, value)| [name, value]);
    let properties = facts.platform.iter().flat_map(|p| [&p.name, &p.value]);
    let texts = texts.chain(pairs).chain(properties);
    let bytes: usize = texts.map(|text| text.len() + TEXT_BYTES).sum();
    (bytes + ENTRY_BYTES) as u64
}
