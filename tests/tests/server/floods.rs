//! Too much of something, by one client or worker: refused or absorbed, and another's build goes on.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use pointsman_proto::remoteworker::operation_queue_client::OperationQueueClient;
use pointsman_proto::remoteworker::{SynchronizeRequest, SynchronizeResponse};
use pointsman_tests::fake_client::{ActionSpec, FakeClient, connect};
use pointsman_tests::fake_worker::RunningWorker;
use tonic::{Code, Status};

use crate::support::{TestServer, action, host, server, server_with, started, within};

/// How long an action of the other build may take, on a machine that the flood keeps busy.
const SLOW: Duration = Duration::from_secs(5);

/// Somebody else's build: one action after the other, on a worker of their own.
struct OtherBuild {
    client: FakeClient,
    _worker: RunningWorker,
    done: usize,
}

impl OtherBuild {
    async fn of(server: &TestServer) -> Self {
        let worker = server.eager_worker(&host("own").with_property("Pool", "own")).await;
        Self { client: server.client().await, _worker: worker, done: 0 }
    }

    async fn action(&mut self) {
        let spec = action(&format!("other {}", self.done)).with_property("Pool", "own");
        let digest = self.client.upload_action(&spec).await.unwrap();
        let began = Instant::now();
        let response = within(self.client.execute(&digest).await.unwrap().finish()).await.unwrap().response;
        assert_eq!(response.result.unwrap().exit_code, 0);
        assert!(began.elapsed() < SLOW, "an action took {:?}", began.elapsed());
        self.done += 1;
    }

    /// Goes on while the flood does, and beyond.
    async fn beside<T>(&mut self, flood: impl Future<Output = T>) -> T {
        let mut flood = std::pin::pin!(flood);
        let result = loop {
            tokio::select! {
                result = &mut flood => break result,
                () = self.action() => {}
            }
        };
        // What the flood cut off is asked for again.
        self.action().await;
        result
    }
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "not yet: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Calls all at once, on a few connections.
async fn call_all(
    server: &TestServer,
    requests: impl IntoIterator<Item = SynchronizeRequest>,
) -> Vec<Result<SynchronizeResponse, Status>> {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(OperationQueueClient::new(connect(server.address).await.unwrap()));
    }
    let call = |(i, request): (usize, SynchronizeRequest)| {
        let mut client = clients[i % 4].clone();
        async move { client.synchronize(request).await.map(tonic::Response::into_inner) }
    };
    join_all(requests.into_iter().enumerate().map(call)).await
}

// === Workers ===

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_calls_of_one_worker_take_each_others_place() {
    let server = server().await;
    let mut other = OtherBuild::of(&server).await;
    let request = server.worker(&host("flood")).await.request().clone();
    let answers = other.beside(call_all(&server, vec![request; 5000])).await;
    let refused: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert_eq!(refused.len(), 4999, "one is left");
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("same worker_id"), "{status}");
    }
    assert_eq!(server.server.driver.counts().workers, 2, "one of each");
}

#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_workers_are_taken_up_to_the_limit_and_forgotten() {
    let server = server_with("limits: { workers: 500 }").await;
    let mut other = OtherBuild::of(&server).await;
    other.action().await;
    let mut requests = Vec::new();
    let request = server.worker(&host("flood")).await.request().clone();
    for i in 0..5000 {
        let mut request = request.clone();
        request.worker_id.insert("hostname".to_owned(), format!("flood {i}"));
        requests.push(request);
    }
    let answers = other.beside(call_all(&server, requests)).await;
    let refused: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert!(refused.len() >= 2000, "only {} were refused", refused.len());
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("limits.workers"), "{status}");
    }
    assert!(server.server.driver.counts().workers <= 500);
    until("the flood is forgotten", || server.server.driver.counts().workers == 1).await;
    other.action().await;
}

// === Clients ===

