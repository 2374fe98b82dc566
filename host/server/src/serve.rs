//! `pointsman serve`: which part is given to which. Reads like a dependency graph.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pointsman_policy::{Manager, Options, Recorder, Runtime};
use pointsman_proto::buildqueuestate::build_queue_state_server::BuildQueueStateServer;
use pointsman_proto::bytestream::byte_stream_server::ByteStreamServer;
use pointsman_proto::longrunning::operations_server::OperationsServer;
use pointsman_proto::remoteworker::operation_queue_server::OperationQueueServer;
use pointsman_proto::rev2::action_cache_server::ActionCacheServer;
use pointsman_proto::rev2::capabilities_server::CapabilitiesServer;
use pointsman_proto::rev2::content_addressable_storage_server::ContentAddressableStorageServer;
use pointsman_proto::rev2::execution_server::ExecutionServer;
use pointsman_proto::v1::admin_server::AdminServer;
use pointsman_proto::v1::sizes_server::SizesServer;
use pointsman_scheduler::attempts::Budgets;
use pointsman_scheduler::declared::DeclaredPool;
use pointsman_scheduler::placement::Placement;
use pointsman_scheduler::properties::{PropertyError, PropertyType, Schema, UnknownProperty};
use pointsman_scheduler::route::Property;
use pointsman_storage::{EmbeddedConfig, EmbeddedStorage, Storage};
use pointsman_worker::WorkerConfig;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::util::MapResponseLayer;

use crate::admin::AdminService;
use crate::admin::sizes::SizesService;
use crate::arrivals::Arrivals;
use crate::aside::Aside;
use crate::base::{self, SidePort};
use crate::buildqueuestate::BuildQueueStateService;
use crate::config::{self, Config, Matching, PlatformValues};
use crate::decisions::Decisions;
use crate::driver::Driver;
use crate::gate::GateLayer;
use crate::learning::Learning;
use crate::match_log;
use crate::metrics::{Metrics, Sources};
use crate::pools::Pools;
use crate::reload::Reload;
use crate::reroute;
use crate::rev2::action_cache::ActionCacheService;
use crate::rev2::bytestream::ByteStreamService;
use crate::rev2::capabilities::CapabilitiesService;
use crate::rev2::cas::CasService;
use crate::rev2::execution::ExecutionService;
use crate::rev2::operations::OperationsService;
use crate::routing::Router;
use crate::transport::{self, accepted};
use crate::web::Readiness;
use crate::workers::refused::RefusedWorkers;
use crate::workers::synchronize::SynchronizeService;

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its side port is, if it has one.
    pub http_address: Option<SocketAddr>,
    /// The core.
    pub driver: Arc<Driver>,
    /// The policies in force.
    pub policies: Arc<Runtime>,
    /// Who puts them in force.
    pub manager: Arc<Manager>,
    health: tonic_health::server::HealthReporter,
    readiness: Readiness,
    decisions: Option<Arc<Decisions>>,
    learning: Arc<Learning>,
    stop: CancellationToken,
    stop_worker: CancellationToken,
    tasks: TaskTracker,
    worker: Option<tokio::task::JoinHandle<()>>,
    grace: Duration,
}

/// Serves until `shutdown`.
///
/// # Errors
/// The storage, the policy or the port can't be had.
pub async fn run(config: Config, reload: Reload, shutdown: CancellationToken) -> anyhow::Result<()> {
    let server = Server::start(&config).await?;
    reload.until(shutdown, config, server.manager.clone()).await;
    server.stop().await;
    Ok(())
}

impl Server {
    /// Starts everything; the port is open when it returns.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        // Actions of a worker in this process would inherit it, and old programs take a high limit badly.
        if !config.worker.enabled {
            transport::raise_file_limit();
        }
        let (stop, stop_worker, tasks) =
            (CancellationToken::new(), CancellationToken::new(), TaskTracker::new());
        // What is begun here ends if the start does.
        let starting = stop.clone().drop_guard();
        let side_port = SidePort::open(config, &tasks, &stop).await?;

