//! One server, its clients and its workers, and what they see.
use super::{
    CpuClock, OWN_PROCESS, Server, Settings,
    clients::{self, Phase, Seen, Shared},
    starts::Starts,
    waiting, workers,
};
use anyhow::{Context as _, Result, bail, ensure};
use hdrhistogram::Histogram;
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

/// How long actions that are under way at the end of the window may still take.
const LAST_ACTIONS_MAX: Duration = Duration::from_secs(60);

/// How long workers may take to say goodbye.
const WORKERS_STOP_MAX: Duration = Duration::from_secs(10);

/// How long the server has to settle before its memory is looked at.
const SETTLE: Duration = Duration::from_millis(500);

/// What one server did in the window.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// From sending Execute to the end of its stream, in nanoseconds.
    pub latency: Histogram<u64>,
    /// From sending Execute to the worker's start, in nanoseconds.
    pub assignment: Histogram<u64>,
    /// Operations received in all streams.
    pub updates: u64,
    /// Length of the window as it was.
    pub window: Duration,
    /// Processor time of the server in the window.
    pub server_cpu: Duration,
    /// Processor time of clients and workers in the window.
    pub own_cpu: Duration,
    /// By how many bytes the server's resident memory grew with each stream that waits; 0 if none does.
    pub bytes_per_waiting: f64,
}

impl Measurement {
    /// Actions that ended in the window.
    pub fn actions(&self) -> u64 {
        self.latency.len()
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
    let actions = clients::upload(server, settings).await?;
    let memory = server.resident_bytes()?;
    let waiting = waiting::open(server, settings).await?;
    let bytes_per_waiting = if settings.unmatched > 0 {
        sleep(SETTLE).await;
        (server.resident_bytes()? as f64 - memory as f64) / settings.unmatched as f64
    } else {
        0.0
    };

    let starts = Arc::new(Starts::new(settings.actions));
    let stop_workers = CancellationToken::new();
    let workers = workers::start(server, settings, &starts, &stop_workers).await?;
    let shared = Arc::new(Shared::new(starts)?);
    let mut clients = clients::start(server, settings, &shared, &actions).await?;
    let clock = server.cpu_clock()?;
    let own_clock = CpuClock::new(OWN_PROCESS);

    pass(settings.warm_up, &mut clients).await?;
    let (cpu, own_cpu, begin) = (clock.now()?, own_clock.now()?, Instant::now());
    shared.phase.set(Phase::WINDOW);
    pass(settings.window, &mut clients).await?;
    shared.phase.set(Phase::OVER);
    let window = begin.elapsed();
    let (server_cpu, own_cpu) = (clock.now()? - cpu, own_clock.now()? - own_cpu);

    timeout(LAST_ACTIONS_MAX, ended(&mut clients)).await.unwrap_or_else(|_| {
        bail!("{} clients still wait for their last action after {LAST_ACTIONS_MAX:?}", clients.len())
    })?;
    let seen = shared.take()?;
    ensure!(settings.clients == 0 || !seen.latency.is_empty(), "no action ended within {window:?}");
    drop(waiting);
    stop_workers.cancel();
    // Those that the server does not let go are aborted; the figures are complete.
    let _ = timeout(WORKERS_STOP_MAX, workers.join_all()).await;
    let Seen { latency, assignment, updates } = seen;
    Ok(Measurement { latency, assignment, updates, window, server_cpu, own_cpu, bytes_per_waiting })
}

async fn ended(clients: &mut JoinSet<Result<()>>) -> Result<()> {
    while let Some(client) = clients.join_next().await {
        client??;
    }
    Ok(())
}

/// Lets time pass, unless a client fails.
async fn pass(time: Duration, clients: &mut JoinSet<Result<()>>) -> Result<()> {
    let ended = async {
        match clients.join_next().await {
            // There were none to begin with.
            None => std::future::pending().await,
            Some(ended) => ended,
        }
    };
    tokio::select! {
        () = sleep(time) => Ok(()),
        ended = ended => match ended {
            Ok(Err(error)) => Err(error),
            Err(error) => Err(error.into()),
            Ok(Ok(())) => bail!("a client ended before its time"),
        },
    }
}
