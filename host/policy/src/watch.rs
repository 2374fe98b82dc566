//! A file that is read again when it changes.
//!
//! The folder is watched, not the file: editors write a new file and rename it, Kubernetes swaps a symbolic link
//! beside it. What the file system tells is taken as a hint only. A file counts as changed when its content is
//! another one and it has been quiet for a while, and the looks that find this out are repeated on a timer, for
//! file systems that tell nothing.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};

use crate::loader::digest_hex;

/// How closely a file is watched.
#[derive(Clone, Debug)]
pub struct WatchOptions {
    /// How long a file must not have changed before it is read, unless its writer is known to have finished.
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

/// What a [`FileWatch`] found.
#[derive(Clone, Debug)]
pub enum Found {
    /// The file has another content than before.
    Content {
        /// The content, or its first part with at least one byte more than was allowed.
        bytes: Vec<u8>,
        /// Its SHA-256, in lower-case hex.
        digest_hex: String,
    },
    /// The file can't be read, and why; told once until that changes.
    Unreadable(String),
}

/// Watches a file until it is dropped, on a thread of its own. A drop waits for what is being told.
#[derive(Debug)]
pub struct FileWatch {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

enum Message {
    /// Something happened in the folder.
    Told(Hint),
    /// Look now.
    Look,
    Stop,
}

/// What the operating system tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hint {
    /// It is about the file itself.
    this_file: bool,
    /// Whoever changed something has finished: a file was closed, or renamed.
    finished: bool,
}

/// How long a file must not have changed when its writer has finished.
const SETTLE_FINISHED: Duration = Duration::from_millis(10);

impl FileWatch {
    /// Watches `path`. `known` is the digest of the content that the caller has; `tell` hears of every other one.
    ///
    /// # Errors
    /// When there is no thread for it.
    pub fn start(
        path: impl Into<PathBuf>,
        bytes_max: usize,
        known: Option<String>,
        options: WatchOptions,
        tell: impl Fn(Found) + Send + 'static,
    ) -> io::Result<Self> {
        let path = path.into();
        let (messages, inbox) = channel();
        let file = Watched {
            bytes_max,
            tell: Box::new(tell),
            // Not what is there now: it may have changed since the caller read it.
            stamp: None,
            told: known.map(Told::Content),
            folder: Folder::new(&path, options.notify.then(|| messages.clone())),
            path,
        };
        let thread = std::thread::Builder::new()
            .name("file-watch".into())
            .spawn(move || file.run(&inbox, &options))?;
        Ok(Self { messages, thread: Some(thread) })
    }

    /// Has the file looked at now, whether or not it seems to have changed.
    pub fn look(&self) {
        // Fails only when the thread has ended.
        let _ = self.messages.send(Message::Look);
    }
}

impl Drop for FileWatch {
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

/// Reads a file, of one that is too large so much that this shows.
///
/// # Errors
/// As the file system says.
pub fn read_bounded(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What was told last.
#[derive(PartialEq, Eq)]
enum Told {
    Content(String),
    Unreadable(String),
}

/// The state of the watching thread.
struct Watched {
    path: PathBuf,
    bytes_max: usize,
    tell: Box<dyn Fn(Found) + Send>,
    stamp: Option<Stamp>,
    told: Option<Told>,
    folder: Folder,
}

impl Watched {
    fn run(mut self, inbox: &Receiver<Message>, options: &WatchOptions) {
        // When to read the file, once it has not changed until then.
        let mut due: Option<Instant> = None;
        loop {
            let wait = due.map_or(options.poll, |due| due.saturating_duration_since(Instant::now()));
            let hint = match inbox.recv_timeout(wait) {
                Ok(Message::Told(hint)) => hint,
                Ok(Message::Look) => {
                    due = Some(Instant::now());
                    Hint::default()
                }
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => Hint::default(),
            };
            let stamp = Stamp::of(&self.path);
            if hint.this_file || stamp != self.stamp {
                self.stamp = stamp;
                let settle = if hint.finished { options.settle.min(SETTLE_FINISHED) } else { options.settle };
                due = Some(Instant::now() + settle);
            } else if due.is_some_and(|due| due <= Instant::now()) {
                due = None;
                self.look();
            }
            self.folder.follow(&self.path);
        }
    }

    /// Reads the file and tells when its content is another one.
    fn look(&mut self) {
        let found = match read_bounded(&self.path, self.bytes_max) {
            Ok(bytes) => Found::Content { digest_hex: digest_hex(&bytes), bytes },
            Err(error) => Found::Unreadable(error.to_string()),
        };
        if Stamp::of(&self.path) != self.stamp {
            return; // written again meanwhile: the next turn sees that
        }
        let told = match &found {
            Found::Content { digest_hex, .. } => Told::Content(digest_hex.clone()),
            Found::Unreadable(why) => Told::Unreadable(why.clone()),
        };
        if self.told.as_ref() != Some(&told) {
            self.told = Some(told);
            (self.tell)(found);
        }
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
        let _ = messages.send(Message::Told(Hint::default()));
    }
}

fn watch_folder(folder: &Path, file: &Path, messages: Sender<Message>) -> notify::Result<RecommendedWatcher> {
    let name = file.file_name().map(ToOwned::to_owned);
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let hint = match event {
            Ok(event) => Hint {
                this_file: event.paths.iter().any(|path| path.file_name() == name.as_deref()),
                finished: match event.kind {
                    EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
                    // Reading is told as well, our own too.
                    EventKind::Access(_) => return,
                    EventKind::Modify(ModifyKind::Name(_)) => true,
                    _ => false,
                },
            },
            // Events were lost.
            Err(_) => Hint { this_file: true, finished: false },
        };
        // Fails only when the watcher is being dropped.
        let _ = messages.send(Message::Told(hint));
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
