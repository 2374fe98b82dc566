//! A policy file that is loaded again when it changes.
//!
//! The folder is watched, not the file: editors write a new file and rename it, Kubernetes swaps a symbolic link
//! beside it. What the file system tells is taken as a hint only. A file counts as changed when its content is
//! another one and it has been quiet for a while, and the looks that find this out are repeated on a timer, for
//! file systems that tell nothing.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::error::LoadError;
use crate::generation::Generation;
use crate::loader::digest_hex;
use crate::policy::Policy;
use crate::runtime::Runtime;

/// How closely a file is watched.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// How long a file must not have changed before it is read.
    pub settle: Duration,
    /// How often to look although nothing was told.
    pub poll: Duration,
    /// Ask the operating system to tell of changes; without, only polling finds them.
    pub notify: bool,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { settle: Duration::from_millis(200), poll: Duration::from_secs(2), notify: true }
    }
}

/// What a [`Watcher`] did about a changed file.
#[derive(Clone, Debug)]
pub enum Change {
    /// The new policy is in force; queued actions may be routed again.
    Installed(Arc<Generation>),
    /// The file can't be used, and the policy that was in force still is.
    Refused {
        /// SHA-256 of the file in hex; `None` when it could not be read.
        digest_hex: Option<String>,
        /// Why, for people.
        reason: String,
    },
}

/// A file that can't be watched, or holds no policy that can be put in force, when the server starts.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// The file can't be read.
    #[error("can't read the policy {path}: {error}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It does not load.
    #[error("can't use the policy {path} (sha256 {digest_hex}): {error}")]
    Load {
        /// The file.
        path: PathBuf,
        /// SHA-256 of its content, in hex.
        digest_hex: String,
        /// Why.
        error: LoadError,
    },
    /// There is no thread for it.
    #[error("can't start the thread that watches the policy {path}: {error}")]
    Thread {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// Watches a file until it is dropped. Loading runs on a thread of its own. A drop waits for a load that is running,
/// so that nothing is put in force after it.
#[derive(Debug)]
pub struct Watcher {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    /// Something happened in the folder; `true`: to the file itself.
    Told(bool),
    Stop,
}

impl Watcher {
    /// Puts the policy of a file in force and begins to watch the file. `config_json` is given to each version of it.
    /// `on_change` is called on the watching thread after each change that was acted upon, not for the first version,
    /// which is [`Runtime::in_force`] when this returns.
    ///
    /// # Errors
    /// When the first version can't be put in force. What goes wrong later is logged and told to `on_change`.
    pub fn start(
        runtime: Arc<Runtime>,
        path: impl Into<PathBuf>,
        config_json: impl Into<String>,
        options: WatchOptions,
        on_change: impl Fn(&Change) + Send + 'static,
    ) -> Result<Self, WatchError> {
        let (path, config) = (path.into(), config_json.into());
        // Stamped before it is read: a change in between is then seen as one.
        let stamp = Stamp::of(&path);
        let bytes = read(&path, runtime.file_bytes_max());
        let bytes = bytes.map_err(|error| WatchError::Read { path: path.clone(), error })?;
        let digest = digest_hex(&bytes);
        let generation = runtime.load(&bytes, &config).map_err(|error| WatchError::Load {
            path: path.clone(),
            digest_hex: digest.clone(),
            error,
        })?;
        let (messages, inbox) = channel();
        let file = Watched {
            runtime,
            config,
            on_change: Box::new(on_change),
            stamp,
            in_force: digest,
            refused: None,
            folder: Folder::new(&path, options.notify.then(|| messages.clone())),
            path: path.clone(),
        };
        file.install(generation, Instant::now());
        let thread = std::thread::Builder::new()
            .name("policy-watch".into())
            .spawn(move || file.run(&inbox, &options))
            .map_err(|error| WatchError::Thread { path, error })?;
        Ok(Self { messages, thread: Some(thread) })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Fails only when the thread has ended, which is what we want.
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What tells one version of a file from another without reading it. Follows symbolic links, so that swapping one
/// changes it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp {
    file: Option<(u64, u64)>,
    length: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::metadata(path).ok()?;
        Some(Self { file: file_id(&metadata), length: metadata.len(), modified: metadata.modified().ok() })
    }
}

#[cfg(unix)]
fn file_id(metadata: &fs::Metadata) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(not(unix))]
fn file_id(_metadata: &fs::Metadata) -> Option<(u64, u64)> {
    None
}

/// Reads no more than a policy may have and one byte, so that whoever loads it says that it is too large.
fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The state of the watching thread.
struct Watched {
    runtime: Arc<Runtime>,
    path: PathBuf,
    config: String,
    on_change: Box<dyn Fn(&Change) + Send>,
    stamp: Option<Stamp>,
    /// Digest of what was put in force last.
    in_force: String,
    /// What was refused last, so that it is told once.
    refused: Option<String>,
    folder: Folder,
}

