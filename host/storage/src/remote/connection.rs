//! The connection to the store, and when to leave it for a new one.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

/// An idle connection is asked so often whether the other side is still there. By TCP: many servers close connections that
/// send them HTTP/2 pings.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// The same while it does not answer.
const KEEPALIVE_UNANSWERED: Duration = Duration::from_secs(10);
/// So many unanswered ones end it.
const KEEPALIVE_RETRIES: u32 = 3;

/// One connection, replaced when it says nothing any more: that of a machine that vanished, or was moved, stays open for
/// a quarter of an hour.
pub(super) struct Connection {
    endpoint: Endpoint,
    patience: Duration,
    current: Mutex<Current>,
}

struct Current {
    channel: Channel,
    since: Instant,
}

impl Connection {
    /// To `grpc://HOST:PORT` or `http://HOST:PORT`; made when it is first used.
    pub(super) fn new(address: &str, patience: Duration) -> Result<Self, String> {
        let uri = address.replacen("grpc://", "http://", 1);
        let endpoint = Endpoint::from_shared(uri).map_err(|error| format!("{address}: {error}"))?;
        let endpoint = endpoint
            .connect_timeout(patience)
            .tcp_nodelay(true)
            .tcp_keepalive(Some(KEEPALIVE))
            .tcp_keepalive_interval(Some(KEEPALIVE_UNANSWERED))
            .tcp_keepalive_retries(Some(KEEPALIVE_RETRIES));
        let current = Current { channel: endpoint.connect_lazy(), since: Instant::now() };
        Ok(Self { endpoint, patience, current: Mutex::new(current) })
    }

    pub(super) fn channel(&self) -> Channel {
        self.lock().channel.clone()
    }

    /// A call got no answer within patience: later ones use another connection. Those that are under way stay where they are.
    pub(super) fn was_silent(&self) {
        let mut current = self.lock();
        // A younger one is not the one that was waited for.
        if current.since.elapsed() >= self.patience {
            *current = Current { channel: self.endpoint.connect_lazy(), since: Instant::now() };
        }
    }

    /// Nothing panics while it is held.
    fn lock(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
