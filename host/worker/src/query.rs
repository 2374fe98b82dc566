//! Platform property values that a command tells when the worker starts (NativeLink's `query_cmd`).
use crate::command::{DEFAULT_PATH, look_up};
use nix::{sys::signal::Signal, sys::signal::killpg, unistd::Pid};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};

/// Bytes that such a command may print, on either stream: more is no list of property values.
const OUTPUT_MAX_BYTES: u64 = 64 << 10;
/// Characters of its standard error that are told.
const TOLD_MAX: usize = 200;

/// A command whose output is the values of one platform property, one per line.
///
/// Its words are split as a shell would, but no shell runs them: no variables, no pipes, no wildcards. Its environment
/// is empty; a name without a slash is looked up in the usual system directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlatformQuery {
    key: String,
    command: String,
    words: Vec<String>,
}

/// A [`PlatformQuery`] that is of no use.
#[derive(Debug, thiserror::Error)]
#[error("the platform property {key:?} can't be told by the command {command:?}: {reason}")]
pub struct QueryError {
    key: String,
    command: String,
    reason: Reason,
}

#[derive(Debug)]
enum Reason {
    Quotes,
    Empty,
    NotFound(String),
    Io(&'static str, io::Error),
    Late(Duration),
    Failed(ExitStatus, String),
    Silent(String),
    Verbose,
    NotText,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quotes => f.write_str("a quote is not closed, or it ends in a backslash"),
            Self::Empty => f.write_str("it has no words"),
            Self::NotFound(name) => {
                write!(f, "there is no executable {name:?} in {DEFAULT_PATH}; name it with its whole path")
            }
            Self::Io(doing, error) => write!(f, "{doing} failed: {error}"),
            Self::Late(limit) => write!(
                f,
                "it had not ended after {limit:?} and was killed; raise the time limit, or give the values themselves"
            ),
            Self::Failed(status, told) => write!(
                f,
                "it ended with {status} and {told}; it has to end with 0, in an empty environment and without a shell \
                 (`env -i COMMAND` tries that)"
            ),
            Self::Silent(told) => write!(
                f,
                "it printed no value and {told}; it has to print one per line on its standard output"
            ),
            Self::Verbose => {
                write!(f, "it printed more than {OUTPUT_MAX_BYTES} bytes; one value per line is expected")
            }
            Self::NotText => f.write_str("it printed what is not UTF-8 text"),
        }
    }
}

impl PlatformQuery {
    /// A query for `key`.
    ///
    /// # Errors
    /// The command has no words, or a quote in it is not closed.
    pub fn new(key: impl Into<String>, command: impl Into<String>) -> Result<Self, QueryError> {
        let (key, command) = (key.into(), command.into());
        match shlex::split(&command) {
            Some(words) if !words.is_empty() => Ok(Self { key, command, words }),
            words => {
                let reason = if words.is_some() { Reason::Empty } else { Reason::Quotes };
                Err(QueryError { key, command, reason })
            }
        }
    }

    /// The property that it tells.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The command, as it was given.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Runs it to its end and returns the values, at least one, in the order printed. When it is not done in time it is
    /// killed with all that it started; when the future is dropped, it alone.
    ///
    /// # Errors
    /// It can't be started, fails, takes longer than `limit`, or prints nothing.
    pub async fn run(&self, limit: Duration) -> Result<Vec<String>, QueryError> {
        self.ask(limit).await.map_err(|reason| QueryError {
            key: self.key.clone(),
            command: self.command.clone(),
            reason,
        })
    }

    async fn ask(&self, limit: Duration) -> Result<Vec<String>, Reason> {
        let mut child = self.spawn()?;
        let done = tokio::time::timeout(limit, collect(&mut child)).await;
        // Only before it is reaped is the group surely its own; `id` is `None` afterwards.
        if let Some(id) = child.id().and_then(|id| i32::try_from(id).ok()) {
            // Fails only when nobody is left.
            let _ = killpg(Pid::from_raw(id), Signal::SIGKILL);
        }
        let (status, stdout, stderr) = done.map_err(|_| Reason::Late(limit))??;
        if !status.success() {
            return Err(Reason::Failed(status, told(&stderr)));
        }
        let text = String::from_utf8(stdout).map_err(|_| Reason::NotText)?;
        let values: Vec<String> = text.lines().map(str::to_owned).collect();
        if values.is_empty() {
            return Err(Reason::Silent(told(&stderr)));
        }
        Ok(values)
    }