impl Watched {
    fn run(mut self, inbox: &Receiver<Message>, options: &WatchOptions) {
        // When to read the file, once it has not changed until then.
        let mut due: Option<Instant> = None;
        loop {
            let wait = due.map_or(options.poll, |due| due.saturating_duration_since(Instant::now()));
            let told = match inbox.recv_timeout(wait) {
                Ok(Message::Told(this_file)) => this_file,
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => false,
            };
            let stamp = Stamp::of(&self.path);
            if told || stamp != self.stamp {
                self.stamp = stamp;
                due = Some(Instant::now() + options.settle);
            } else if due.is_some_and(|due| due <= Instant::now()) {
                due = None;
                self.look();
            }
            self.folder.follow(&self.path);
        }
    }

    /// Reads the file and acts when its content is another one.
    fn look(&mut self) {
        let started = Instant::now();
        let bytes = match read(&self.path, self.runtime.file_bytes_max()) {
            Ok(bytes) => bytes,
            Err(error) => return self.refuse(None, format!("can't be read: {error}")),
        };
        if Stamp::of(&self.path) != self.stamp {
            return; // written again meanwhile: the next turn sees that
        }
        let digest = digest_hex(&bytes);
        if digest == self.in_force {
            if self.refused.take().is_some() {
                tracing::info!(path = %self.path.display(), digest, "policy file is again the one in force");
            }
            return;
        }
        if self.refused.as_ref() == Some(&digest) {
            return;
        }
        match self.runtime.load(&bytes, &self.config) {
            Ok(generation) => {
                self.in_force = digest;
                self.refused = None;
                let generation = self.install(generation, started);
                (self.on_change)(&Change::Installed(generation));
            }
            Err(error) => self.refuse(Some(digest), error.to_string()),
        }
    }

    fn install(&self, policy: Policy, started: Instant) -> Arc<Generation> {
        let policy_id = policy.policy().clone();
        let before = self.runtime.in_force();
        let replaces = before.first("").map(|policy| policy.policy().digest_hex.clone()).unwrap_or_default();
        let generation = self.runtime.install(policy);
        let policy = policy_id;
        tracing::info!(
            path = %self.path.display(),
            policy = &*policy.name,
            version = &*policy.version,
            digest = &*policy.digest_hex,
            generation = generation.number(),
            replaces = &*replaces,
            load_ms = started.elapsed().as_millis() as u64,
            "policy in force"
        );
        generation
    }

    fn refuse(&mut self, digest_hex: Option<String>, reason: String) {
        let told = digest_hex.clone().unwrap_or_else(|| reason.clone());
        if self.refused.as_ref() == Some(&told) {
            return;
        }
        self.refused = Some(told);
        let in_force = self.runtime.in_force();
        let in_force = in_force.first("").map(|policy| policy.policy().to_string()).unwrap_or_default();
        tracing::error!(
            path = %self.path.display(),
            digest = digest_hex.as_deref().unwrap_or("unknown"),
            in_force,
            "changed policy file refused, the policy in force stays: {reason}"
        );
        (self.on_change)(&Change::Refused { digest_hex, reason });
    }
}

/// The folder the operating system tells about.
struct Folder {
    watcher: Option<RecommendedWatcher>,
    /// Which folder that is, as its path may come to mean another one.
    id: Option<(u64, u64)>,
    messages: Option<Sender<Message>>,
}

impl Folder {
    /// `messages: None` asks for nothing.
    fn new(path: &Path, messages: Option<Sender<Message>>) -> Self {
        let mut folder = Self { watcher: None, id: None, messages };
        folder.follow(path);
        folder
    }

    /// Watches the folder of the file, again when its path means another folder than before.
    fn follow(&mut self, path: &Path) {
        let Some(messages) = &self.messages else { return };
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let id = fs::metadata(parent).ok().map(|metadata| file_id(&metadata).unwrap_or_default());
        if id == self.id {
            return;
        }
        self.id = id;
        self.watcher = None;
        if id.is_none() {
            return; // gone; polling looks whether it comes back
        }
        match watch_folder(parent, path, messages.clone()) {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => tracing::warn!(
                folder = %parent.display(),
                "can't be told of changes in this folder, so it is polled: {error}"
            ),
        }
        // What happened before the watch began was not told.
        let _ = messages.send(Message::Told(false));
    }
}

fn watch_folder(folder: &Path, file: &Path, messages: Sender<Message>) -> notify::Result<RecommendedWatcher> {
    let name = file.file_name().map(ToOwned::to_owned);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let this_file = match event {
            Ok(event) => match event.kind {
                // Reading is told as well, our own too.
                EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write) => return,
                _ => event.paths.iter().any(|path| path.file_name() == name.as_deref()),
            },
            // Events were lost.
            Err(_) => true,
        };
        // Fails only when the watcher is being dropped.
        let _ = messages.send(Message::Told(this_file));
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
