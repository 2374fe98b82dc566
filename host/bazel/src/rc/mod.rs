//! A `.bazelrc` with all that it imports, as Bazel reads it.

mod expand;
mod lines;
mod sections;
mod words;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use expand::{ExpandError, Expanded, expand};
pub use sections::{build_commands, is_known, read_by, takes_build_options};
use words::Slip;

use crate::place::Place;

/// More files on top of each other are a loop that spells one file in many ways.
const DEPTH_MAX: usize = 64;

/// So many files are read, those that are imported again included: each level may double them.
const FILES_MAX: usize = 1_000;

/// A word of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// What it says, quotes and escapes taken off.
    pub text: String,
    /// Where it stands.
    pub place: Place,
}

/// One line: options for a section.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RcLine {
    /// `build` of `build:ci`.
    pub section: String,
    /// `ci` of `build:ci`.
    pub config: Option<String>,
    /// Where the line begins.
    pub place: Place,
    /// The options.
    pub words: Vec<Word>,
}

/// Something that Bazel takes without a word, though it hardly is what was meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oddity {
    /// Where it stands.
    pub place: Place,
    /// What Bazel makes of it.
    pub kind: OddityKind,
}

/// What Bazel makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OddityKind {
    /// A quote that the end of the line closes.
    OpenQuote,
    /// A comment that begins within a word.
    CommentInWord,
    /// A comment that a backslash continues: the line with this number is no option any more.
    CommentContinues(usize),
    /// An import by a path that begins nowhere in particular, so what is found depends on where Bazel is started.
    RelativeImport(String),
    /// A file that is not there, and need not be.
    SkippedImport(String),
}

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rc {
    /// The lines, those of imported files where they are imported.
    pub lines: Vec<RcLine>,
    /// What was odd.
    pub oddities: Vec<Oddity>,
}

/// Why a `.bazelrc` can't be read. Bazel does not start then.
#[derive(Debug, thiserror::Error)]
pub enum RcError {
    /// The file itself is not there.
    #[error("{file}: can't be read: {error}; give the .bazelrc that Bazel reads")]
    Unreadable {
        /// The file.
        file: String,
        /// What the system says.
        error: io::Error,
    },
    /// A file that has to be there is not.
    #[error(
        "{place}: import of {file}, which can't be read: {error}; use try-import if it need not be there"
    )]
    Import {
        /// The line that imports it.
        place: Place,
        /// The file.
        file: String,
        /// What the system says.
        error: io::Error,
    },
    /// Not one path behind `import`.
    #[error("{place}: {command} takes one path, and here are {count}; quote a path that has spaces")]
    Words {
        /// The line.
        place: Place,
        /// `import` or `try-import`.
        command: String,
        /// Words behind it.
        count: usize,
    },
    /// More than anybody means.
    #[error(
        "{place}: more than {FILES_MAX} files are imported; a file that is imported twice is read twice, and so is all that it imports"
    )]
    TooMany {
        /// The import that is too much.
        place: Place,
    },
    /// A file that imports itself, perhaps by others.
    #[error("{place}: import of {file}, which is being read: {chain}; take one of the imports out")]
    Loop {
        /// The line that closes the loop.
        place: Place,
        /// The file.
        file: String,
        /// The files on the way.
        chain: String,
    },
}

/// Reads a file and all that it imports.
///
/// `workspace` is what `%workspace%` stands for. Bazel's other files (`/etc/bazel.bazelrc`, `~/.bazelrc`, `--bazelrc`) are not looked at.
///
/// # Errors
/// As Bazel: a file that has to be there is not, imports run in a loop, or an import is no path.
pub fn read(file: &Path, workspace: &Path) -> Result<Rc, RcError> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| RcError::Unreadable { file: file.display().to_string(), error })?;
    let mut reader = Reader { workspace, stack: vec![file.to_owned()], files: 1, rc: Rc::default() };
    reader.text(file, &text)?;
    Ok(reader.rc)
}

struct Reader<'a> {
    workspace: &'a Path,
    stack: Vec<PathBuf>,
    files: usize,
    rc: Rc,
}

impl Reader<'_> {
    fn text(&mut self, file: &Path, text: &str) -> Result<(), RcError> {
        let name: Arc<str> = file.display().to_string().into();
        for line in lines::lines(text) {
            let place = |at: usize| Place { file: Arc::clone(&name), line: line.number(at) };
            let split = words::split(&line.text);
            let slip = |&(at, slip): &(usize, Slip)| {
                let kind = match slip {
                    Slip::OpenQuote => OddityKind::OpenQuote,
                    Slip::CommentInWord => OddityKind::CommentInWord,
                };
                Oddity { place: place(at), kind }
            };
            self.rc.oddities.extend(split.slips.iter().map(slip));
            if let Some((at, next)) = split.comment.and_then(|at| Some((at, line.continued_after(at)?))) {
                self.rc.oddities.push(Oddity { place: place(at), kind: OddityKind::CommentContinues(next) });
            }
            let mut words =
                split.words.into_iter().map(|word| Word { place: place(word.start), text: word.text });
            let Some(first) = words.next() else { continue };
            let words: Vec<Word> = words.collect();
            if matches!(&*first.text, "import" | "try-import") {
                self.import(&first, &words)?;
                continue;
            }
            let (section, config) = match first.text.split_once(':') {
                Some((section, config)) => (section.to_owned(), Some(config.to_owned())),
                None => (first.text, None),
            };
            self.rc.lines.push(RcLine { section, config, place: first.place, words });
        }
        Ok(())
    }

    fn import(&mut self, command: &Word, words: &[Word]) -> Result<(), RcError> {
        let place = command.place.clone();
        let [path] = words else {
            return Err(RcError::Words { place, command: command.text.clone(), count: words.len() });
        };
        let file = self.resolve(path);
        if self.stack.contains(&file) || self.stack.len() > DEPTH_MAX {
            let chain: Vec<_> =
                self.stack.iter().chain([&file]).map(|file| file.display().to_string()).collect();
            return Err(RcError::Loop { place, file: file.display().to_string(), chain: chain.join(" -> ") });
        }
        match std::fs::read_to_string(&file) {
            Ok(_) if self.files >= FILES_MAX => Err(RcError::TooMany { place }),
            Ok(text) => {
                self.files += 1;
                self.stack.push(file.clone());
                self.text(&file, &text)?;
                self.stack.pop();
                Ok(())
            }
            Err(_) if command.text == "try-import" => {
                let kind = OddityKind::SkippedImport(file.display().to_string());
                self.rc.oddities.push(Oddity { place, kind });
                Ok(())
            }
            Err(error) => Err(RcError::Import { place, file: file.display().to_string(), error }),
        }
    }

    /// The file that an import names.
    fn resolve(&mut self, path: &Word) -> PathBuf {
        if let Some(rest) = path.text.strip_prefix("%workspace%") {
            return self.workspace.join(rest.trim_start_matches(['/', '\\']));
        }
        if Path::new(&path.text).is_relative() {
            let kind = OddityKind::RelativeImport(path.text.clone());
            self.rc.oddities.push(Oddity { place: path.place.clone(), kind });
        }
        self.workspace.join(&path.text)
    }
}

#[cfg(test)]
mod tests;
