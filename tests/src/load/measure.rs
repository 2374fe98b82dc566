//! Clients and workers against one server, and what they see.
use super::{CpuClock, OWN_PROCESS, Server, Settings};
use crate::{
    fake_client::{ActionSpec, FakeClient, Updates, connect},
    fake_worker::{FakeWorker, WorkerSpec, exited},
};
use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use pointsman_proto::{
    longrunning::{Operation, operation},
    rev2::{Digest, ExecuteResponse, RequestMetadata, ToolDetails},
    unpack,
};
use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// Longest latency that is told apart.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// How long actions that are under way at the end of the window may still take.
const LAST_ACTIONS_MAX: Duration = Duration::from_secs(60);

/// How long workers may take to say goodbye.
const WORKERS_STOP_MAX: Duration = Duration::from_secs(10);

/// Clients that build tools would count as one build.
const CLIENTS_PER_INVOCATION: usize = 16;

/// What one server did in the window.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// From sending Execute to the end of its stream, in nanoseconds.
    pub latency: Histogram<u64>,
    /// Operations received in all streams.
    pub updates: u64,
    /// Length of the window as it was.
    pub window: Duration,
    /// Processor time of the server in the window.
    pub server_cpu: Duration,
    /// Processor time of clients and workers in the window.
    pub own_cpu: Duration,
}

impl Measurement {
    /// Actions that ended in the window.
    pub fn actions(&self) -> u64 {
        self.latency.len()
    }
}

/// Which part of a measurement the clients are in.
#[derive(Default)]
struct Phase(AtomicU8);

impl Phase {
    const WARM_UP: u8 = 0;
    const WINDOW: u8 = 1;
    const OVER: u8 = 2;

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a client saw in the window.
struct Seen {
    latency: Histogram<u64>,
    updates: u64,
}

impl Seen {
    fn new() -> Result<Self> {
        let max = u64::try_from(LATENCY_MAX.as_nanos())?;
        Ok(Self { latency: Histogram::new_with_bounds(1, max, 3)?, updates: 0 })
    }

    fn add(&mut self, other: &Self) -> Result<()> {
        self.latency.add(&other.latency)?;
        self.updates += other.updates;
        Ok(())
    }
}

/// Measures one server.
///
/// # Errors
/// When any client sees an action fail, with the end of the server's log.
pub async fn measure(server: &Server, settings: &Settings) -> Result<Measurement> {
    let measured = run(server, settings).await;
    measured.with_context(|| format!("measurement failed; the server's log ends with:\n{}", server.log_end()))
}

async fn run(server: &Server, settings: &Settings) -> Result<Measurement> {
    let actions = upload(server, settings).await?;
    let stop_workers = CancellationToken::new();
    let workers = start_workers(server, settings, &stop_workers).await?;

    let phase = Arc::new(Phase(AtomicU8::new(Phase::WARM_UP)));
    let mut clients = start_clients(server, settings, &phase, &actions).await?;
    let clock = server.cpu_clock()?;
    let own_clock = CpuClock::new(OWN_PROCESS);

    pass(settings.warm_up, &mut clients).await?;
    let (cpu, own_cpu, begin) = (clock.now()?, own_clock.now()?, Instant::now());
    phase.set(Phase::WINDOW);
    pass(settings.window, &mut clients).await?;
    phase.set(Phase::OVER);
    let window = begin.elapsed();
    let (server_cpu, own_cpu) = (clock.now()? - cpu, own_clock.now()? - own_cpu);

    let seen = timeout(LAST_ACTIONS_MAX, collect(&mut clients)).await.unwrap_or_else(|_| {
        bail!("{} clients still wait for their last action after {LAST_ACTIONS_MAX:?}", clients.len())
    })?;
    stop_workers.cancel();
    // Those that the server does not let go are aborted; the figures are complete.
    let _ = timeout(WORKERS_STOP_MAX, workers.join_all()).await;
    ensure!(!seen.latency.is_empty(), "no action ended within {window:?}");
    Ok(Measurement { latency: seen.latency, updates: seen.updates, window, server_cpu, own_cpu })
}

async fn collect(clients: &mut JoinSet<Result<Seen>>) -> Result<Seen> {
    let mut seen = Seen::new()?;
    while let Some(client) = clients.join_next().await {
        seen.add(&client??)?;
    }
    Ok(seen)
}

/// Lets time pass, unless a client fails.
async fn pass(time: Duration, clients: &mut JoinSet<Result<Seen>>) -> Result<()> {
    tokio::select! {
        () = sleep(time) => Ok(()),
        ended = clients.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(error)) => Err(error.into()),
            Some(Ok(Ok(_))) | None => bail!("a client ended before its time"),
        },
    }
}

