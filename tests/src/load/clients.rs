//! Clients that run one action after another.
use super::{Server, Settings, starts::Starts, workers::connections};
use crate::fake_client::{ActionSpec, FakeClient, Updates};
use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use pointsman_proto::{
    longrunning::{Operation, operation},
    rev2::{Digest, ExecuteResponse, RequestMetadata, ToolDetails},
    unpack,
};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// Longest latency that is told apart.
const LATENCY_MAX: Duration = Duration::from_secs(600);

/// Clients that build tools would count as one build.
const CLIENTS_PER_INVOCATION: usize = 16;

/// Which part of a measurement the clients are in; first it is the warm-up.
#[derive(Debug, Default)]
pub(super) struct Phase(AtomicU8);

impl Phase {
    pub(super) const WINDOW: u8 = 1;
    pub(super) const OVER: u8 = 2;

    pub(super) fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Relaxed);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What clients saw in the window.
#[derive(Debug)]
pub(super) struct Seen {
    /// From sending Execute to the end of its stream, in nanoseconds.
    pub(super) latency: Histogram<u64>,
    /// From sending Execute to the worker's start.
    pub(super) assignment: Histogram<u64>,
    pub(super) updates: u64,
}

impl Seen {
    fn new() -> Result<Self> {
        let max = u64::try_from(LATENCY_MAX.as_nanos())?;
        let histogram = || Histogram::new_with_bounds(1, max, 3);
        Ok(Self { latency: histogram()?, assignment: histogram()?, updates: 0 })
    }

    fn record(&mut self, latency: Duration, assignment_nanoseconds: u64, updates: u64) {
        // Years would be cut to the most that is told apart.
        self.latency.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        self.assignment.saturating_record(assignment_nanoseconds);
        self.updates += updates;
    }
}

/// What all clients of a measurement share: a histogram of each would be half a megabyte.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) phase: Phase,
    pub(super) starts: Arc<Starts>,
    seen: Mutex<Seen>,
}

impl Shared {
    pub(super) fn new(starts: Arc<Starts>) -> Result<Self> {
        Ok(Self { phase: Phase::default(), starts, seen: Mutex::new(Seen::new()?) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was seen.
    pub(super) fn take(&self) -> Result<Seen> {
        Ok(std::mem::replace(&mut *self.seen(), Seen::new()?))
    }
}

/// Stores the actions that the clients run, by index.
pub(super) async fn upload(server: &Server, settings: &Settings) -> Result<Vec<Digest>> {
    ensure!(
        settings.actions >= settings.clients,
        "{} actions for {} clients: each needs one of its own, give at least as many actions",
        settings.actions,
        settings.clients
    );
    let client = FakeClient::connect(server.address()).await?;
    let spec = settings.action();
    let [input_root, command, _] = spec.blobs();
    client.upload([input_root, command]).await?;
    let actions = (0..settings.actions).map(|index| {
        let salt = Starts::salt(index).to_vec().into();
        let [.., action] = ActionSpec { salt, platform: settings.platform_of(index), ..spec.clone() }.blobs();
        action
    });
    client.upload(actions).await.context("upload of the actions")
}

/// Starts the clients; they end after the action that is under way when the window is over.
pub(super) async fn start(
    server: &Server,
    settings: &Settings,
    shared: &Arc<Shared>,
    actions: &[Digest],
) -> Result<JoinSet<Result<()>>> {
    let connections = connections(server, settings.connections.min(settings.clients)).await?;
    let mut clients = JoinSet::new();
    for index in 0..settings.clients {
        let channel = connections[index % connections.len()].clone();
        let client =
            FakeClient::new(channel).with_request_metadata(&metadata(index / CLIENTS_PER_INVOCATION));
        let own = actions.iter().cloned().enumerate().skip(index).step_by(settings.clients).collect();
        clients.spawn(closed_loop(client, own, Arc::clone(shared)));
    }
    Ok(clients)
}

/// What a build tool says about itself, of usual length.
pub(super) fn metadata(invocation: usize) -> RequestMetadata {
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
async fn closed_loop(client: FakeClient, actions: Vec<(usize, Digest)>, shared: Arc<Shared>) -> Result<()> {
    for (index, action) in actions.iter().cycle() {
        let begin = Instant::now();
        let stream = client.execute(action).await.context("Execute")?;
        let updates = finish(stream).await.with_context(|| format!("execution of {action:?}"))?;
        match shared.phase.get() {
            Phase::WINDOW => {
                let latency = begin.elapsed();
                shared.seen().record(latency, shared.starts.after(begin, *index), updates);
            }
            Phase::OVER => break,
            _ => {}
        }
    }
    Ok(())
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
