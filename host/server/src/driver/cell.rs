//! Latest-state cells: what an operation's watchers see.
//!
//! A cell holds the newest state only. A slow reader skips states and costs nothing, an older state can't overtake a
//! newer one, and there is neither a task nor a queue per stream. The message is made by whoever reads.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use pointsman_proto::longrunning::Operation;
use pointsman_scheduler::ids::OperationId;
use smallvec::SmallVec;
use tonic::Status;

use super::Driver;
use super::payload::Snapshot;

/// The latest state of one operation.
#[derive(Debug, Default)]
pub(crate) struct Cell(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// 0 while there is none.
    sequence: u64,
    snapshot: Option<Snapshot>,
    /// The server stops: streams end, the operation goes on.
    closing: bool,
    /// Most operations have one watcher.
    wakers: SmallVec<[Waker; 1]>,
}

impl Cell {
    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a state, unless a newer one is shown already.
    pub(crate) fn show(&self, sequence: u64, snapshot: Snapshot) {
        let wakers = {
            let mut state = self.state();
            if sequence <= state.sequence {
                return;
            }
            (state.sequence, state.snapshot) = (sequence, Some(snapshot));
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Ends all streams.
    pub(crate) fn close(&self) {
        let wakers = {
            let mut state = self.state();
            state.closing = true;
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The latest state; `None` in the instant before the first.
    pub(crate) fn latest(&self) -> Option<Snapshot> {
        self.state().snapshot.clone()
    }

    fn is_done(&self) -> bool {
        self.state().snapshot.as_ref().is_some_and(Snapshot::is_done)
    }
}

/// An operation's states, newest first come, to the last.
#[derive(Debug)]
pub struct OperationStream {
    pub(crate) driver: Arc<Driver>,
    pub(crate) id: OperationId,
    pub(crate) cell: Arc<Cell>,
    pub(crate) seen: u64,
    pub(crate) ended: bool,
}

impl Stream for OperationStream {
    type Item = Result<Operation, Status>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let cell = self.cell.clone();
        let mut state = cell.state();
        if state.sequence > self.seen
            && let Some(snapshot) = state.snapshot.clone()
        {
            self.seen = state.sequence;
            drop(state);
            self.ended = snapshot.is_done();
            return Poll::Ready(Some(Ok(snapshot.operation())));
        }
        if state.closing {
            self.ended = true;
            // Never OK before done: clients take that for a broken server, this for a reason to ask again.
            let text = "the scheduler is shutting down; the operation goes on: call WaitExecution with its name again";
            return Poll::Ready(Some(Err(Status::unavailable(text))));
        }
        if !state.wakers.iter().any(|w| w.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for OperationStream {
    fn drop(&mut self) {
        if !self.cell.is_done() {
            self.driver.unwatch(self.id);
        }
    }
}
