//! A proxy between client and server that can answer in the server's place.

mod answers;

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::{BodyExt as _, BodyStream, Full, StreamBody};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use pointsman_proto::rev2::ExecuteRequest;
use prost::Message as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use answers::{Body, done, first_messages, refusal};

/// The methods whose requests are kept: one message each, and they tell what a client makes of a fault.
const KEPT: [&str; 4] = ["Execute", "WaitExecution", "FindMissingBlobs", "BatchUpdateBlobs"];

/// How long the last words of a server that closed its connection may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What is done to a call.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It fails with this code; the server does not hear of it.
    Refuse(Code),
    /// It fails with FAILED_PRECONDITION and the action's own blob as MISSING; for `Execute`.
    RefuseMissing,
    /// Its one message is an operation that is done with this code; for `Execute`.
    Respond(Code),
    /// The same with FAILED_PRECONDITION and the action's own blob as MISSING.
    RespondMissing,
    /// So many messages of the server come through, then the stream ends with this code, which may be OK.
    End(usize, Code),
    /// It waits until the test lets it go on.
    Pause(Arc<Pause>),
}

/// A call that waits before the server has heard of it.
#[derive(Debug, Default)]
pub struct Pause {
    arrived: Notify,
    released: Notify,
}

impl Pause {
    /// Waits for the call, a minute at most.
    ///
    /// # Errors
    /// There was none.
    pub async fn arrived(&self) -> anyhow::Result<()> {
        let arrived = tokio::time::timeout(Duration::from_secs(60), self.arrived.notified());
        arrived.await.context("the call that is to wait did not come")
    }

    /// Lets it go on.
    pub fn release(&self) {
        self.released.notify_one();
    }
}

/// Passes calls on byte for byte, connection for connection, but for those that have a [`Fault`]. Dropping it ends it.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    _accepts: AbortOnDropHandle<()>,
}

#[derive(Debug, Default)]
struct Shared {
    /// By method: what is done to its next calls, the next one last.
    faults: Mutex<HashMap<&'static str, Vec<Fault>>>,
    /// Calls of the methods that are kept, with their requests.
    calls: Mutex<Vec<(&'static str, Bytes)>>,
    /// Whether something of the answer to an `Execute` was passed on.
    has_answered: AtomicBool,
}

impl FaultProxy {
    /// Listens on a port of the loopback, for the server at `target` (`IP:PORT`).
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(target: String) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared::default());
        let accepts = AbortOnDropHandle::new(tokio::spawn(accept(listener, target, shared.clone())));
        Ok(Self { address, shared, _accepts: accepts })
    }

    /// `IP:PORT`.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Does this to the next so many calls of a method (`Execute`), after what was asked for before.
    pub fn inject(&self, method: &'static str, calls: usize, fault: &Fault) {
        let mut faults = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = faults.entry(method).or_default();
        queue.splice(0..0, std::iter::repeat_n(fault.clone(), calls));
    }

    /// Holds the next call of a method.
    pub fn pause(&self, method: &'static str) -> Arc<Pause> {
        let pause = Arc::new(Pause::default());
        self.inject(method, 1, &Fault::Pause(pause.clone()));
        pause
    }

    /// Whether a client has the first message of an `Execute`, or is about to.
    pub fn has_answered(&self) -> bool {
        self.shared.has_answered.load(Ordering::Relaxed)
    }

    /// What was called for the action of the first `Execute`, that call included: the methods `Execute`,
    /// `WaitExecution`, `FindMissingBlobs` and `BatchUpdateBlobs`.
    pub fn calls_for_first_action(&self) -> Vec<&'static str> {
        let calls = self.shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
        let mut calls = calls.iter().skip_while(|(method, _)| *method != "Execute").peekable();
        let first = calls.peek().map(|(_, request)| action_hash(request)).unwrap_or_default();
        calls
            .filter(|(method, request)| *method == "WaitExecution" || contains(request, first.as_bytes()))
            .map(|(method, _)| *method)
            .collect()
    }
}

/// Requests are protobuf, in which strings are as they are.
fn contains(request: &[u8], text: &[u8]) -> bool {
    !text.is_empty() && request.windows(text.len()).any(|part| part == text)
}