    fn spawn(&self) -> Result<Child, Reason> {
        let (name, rest) = self.words.split_first().ok_or(Reason::Empty)?;
        let program = if name.contains('/') {
            PathBuf::from(name)
        } else {
            look_up(name, DEFAULT_PATH, Path::new("/")).ok_or_else(|| Reason::NotFound(name.clone()))?
        };
        Command::new(program)
            .arg0(name)
            .args(rest)
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| Reason::Io("starting it", error))
    }
}

/// Everything it prints, then its end. What it leaves running with its output open is waited for, too.
async fn collect(child: &mut Child) -> Result<(ExitStatus, Vec<u8>, Vec<u8>), Reason> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (stdout, stderr) = tokio::try_join!(read(stdout), read(stderr))?;
    let status = child.wait().await.map_err(|error| Reason::Io("waiting for its end", error))?;
    Ok((status, stdout, stderr))
}

async fn read(stream: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    let Some(stream) = stream else { return Ok(bytes) };
    let read = stream.take(OUTPUT_MAX_BYTES + 1).read_to_end(&mut bytes).await;
    read.map_err(|error| Reason::Io("reading its output", error))?;
    if bytes.len() as u64 > OUTPUT_MAX_BYTES { Err(Reason::Verbose) } else { Ok(bytes) }
}

/// What its standard error begins with.
fn told(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    match text.lines().find(|line| !line.trim().is_empty()) {
        None => "said nothing on its standard error".to_owned(),
        Some(line) => format!("said {:?}", line.chars().take(TOLD_MAX).collect::<String>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LIMIT: Duration = Duration::from_secs(30);

    async fn values(command: &str) -> Result<Vec<String>, String> {
        let query = PlatformQuery::new("gpu", command).map_err(|error| error.to_string())?;
        query.run(LIMIT).await.map_err(|error| error.to_string())
    }

    async fn refusal(command: &str) -> String {
        let text = values(command).await.expect_err(command);
        let start = format!("the platform property \"gpu\" can't be told by the command {command:?}: ");
        text.strip_prefix(&start).unwrap_or_else(|| panic!("{text}")).to_owned()
    }

    #[tokio::test]
    async fn each_line_of_the_output_is_a_value() {
        assert_eq!(values("printf 'a b\\n\\nc'").await.unwrap(), ["a b", "", "c"]);
        assert_eq!(values("echo").await.unwrap(), [""], "an empty value is a value");
    }

    #[tokio::test]
    async fn words_are_split_shell_style_and_run_without_a_shell() {
        assert_eq!(values("printf '%s\\n' 'a b' c\\ d").await.unwrap(), ["a b", "c d"]);
        assert_eq!(values("echo $HOME * | cat; ls").await.unwrap(), ["$HOME * | cat; ls"]);
        assert_eq!(values("/bin/sh -c 'echo $0 $#' 'x y' *").await.unwrap(), ["x y 1"], "but in one");
    }

    #[tokio::test]
    async fn the_environment_is_cleared() {
        assert_eq!(values("env").await.unwrap_err().matches("printed no value").count(), 1);
    }

    #[tokio::test]
    async fn failures_say_how_it_ended_and_what_it_said() {
        let text = refusal("sh -c 'echo; echo; echo no driver >&2; echo more >&2; exit 9'").await;
        assert!(text.starts_with("it ended with exit status: 9 and said \"no driver\"; "), "{text}");
        assert!(
            refusal("sh -c 'kill -9 $$'")
                .await
                .starts_with("it ended with signal: 9 (SIGKILL) and said nothing")
        );
        assert!(refusal("true").await.starts_with("it printed no value and said nothing"));
        assert!(
            refusal("no-such-program")
                .await
                .starts_with("there is no executable \"no-such-program\" in /usr")
        );
        assert!(refusal("/no/such/program").await.starts_with("starting it failed: No such file"));
        assert!(refusal("yes").await.starts_with("it printed more than 65536 bytes"));
        assert!(refusal("printf '\\377'").await.ends_with("not UTF-8 text"));
        assert!(refusal("echo 'a").await.starts_with("a quote is not closed"));
        assert_eq!(refusal(" ").await, "it has no words");
    }

    #[tokio::test]
    async fn what_takes_too_long_is_killed_with_all_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("alive");
        let command = format!("sh -c '(sleep 1; touch {}) & sleep 30'", trace.display());
        let started = Instant::now();
        let query = PlatformQuery::new("gpu", command).unwrap();
        let text = query.run(Duration::from_millis(200)).await.unwrap_err().to_string();
        assert!(text.contains("had not ended after 200ms and was killed"), "{text}");
        assert!(started.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(1500)).await;
        assert!(!trace.exists(), "a process of it lives on");
    }
}
