//! From the digest of an input root to files in a build directory.
use crate::{
    cache::{FileCache, Lease},
    cas::Store,
    directories::{Directories, Plan},
    error::Failure,
    place::Placer,
};
use pointsman_digest::Digest;
use std::{collections::HashSet, path::Path, sync::Arc};
use tokio_util::sync::CancellationToken;

/// Files that one blocking thread places before a second one is worth it.
const FILES_PER_THREAD: usize = 64;
const PLACING_THREADS_MAX: usize = 4;

/// What all threads of a worker share for their inputs.
pub(crate) struct Inputs {
    pub(crate) files: Arc<FileCache>,
    pub(crate) directories: Directories,
    pub(crate) placer: Arc<Placer>,
}

impl Inputs {
    /// Fetches the tree below `root` and places it in `build_root`, an existing empty directory.
    ///
    /// `None` when `cancel` came first. Whatever happens, nothing touches `build_root` after the return.
    pub(crate) async fn prepare(
        &self,
        store: &Store,
        root: Digest,
        build_root: &Path,
        cancel: &CancellationToken,
    ) -> Result<Option<Arc<Plan>>, Failure> {
        let fetching = async {
            let plan = self.directories.plan(store, root).await?;
            let lease = self.fetch(store, &plan).await?;
            Ok::<_, Failure>((Arc::new(plan), lease))
        };
        let fetched = tokio::select! {
            fetched = fetching => fetched,
            () = cancel.cancelled() => return Ok(None),
        };
        let (plan, lease) = fetched?;
        self.place(&plan, lease, build_root, cancel).await?;
        Ok((!cancel.is_cancelled()).then_some(plan))
    }

    /// Pins all files of the plan in the cache, fetching what is not there.
    async fn fetch(&self, store: &Store, plan: &Plan) -> Result<Arc<Lease>, Failure> {
        let lease = Arc::new(self.files.lease());
        let unique: HashSet<Digest> =
            plan.files.iter().filter(|file| file.blob.size_bytes() > 0).map(|file| file.blob).collect();
        let mut wanted: Vec<Digest> = unique.into_iter().collect();
        let mut missing = Vec::new();
        while !wanted.is_empty() {
            let released = self.files.released.notified();
            tokio::pin!(released);
            released.as_mut().enable();
            let mut round = lease.take(wanted);
            let idle = round.mine.is_empty() && round.unchecked.is_empty();
            if !round.unchecked.is_empty() {
                let (lease, unchecked) = (Arc::clone(&lease), round.unchecked);
                let check = tokio::task::spawn_blocking(move || lease.check(unchecked));
                round.mine.extend(check.await.map_err(|e| Failure::join("checking cached inputs", &e))?);
            }
            if !round.mine.is_empty() {
                let absent = store.read_all(round.mine, &lease).await?;
                lease.release(&absent);
                missing.extend(absent);
            }
            wanted = round.waiting;
            if idle && !wanted.is_empty() {
                released.await;
            }
        }
        if missing.is_empty() { Ok(lease) } else { Err(Failure::missing(missing)) }
    }

    async fn place(
        &self,
        plan: &Arc<Plan>,
        lease: Arc<Lease>,
        build_root: &Path,
        cancel: &CancellationToken,
    ) -> Result<(), Failure> {
        let (placer, plan2, root) = (Arc::clone(&self.placer), Arc::clone(plan), build_root.to_owned());
        let skeleton = tokio::task::spawn_blocking(move || placer.skeleton(&root, &plan2));
        skeleton.await.map_err(|e| Failure::join("making input directories", &e))??;

        let threads = plan.files.len().div_ceil(FILES_PER_THREAD).min(PLACING_THREADS_MAX);
        let part = plan.files.len().div_ceil(threads.max(1)).max(1);
        let mut tasks = tokio::task::JoinSet::new();
        for start in (0..plan.files.len()).step_by(part) {
            let (placer, plan, lease) = (Arc::clone(&self.placer), Arc::clone(plan), Arc::clone(&lease));
            let (root, cancel) = (build_root.to_owned(), cancel.clone());
            let end = (start + part).min(plan.files.len());
            tasks.spawn_blocking(move || placer.files(&root, &plan.files[start..end], &lease, &cancel));
        }
        // All are waited for even when one failed: the directory is about to be removed.
        let mut outcome = Ok(());
        while let Some(done) = tasks.join_next().await {
            let done = done.unwrap_or_else(|e| Err(Failure::join("placing inputs", &e)));
            outcome = outcome.and(done);
        }
        outcome
    }
}
