//! SIGTERM and Ctrl-C: the first asks for a drain, the second ends the process at once.

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// A token that is cancelled at the first signal.
///
/// # Errors
/// The process may not listen for signals.
pub(super) fn shutdown_token() -> anyhow::Result<CancellationToken> {
    let mut terminate = signal(SignalKind::terminate()).context("can't listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("can't listen for SIGINT")?;
    let token = CancellationToken::new();
    let stop = token.clone();
    tokio::spawn(async move {
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::info!("{name} received: draining; once more ends the process at once");
        stop.cancel();
        let name = next(&mut terminate, &mut interrupt).await;
        tracing::warn!("{name} received again: ending without a drain");
        std::process::exit(super::EXIT_FAILURE.into());
    });
    Ok(token)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
