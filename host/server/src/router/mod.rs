//! `pointsman router`: policies for a Buildbarn that keeps its scheduler (`actionRouter: { remote: … }`).
//!
//! The scheduler asks for each Execute where the action goes. Policies are those of `pointsman serve`, and so are their
//! life cycle, their records and their metrics; what differs is what becomes of a route: a platform, sometimes a time limit or
//! `do_not_cache`, and invocation keys. Nothing is kept that a second router beside it would have to know: from the same
//! policies, the same call and the same Command both give the same bytes.
//!
//! | Module | Holds |
//! | --- | --- |
//! | `service` | the gRPC service |
//! | `decide` | from a call to its answer: the main path, and what is done when something fails |
//! | `action` | the Action, edited as bytes |
//! | `keys` | invocation keys in types that the scheduler knows |
//! | `commands` | Commands from the CAS, each fetched once |
//! | `known` | the last route of each kind of action |
//! | `unserved` | edits that can't be handed on |
//! | `counts` | numbers |

mod action;
mod commands;
mod counts;
mod decide;
mod keys;
mod known;
mod service;
mod unserved;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pointsman_policy::{Manager, Options, Recorder, Runtime, Throttle};
use pointsman_proto::remoteactionrouter::action_router_server::ActionRouterServer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::util::MapResponseLayer;

use crate::aside::Aside;
use crate::base::{self, SidePort};
use crate::config::{Config, RemoteStorage};
use crate::decisions::Decisions;
use crate::metrics::{Metrics, RouterSources};
use crate::reload::Reload;
use crate::transport::{self, accepted};
use crate::web::Readiness;
use commands::Commands;
use decide::{Decider, Rules};
use known::KnownRoutes;

pub(crate) use counts::{Counts, LATENCY_BUCKETS_US};
use service::ActionRouterService;
pub use service::DEGRADED;

/// The log says so often at most that actions are routed without their policies.
const WARNING_INTERVAL: Duration = Duration::from_secs(5);

/// A router that runs.
#[derive(Debug)]
pub struct RouterServer {
    /// Where it listens.
    pub address: SocketAddr,
    /// Who puts policies in force.
    pub manager: Arc<Manager>,
    health: tonic_health::server::HealthReporter,
    readiness: Readiness,
    decisions: Option<Arc<Decisions>>,
    stop: CancellationToken,
    tasks: TaskTracker,
    grace: Duration,
}

/// Routes until `shutdown`.
///
/// # Errors
/// The policies or the port can't be had.
pub async fn run(config: Config, reload: Reload, shutdown: CancellationToken) -> anyhow::Result<()> {
    let server = RouterServer::start(&config).await?;
    reload.until(shutdown, config, server.manager.clone()).await;
    server.stop().await;
    Ok(())
}

/// Loads the policies as a router would, with all that is checked then, and puts nothing anywhere.
///
/// # Errors
/// One of them can't be put in force, or shows that it sets what a router can't hand on.
pub async fn check(config: &Config) -> anyhow::Result<()> {
    let options = Options { state_dir: None, ..options(config, None) };
    let policies = Arc::new(Runtime::new(options).context("the policy runtime can't be started")?);
    base::manager(config, policies, Box::new(|_| ())).await.map(drop)
}

/// What the metrics are made of.
#[derive(Clone, Debug)]
pub(crate) struct Numbers(Arc<Decider>);

impl Numbers {
    pub(crate) fn counts(&self) -> &Counts {
        &self.0.counts
    }

    /// Commands that are kept, and bytes that they take.
    pub(crate) fn commands(&self) -> (usize, u64) {
        self.0.commands.size()
    }

    /// Routes that are known, and bytes that they take.
    pub(crate) fn known_routes(&self) -> (usize, u64) {
        self.0.known.size()
    }
}

