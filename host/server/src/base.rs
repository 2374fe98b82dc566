//! What a scheduler and a router have in common: a side port, policies and who puts them in force, a gRPC port, the CAS of
//! somebody else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use pointsman_policy::{Manager, ManagerOptions, Options, Runtime, WatchOptions};
use pointsman_proto::DESCRIPTORS;
use pointsman_proto::v1::policies_server::PoliciesServer;
use pointsman_storage::{RemoteConfig, RemoteStorage};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use crate::admin::policies::PoliciesService;
use crate::config::{Config, RemoteStorage as RemoteSettings};
use crate::decisions::Decisions;
use crate::web::{self, Readiness, Site};

/// What a push has beside the component: its signature, some names.
const PUSH_BESIDE: usize = 1 << 20;
/// A client or worker whose machine has vanished is noticed so late at most.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Bazel's own size; uploads of one blob need no more.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 16 << 20;

/// The side port.
pub(crate) struct SidePort {
    pub(crate) readiness: Readiness,
    pub(crate) site: Arc<Site>,
    /// Where it is, if there is one.
    pub(crate) address: Option<SocketAddr>,
}

impl SidePort {
    /// To be opened before anything that takes long: whoever asks meanwhile hears that it starts.
    pub(crate) async fn open(
        config: &Config,
        tasks: &TaskTracker,
        stop: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let readiness = Readiness::default();
        let site = Arc::new(Site::new(readiness.clone()));
        let listener = web::bind(config.http.listen, config.listen).await?;
        let address = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        if let Some(listener) = listener {
            tasks.spawn(web::serve(listener, site.clone(), stop.clone()));
        }
        Ok(Self { readiness, site, address })
    }

    /// As the log shows it.
    pub(crate) fn shown(&self) -> String {
        self.address.map_or_else(|| "off".to_owned(), |address| address.to_string())
    }
}

/// What policies may use, without what only one of the two has.
pub(crate) fn policy_options(config: &Config) -> Options {
    let mut options = Options::default();
    options.limits.fuel_per_call = config.policy.fuel;
    options.limits.deadline = config.policy.deadline;
    options.limits.memory_bytes = usize::try_from(config.policy.memory_max_bytes).unwrap_or(usize::MAX);
    options.default_config = config.policy.default_config();
    options.state_dir = Some(config.policy.dir.clone());
    options
}

/// Puts the configured policies in force, which may mean compiling them: not on a thread that serves calls. `on_swap` is told
/// each generation that comes after.
pub(crate) async fn manager(
    config: &Config,
    policies: Arc<Runtime>,
    on_swap: Box<dyn Fn(u64) + Send>,
) -> anyhow::Result<Arc<Manager>> {
    let options = ManagerOptions { watch: WatchOptions::default(), on_swap };
    let plan = config.policy.plan();
    let manager = tokio::task::spawn_blocking(move || Manager::start(policies, plan, options)).await;
    Ok(Arc::new(manager.context("the policies could not be loaded")??))
}

/// The service by which operators push and look at policies.
pub(crate) fn policies_service(
    policies: &Arc<Runtime>,
    manager: &Arc<Manager>,
    decisions: Option<&Arc<Decisions>>,
    stop: &CancellationToken,
) -> PoliciesServer<PoliciesService> {
    let service = PoliciesService::new(manager.clone(), policies.clone(), decisions.cloned(), stop.clone());
    PoliciesServer::new(service).max_decoding_message_size(policies.file_bytes_max() + PUSH_BESIDE)
}

/// A store elsewhere; `patience` and `memory_max_bytes` in place of what the configuration says.
pub(crate) fn remote_storage(
    remote: &RemoteSettings,
    patience: Duration,
    memory_max_bytes: u64,
) -> anyhow::Result<RemoteStorage> {
    let store = RemoteStorage::new(RemoteConfig {
        address: remote.address.clone(),
        instance_name: remote.instance_name.clone(),
        patience,
        memory_max_bytes,
    });
    store.map_err(anyhow::Error::msg).context("storage.remote is no store")
}

/// The port, and where it is.
pub(crate) fn bind(listen: SocketAddr) -> anyhow::Result<(TcpIncoming, SocketAddr)> {
    let incoming = TcpIncoming::bind(listen)
        .with_context(|| format!("can't listen on {listen}: is another server running there?"))?
        .with_nodelay(Some(true));
    let address = incoming.local_addr().context("the port has no address")?;
    Ok((incoming, address))
}

/// A server whose connections outlive what networks do to them.
pub(crate) fn grpc(config: &Config) -> Server {
    Server::builder()
        .max_concurrent_streams(config.limits.streams_per_connection_max)
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
}

pub(crate) fn reflection() -> anyhow::Result<
    tonic_reflection::server::v1::ServerReflectionServer<impl tonic_reflection::server::v1::ServerReflection>,
> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(DESCRIPTORS)
        .build_v1()
        .context("the protocol descriptors can't be served")
}
