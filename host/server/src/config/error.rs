//! What is wrong with a configuration, in the words and at the place an operator can act on.

use std::fmt;

use super::config_files::Seen;
use super::path::KeyPath;

/// One thing that is wrong, with the place in the file when it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Line, counted from 1; 0 when the value did not come from the file (a flag, or a default).
    pub line: usize,
    /// Column in characters, counted from 1; 0 when `line` is 0.
    pub column: usize,
    /// The key path, such as `timers.heartbeat`; empty for the whole file.
    pub key: String,
    /// What was asked, what there was, and what to do.
    pub text: String,
}

/// Everything that is wrong with one configuration. It holds at least one problem.
#[derive(Debug)]
pub struct ConfigError {
    /// The file's name as the operator gave it, or `command line`.
    pub source_name: String,
    /// The problems, in the order of the file.
    pub problems: Vec<Problem>,
    /// Files that the configuration refers to (`config_files`), as far as it could be read.
    pub seen: Vec<Seen>,
    /// The file's lines, to show the ones that are wrong.
    lines: Vec<String>,
}

impl ConfigError {
    pub(super) fn new(source_name: &str, text: &str, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| (problem.line, problem.column));
        Self {
            source_name: source_name.to_owned(),
            problems,
            seen: Vec::new(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    pub(super) fn with_seen(self, seen: Vec<Seen>) -> Self {
        Self { seen, ..self }
    }

    pub(super) fn unreadable(source_name: &str, error: &std::io::Error) -> Self {
        let text = format!("can't be read: {error}; give a readable file, or none to run with the defaults");
        Self::new(source_name, "", vec![Problem { line: 0, column: 0, key: String::new(), text }])
    }

    fn show(&self, f: &mut fmt::Formatter<'_>, problem: &Problem) -> fmt::Result {
        write!(f, "{}", self.source_name)?;
        if problem.line > 0 {
            write!(f, ":{}:{}", problem.line, problem.column)?;
        }
        if !problem.key.is_empty() {
            write!(f, ": {}", problem.key)?;
        }
        write!(f, ": {}", problem.text)?;
        let Some(line) = problem.line.checked_sub(1).and_then(|index| self.lines.get(index)) else {
            return Ok(());
        };
        // Tabs count as one column; shown as one space, so that the caret stands where it should.
        let shown: String = line.chars().map(|c| if c == '\t' { ' ' } else { c }).collect();
        let number = problem.line.to_string();
        let indent = " ".repeat(problem.column - 1);
        write!(f, "\n  {number} | {shown}\n  {:width$} | {indent}^", "", width = number.len())
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, problem) in self.problems.iter().enumerate() {
            if position > 0 {
                f.write_str("\n")?;
            }
            self.show(f, problem)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

/// A problem that knows its key path but not yet its line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unplaced {
    pub(super) path: KeyPath,
    /// Whether the key is to blame, or the value behind it.
    pub(super) at: At,
    pub(super) text: String,
}

/// What the caret points at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Key,
    Value,
}
