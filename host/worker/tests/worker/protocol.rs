//! The client side of `Synchronize`.
use crate::harness::{Harness, sh};
use crate::scheduler::worker_key;
use pointsman_proto::remoteworker::{
    SynchronizeRequest, current_state, current_state::executing::ExecutionState,
};
use std::{collections::HashSet, time::Duration};
use tonic::Code;

fn is_idle(request: &SynchronizeRequest) -> bool {
    matches!(request.current_state.as_ref().unwrap().worker_state, Some(current_state::WorkerState::Idle(())))
}

fn stage(request: &SynchronizeRequest) -> Option<&ExecutionState> {
    match request.current_state.as_ref().unwrap().worker_state.as_ref().unwrap() {
        current_state::WorkerState::Executing(executing) => executing.execution_state.as_ref(),
        current_state::WorkerState::Idle(()) => None,
    }
}

fn is_completed(request: &SynchronizeRequest) -> bool {
    matches!(stage(request), Some(ExecutionState::Completed(_)))
}

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_thread_is_a_worker_with_a_sorted_platform() {
    let harness = Harness::start_with(|c| {
        c.concurrency = 3;
        c.size_class = 7;
        c.instance_name_prefix = "a/b".into();
        c.platform = vec![("z".into(), "1".into()), ("a".into(), "2".into())];
    })
    .await;
    harness
        .scheduler
        .until("three workers", |inner| {
            (inner.log.iter().map(worker_key).collect::<HashSet<_>>().len() == 3).then_some(())
        })
        .await;
    let request = harness.scheduler.with(|inner| inner.log[0].clone());
    let names: Vec<_> = request.platform.unwrap().properties.into_iter().map(|p| p.name).collect();
    assert_eq!(names, ["a", "z"]);
    assert_eq!((request.size_class, request.instance_name_prefix.as_str()), (7, "a/b"));
    assert_eq!(request.worker_id["hostname"], "test");
    assert!(!request.prefer_being_idle);
    harness.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_reported_at_heartbeats_and_then_its_result() {
    let harness = Harness::start().await;
    harness.run(sh("sleep 1")).await;
    let log = harness.scheduler.with(|inner| inner.log.clone());
    let running = log.iter().filter(|r| matches!(stage(r), Some(ExecutionState::Running(())))).count();
    assert!((3..=6).contains(&running), "{running} reports at a heartbeat of 0.3 s");
    assert_eq!(log.iter().filter(|r| is_completed(r)).count(), 1);
    assert!(log.iter().all(|r| !r.prefer_being_idle));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_sent_again_when_its_answer_is_lost() {
    let harness = Harness::start().await;
    harness.scheduler.until("a poll", |inner| inner.log.iter().any(is_idle).then_some(())).await;
    let first = harness.submit(sh("sleep 0.5"));
    harness.scheduler.until("it runs", |inner| (!inner.bound.is_empty()).then_some(())).await;
    let second = harness.submit(sh("echo second"));
    harness.scheduler.with(|inner| inner.lose = 1);
    harness.result(&second).await;
    let completions = harness.scheduler.with(|inner| inner.completions.clone());
    assert_eq!((completions[&first], completions[&second]), (2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_work_is_asked_for_again() {
    let harness = Harness::start().await;
    harness.scheduler.until("a poll", |inner| inner.log.iter().any(is_idle).then_some(())).await;
    harness.scheduler.with(|inner| inner.lose = 1);
    harness.run(sh("true")).await;
    let log = harness.scheduler.with(|inner| inner.log.clone());
    assert!(log.iter().any(|r| is_idle(r) && r.prefer_being_idle), "it asks whether it is idle");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_action_dies_with_its_family() {
    let harness = Harness::start().await;
    harness.submit(sh("sleep 300 & echo $! > pid.tmp; echo $$ >> pid.tmp; mv pid.tmp pids; sleep 301"));
    let pids = harness.marker("pids").await;
    assert!(pids.lines().all(alive));
    let next = harness.submit(sh("echo next"));
    harness.scheduler.with(|inner| inner.bound.clear());
    let result = harness.result(&next).await.result.unwrap();
    assert_eq!(harness.text(&result.stdout_digest), "next\n");
    assert!(pids.lines().all(|pid| !alive(pid)), "{pids}");
    assert_eq!(harness.scheduler.with(|inner| inner.results.len()), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn desired_idle_cancels_too() {
    let harness = Harness::start().await;
    harness.submit(sh("echo $$ > pid.tmp; mv pid.tmp pid; sleep 300"));
    let pid = harness.marker("pid").await;
    let seen = harness.scheduler.with(|inner| {
        inner.bound.clear();
        inner.log.len()
    });
    harness.scheduler.until("idle", |inner| inner.log[seen..].iter().any(is_idle).then_some(())).await;
    assert!(!alive(&pid));
    assert_eq!(std::fs::read_dir(harness.dir.path().join("work/build")).unwrap().count(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_survives_an_outage_of_the_scheduler() {
    let harness = Harness::start().await;
    let hash = harness.submit(sh("sleep 1; echo done"));
    harness.scheduler.until("it runs", |inner| (!inner.bound.is_empty()).then_some(())).await;
    harness.scheduler.with(|inner| inner.down = true);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    harness.scheduler.with(|inner| inner.down = false);
    let response = harness.result(&hash).await;
    assert_eq!(response.status.unwrap().code, 0);
    assert_eq!(harness.text(&response.result.unwrap().stdout_digest), "done\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failure_it_prefers_being_idle_once() {
    let harness = Harness::start().await;
    let response = harness.run(sh("").args(&["./absent"])).await;
    assert_eq!(response.status.unwrap().code, Code::InvalidArgument as i32);
    harness.run(sh("true")).await;
    let log = harness.scheduler.with(|inner| inner.log.clone());
    let completed: Vec<_> = log.iter().filter(|r| is_completed(r)).map(|r| r.prefer_being_idle).collect();
    assert_eq!(completed, [true, false]);
    assert!(log.iter().filter(|r| is_idle(r)).all(|r| !r.prefer_being_idle));
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_drains() {
    let harness = Harness::start().await;
    let hash = harness.submit(sh("sleep 1; echo finished"));
    let waiting = harness.submit(sh("sleep 1"));
    harness.scheduler.until("it runs", |inner| (!inner.bound.is_empty()).then_some(())).await;
    let (scheduler, storage) = (harness.scheduler.clone(), harness.storage.clone());
    harness.stop().await.unwrap();
    let (response, left) = scheduler.with(|inner| (inner.results[&hash].clone(), inner.queue.len()));
    let stdout = response.result.unwrap().stdout_digest.unwrap();
    assert_eq!(storage.get(&stdout), "finished\n");
    assert_eq!(left, 1, "the action behind it is left for others");
    assert!(!scheduler.with(|inner| inner.results.contains_key(&waiting)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_leaves_at_once() {
    let harness = Harness::start().await;
    harness.scheduler.until("a poll", |inner| inner.log.iter().any(is_idle).then_some(())).await;
    let started = std::time::Instant::now();
    harness.stop().await.unwrap();
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_of_no_use_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let config = pointsman_worker::WorkerConfig::new("127.0.0.1:1", dir.path());
    let run = async |change: &dyn Fn(&mut pointsman_worker::WorkerConfig)| {
        let mut config = config.clone();
        change(&mut config);
        let shutdown = tokio_util::sync::CancellationToken::new();
        shutdown.cancel();
        pointsman_worker::run(config, shutdown).await
    };
    run(&|_| {}).await.unwrap();
    assert!(run(&|c| c.concurrency = 0).await.is_err());
    assert!(run(&|c| c.scheduler = "ftp://x:1".into()).await.is_err());
    assert!(run(&|c| c.instance_name_prefix = "/a".into()).await.is_err());
    assert!(run(&|c| c.work_dir = "/proc/nowhere".into()).await.is_err());
}

#[test]
fn a_runtime_that_ends_takes_its_actions_along() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let pid = runtime.block_on(async {
        let harness = Harness::start().await;
        harness.submit(sh("echo $$ > pid.tmp; mv pid.tmp pid; sleep 300"));
        let pid = harness.marker("pid").await;
        assert!(alive(&pid));
        // The folder has to outlive the runtime.
        std::mem::forget(harness);
        pid
    });
    let begun = std::time::Instant::now();
    drop(runtime);
    assert!(begun.elapsed() < Duration::from_secs(10) && !alive(&pid));
}
