//! The HTTP side port: `/metrics`, `/healthz`, `/readyz`. Reads only.
//!
//! Whoever reaches it can cost little: headers must come soon, connections are few (the oldest makes room for a new one,
//! so that slow ones don't keep monitoring out) and don't live long, and a scrape that comes right after another gets
//! the same text.

mod readiness;
mod site;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::config::HttpListen;

pub use readiness::Readiness;
pub use site::Site;

/// Connections at one time.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take to send its headers, and to send others after the answer.
const HEADERS_WITHIN: Duration = Duration::from_secs(10);
/// How long a connection may be open, whatever it does. Scrapers open another.
const CONNECTION_LIFE: Duration = Duration::from_secs(300);
/// Bytes of headers.
const HEADERS_MAX_BYTES: usize = 16 << 10;
/// Pause after a connection that could not be accepted, for want of file descriptors above all.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the side port of a server that listens for clients at `listen`. `None`: it is off, or nobody asked for the usual one and that is taken.
///
/// # Errors
/// The address that the configuration names can't be had.
pub async fn bind(http: HttpListen, listen: SocketAddr) -> anyhow::Result<Option<TcpListener>> {
    match http {
        HttpListen::Off => Ok(None),
        HttpListen::Auto if listen.port() == HttpListen::AUTO.port() => {
            tracing::warn!(
                "no /metrics, /healthz and /readyz: clients and workers have their usual port (listen)"
            );
            Ok(None)
        }
        HttpListen::At(address) => {
            let bound = TcpListener::bind(address).await;
            Ok(Some(bound.with_context(|| {
                format!("can't listen on {address} for HTTP (http.listen): give another address, \"auto\" or \"off\"")
            })?))
        }
        HttpListen::Auto => match TcpListener::bind(HttpListen::AUTO).await {
            Ok(listener) => Ok(Some(listener)),
            Err(error) => {
                tracing::warn!(
                    "no /metrics, /healthz and /readyz: {} can't be had ({error}); give an address as http.listen, or \
                     \"off\" to have none",
                    HttpListen::AUTO
                );
                Ok(None)
            }
        },
    }
}

/// Answers on an open side port until `stop`.
pub async fn serve(listener: TcpListener, site: Arc<Site>, stop: CancellationToken) {
    let mut connections = JoinSet::new();
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        // Those that have ended.
        while connections.try_join_next().is_some() {}
        open.retain(|connection| !connection.is_finished());
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if open.len() >= CONNECTIONS_MAX
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        open.push_back(connections.spawn(connection(stream, peer, site.clone())));
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, site: Arc<Site>) {
    let answer = service_fn(move |request| {
        let site = site.clone();
        async move { Ok::<_, Infallible>(site.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS_WITHIN)
        .max_buf_size(HEADERS_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), answer);
    if let Ok(Err(error)) = tokio::time::timeout(CONNECTION_LIFE, served).await {
        tracing::debug!(%peer, %error, "a connection to the side port ended");
    }
}
