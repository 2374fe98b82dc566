//! The life cycle of versions: from a changed file, a push or a new configuration to what is in force, and back.
//!
//! All decisions are made by one thread ([`desk`]; what comes in `arrivals`, what goes in `departures`, configurations in
//! `plans`), one after the other. What takes long, compiling above all, is done by
//! threads of its own, whose results come back as messages; so a version that has to go can go at any time.

mod arrivals;
mod departures;
mod desk;
mod link;
mod load;
mod plans;
mod restore;
mod status;
mod version;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use crate::plan::{Plan, Rollout};
use crate::runtime::Runtime;
use crate::tripwire::Tripped;
use crate::watch::{Found, WatchOptions};

use desk::Desk;
pub use status::{LastLoad, LinkStatus, TrialStatus, VersionStatus};

/// How policies are managed.
pub struct ManagerOptions {
    /// How closely files are watched.
    pub watch: WatchOptions,
    /// Called after each swap with the number of the new generation. It must not wait.
    pub on_swap: Box<dyn Fn(u64) + Send>,
}

/// Why policies can't be put in force when the server starts.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The state folder can't be used.
    #[error("{0}")]
    State(String),
    /// A link has no version that can be used.
    #[error("policy link '{link}' has no version that can be used: {}", .reasons.join("; "))]
    NoVersion {
        /// Its name.
        link: Arc<str>,
        /// What was tried, and what was wrong with each.
        reasons: Vec<String>,
    },
    /// There is no thread for it.
    #[error("can't start a thread for the policies: {0}")]
    Thread(std::io::Error),
}

/// Why a command was not carried out. What is in force has not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// There is no link of that name.
    #[error("there is no policy link '{name}'; known are {}", .known.join(", "))]
    UnknownLink {
        /// As asked.
        name: String,
        /// Names of all links.
        known: Vec<String>,
    },
    /// It can't be done, and why.
    #[error("{0}")]
    Refused(String),
    /// The server stops.
    #[error("the server is stopping")]
    Stopping,
}

/// What came of a command, in words.
pub(crate) type Outcome = Result<String, CommandError>;

/// A version that an operator sends.
#[derive(Clone, Debug)]
pub struct Push {
    /// The link; empty: the only one there is.
    pub link: String,
    /// The component, or a core module.
    pub bytes: Vec<u8>,
    /// Content of its signature file.
    pub signature: Option<String>,
    /// How it begins; `None`: as a new version of the link's file does.
    pub rollout: Option<Rollout>,
    /// Also when that version was rolled back before.
    pub again: bool,
}

/// A command with where to say what came of it.
type Reply = Sender<Outcome>;

enum Message {
    File(Arc<str>, Found),
    Signature(Arc<str>),
    Loaded(Box<load::Loaded>),
    Push(Push, Reply),
    Promote(String, Reply),
    Rollback(String, Reply),
    EndTrial(String, Reply),
    Configure(Plan, Reply),
    Configured(Box<load::Configured>),
    LookAtFiles,
    Tripped(Tripped),
    Status(Sender<Vec<LinkStatus>>),
    Stop,
}

/// Puts versions in force and takes them back until it is dropped. What is in force then stays so.
#[derive(Debug)]
pub struct Manager {
    messages: Sender<Message>,
    thread: Option<JoinHandle<()>>,
}

impl Manager {
    /// Puts a plan in force. A link gets what its file has; if that is refused, or was acted upon before, the version that
    /// was in force when the server stopped. Returns when everything is in force.
    ///
    /// # Errors
    /// Some link has no version that can be used, or the state folder can't be.
    pub fn start(runtime: Arc<Runtime>, plan: Plan, options: ManagerOptions) -> Result<Self, StartError> {
        let (messages, inbox) = channel();
        let (tripped, trips) = channel();
        runtime.tripwire.listen(tripped);
        let mut desk = Desk::new(runtime, options, messages.clone());
        desk.restore(plan)?;
        forward(trips, messages.clone()).map_err(StartError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("policy-manager".into())
            .spawn(move || desk.run(&inbox))
            .map_err(StartError::Thread)?;
        Ok(Self { messages, thread: Some(thread) })
    }

    fn ask(&self, message: impl FnOnce(Reply) -> Message) -> Outcome {
        let (reply, answer) = channel();
        self.messages.send(message(reply)).map_err(|_| CommandError::Stopping)?;
        answer.recv().map_err(|_| CommandError::Stopping)?
    }

    /// Lets a version in, as the file of the link would be. Waits until it is in force, or on trial; compiling may take
    /// seconds.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn push(&self, push: Push) -> Outcome {
        self.ask(|reply| Message::Push(push, reply))
    }

    /// Puts the version that is tried out in force.
    ///
    /// # Errors
    /// There is none.
    pub fn promote(&self, link: &str) -> Outcome {
        self.ask(|reply| Message::Promote(link.to_owned(), reply))
    }

    /// Puts the version before the one in force back.
    ///
    /// # Errors
    /// There is none.
    pub fn rollback(&self, link: &str) -> Outcome {
        self.ask(|reply| Message::Rollback(link.to_owned(), reply))
    }

    /// Ends a trial; the version is not put in force.
    ///
    /// # Errors
    /// There is none.
    pub fn end_trial(&self, link: &str) -> Outcome {
        self.ask(|reply| Message::EndTrial(link.to_owned(), reply))
    }

    /// Puts another plan in force, all of it or, if some part can't be, nothing of it.
    ///
    /// # Errors
    /// Everything that can't be.
    pub fn configure(&self, plan: Plan) -> Outcome {
        self.ask(|reply| Message::Configure(plan, reply))
    }

    /// Has all files looked at now, for file systems that tell nothing and operators in a hurry.
    pub fn look_at_files(&self) {
        // Fails only when the thread has ended.
        let _ = self.messages.send(Message::LookAtFiles);
    }

    /// How all links are; nothing when the manager has ended.
    pub fn status(&self) -> Vec<LinkStatus> {
        let (reply, answer) = channel();
        // Fails only when the thread has ended, and then so does the other.
        let _ = self.messages.send(Message::Status(reply));
        answer.recv().unwrap_or_default()
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        // Fails only when the thread has ended, which is what we want.
        let _ = self.messages.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What trips comes by a channel of its own, since the runtime knows nothing of a manager.
fn forward(trips: Receiver<Tripped>, messages: Sender<Message>) -> std::io::Result<()> {
    let forward = move || {
        for tripped in trips {
            if messages.send(Message::Tripped(tripped)).is_err() {
                return;
            }
        }
    };
    std::thread::Builder::new().name("policy-trips".into()).spawn(forward).map(drop)
}
