//! Where policies are asked: on the caller's own task while they are quick, which most are by far; else on threads of their
//! own, so that a task that has nothing to do with them doesn't wait.

use std::sync::Arc;

use pointsman_policy::CallPool;
use tokio::sync::{Semaphore, oneshot};

/// Threads for slow policies, and who waits for them, first come first.
#[derive(Clone, Debug)]
pub struct Aside {
    pool: Arc<CallPool>,
    permits: Arc<Semaphore>,
}

impl Aside {
    /// As many threads as there are processors.
    ///
    /// # Errors
    /// There are none to be had.
    pub fn start() -> std::io::Result<Self> {
        let pool = CallPool::start(std::thread::available_parallelism().map_or(1, Into::into))?;
        let permits = Arc::new(Semaphore::new(pool.capacity()));
        Ok(Self { pool: Arc::new(pool), permits })
    }

    /// Does the work, here if it is quick. `None`: it panicked on its thread.
    pub async fn run<T: Send + 'static>(
        &self,
        slow: bool,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        if !slow {
            return Some(work());
        }
        // Never closed. Those who wait are bounded by the calls that connections may have open.
        let permit = self.permits.clone().acquire_owned().await.ok()?;
        let (sender, answer) = oneshot::channel();
        let work = Box::new(move || {
            // Whoever asked may have gone.
            _ = sender.send(work());
            // Not sooner, also if so: its thread is taken until here.
            drop(permit);
        });
        if let Err(work) = self.pool.run(work) {
            work();
        }
        answer.await.ok()
    }
}
