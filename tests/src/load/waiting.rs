//! Actions that wait for workers that never come.
use super::{Server, Settings, clients::metadata, workers::connections};
use crate::fake_client::{ActionSpec, FakeClient, Updates};
use anyhow::{Context as _, Result};
use std::sync::Arc;
use tokio::task::JoinSet;

/// Streams of one connection; servers allow some ten thousand.
const STREAMS_PER_CONNECTION: usize = 5_000;

/// Execute calls under way while the queue is filled.
const OPENERS: usize = 64;

/// Invocations of those that wait come after those of the clients.
const FIRST_INVOCATION: usize = 1_000_000;

/// Open Execute streams; dropping them is what clients do that leave.
#[derive(Debug)]
pub(super) struct Waiting {
    _streams: Vec<Updates>,
}

/// Queues all that waits and returns once the server has told each stream so.
pub(super) async fn open(server: &Server, settings: &Settings) -> Result<Waiting> {
    let channels = connections(server, settings.unmatched.div_ceil(STREAMS_PER_CONNECTION)).await?;
    let Some(first) = channels.first() else { return Ok(Waiting { _streams: Vec::new() }) };
    let specs = (0..settings.unmatched_classes.max(1)).map(|class| {
        let [.., action] =
            ActionSpec { platform: settings.in_pool(format!("nobody-{class}")), ..settings.action() }.blobs();
        action
    });
    let actions =
        Arc::new(FakeClient::new(first.clone()).upload(specs).await.context("upload of what waits")?);
    let mut openers = JoinSet::new();
    for opener in 0..OPENERS {
        let client = FakeClient::new(channels[opener % channels.len()].clone())
            .with_request_metadata(&metadata(FIRST_INVOCATION + opener));
        let (actions, count) = (Arc::clone(&actions), settings.unmatched);
        let channels = channels.clone();
        openers.spawn(async move {
            let mut streams = Vec::new();
            for index in (opener..count).step_by(OPENERS) {
                let client = client.over(channels[index / STREAMS_PER_CONNECTION].clone());
                let mut stream = client.execute(&actions[index % actions.len()]).await?;
                stream.next_operation().await?.context("a stream that ends at once")?;
                streams.push(stream);
            }
            anyhow::Ok(streams)
        });
    }
    let mut streams = Vec::with_capacity(settings.unmatched);
    while let Some(opened) = openers.join_next().await {
        streams.append(&mut opened?.context("queueing what waits")?);
    }
    Ok(Waiting { _streams: streams })
}