        let (storage, embedded) = storage(config).await?;
        let decisions = Decisions::start(&config.decision_log)?;
        let seen_pools = Arc::new(Pools::default());
        let schema = Arc::new(schema(config));
        let pools = pools(config, &schema)?;
        let learning = Learning::start(config, &schema, pools.clone())?;
        let policies = Arc::new(
            Runtime::new(options(config, decisions.as_ref(), seen_pools.clone(), learning.clone()))
                .context("the policy runtime can't be started")?,
        );
        let driver = Driver::new(core(config), schema, pools.clone());
        driver.teach(learning.clone());
        seen_pools.follow(&driver);
        learning.follow(&driver);
        let aside = Aside::start().context("there are no threads for slow policies")?;
        let router = Router::new(config, driver.schema().clone(), policies.clone(), learning.clone(), aside);
        let router = Arc::new(router);
        let (changed, generation) = watch::channel(0);
        let on_swap = Box::new(move |number| _ = changed.send_replace(number));
        let manager = base::manager(config, policies.clone(), on_swap).await?;

        // A worker that comes with the first second finds the port open: it is bound before anything is spawned.
        let (incoming, address) = base::bind(config.listen)?;
        tasks.spawn(driver.clone().run_timer(stop.clone()));
        if let Some(interval) = config.worker_match_logging_interval {
            tasks.spawn(match_log::run(driver.clone(), interval, stop.clone()));
        }
        tasks.spawn(learning.clone().run(stop.clone()));
        tasks.spawn(reroute::run(driver.clone(), router.clone(), generation, stop.clone()));
        tasks.spawn(reroute::run_retried(driver.clone(), router.clone(), stop.clone()));

        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        let limit = usize::try_from(config.limits.message_size_max_bytes).unwrap_or(usize::MAX);
        let (arrivals, refused) = (Arc::new(Arrivals::default()), Arc::new(RefusedWorkers::default()));
        let deciders = (policies.clone(), router);
        let execution = ExecutionService::new(
            driver.clone(),
            deciders.clone(),
            storage.clone(),
            config.limits.command_size_max_bytes,
            arrivals.clone(),
        );
        side_port.site.set_metrics(Metrics::new(Sources {
            driver: driver.clone(),
            arrivals,
            policies: policies.clone(),
            manager: manager.clone(),
            decisions: decisions.clone(),
            learning: learning.clone(),
            refused: refused.clone(),
            storage: embedded.map(|storage| (storage, config.storage.max_size_bytes)),
            readiness: side_port.readiness.clone(),
            buildbarn: config.http.buildbarn_metrics.then(|| pools.clone()),
        }));
        let synchronize = SynchronizeService::new(
            driver.clone(),
            pools,
            refused.clone(),
            storage.clone(),
            deciders,
            config,
        );
        let services = base::grpc(config)
            .layer(MapResponseLayer::new(transport::short_message))
            .layer(GateLayer(config.services))
            .add_service(ExecutionServer::new(execution).max_decoding_message_size(limit))
            .add_service(OperationsServer::new(OperationsService::new(driver.clone())))
            .add_service(CapabilitiesServer::new(CapabilitiesService::new(config.services)))
            .add_service(
                ContentAddressableStorageServer::new(CasService::new(storage.clone()))
                    .max_decoding_message_size(limit)
                    .max_encoding_message_size(usize::MAX),
            )
            .add_service(
                ByteStreamServer::new(ByteStreamService::new(storage.clone()))
                    .max_decoding_message_size(limit),
            )
            .add_service(
                ActionCacheServer::new(ActionCacheService::new(storage)).max_decoding_message_size(limit),
            )
            .add_service(OperationQueueServer::new(synchronize).max_decoding_message_size(limit))
            .add_service(AdminServer::new(AdminService::new(driver.clone(), refused)))
            .add_service(BuildQueueStateServer::new(BuildQueueStateService::new(
                driver.clone(),
                stop.clone(),
            )))
            .add_service(SizesServer::new(SizesService::new(learning.clone())))
            .add_service(base::policies_service(&policies, &manager, decisions.as_ref(), &stop))
            .add_service(health_service)
            .add_service(base::reflection()?);
        let until = stop.clone();
        tasks.spawn(async move {
            let served =
                services.serve_with_incoming_shutdown(accepted(incoming), until.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the server ended");
            }
        });
        let worker = config.worker.enabled.then(|| spawn_worker(config, address, stop_worker.clone()));
        side_port.readiness.ready();
        let http = side_port.shown();
        tracing::info!(%address, http, worker = config.worker.enabled, "serving");
        starting.disarm();
        let grace = config.timers.shutdown_grace;
        Ok(Self {
            address,
            http_address: side_port.address,
            driver,
            policies,
            manager,
            health,
            readiness: side_port.readiness,
            decisions,
            learning,
            stop,
            stop_worker,
            tasks,
            worker,
            grace,
        })
    }

    /// Ends everything in order: no new work, the worker's actions, streams with UNAVAILABLE, the port.
    pub async fn stop(mut self) {
        self.readiness.stopping();
        self.health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        let deadline = tokio::time::Instant::now() + self.grace;
        self.stop_worker.cancel();
        self.driver.close();
        if let Some(worker) = self.worker.as_mut()
            && tokio::time::timeout_at(deadline, &mut *worker).await.is_err()
        {
            tracing::warn!("the worker's actions outlast timers.shutdown_grace: they are cut off");
            worker.abort();
            // Its actions are killed when it is gone, which is at once.
            _ = worker.await;
        }
        self.driver.end_streams();
        self.stop.cancel();
        self.tasks.close();
        // Also when the worker used up the time: what streams end with has to reach the clients.
        let deadline = deadline.max(tokio::time::Instant::now() + LAST_WORDS);
        if tokio::time::timeout_at(deadline, self.tasks.wait()).await.is_err() {
            tracing::warn!("connections outlast timers.shutdown_grace: they are cut off");
        }
        if let Some(decisions) = self.decisions {
            // It waits for a disk.
            _ = tokio::task::spawn_blocking(move || decisions.close()).await;
        }
        let learning = self.learning;
        _ = tokio::task::spawn_blocking(move || learning.close()).await;
    }
}

