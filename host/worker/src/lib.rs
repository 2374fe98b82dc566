//! The bundled worker: takes actions from a scheduler by Buildbarn's `OperationQueue.Synchronize`, runs
//! them on this machine, and brings inputs and outputs from and to an REv2 content store.
//!
//! Main path: [`run`] starts one `session` for each thread; a session asks for work and hands what it gets
//! to `action`, which goes through `inputs` (`directories`, `cache`, `place`), `command` (`sandbox`, `sweep`, `usage`) and
//! `outputs` (`tree`), with `cas` as the only way to the storage.
//!
//! What it holds to:
//! - An action can't change a cached input: files are reflinked or copied, never hard-linked.
//! - Nothing of an action runs on after its end, as far as its processes can be told (see `sweep`).
//! - A result is reported until the scheduler has answered; the action cache is written before.
//! - Every failure of this machine is reported with a code that lets the scheduler try elsewhere
//!   (`RESOURCE_EXHAUSTED`, `UNAVAILABLE`, `INTERNAL`); `INVALID_ARGUMENT` and `FAILED_PRECONDITION` are the
//!   action's own.

mod action;
mod cache;
mod cas;
mod command;
mod config;
mod directories;
mod environment;
mod error;
mod inputs;
mod outputs;
mod pace;
mod paths;
mod place;
mod query;
mod removal;
mod sandbox;
mod session;
mod strategy;
mod sweep;
mod tree;
mod usage;
mod workdir;

pub use config::{CONCURRENCY_MAX, WorkerConfig, host_platform};
pub use environment::SIZE_CLASS_VARIABLE;
pub use error::WorkerError;
pub use query::{PlatformQuery, QueryError};
pub use strategy::{STRATEGIES_HEADER, Strategy};

use action::Executor;
use cache::FileCache;
use directories::Directories;
use inputs::Inputs;
use place::Placer;
use pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient;
use sandbox::Sandbox;
use session::{Identity, Session};
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::metadata::MetadataValue;
use workdir::WorkDir;

/// Serves the scheduler until `shutdown` is cancelled, and then until running actions have ended and the
/// scheduler has their results (drain). A scheduler or storage that is away, now or later, is no error: it
/// is tried again.
///
/// Dropping the future instead kills what runs.
///
/// # Errors
/// [`WorkerError`] when the settings or the work directory are of no use, or a [`PlatformQuery`] fails; nothing was
/// started then.
pub async fn run(mut config: WorkerConfig, shutdown: CancellationToken) -> Result<(), WorkerError> {
    config.check()?;
    for query in std::mem::take(&mut config.platform_queries) {
        let values = query.run(config.query_timeout).await?;
        tracing::info!(key = query.key(), ?values, "a command told the values of a platform property");
        config.platform.extend(values.into_iter().map(|value| (query.key().to_owned(), value)));
    }
    let scheduler = config::endpoint("scheduler", &config.scheduler)?.connect_lazy();
    let storage = match &config.storage {
        None => scheduler.clone(),
        Some(address) => config::endpoint("storage", address)?.connect_lazy(),
    };
    let path = config.work_dir.clone();
    let failing = |step, source| WorkerError::WorkDir { step, path: path.clone(), source };
    let (work_dir, cache_max) = (config.work_dir.clone(), config.cache_max_bytes);
    let wanted = config.strategies.clone();
    let opening = tokio::task::spawn_blocking(move || {
        let work_dir = WorkDir::open(&work_dir)?;
        let files = FileCache::open(work_dir.cache(), cache_max);
        let (strategies, sandbox) = strategies(wanted, &work_dir)?;
        Ok::<_, WorkerError>((work_dir, files, strategies, sandbox))
    });
    let (work_dir, files, strategies, sandbox) = opening.await.map_err(|e| failing("opening", std::io::Error::other(e)))??;
    let files = files.map_err(|e| failing("opening the file cache in", e))?;
    let executor = Arc::new(Executor {
        cas: cas::Cas::new(storage, &config),
        inputs: Inputs {
            files,
            directories: Directories::new(config.directory_cache_max_bytes),
            placer: Arc::new(Placer::new()),
        },
        instance_name_prefix: config.instance_name_prefix.clone(),
        size_class: config.size_class,
        strategies: strategies.clone(),
        sandbox,
    });
    tracing::info!(
        scheduler = config.scheduler,
        name = config.name,
        concurrency = config.concurrency,
        strategies = strategy::list(&strategies),
        work_dir = %path.display(),
        "worker started"
    );
    let client = OperationQueueClient::new(scheduler).max_decoding_message_size(config.message_max_bytes);
    let mut sessions = JoinSet::new();
    for thread in 0..config.concurrency {
        let session = Session::new(
            client.clone(),
            Arc::clone(&executor),
            identity(&config, &strategies, thread),
            work_dir.build_dir(thread),
            shutdown.clone(),
        );
        sessions.spawn(session.run());
    }
    while let Some(ended) = sessions.join_next().await {
        if let Err(error) = ended {
            tracing::error!(%error, "a worker thread failed and is gone");
        }
    }
    tracing::info!(name = config.name, "worker stopped");
    Ok(())
}

/// The strategies that this machine can do, and what does `sandboxed`. Blocks.
fn strategies(
    wanted: Option<Vec<Strategy>>,
    work_dir: &WorkDir,
) -> Result<(Vec<Strategy>, Option<Sandbox>), WorkerError> {
    let sandbox = || Sandbox::find(work_dir.path(), &work_dir.build_dir(0));
    match wanted {
        Some(wanted) if wanted.contains(&Strategy::Sandboxed) => Ok((wanted, Some(sandbox()?))),
        Some(wanted) => Ok((wanted, None)),
        None => Ok(match sandbox() {
            Ok(sandbox) => (Strategy::ALL.to_vec(), Some(sandbox)),
            Err(error) => {
                tracing::info!("{error}");
                (vec![Strategy::Local], None)
            }
        }),
    }
}

fn identity(config: &WorkerConfig, strategies: &[Strategy], thread: usize) -> Identity {
    let id = config.worker_id(thread);
    Identity {
        worker_json: serde_json::to_string(&id).unwrap_or_default(),
        worker_id: id.into_iter().collect(),
        instance_name_prefix: config.instance_name_prefix.clone(),
        platform: config.sorted_platform(),
        size_class: config.size_class,
        strategies: MetadataValue::try_from(strategy::list(strategies)).ok(),
    }
}
