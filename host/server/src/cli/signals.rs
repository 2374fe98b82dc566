//! SIGTERM and Ctrl-C: the first asks for a drain, the second ends the process at once. SIGHUP: what can change is read
//! again.

use std::sync::Arc;

use anyhow::Context;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
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

/// Told at each SIGHUP.
///
/// # Errors
/// The process may not listen for signals.
pub(super) fn hangups() -> anyhow::Result<Arc<Notify>> {
    let mut hangup = signal(SignalKind::hangup()).context("can't listen for SIGHUP")?;
    let told = Arc::new(Notify::new());
    let tell = told.clone();
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP received: reading the configuration and the policies again");
            tell.notify_one();
        }
    });
    Ok(told)
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> &'static str {
    tokio::select! {
        _ = terminate.recv() => "SIGTERM",
        _ = interrupt.recv() => "SIGINT",
    }
}