async fn upload(server: &Server, settings: &Settings) -> Result<Vec<Digest>> {
    ensure!(
        settings.actions >= settings.clients,
        "{} actions for {} clients: each needs one of its own, give at least as many actions",
        settings.actions,
        settings.clients
    );
    let client = FakeClient::connect(server.address()).await?;
    let spec =
        ActionSpec { platform: settings.platform.clone(), do_not_cache: true, ..ActionSpec::default() };
    let [input_root, command, _] = spec.blobs();
    client.upload([input_root, command]).await?;
    let actions = (0..settings.actions).map(|i| {
        let [.., action] = ActionSpec { salt: i.to_be_bytes().to_vec().into(), ..spec.clone() }.blobs();
        action
    });
    client.upload(actions).await.context("upload of the actions")
}

async fn start_workers(
    server: &Server,
    settings: &Settings,
    stop: &CancellationToken,
) -> Result<JoinSet<()>> {
    let mut workers = JoinSet::new();
    for host in 0..settings.hosts {
        let channel = connect(server.address()).await?;
        let spec =
            WorkerSpec { platform: settings.platform.clone(), ..WorkerSpec::new(&format!("host-{host:03}")) };
        for thread in 0..settings.threads {
            let worker = FakeWorker::new(channel.clone(), &spec.thread(thread));
            workers.spawn(worker.serve(|work| ready(exited(&work, 0)), stop.clone(), |_| {}));
        }
    }
    Ok(workers)
}

async fn start_clients(
    server: &Server,
    settings: &Settings,
    phase: &Arc<Phase>,
    actions: &[Digest],
) -> Result<JoinSet<Result<Seen>>> {
    let mut connections = Vec::new();
    for _ in 0..settings.connections {
        connections.push(connect(server.address()).await?);
    }
    let mut clients = JoinSet::new();
    for index in 0..settings.clients {
        let channel = connections[index % connections.len()].clone();
        let client =
            FakeClient::new(channel).with_request_metadata(&metadata(index / CLIENTS_PER_INVOCATION));
        let own = actions.iter().skip(index).step_by(settings.clients).cloned().collect();
        clients.spawn(closed_loop(client, own, Arc::clone(phase)));
    }
    Ok(clients)
}

/// What a build tool says about itself, of usual length.
fn metadata(invocation: usize) -> RequestMetadata {
    RequestMetadata {
        tool_details: Some(ToolDetails { tool_name: "load".into(), tool_version: "1".into() }),
        tool_invocation_id: format!("00000000-0000-4000-8000-{invocation:012}"),
        correlated_invocations_id: format!("00000000-0000-4000-9000-{invocation:012}"),
        action_mnemonic: "Load".into(),
        target_id: "//load:generator".into(),
        ..Default::default()
    }
}

/// One action after another, each time the next one of its own.
async fn closed_loop(client: FakeClient, actions: Vec<Digest>, phase: Arc<Phase>) -> Result<Seen> {
    let mut seen = Seen::new()?;
    for action in actions.iter().cycle() {
        let begin = Instant::now();
        let stream = client.execute(action).await.context("Execute")?;
        let updates = finish(stream).await.with_context(|| format!("execution of {action:?}"))?;
        match phase.get() {
            Phase::WINDOW => {
                seen.latency.saturating_record(u64::try_from(begin.elapsed().as_nanos())?);
                seen.updates += updates;
            }
            Phase::OVER => break,
            _ => {}
        }
    }
    Ok(seen)
}

/// Reads a stream to its end and returns the number of its operations. Only the last is looked into, which
/// keeps clients cheap.
async fn finish(mut stream: Updates) -> Result<u64> {
    let (mut updates, mut last) = (0, None);
    while let Some(operation) = stream.next_operation().await? {
        updates += 1;
        last = Some(operation);
    }
    let last = last.context("a stream without operations")?;
    let Operation { done: true, result: Some(operation::Result::Response(response)), .. } = &last else {
        bail!("the stream ended with {last:?}")
    };
    let response: ExecuteResponse = unpack(response)?;
    let ok = response.status.as_ref().is_none_or(|s| s.code == 0);
    ensure!(ok && response.result.as_ref().is_some_and(|r| r.exit_code == 0), "it failed: {response:?}");
    Ok(updates)
}