/// What is left for the ends of streams at least.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Where blobs and results are; a second time if that is here.
type Stores = (Arc<dyn Storage>, Option<Arc<EmbeddedStorage>>);

async fn storage(config: &Config) -> anyhow::Result<Stores> {
    if let Some(remote) = &config.remote_storage {
        let store = base::remote_storage(remote, remote.patience, remote.small_blob_cache_bytes)?;
        tracing::info!(address = remote.address, "blobs and results are with another server");
        return Ok((Arc::new(store), None));
    }
    if config.services == config::Services::Execution {
        tracing::warn!(
            "services is \"execution\" and there is no storage.remote: nobody can upload what is to be executed"
        );
    }
    let embedded = &config.storage;
    let config = EmbeddedConfig {
        max_bytes: embedded.max_size_bytes,
        max_action_results: usize::try_from(embedded.action_cache_entries_max).unwrap_or(usize::MAX),
        memory_max_bytes: embedded.small_blob_cache_bytes,
        ..EmbeddedConfig::new(&embedded.dir)
    };
    let storage = EmbeddedStorage::open(config).await;
    let storage = Arc::new(
        storage.with_context(|| format!("the storage in {} can't be opened", embedded.dir.display()))?,
    );
    Ok((storage.clone(), Some(storage)))
}

fn options(
    config: &Config,
    decisions: Option<&Arc<Decisions>>,
    pools: Arc<Pools>,
    learning: Arc<Learning>,
) -> Options {
    let mut options = base::policy_options(config);
    options.sources.pools = Arc::new(move || pools.snapshot());
    options.sources.statistics = Arc::new(move |key| learning.summary(key));
    options.recorder =
        decisions.cloned().map(|decisions| -> Recorder { Arc::new(move |record| decisions.record(record)) });
    options
}

fn core(config: &Config) -> pointsman_scheduler::scheduler::Config {
    pointsman_scheduler::scheduler::Config {
        // The core counts from the last call, the configuration from when the next was due.
        worker_expiry: config.timers.worker_expiry + config.timers.heartbeat,
        heartbeat: config.timers.heartbeat,
        heartbeat_max: config.timers.heartbeat_max,
        heartbeats_per_s: config.limits.heartbeats_per_s_max as usize,
        abandoned: config.timers.abandoned,
        completed_retention: config.timers.completed_retention,
        max_attempts: config.max_attempts as usize,
        budgets: Budgets {
            lost: config.attempts.lost_max as usize,
            given_back: config.attempts.given_back_max as usize,
            reported: config.attempts.reported_max as usize,
        },
        retry_backoff: config.timers.retry_backoff,
        retry_backoff_max: config.timers.retry_backoff_max,
        exhausted_pause: config.timers.exhausted_pause,
        exhausted_pause_max: config.timers.exhausted_pause_max,
        exhausted_max: config.attempts.exhausted_forgiven_max,
        quarantine_after: config.quarantine_after as usize,
        quarantine: config.timers.quarantine,
        quarantine_max: config.timers.quarantine_max,
        unschedulable_timeout: config.timers.unschedulable_timeout,
        reservation_after: config.timers.reservation_after,
        reserved_share: config.reserved_percent,
        reservation_timeout: config.timers.reservation_timeout,
        placement: match config.placement {
            config::Placement::Spread => Placement::Spread,
            config::Placement::Pack => Placement::Pack,
            config::Placement::BestFit => Placement::BestFit,
        },
        priority_step: config.priority_step,
        queued_tasks_max: config.limits.queued_actions_max as usize,
        classes_max: config.limits.classes_max as usize,
        demands_max: config.limits.demands_max as usize,
        workers_max: config.limits.workers_max as usize,
        holds_max: config.limits.holds_max as usize,
    }
}

