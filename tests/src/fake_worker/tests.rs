//! The worker against a scheduler whose answers the test writes.
use super::*;
use crate::fake_client::{connect, digest_of};
use pointsman_proto::{
    remoteworker::{
        SynchronizeResponse,
        operation_queue_server::{OperationQueue, OperationQueueServer},
    },
    rev2::Action,
    rpc,
};
use std::future::{pending, ready};
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, transport::Server};

type Answer = Result<SynchronizeResponse, Status>;

/// Hands each call to the test, which answers when it likes.
struct Asking(mpsc::UnboundedSender<Call>);

struct Call {
    request: SynchronizeRequest,
    answer: oneshot::Sender<Answer>,
}

#[tonic::async_trait]
impl OperationQueue for Asking {
    async fn synchronize(
        &self,
        request: Request<SynchronizeRequest>,
    ) -> Result<Response<SynchronizeResponse>, Status> {
        let (answer, answered) = oneshot::channel();
        self.0.send(Call { request: request.into_inner(), answer }).unwrap();
        answered.await.unwrap_or_else(|_| Err(Status::unavailable("no answer"))).map(Response::new)
    }
}

struct Scheduler(mpsc::UnboundedReceiver<Call>);

impl Scheduler {
    async fn start() -> (Self, FakeWorker) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let service = OperationQueueServer::new(Asking(sender));
        tokio::spawn(
            Server::builder().add_service(service).serve_with_incoming(TcpListenerStream::new(listener)),
        );
        let spec = WorkerSpec::new("here").with_property("b", "2").with_property("a", "1").thread(7);
        let worker = FakeWorker::new(connect(address).await.unwrap(), &spec);
        (Self(calls), worker.with_error_pause_max(Duration::from_millis(10)))
    }

    async fn call(&mut self) -> Call {
        timeout(Duration::from_secs(10), self.0.recv()).await.expect("no call within 10 s").unwrap()
    }

    async fn no_call_for(&mut self, time: Duration) {
        assert!(timeout(time, self.0.recv()).await.is_err(), "a call too early");
    }
}

impl Call {
    fn answer(self, in_: Duration, state: Option<desired_state::WorkerState>) -> SynchronizeRequest {
        let next_synchronization_at = Some((SystemTime::now() + in_).into());
        let desired_state = state.map(|s| DesiredState { worker_state: Some(s) });
        self.answer.send(Ok(SynchronizeResponse { next_synchronization_at, desired_state })).unwrap();
        self.request
    }

    fn idle(self) -> SynchronizeRequest {
        self.answer(Duration::ZERO, Some(desired_state::WorkerState::Idle(())))
    }

    fn work(self, name: &str, heartbeat: Duration) -> SynchronizeRequest {
        self.answer(heartbeat, Some(desired_state::WorkerState::Executing(work(name))))
    }

    fn go_on(self, heartbeat: Duration) -> SynchronizeRequest {
        self.answer(heartbeat, None)
    }

    fn fail(self) -> SynchronizeRequest {
        self.answer.send(Err(Status::unavailable("lost"))).unwrap();
        self.request
    }
}

fn work(name: &str) -> Work {
    Work {
        action_digest: Some(digest_of(name.as_bytes())),
        action: Some(Action {
            timeout: Some(Duration::from_secs(60).try_into().unwrap()),
            ..Default::default()
        }),
        digest_function: digest_function::Value::Sha256.into(),
        ..Default::default()
    }
}

/// The state that a request reports: `None` for idle.
fn reported(request: &SynchronizeRequest) -> Option<&ExecutionState> {
    match request.current_state.as_ref().unwrap().worker_state.as_ref().unwrap() {
        current_state::WorkerState::Idle(()) => None,
        current_state::WorkerState::Executing(executing) => executing.execution_state.as_ref(),
    }
}

fn is_completed(request: &SynchronizeRequest) -> bool {
    matches!(reported(request), Some(ExecutionState::Completed(_)))
}

const LONG: Duration = Duration::from_secs(100);

#[tokio::test]
async fn says_who_it_is_and_calls_again_at_once_while_idle() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let _running = worker.start(|work| ready(exited(&work, 0)));
    let request = scheduler.call().await.idle();
    assert_eq!(request.worker_id["thread"], "007");
    let names: Vec<_> = request.platform.unwrap().properties.into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["a", "b"]);
    // The appointed time of an idle worker does not count.
    let idle = scheduler.call().await.answer(LONG, Some(desired_state::WorkerState::Idle(())));
    assert_eq!(reported(&idle), None);
    assert!(!scheduler.call().await.request.prefer_being_idle);
}

#[tokio::test]
async fn completes_at_once_and_gets_the_next_action_in_the_same_call() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let _running = worker.start(|work| ready(exited(&work, 0)));
    scheduler.call().await.work("one", LONG);
    assert!(is_completed(&scheduler.call().await.work("two", LONG)));
    let second = scheduler.call().await.idle();
    let Some(current_state::WorkerState::Executing(executing)) = second.current_state.unwrap().worker_state
    else {
        panic!("idle")
    };
    assert_eq!(executing.action_digest, Some(digest_of(b"two")));
    assert_eq!(reported(&scheduler.call().await.request), None);
}