/// The request of an `Execute` as it came: five bytes before the message.
fn execute_request(frame: &[u8]) -> ExecuteRequest {
    ExecuteRequest::decode(frame.get(5..).unwrap_or_default()).unwrap_or_default()
}

fn action_hash(frame: &[u8]) -> String {
    execute_request(frame).action_digest.unwrap_or_default().hash
}

async fn accept(listener: TcpListener, target: String, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        // How a connection ends is for its two sides to judge.
        tokio::spawn(serve(client, target.clone(), shared.clone()));
    }
}

/// One connection of a client, with one to the server that it shares its fate with.
async fn serve(client: TcpStream, target: String, shared: Arc<Shared>) -> anyhow::Result<()> {
    let server = TcpStream::connect(target).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (sender, server) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(server)).await?;
    let broken = CancellationToken::new();
    let service = service_fn({
        let broken = broken.clone();
        move |request| call(shared.clone(), sender.clone(), request, broken.clone())
    });
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    builder.auto_date_header(false);
    let mut client = pin!(builder.serve_connection(TokioIo::new(client), service));
    let server_gone = async {
        tokio::select! {
            () = broken.cancelled() => true,
            _ = server => false,
        }
    };
    tokio::select! {
        lost = server_gone => {
            if !lost {
                client.as_mut().graceful_shutdown();
                tokio::select! {
                    () = broken.cancelled() => {}
                    _ = tokio::time::timeout(LAST_WORDS, client) => {}
                }
            }
        }
        _ = client.as_mut() => {}
    }
    Ok(())
}

async fn call(
    shared: Arc<Shared>,
    mut sender: SendRequest<Body>,
    request: Request<Incoming>,
    broken: CancellationToken,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let method = head.uri.path().rsplit('/').next().unwrap_or_default().to_owned();
    let mut request = Bytes::new();
    let body = match KEPT.into_iter().find(|kept| *kept == method) {
        None => body.boxed_unsync(),
        Some(kept) => {
            // Without its whole request the client is gone.
            let Ok(whole) = body.collect().await else { return std::future::pending().await };
            request = whole.to_bytes();
            let mut calls = shared.calls.lock().unwrap_or_else(PoisonError::into_inner);
            calls.push((kept, request.clone()));
            Full::new(request.clone()).map_err(|never| match never {}).boxed_unsync()
        }
    };
    let fault = {
        let mut faults = shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.get_mut(method.as_str()).and_then(Vec::pop)
    };
    let digest = || execute_request(&request).action_digest.unwrap_or_default();
    match &fault {
        Some(Fault::Refuse(code)) => return Ok(refusal(*code, None)),
        Some(Fault::RefuseMissing) => return Ok(refusal(Code::FailedPrecondition, Some(&digest()))),
        Some(Fault::Respond(code)) => return Ok(done(*code, None)),
        Some(Fault::RespondMissing) => return Ok(done(Code::FailedPrecondition, Some(&digest()))),
        Some(Fault::Pause(pause)) => {
            pause.arrived.notify_one();
            pause.released.notified().await;
        }
        Some(Fault::End(..)) | None => {}
    }
    let Ok(response) = sender.send_request(Request::from_parts(head, body)).await else {
        broken.cancel();
        return std::future::pending().await;
    };
    let (head, body) = response.into_parts();
    let body = match fault {
        Some(Fault::End(messages, code)) => first_messages(body, messages, code).await,
        _ => passed(body, broken, (method == "Execute").then_some(shared)),
    };
    Ok(Response::from_parts(head, body))
}

/// A response as it is. When the connection breaks the client's is to break too, and not only this stream.
fn passed(body: Incoming, broken: CancellationToken, execute: Option<Arc<Shared>>) -> Body {
    if body.is_end_stream() {
        return body.boxed_unsync();
    }
    let frames = BodyStream::new(body).then(move |frame| {
        if let Some(shared) = &execute {
            shared.has_answered.store(true, Ordering::Relaxed);
        }
        let broken = broken.clone();
        async move {
            if frame.is_err() {
                broken.cancel();
                std::future::pending::<()>().await;
            }
            frame
        }
    });
    StreamBody::new(frames).boxed_unsync()
}