fn schema(config: &Config) -> Schema {
    if config.matching == Matching::ExactSet {
        return Schema::exact_set();
    }
    let types = config.platform_properties.iter().map(|(key, kind)| {
        let kind = match kind {
            config::PropertyType::Exact => PropertyType::Exact,
            config::PropertyType::Minimum => PropertyType::Minimum,
            config::PropertyType::Priority => PropertyType::Priority,
            config::PropertyType::Ignore => PropertyType::Ignore,
        };
        (key.as_str().into(), kind)
    });
    let unknown = match config.unknown_property {
        config::UnknownProperty::Reject => UnknownProperty::Reject,
        config::UnknownProperty::Queue => UnknownProperty::Queue,
        config::UnknownProperty::Ignore => UnknownProperty::Ignore,
    };
    Schema::new(types, unknown)
}

fn pools(config: &Config, schema: &Schema) -> anyhow::Result<Arc<[DeclaredPool]>> {
    let pool = |pool: &config::Pool| {
        let property = |(key, values): (&String, &Vec<String>)| {
            values.iter().map(|v| Property::new(key.as_str(), v.as_str())).collect::<Vec<_>>()
        };
        let platform: Vec<_> = pool.platform.iter().flat_map(property).collect();
        Ok(DeclaredPool {
            name: pool.name.as_str().into(),
            instance_name_prefix: pool.instance_name_prefix.as_deref().map(Into::into),
            size_class: pool.size_class,
            platform: platform.clone(),
            asks: schema.action(&platform)?,
            offers: schema.worker(&platform)?,
            max_inflight_tasks: pool.max_inflight_tasks,
        })
    };
    let pools: Result<_, PropertyError> = config.pools.iter().map(pool).collect();
    pools.context("the platform of a pool can't be typed")
}

fn spawn_worker(
    config: &Config,
    address: SocketAddr,
    stop: CancellationToken,
) -> tokio::task::JoinHandle<()> {
    let own = &config.worker;
    let mut worker = WorkerConfig::new(format!("http://{}", reachable(address)), &own.dir);
    worker.concurrency = own.concurrency as usize;
    worker.cache_max_bytes = own.cache_size_bytes;
    worker.storage_patience = own.storage_patience;
    // What the operator says replaces what the machine says, and what the schema doesn't know isn't said: nothing of it,
    // when whole lists are compared.
    worker
        .platform
        .retain(|(key, _)| !own.platform.contains_key(key) && config.platform_properties.contains_key(key));
    for (key, values) in &own.platform {
        match values {
            PlatformValues::Listed(values) => {
                worker.platform.extend(values.iter().map(|value| (key.clone(), value.clone())));
            }
            PlatformValues::Queried(query) => worker.platform_queries.push(query.clone()),
        }
    }
    worker.query_timeout = own.query_timeout;
    tokio::spawn(async move {
        if let Err(error) = pointsman_worker::run(worker, stop).await {
            tracing::error!(%error, "the bundled worker ended; the scheduler goes on without it");
        }
    })
}

/// An address to connect to: a server that listens everywhere is reached on the loopback.
fn reachable(address: SocketAddr) -> SocketAddr {
    let mut address = address;
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() {
            std::net::Ipv4Addr::LOCALHOST.into()
        } else {
            std::net::Ipv6Addr::LOCALHOST.into()
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever reads the core's defaults reads what is in force.
    #[test]
    fn the_defaults_are_the_cores() {
        let (config, own) = (Config::default(), pointsman_scheduler::scheduler::Config::default());
        let expiry = own.worker_expiry + config.timers.heartbeat;
        let wanted = pointsman_scheduler::scheduler::Config { worker_expiry: expiry, ..own };
        assert_eq!(core(&config), wanted);
    }
}
