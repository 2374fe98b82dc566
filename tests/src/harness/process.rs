//! Processes whose whole output is kept, and which never outlive their test.

use std::fs::File;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, kill_process};
use tempfile::NamedTempFile;
use tokio::process::{Child, Command};

/// What is sent to a process.
pub use rustix::process::Signal;

/// How long a process may take to its end, unless a test says otherwise.
const PATIENCE: Duration = Duration::from_secs(120);

/// A process that runs. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    child: Child,
    output: NamedTempFile,
}

/// What a process left behind.
#[derive(Debug)]
pub struct Finished {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output and standard error, as they came.
    pub text: String,
}

impl Finished {
    /// The exit code; −1 after a signal.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// This, when it ended with `code`.
    ///
    /// # Errors
    /// It ended otherwise; the error holds all of its output.
    pub fn expect_code(self, code: i32) -> anyhow::Result<Self> {
        if self.code() != code {
            bail!("ended with {} instead of {code}:\n{}", self.status, self.text);
        }
        Ok(self)
    }
}

impl Running {
    /// Starts a command without input; its output is kept in one file.
    ///
    /// # Errors
    /// It can't be started.
    pub fn start(mut command: Command) -> anyhow::Result<Self> {
        let output = NamedTempFile::new().context("no place for the output of a process")?;
        let sink = || -> anyhow::Result<File> { Ok(File::options().append(true).open(output.path())?) };
        command.stdin(Stdio::null()).stdout(sink()?).stderr(sink()?).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("can't start {:?}", command.as_std()))?;
        Ok(Self { child, output })
    }

    /// Its process id, while it runs.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// What it has written so far.
    pub fn text(&self) -> String {
        std::fs::read(self.output.path())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Sends a signal; nothing happens when it has ended.
    ///
    /// # Errors
    /// The system refuses.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let id = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let Some(id) = id else { return Ok(()) };
        kill_process(id, signal).context("can't signal a process")
    }

    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// It does not end in two minutes; it is killed then.
    pub async fn finish(self) -> anyhow::Result<Finished> {
        self.finish_within(PATIENCE).await
    }

    /// Waits for its end, so long.
    ///
    /// # Errors
    /// It does not end in that time; it is killed then.
    pub async fn finish_within(mut self, patience: Duration) -> anyhow::Result<Finished> {
        match tokio::time::timeout(patience, self.child.wait()).await {
            Ok(status) => {
                Ok(Finished { status: status.context("can't wait for a process")?, text: self.text() })
            }
            Err(_) => bail!("still runs after {patience:?}; it wrote:\n{}", self.text()),
        }
    }

    /// Waits until its output holds `wanted`.
    ///
    /// # Errors
    /// It ends before, or does not write that in time.
    pub async fn wait_for(&mut self, wanted: &str, patience: Duration) -> anyhow::Result<()> {
        let deadline = tokio::time::Instant::now() + patience;
        loop {
            let text = self.text();
            if text.contains(wanted) {
                return Ok(());
            }
            if !self.is_running() {
                bail!("ended without writing {wanted:?}; it wrote:\n{text}");
            }
            if tokio::time::Instant::now() > deadline {
                bail!("did not write {wanted:?} in {patience:?}; it wrote:\n{text}");
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
