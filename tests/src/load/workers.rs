//! Workers: those that take part, and those that only wait.
use super::{Server, Settings, settings::POOL_KEY, starts::Starts};
use crate::{
    fake_client::connect,
    fake_worker::{FakeWorker, WorkerSpec, exited},
};
use anyhow::Result;
use std::sync::Arc;
use tokio::{task::JoinSet, time::sleep};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

/// Connections of all workers that only wait.
const IDLE_CONNECTIONS: usize = 8;

/// Starts all workers of a measurement; they work until `stop`.
pub(super) async fn start(
    server: &Server,
    settings: &Settings,
    starts: &Arc<Starts>,
    stop: &CancellationToken,
) -> Result<JoinSet<()>> {
    let mut workers = JoinSet::new();
    let idle = connections(server, IDLE_CONNECTIONS.min(settings.idle_workers)).await?;
    for index in 0..settings.idle_workers {
        let pool = format!("parked-{}", index % settings.pools.max(1));
        let spec = WorkerSpec::new(&format!("parked-{index:05}")).with_property(POOL_KEY, &pool);
        let worker = FakeWorker::new(idle[index % idle.len()].clone(), &spec);
        workers.spawn(worker.serve(|work| async move { exited(&work, 0) }, stop.clone(), |_| {}));
    }
    let channels = connections(server, settings.worker_connections.min(settings.hosts)).await?;
    for host in 0..settings.hosts {
        let name = format!("host-{host:05}");
        let spec = WorkerSpec { platform: settings.platform_of(host), ..WorkerSpec::new(&name) };
        for thread in 0..settings.threads {
            let worker = FakeWorker::new(channels[host % channels.len()].clone(), &spec.thread(thread));
            let (starts, time) = (Arc::clone(starts), settings.action_time);
            let run = move |work| {
                starts.mark(&work);
                async move {
                    if !time.is_zero() {
                        sleep(time).await;
                    }
                    exited(&work, 0)
                }
            };
            workers.spawn(worker.serve(run, stop.clone(), |_| {}));
        }
    }
    Ok(workers)
}

pub(super) async fn connections(server: &Server, count: usize) -> Result<Vec<Channel>> {
    let mut channels = Vec::with_capacity(count);
    for _ in 0..count {
        channels.push(connect(server.address()).await?);
    }
    Ok(channels)
}
