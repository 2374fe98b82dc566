//! What of the configuration can change while the server runs: its policies and chains. SIGHUP, or another content of
//! the file or of one that it refers to (`config_files`), has it read again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use anyhow::Context as _;
use pointsman_policy::{FileWatch, Found, Manager, WatchOptions};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::config::{Config, ConfigError, Seen};

/// Where a configuration came from.
pub struct Reload {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Reads it again, with the same flags over it.
    pub read: Box<dyn Fn() -> Result<Config, ConfigError> + Send + Sync>,
    /// Told when an operator wants it read (SIGHUP).
    pub asked: Arc<Notify>,
}

/// Bytes of a configuration file that are watched; what is beyond is still read.
const FILE_BYTES_MAX: usize = 16 << 20;

impl Reload {
    /// Reads it again whenever it changes or somebody asks, until `shutdown`. What can't be is logged, and nothing
    /// changes then.
    pub async fn until(self, shutdown: CancellationToken, config: Config, manager: Arc<Manager>) {
        let reloading = tokio::spawn(self.run(config, manager, shutdown.clone()));
        shutdown.cancelled().await;
        reloading.abort();
    }

    async fn run(self, config: Config, manager: Arc<Manager>, shutdown: CancellationToken) {
        let changed = Arc::new(Notify::new());
        let _watch = match self.watch(changed.clone()) {
            Ok(watch) => watch,
            Err(error) => {
                tracing::warn!("the configuration file is not watched, send SIGHUP after changes: {error:#}");
                None
            }
        };
        let mut parts = BTreeMap::new();
        watch_parts(&mut parts, &config, &changed);
        let mut running = config;
        loop {
            let asked = tokio::select! {
                () = self.asked.notified() => true,
                () = changed.notified() => false,
                () = shutdown.cancelled() => return,
            };
            if asked {
                // Policies may lie on a file system that tells nothing of changes.
                manager.look_at_files();
            }
            match (self.read)() {
                Err(error) => {
                    tracing::error!("the configuration is not read again, the old one stays: {error}");
                    // Whoever mends a file that is new in it need not save anything else.
                    error.seen.iter().for_each(|file| watch_part(&mut parts, file, &changed));
                }
                Ok(config) => {
                    // Also when policies refuse it: whoever mends it saves the file once more.
                    watch_parts(&mut parts, &config, &changed);
                    self.apply(&mut running, config, &manager).await;
                }
            }
        }
    }

    async fn apply(&self, running: &mut Config, config: Config, manager: &Arc<Manager>) {
        let stale = stale(running, &config);
        if !stale.is_empty() {
            tracing::warn!("changes of {} come into force when the server starts again", stale.join(", "));
        }
        let (plan, manager) = (config.policy.plan(), manager.clone());
        if plan == running.policy.plan() {
            return;
        }
        // The manager says in the log what came of it.
        if let Ok(Ok(_)) = tokio::task::spawn_blocking(move || manager.configure(plan)).await {
            *running = config;
        }
    }

    fn watch(&self, changed: Arc<Notify>) -> anyhow::Result<Option<FileWatch>> {
        let Some(file) = &self.file else { return Ok(None) };
        let content = pointsman_policy::read_bounded(file, FILE_BYTES_MAX).context("it can't be read")?;
        let known = Some(pointsman_policy::digest_hex(&content));
        let tell = move |_| changed.notify_one();
        let watch = FileWatch::start(file, FILE_BYTES_MAX, known, WatchOptions::default(), tell);
        Ok(Some(watch.context("there is no thread for it")?))
    }
}

/// Watches the files that a configuration refers to, and no others. Those that were watched before go on being so.
fn watch_parts(watched: &mut BTreeMap<PathBuf, FileWatch>, config: &Config, changed: &Arc<Notify>) {
    let files = || config.policy.links.values().flat_map(|link| link.config_files.values());
    watched.retain(|path, _| files().any(|file| file.path == *path));
    for file in files() {
        let seen = Seen { path: file.path.clone(), digest_hex: Some(file.digest_hex.clone()) };
        watch_part(watched, &seen, changed);
    }
}

fn watch_part(watched: &mut BTreeMap<PathBuf, FileWatch>, file: &Seen, changed: &Arc<Notify>) {
    if watched.contains_key(&file.path) {
        return;
    }
    let changed = changed.clone();
    // That it can't be read has just been said.
    let is_said = AtomicBool::new(file.digest_hex.is_none());
    let tell = move |found| {
        if !(is_said.swap(false, Relaxed) && matches!(found, Found::Unreadable(_))) {
            changed.notify_one();
        }
    };
    // As it was when it was read, so that no change is missed in between.
    let known = file.digest_hex.clone();
    match FileWatch::start(&file.path, FILE_BYTES_MAX, known, WatchOptions::default(), tell) {
        Ok(watch) => _ = watched.insert(file.path.clone(), watch),
        Err(error) => {
            let file = file.path.display();
            tracing::warn!(
                "{file} is not watched, send SIGHUP after changes: there is no thread for it: {error}"
            );
        }
    }
}

/// Keys whose values differ and are read at the start only.
fn stale(running: &Config, config: &Config) -> Vec<String> {
    let (mut before, mut after) = (running.to_json(), config.to_json());
    for values in [&mut before, &mut after] {
        for key in ["policies", "chains", "bazel"] {
            values.as_object_mut().map(|object| object.remove(key));
        }
        // Builds are told of it, and nobody here reads it.
        for pool in values["pools"].as_array_mut().into_iter().flatten() {
            pool.as_object_mut().map(|pool| pool.remove("bazel"));
        }
        values["policy"].as_object_mut().map(|object| object.remove("probation"));
    }
    let keys = after.as_object().into_iter().flat_map(|object| object.keys());
    keys.filter(|key| before.get(*key) != after.get(*key)).cloned().collect()
}

impl std::fmt::Debug for Reload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reload").field("file", &self.file).finish_non_exhaustive()
    }
}
