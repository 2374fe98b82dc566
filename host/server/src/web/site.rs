//! What each path answers.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::Readiness;
use crate::metrics::{self, Metrics};

const PATHS: &str = "\
/metrics   what monitoring reads, as OpenMetrics text
/healthz   200 while the process lives
/readyz    200 while it takes work, else 503 and the reason
";

const TEXT: &str = "text/plain; charset=utf-8";

/// A scrape so soon after another gets the same text: whoever asks in a loop takes the core's lock no more often.
const SAME_WITHIN: Duration = Duration::from_millis(100);

/// The pages.
#[derive(Debug)]
pub struct Site {
    readiness: Readiness,
    metrics: OnceLock<Metrics>,
    last: Mutex<Option<(Instant, Bytes)>>,
}

impl Site {
    /// A site of a server that starts.
    pub fn new(readiness: Readiness) -> Self {
        Self { readiness, metrics: OnceLock::new(), last: Mutex::new(None) }
    }

    /// Its metrics, as soon as there are any. Only the first count.
    pub fn set_metrics(&self, metrics: Metrics) {
        // They are set once, by the server's start.
        _ = self.metrics.set(metrics);
    }

    pub(super) async fn answer<B>(self: Arc<Self>, request: Request<B>) -> Response<Full<Bytes>> {
        if ![Method::GET, Method::HEAD].contains(request.method()) {
            let text = format!("{} is not served here, only GET and HEAD\n", request.method());
            let mut response = page(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/metrics" => match self.clone().scraped().await {
                Some(text) => page(StatusCode::OK, metrics::CONTENT_TYPE, text),
                None => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, self.reason()),
            },
            "/healthz" => page(StatusCode::OK, TEXT, "alive\n"),
            "/readyz" if self.readiness.is_ready() => page(StatusCode::OK, TEXT, "ready\n"),
            "/readyz" => page(StatusCode::SERVICE_UNAVAILABLE, TEXT, self.reason()),
            "/" => page(StatusCode::OK, TEXT, PATHS),
            _ => page(
                StatusCode::NOT_FOUND,
                TEXT,
                format!("there is nothing at this path; there are\n\n{PATHS}"),
            ),
        }
    }

    fn reason(&self) -> String {
        // It may have become ready just now.
        format!("{}\n", self.readiness.why_not().unwrap_or("ready"))
    }

    async fn scraped(self: Arc<Self>) -> Option<Bytes> {
        // Fails only when the server ends.
        tokio::task::spawn_blocking(move || self.scrape()).await.ok()?
    }

    fn scrape(&self) -> Option<Bytes> {
        let metrics = self.metrics.get()?;
        // Of many at once one asks, and the others wait for its text.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((at, text)) if at.elapsed() < SAME_WITHIN => Some(text.clone()),
            _ => {
                let text = Bytes::from(metrics.text());
                *last = Some((Instant::now(), text.clone()));
                Some(text)
            }
        }
    }
}

fn page(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