/// Uploads that many different actions.
async fn uploaded(client: &FakeClient, specs: Vec<ActionSpec>) -> Vec<pointsman_proto::rev2::Digest> {
    let blobs = specs.iter().flat_map(ActionSpec::blobs);
    let digests = client.upload(blobs).await.unwrap();
    digests.into_iter().skip(2).step_by(3).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_streams_are_opened_and_left() {
    let server = server().await;
    let mut other = OtherBuild::of(&server).await;
    let client = server.client().await;
    let specs = (0..10_000).map(|i| action(&format!("flood {i}")).with_property("ISA", "none")).collect();
    let digests = uploaded(&client, specs).await;
    let driver = server.server.driver.clone();
    let flood = async {
        let streams = join_all(digests.iter().map(|digest| client.execute(digest))).await;
        assert_eq!(streams.iter().filter(|stream| stream.is_ok()).count(), 10_000);
        assert!(driver.counts().queued >= 10_000);
    };
    other.beside(flood).await;
    drop(client);
    // `timers.abandoned` later nobody is left who wants them.
    other.beside(until("they are abandoned", || driver.counts().queued == 0)).await;
}

/// Actions each of which asks for a value of its own.
async fn unique(client: &FakeClient, count: usize) -> Vec<pointsman_proto::rev2::Digest> {
    let specs = (0..count).map(|i| action("flood").with_property("tag", &format!("tag {i}"))).collect();
    uploaded(client, specs).await
}

const TAGS: &str = "supported_platform_properties: { Pool: 'priority', tag: 'exact' },";

#[tokio::test(flavor = "multi_thread")]
async fn a_property_whose_value_is_unique_per_action_is_absorbed_and_forgotten() {
    let server = server_with(TAGS).await;
    let mut other = OtherBuild::of(&server).await;
    let client = server.client().await;
    let digests = unique(&client, 5000).await;
    let driver = server.server.driver.clone();
    let flood = async { join_all(digests.iter().map(|digest| client.execute(digest))).await };
    let answers = other.beside(flood).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5000);
    assert!(driver.counts().classes > 5000 && driver.counts().lanes < 10, "{:?}", driver.counts());
    drop((answers, client));
    // Some are kept, in case that more like them come.
    other.beside(until("the flood is forgotten", || driver.counts().classes < 1100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn beyond_the_limit_such_actions_are_refused_with_the_reason() {
    let server = server_with(&format!("{TAGS} limits: {{ classes: 1000 }}")).await;
    // Something that asks for the same as the other build is in flight all the time.
    let client = server.client().await;
    let held = client.upload_action(&action("held").with_property("Pool", "own")).await.unwrap();
    let _held = client.execute(&held).await.unwrap();
    let mut holds = server.stuck_worker(&host("holds").with_property("Pool", "own")).await;
    started(&mut holds).await;

    let mut other = OtherBuild::of(&server).await;
    let digests = unique(&client, 3000).await;
    let driver = server.server.driver.clone();
    let flood = async { join_all(digests.iter().map(|digest| client.execute(digest))).await };
    let answers = other.beside(flood).await;
    let refused: Vec<_> = answers.iter().filter_map(|a| a.as_ref().err()).collect();
    assert_eq!((refused.len(), driver.counts().classes), (2001, 1000));
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("limits.classes"), "{status}");
    }
    drop(answers);
    other.beside(until("the flood is gone", || driver.counts().queued == 0)).await;
}

#[tokio::test]
async fn an_amount_that_is_unique_per_action_is_bounded_with_the_reason() {
    let server = server_with("limits: { demands: 20 }").await;
    let mut other = OtherBuild::of(&server).await;
    let client = server.client().await;
    let mut streams = Vec::new();
    for i in 0..40 {
        let spec = action("flood").with_property("memory", &format!("{}", 1000 + i));
        streams.push(client.execute(&client.upload_action(&spec).await.unwrap()).await);
        other.action().await;
    }
    let refused: Vec<_> = streams.iter().filter_map(|s| s.as_ref().err()).collect();
    assert!((20..=21).contains(&refused.len()), "{} were refused", refused.len());
    for status in refused {
        assert_eq!(status.code(), Code::ResourceExhausted);
        assert!(status.message().contains("round the values"), "{status}");
    }
}
