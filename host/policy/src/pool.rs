//! Threads on which slow policies are asked, so that those of a reactor serve others meanwhile.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Something to do.
type Work = Box<dyn FnOnce() + Send>;

/// As many threads as were asked for. They end when the last owner of this has gone.
#[derive(Debug)]
pub struct CallPool {
    queue: SyncSender<Work>,
    threads: usize,
}

/// Work that may wait for a thread, for each of them.
const WAITING_PER_THREAD: usize = 4;

impl CallPool {
    /// Starts the threads; 0 counts as 1.
    ///
    /// # Errors
    /// There is none to be had.
    pub fn start(threads: usize) -> std::io::Result<Self> {
        let threads = threads.max(1);
        let (queue, inbox) = sync_channel::<Work>(threads * WAITING_PER_THREAD);
        let inbox = Arc::new(Mutex::new(inbox));
        for _ in 0..threads {
            let inbox = inbox.clone();
            std::thread::Builder::new().name("policy-call".into()).spawn(move || run(&inbox))?;
        }
        Ok(Self { queue, threads })
    }

    /// So much work can be under way: what more there is has to wait outside.
    pub fn capacity(&self) -> usize {
        // What runs, and what waits.
        self.threads * (1 + WAITING_PER_THREAD)
    }

    /// Has it done by one of the threads.
    ///
    /// # Errors
    /// The work itself, when more is under way than [`capacity`](Self::capacity) or the threads have ended.
    pub fn run(&self, work: Work) -> Result<(), Work> {
        self.queue.try_send(work).map_err(|error| match error {
            TrySendError::Full(work) | TrySendError::Disconnected(work) => work,
        })
    }
}

fn run(inbox: &Mutex<Receiver<Work>>) {
    loop {
        let next = inbox.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(work) = next else { return };
        // A host function that panics must not take the thread along; whoever waits finds the answer missing.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn work_is_done_also_after_some_that_panicked() {
        let pool = CallPool::start(2).unwrap();
        for _ in 0..4 {
            assert!(pool.run(Box::new(|| panic!("on purpose"))).is_ok());
        }
        let (sender, results) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            let mut work: Work = Box::new(move || sender.send(number).unwrap());
            while let Err(back) = pool.run(work) {
                std::thread::yield_now();
                work = back;
            }
        }
        let mut done: Vec<_> = (0..100).map(|_| results.recv().unwrap()).collect();
        done.sort_unstable();
        assert_eq!(done, (0..100).collect::<Vec<_>>());
    }
}
