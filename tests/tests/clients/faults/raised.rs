//! Faults that a server really has, each brought about as it comes about.

use std::time::Duration;

use pointsman_tests::fake_client::{ActionSpec, FakeClient};
use pointsman_tests::harness::{
    Clients, FaultProxy, Relay, Running, Server, ServerOptions, Signal, executing, start_worker,
};

use super::client::{Client, Job, outcome};
use crate::support::{Hold, serve};

/// What happens to the server.
#[derive(Clone, Copy, Debug)]
pub(super) enum Raised {
    /// Killed in an action, and started again at once.
    Killed,
    /// Stopped as services are, with the action in its queue, and started again at once.
    Stopped,
    /// It takes no more actions until the client has tried once more.
    QueueFull,
    /// It takes no more actions.
    QueueStaysFull,
    /// Its storage, elsewhere, is unreachable until the client has tried once more.
    StorageDown,
    /// Its storage, elsewhere, is lost between upload and `Execute`.
    StorageLost,
    /// The action takes longer than it may.
    TimeLimit,
    /// The request asks for more time than there is.
    Malformed,
}

/// A client's job on its way.
struct Scene<'a> {
    clients: &'a Clients,
    client: Client,
    server: Server,
    proxy: FaultProxy,
}

impl Raised {
    /// Brings it about; the [`outcome`].
    pub(super) async fn run(self, clients: &Clients, client: Client) -> anyhow::Result<(String, String)> {
        let scene = async |server| {
            let server: Server = server;
            let proxy = FaultProxy::start(server.address()).await?;
            anyhow::Ok(Scene { clients, client, server, proxy })
        };
        let alone = |config: &str| {
            let options =
                ServerOptions::default().config(&format!("{{ unknown_property: 'ignore', {config} }}"));
            async move { Server::start_in(clients, &options).await }
        };
        match self {
            Self::Killed => killed(scene(alone("").await?).await?).await,
            Self::Stopped => stopped(scene(alone("").await?).await?).await,
            Self::QueueFull | Self::QueueStaysFull => {
                let server = alone("limits: { queued_actions: 1 }").await?;
                queue_full(scene(server).await?, matches!(self, Self::QueueStaysFull)).await
            }
            Self::StorageDown => {
                let store = store().await?;
                let wire = Relay::start(store.address()).await?;
                let server = serve_from(clients, &wire.address()).await?;
                storage_down(scene(server).await?, &wire).await
            }
            Self::StorageLost => {
                let store = store().await?;
                let server = serve_from(clients, &store.address()).await?;
                storage_lost(scene(server).await?, store).await
            }
            Self::TimeLimit => {
                let scene = scene(serve(clients).await?).await?;
                let run = scene.start(Job::Endless(2)).await?;
                scene.outcome(run).await
            }
            Self::Malformed => {
                let limits = "timers: { default_action_timeout: '10s', maximum_action_timeout: '10s' }";
                let scene = scene(alone(limits).await?).await?;
                let run = scene.start(Job::Endless(60)).await?;
                scene.outcome(run).await
            }
        }
    }
}

impl Scene<'_> {
    async fn start(&self, job: Job) -> anyhow::Result<Running> {
        self.client.start(self.clients, &self.server, &self.proxy, job).await
    }

    fn start_worker(&self) -> anyhow::Result<Running> {
        start_worker(self.clients, &self.server, "worker", &[])
    }

    /// Waits until the client has tried a second time, or given up.
    async fn tried_again(&self, run: &mut Running) {
        while run.is_running() && self.proxy.calls_for_first_action().len() < 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn outcome(&self, run: Running) -> anyhow::Result<(String, String)> {
        outcome(self.client, run, &self.proxy).await
    }
}

async fn killed(mut scene: Scene<'_>) -> anyhow::Result<(String, String)> {
    let _worker = scene.start_worker()?;
    let hold = Hold::new(scene.clients)?;
    let run = scene.start(Job::Held).await?;
    executing(scene.server.channel()?).await?;
    scene.server.end(Signal::KILL).await?;
    scene.server.start_again().await?;
    drop(hold);
    scene.outcome(run).await
}

async fn stopped(mut scene: Scene<'_>) -> anyhow::Result<(String, String)> {
    let run = scene.start(Job::Quick).await?;
    while !scene.proxy.has_answered() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // For the client to read that it has an operation.
    tokio::time::sleep(Duration::from_millis(500)).await;
    scene.server.end(Signal::TERM).await?;
    scene.server.start_again().await?;
    let _worker = scene.start_worker()?;
    scene.outcome(run).await
}

async fn queue_full(scene: Scene<'_>, stays: bool) -> anyhow::Result<(String, String)> {
    let other = FakeClient::new(scene.server.channel()?);
    let other = other.execute(&other.upload_action(&ActionSpec::new(["/bin/true"])).await?).await?;
    let mut run = scene.start(Job::Quick).await?;
    scene.tried_again(&mut run).await;
    let _worker = if stays { None } else { Some(scene.start_worker()?) };
    let outcome = scene.outcome(run).await;
    drop(other);
    outcome
}

/// A server that only stores.
async fn store() -> anyhow::Result<Server> {
    Server::start(&ServerOptions::default().config("{ services: 'cache' }")).await
}

/// A server with a worker that stores nothing itself.
async fn serve_from(clients: &Clients, store: &str) -> anyhow::Result<Server> {
    let remote = format!("address: 'grpc://{store}', patience: '500ms', small_blob_cache: '0B'");
    let config = format!("{{ unknown_property: 'ignore', storage: {{ remote: {{ {remote} }} }} }}");
    Server::start_in(clients, &ServerOptions::with_worker(&[]).config(&config)).await
}

async fn storage_down(scene: Scene<'_>, wire: &Relay) -> anyhow::Result<(String, String)> {
    let pause = scene.proxy.pause("Execute");
    let mut run = scene.start(Job::Quick).await?;
    pause.arrived().await?;
    wire.down();
    pause.release();
    scene.tried_again(&mut run).await;
    wire.up();
    scene.outcome(run).await
}

async fn storage_lost(scene: Scene<'_>, mut store: Server) -> anyhow::Result<(String, String)> {
    let pause = scene.proxy.pause("Execute");
    let run = scene.start(Job::Quick).await?;
    pause.arrived().await?;
    store.end(Signal::TERM).await?;
    std::fs::remove_dir_all(store.file("state"))?;
    store.start_again().await?;
    pause.release();
    scene.outcome(run).await
}
