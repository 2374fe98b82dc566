//! Starts a server on a free port, with short timers.

use std::net::SocketAddr;
use std::time::Duration;

use pointsman::config::Config;
use pointsman::serve::Server;
use pointsman_proto::rev2::ExecuteResponse;
use pointsman_proto::v1::admin_client::AdminClient;
use pointsman_proto::v1::{ExplainRequest, Explanation};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, connect};
use pointsman_tests::fake_worker::{Event, FakeWorker, RunningWorker, WorkerSpec, exited};
use tonic::transport::Channel;

/// A server and the folder of its storage.
pub(crate) struct TestServer {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) _folder: tempfile::TempDir,
}

/// A server with these keys of the configuration besides the usual ones for tests.
pub(crate) async fn server_with(keys: &str) -> TestServer {
    start(tempfile::tempdir().unwrap(), "", keys).await
}

/// The same in a folder that may hold something already.
pub(crate) async fn server_in(folder: tempfile::TempDir, keys: &str) -> TestServer {
    start(folder, "", keys).await
}

/// The same with these keys below `timers`.
pub(crate) async fn start(folder: tempfile::TempDir, timers: &str, keys: &str) -> TestServer {
    let text = format!(
        "{{ listen: '127.0.0.1:0', state_dir: '{}',
            timers: {{ heartbeat: '100ms', idle_poll: '400ms', worker_expiry: '700ms', abandoned: '600ms',
                       maximum_action_timeout: '1h', {timers} }}, {keys} }}",
        folder.path().display()
    );
    let config = Config::parse(&text, "test.json5").unwrap_or_else(|e| panic!("{e}"));
    let server = Server::start(&config).await.unwrap();
    TestServer { address: server.address, server, _folder: folder }
}

pub(crate) async fn server() -> TestServer {
    server_with("").await
}

impl TestServer {
    pub(crate) async fn client(&self) -> FakeClient {
        FakeClient::connect(self.address).await.unwrap()
    }

    /// One worker thread that has not called yet.
    pub(crate) async fn worker(&self, spec: &WorkerSpec) -> FakeWorker {
        FakeWorker::new(connect(self.address).await.unwrap(), spec)
            .with_error_pause_max(Duration::from_millis(50))
    }

    /// A worker whose actions all end at once with exit code 0.
    pub(crate) async fn eager_worker(&self, spec: &WorkerSpec) -> RunningWorker {
        self.worker(spec).await.start(|work| async move { exited(&work, 0) })
    }

    /// A worker whose actions never end.
    pub(crate) async fn stuck_worker(&self, spec: &WorkerSpec) -> RunningWorker {
        self.worker(spec).await.start(|_| std::future::pending::<ExecuteResponse>())
    }
}

/// A worker that names its host and offers nothing in particular.
pub(crate) fn host(name: &str) -> WorkerSpec {
    WorkerSpec::new(name)
}

/// A cacheable action that differs from others by its argument.
pub(crate) fn action(argument: &str) -> ActionSpec {
    ActionSpec::new(["echo", argument])
}

/// Waits until the worker has been given something.
pub(crate) async fn started(worker: &mut RunningWorker) -> Box<pointsman_tests::fake_worker::Work> {
    loop {
        match within(worker.next_event()).await.expect("the worker ended") {
            Event::Started(work) => return work,
            Event::Failed(status) => panic!("the worker's call failed: {status}"),
            _ => {}
        }
    }
}

/// The future's output, which is overdue after ten seconds.
pub(crate) async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future).await.expect("nothing happened for ten seconds")
}

/// What operators ask.
pub(crate) async fn admin(server: &TestServer) -> AdminClient<Channel> {
    AdminClient::new(connect(server.address).await.unwrap())
}

/// Why that operation is where it is.
pub(crate) async fn why(admin: &mut AdminClient<Channel>, name: &str) -> Explanation {
    let request = ExplainRequest { operation_name: name.to_owned() };
    let found = within(admin.explain(request)).await.unwrap().into_inner();
    let counted: u32 = found.counts.iter().map(|c| c.workers).sum();
    assert_eq!(counted, found.workers, "{found:?}");
    found
}