impl RouterServer {
    /// Starts everything; the port is open when it returns.
    ///
    /// # Errors
    /// As [`run`].
    pub async fn start(config: &Config) -> anyhow::Result<Self> {
        transport::raise_file_limit();
        let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
        // What is begun here ends if the start does.
        let starting = stop.clone().drop_guard();
        let side_port = SidePort::open(config, &tasks, &stop).await?;
        let remote = config
            .remote_storage
            .as_ref()
            .context("storage.remote is needed; see `config check --router`")?;
        let decisions = Decisions::start(&config.decision_log)?;
        let policies = Runtime::new(options(config, decisions.as_ref()));
        let policies = Arc::new(policies.context("the policy runtime can't be started")?);
        let decider = Arc::new(decider(config, remote, policies.clone())?);
        let manager = base::manager(config, policies.clone(), Box::new(|_| ())).await?;

        let (incoming, address) = base::bind(config.listen)?;
        let (health, health_service) = tonic_health::server::health_reporter();
        health.set_service_status("", tonic_health::ServingStatus::Serving).await;
        side_port.site.set_metrics(Metrics::of_router(RouterSources {
            numbers: Numbers(decider.clone()),
            policies: policies.clone(),
            manager: manager.clone(),
            decisions: decisions.clone(),
            readiness: side_port.readiness.clone(),
        }));
        let limit = usize::try_from(config.limits.message_size_max_bytes).unwrap_or(usize::MAX);
        let router = ActionRouterServer::new(ActionRouterService(decider)).max_decoding_message_size(limit);
        let services = base::grpc(config)
            .layer(MapResponseLayer::new(transport::short_message))
            .add_service(router)
            .add_service(base::policies_service(&policies, &manager, decisions.as_ref(), &stop))
            .add_service(health_service)
            .add_service(base::reflection()?);
        let until = stop.clone();
        tasks.spawn(async move {
            let served =
                services.serve_with_incoming_shutdown(accepted(incoming), until.cancelled_owned()).await;
            if let Err(error) = served {
                tracing::error!(%error, "the router ended");
            }
        });
        side_port.readiness.ready();
        tracing::info!(%address, http = side_port.shown(), cas = remote.address, "routing");
        starting.disarm();
        Ok(Self {
            address,
            manager,
            health,
            readiness: side_port.readiness,
            decisions,
            stop,
            tasks,
            grace: config.timers.shutdown_grace,
        })
    }

    /// Ends everything in order: callers are sent elsewhere, calls end, the port goes.
    pub async fn stop(self) {
        self.readiness.stopping();
        self.health.set_service_status("", tonic_health::ServingStatus::NotServing).await;
        self.stop.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.grace, self.tasks.wait()).await.is_err() {
            tracing::warn!("connections outlast timers.shutdown_grace: they are cut off");
        }
        if let Some(decisions) = self.decisions {
            // It waits for a disk.
            _ = tokio::task::spawn_blocking(move || decisions.close()).await;
        }
    }
}

fn decider(config: &Config, remote: &RemoteStorage, policies: Arc<Runtime>) -> anyhow::Result<Decider> {
    let counts = Arc::<Counts>::default();
    // Sooner than the deadline, so that there is time to say what the CAS said; and its bytes are kept here as facts.
    let patience = remote.patience.min(config.router.deadline / 2);
    let storage = Arc::new(base::remote_storage(remote, patience, 0)?);
    let limits = commands::Limits {
        command_max_bytes: config.limits.command_size_max_bytes,
        kept_max_bytes: remote.small_blob_cache_bytes,
        properties_max: config.limits.properties_per_action_max as usize,
    };
    Ok(Decider {
        policies,
        aside: Aside::start().context("there are no threads for slow policies")?,
        commands: Commands::new(storage, limits, counts.clone()),
        known: KnownRoutes::new(config.router.known_routes_max_bytes),
        rules: Rules {
            deadline: config.router.deadline,
            unsupported: config.router.unsupported,
            maximum_timeout: config.timers.maximum_action_timeout,
            properties_max: config.limits.properties_per_action_max as usize,
        },
        counts,
        told: unserved::Told::default(),
        warnings: Throttle::new(WARNING_INTERVAL),
    })
}

fn options(config: &Config, decisions: Option<&Arc<Decisions>>) -> Options {
    let mut options = base::policy_options(config);
    // A policy that hangs leaves time for others, and for what is done without any.
    options.limits.deadline = config.policy.deadline.min(config.router.deadline / 2);
    options.edits = Some(Arc::new(unserved::check));
    options.recorder = decisions.cloned().map(|decisions| -> Recorder {
        Arc::new(move |mut record| {
            record.remarks = unserved::remarks(&record);
            decisions.record(record);
        })
    });
    options
}
