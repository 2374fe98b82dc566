//! The loop of a worker thread.
use super::{FakeWorker, Instruction};
use pointsman_proto::{
    remoteworker::{current_state::executing::ExecutionState, desired_state},
    rev2::{Digest, ExecuteResponse},
};
use std::{
    collections::hash_map::RandomState,
    future::{Future, pending},
    hash::BuildHasher as _,
    pin::Pin,
    time::Duration,
};
use tokio::{
    sync::mpsc,
    task::JoinHandle,
    time::{Instant, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// Work as the scheduler hands it out.
pub type Work = desired_state::Executing;

/// What happened to a worker.
#[derive(Clone, Debug)]
pub enum Event {
    /// Work was accepted.
    Started(Box<Work>),
    /// Work was given up because the scheduler wished so.
    Cancelled(Digest),
    /// Work came to its end; the scheduler does not know yet.
    Completed(Digest),
    /// The scheduler said that there is nothing to do.
    Idle,
    /// A call failed or its answer was not acceptable.
    Failed(Status),
}

/// An action under way.
struct Action {
    digest: Digest,
    response: Pin<Box<dyn Future<Output = ExecuteResponse> + Send>>,
}

impl FakeWorker {
    /// Works until `stop` is cancelled, then finishes what it has, tells the scheduler, and returns.
    ///
    /// `run` stands for the command: its future is polled until it is ready, or dropped when the scheduler wants
    /// something else. `observe` sees everything that happens.
    pub async fn serve<F, R>(mut self, run: F, stop: CancellationToken, mut observe: impl FnMut(Event))
    where
        F: Fn(Work) -> R,
        R: Future<Output = ExecuteResponse> + Send + 'static,
    {
        let mut action = None;
        loop {
            self.until_next_call(&mut action, &stop, &mut observe).await;
            let stopping = stop.is_cancelled();
            if stopping && self.is_released() {
                return;
            }
            let prefer = stopping || self.is_in_doubt();
            self.prefer_being_idle(prefer);
            let answer = tokio::select! {
                biased;
                answer = self.synchronize() => answer,
                // The call may block for minutes; a new one with the wish to stop replaces it.
                () = stopped(&stop, stopping) => continue,
            };
            match answer {
                Ok(Instruction::Continue) => {}
                Ok(Instruction::Idle) => {
                    give_up(&mut action, &mut observe);
                    observe(Event::Idle);
                }
                Ok(Instruction::Execute(work)) => {
                    give_up(&mut action, &mut observe);
                    observe(Event::Started(work.clone()));
                    let digest = work.action_digest.clone().unwrap_or_default();
                    action = Some(Action { digest, response: Box::pin(run(*work)) });
                }
                Err(status) => {
                    observe(Event::Failed(status));
                    sleep(random_up_to(self.error_pause_max)).await;
                }
            }
        }
    }

    /// Runs [`FakeWorker::serve`] as a task of its own.
    pub fn start<F, R>(self, run: F) -> RunningWorker
    where
        F: Fn(Work) -> R + Send + Sync + 'static,
        R: Future<Output = ExecuteResponse> + Send + 'static,
    {
        let (sender, events) = mpsc::unbounded_channel();
        let stop = CancellationToken::new();
        // Whoever dropped the receiver does not want to know.
        let task = tokio::spawn(self.serve(run, stop.clone(), move |event| drop(sender.send(event))));
        RunningWorker { task, stop, events }
    }

    /// While executing: until the action has ended or the appointed time has come. Otherwise: not at all.
    async fn until_next_call(
        &mut self,
        action: &mut Option<Action>,
        stop: &CancellationToken,
        observe: &mut impl FnMut(Event),
    ) {
        let Some(running) = action else { return };
        tokio::select! {
            biased;
            response = &mut running.response => {
                self.complete(response);
                observe(Event::Completed(running.digest.clone()));
                *action = None;
            }
            () = sleep_until(self.next_call) => self.report(ExecutionState::Running(())),
            () = stopped(stop, stop.is_cancelled()) => {}
        }
    }

    /// Whether a worker that wants to stop may do so: the scheduler knows that it is idle, or has given it up.
    fn is_released(&mut self) -> bool {
        match self.believed_busy_until {
            None => self.is_idle(),
            Some(until) => until <= Instant::now(),
        }
    }

    /// Whether new work would come at the wrong time: an answer was lost, or the last action failed for
    /// reasons of the worker's.
    fn is_in_doubt(&mut self) -> bool {
        let failed = self.completed().is_some_and(|r| r.status.as_ref().is_some_and(|s| s.code != 0));
        failed || self.is_idle() && self.believed_busy_until.is_some()
    }
}

/// Ready when the token is cancelled, unless that is known already.
async fn stopped(stop: &CancellationToken, known: bool) {
    if known { pending().await } else { stop.cancelled().await }
}

fn give_up(action: &mut Option<Action>, observe: &mut impl FnMut(Event)) {
    if let Some(action) = action.take() {
        observe(Event::Cancelled(action.digest));
    }
}

fn random_up_to(max: Duration) -> Duration {
    // Each state hashes with its own random key.
    let random = RandomState::new().hash_one(());
    max.mul_f64(random as f64 / u64::MAX as f64)
}

/// A worker thread that serves by itself. Dropping it crashes the worker.
#[derive(Debug)]
pub struct RunningWorker {
    task: JoinHandle<()>,
    stop: CancellationToken,
    events: mpsc::UnboundedReceiver<Event>,
}

impl RunningWorker {
    /// The next thing that happened; `None` after the end.
    pub async fn next_event(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// Stops like a worker that got SIGTERM: after its action, and after the scheduler knows. Events can still
    /// be read meanwhile.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    /// Stops and waits for it.
    pub async fn stopped(mut self) {
        self.stop();
        // An error means that it panicked in `run` or was crashed before: stopped all the same.
        drop((&mut self.task).await);
    }

    /// Goes away without a word, like a host that lost its power.
    pub fn crash(self) {
        drop(self);
    }
}

impl Drop for RunningWorker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