#[tokio::test]
async fn executing_it_waits_for_the_appointed_time() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let _running = worker.start(|_| pending());
    scheduler.call().await.work("one", Duration::from_millis(300));
    scheduler.no_call_for(Duration::from_millis(150)).await;
    let heartbeat = scheduler.call().await.go_on(LONG);
    assert_eq!(reported(&heartbeat), Some(&ExecutionState::Running(())));
    scheduler.no_call_for(Duration::from_millis(150)).await;
}

#[tokio::test]
async fn repeats_the_end_until_an_answer_arrives() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let _running = worker.start(|work| ready(exited(&work, 3)));
    scheduler.call().await.work("one", LONG);
    let lost = scheduler.call().await.fail();
    let again = scheduler.call().await.idle();
    assert!(is_completed(&lost));
    assert_eq!(lost.current_state, again.current_state);
    assert!(!again.prefer_being_idle);
}

#[tokio::test]
async fn after_a_lost_answer_an_idle_worker_wants_to_be_idle() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let _running = worker.start(|_| pending());
    assert!(!scheduler.call().await.fail().prefer_being_idle);
    assert!(scheduler.call().await.idle().prefer_being_idle);
    assert!(!scheduler.call().await.idle().prefer_being_idle);
}

#[tokio::test]
async fn after_an_error_of_its_own_it_wants_to_be_idle() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let status = rpc::Status { code: 13, message: "disk gone".into(), ..Default::default() };
    let response = ExecuteResponse { status: Some(status), ..Default::default() };
    let _running = worker.start(move |_| ready(response.clone()));
    scheduler.call().await.work("one", LONG);
    assert!(scheduler.call().await.idle().prefer_being_idle);
    assert!(!scheduler.call().await.idle().prefer_being_idle);
}

#[tokio::test]
async fn gives_up_what_it_runs_for_something_else() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let mut running = worker.start(|_| pending());
    scheduler.call().await.work("one", Duration::ZERO);
    scheduler.call().await.work("two", Duration::ZERO);
    scheduler.call().await.idle();
    assert_eq!(reported(&scheduler.call().await.request), None);
    let mut seen = Vec::new();
    while let Some(event) = running.next_event().await {
        let last = matches!(event, Event::Idle);
        seen.push(event);
        if last {
            break;
        }
    }
    let [Event::Started(_), Event::Cancelled(one), Event::Started(_), Event::Cancelled(two), Event::Idle] =
        &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert_eq!((one, two), (&digest_of(b"one"), &digest_of(b"two")));
}

#[tokio::test]
async fn stops_only_when_the_scheduler_knows() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let mut running = worker.start(|_| async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ExecuteResponse::default()
    });
    scheduler.call().await.work("one", LONG);
    assert!(matches!(running.next_event().await, Some(Event::Started(_))));
    running.stop();
    let heartbeat = scheduler.call().await.go_on(LONG);
    assert!(!is_completed(&heartbeat) && heartbeat.prefer_being_idle);
    let end = scheduler.call().await.idle();
    assert!(is_completed(&end) && end.prefer_being_idle);
    running.stopped().await;
    scheduler.no_call_for(Duration::from_millis(50)).await;
}

#[tokio::test]
async fn stopping_replaces_a_call_that_blocks() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let running = worker.start(|_| pending());
    let _blocks = scheduler.call().await;
    running.stop();
    assert!(scheduler.call().await.idle().prefer_being_idle);
    running.stopped().await;
}

#[tokio::test]
async fn a_crash_is_silent() {
    let (mut scheduler, worker) = Scheduler::start().await;
    let running = worker.start(|_| pending());
    scheduler.call().await.work("one", Duration::from_millis(20));
    let _heartbeat = scheduler.call().await;
    running.crash();
    scheduler.no_call_for(Duration::from_millis(100)).await;
}

#[tokio::test]
async fn refuses_answers_that_a_real_worker_refuses() {
    let (mut scheduler, mut worker) = Scheduler::start().await;
    let answers = [
        SynchronizeResponse::default(),
        SynchronizeResponse {
            next_synchronization_at: Some(SystemTime::now().into()),
            desired_state: Some(DesiredState { worker_state: None }),
        },
        SynchronizeResponse {
            next_synchronization_at: Some(SystemTime::now().into()),
            desired_state: Some(DesiredState {
                worker_state: Some(desired_state::WorkerState::Executing(Work {
                    digest_function: 0,
                    ..work("one")
                })),
            }),
        },
        SynchronizeResponse {
            next_synchronization_at: Some(SystemTime::now().into()),
            desired_state: Some(DesiredState {
                worker_state: Some(desired_state::WorkerState::Executing(Work {
                    action: None,
                    ..work("one")
                })),
            }),
        },
    ];
    for answer in answers {
        let before = worker.request().clone();
        let what = format!("{answer:?}");
        let (result, ()) = tokio::join!(worker.synchronize(), async {
            scheduler.call().await.answer.send(Ok(answer)).unwrap();
        });
        assert_eq!(result.unwrap_err().code(), tonic::Code::Internal, "{what}");
        assert_eq!(worker.request(), &before, "{what}");
    }
}
