//! What a command is given by a `.bazelrc`: its sections one after the other, each `--config` replaced by what it stands for.

use super::sections::read_by;
use super::{RcLine, Word};
use crate::model::Os;
use crate::place::Place;

/// So many configs are expanded, again and again those that are named again: each level may double them.
const CONFIGS_MAX: usize = 10_000;

/// So many are within each other. Bazel warns from ten on.
const DEPTH_MAX: usize = 200;

/// The options in order of precedence, weakest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The options.
    pub words: Vec<Word>,
    /// Configs that were expanded, in order.
    pub configs: Vec<String>,
}

/// Why the options of a command can't be told. Bazel fails the same way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpandError {
    /// A command of which nothing is known.
    #[error("{0:?} is no command that builds; give one of {1}")]
    Command(String, String),
    /// A config that no section defines.
    #[error("{}--config={name} is defined in no section that `bazel {command}` reads ({sections}); define it, or take it out",
        place.as_ref().map(|place| format!("{place}: ")).unwrap_or_default())]
    Undefined {
        /// Where it is asked for; none: on the command line.
        place: Option<Place>,
        /// Its name.
        name: String,
        /// The command.
        command: String,
        /// The sections that were looked at.
        sections: String,
    },
    /// A config that is a part of itself.
    #[error("{place}: --config={name} is a part of itself ({chain}); take one of them out")]
    Cycle {
        /// The line that closes the cycle.
        place: Place,
        /// Its name.
        name: String,
        /// The configs on the way.
        chain: String,
    },
    /// More than anybody means.
    #[error(
        "--config={name} is too much: more than {CONFIGS_MAX} configs are expanded, or {DEPTH_MAX} within each other"
    )]
    TooMany {
        /// The one that is too much.
        name: String,
    },
    /// `--config name` within a config, which takes `--config=name` only.
    #[error("{place}: within a config, another is to be written --config=NAME, in one word")]
    TwoWords {
        /// The line.
        place: Place,
    },
    /// `--config` with nothing behind it.
    #[error("{place}: --config names none; write --config=NAME")]
    NoName {
        /// The line.
        place: Place,
    },
}

/// Puts together what a command is given. `configs` come from the command line, so they stand last.
///
/// # Errors
/// The command is none that builds, or a config has no definition or is a part of itself.
pub fn expand(lines: &[RcLine], command: &str, configs: &[String], os: Os) -> Result<Expanded, ExpandError> {
    let Some(sections) = read_by(command) else {
        let known: Vec<_> = super::build_commands().collect();
        return Err(ExpandError::Command(command.to_owned(), known.join(", ")));
    };
    let mut expansion = Expansion { lines, command, sections, expanded: Expanded::default() };
    expansion.plain()?;
    expansion.platform_config(os)?;
    for name in configs {
        expansion.config(name, None, &mut Vec::new())?;
    }
    Ok(expansion.expanded)
}

struct Expansion<'a> {
    lines: &'a [RcLine],
    command: &'a str,
    sections: Vec<&'static str>,
    expanded: Expanded,
}

impl<'a> Expansion<'a> {
    /// The options of a config, or those that are of none, in order of precedence.
    fn words(&self, config: Option<&'a str>) -> Vec<&'a Word> {
        let lines = self.lines;
        let of = |section: &&'static str| {
            let section = *section;
            lines.iter().filter(move |line| line.section == section && line.config.as_deref() == config)
        };
        self.sections.iter().flat_map(of).flat_map(|line| &line.words).collect()
    }

    fn plain(&mut self) -> Result<(), ExpandError> {
        let mut words = self.words(None).into_iter().peekable();
        while let Some(word) = words.next() {
            match word.text.strip_prefix("--config") {
                Some("") => {
                    let Some(name) = words.next() else {
                        return Err(ExpandError::NoName { place: word.place.clone() });
                    };
                    self.config(&name.text, Some(&word.place), &mut Vec::new())?;
                }
                Some(rest) if rest.starts_with('=') => {
                    self.config(&rest[1..], Some(&word.place), &mut Vec::new())?;
                }
                _ => self.expanded.words.push(word.clone()),
            }
        }
        Ok(())
    }

    /// `--enable_platform_specific_config` stands for the config of the host's system, if there is one, where it is said last.
    fn platform_config(&mut self, os: Os) -> Result<(), ExpandError> {
        let name = match os {
            Os::Linux => "linux",
            Os::Darwin => "macos",
            Os::Windows => "windows",
        };
        let on = [
            "--enable_platform_specific_config",
            "--enable_platform_specific_config=true",
            "--enable_platform_specific_config=1",
        ];
        let is_flag = |word: &Word| {
            word.text
                .trim_start_matches("--no")
                .trim_start_matches("--")
                .starts_with("enable_platform_specific_config")
        };
        let Some(at) = self.expanded.words.iter().rposition(is_flag) else { return Ok(()) };
        if !on.contains(&&*self.expanded.words[at].text) || self.words(Some(name)).is_empty() {
            return Ok(());
        }
        let after = self.expanded.words.split_off(at + 1);
        self.config(name, None, &mut Vec::new())?;
        self.expanded.words.extend(after);
        Ok(())
    }

    fn config(
        &mut self,
        name: &str,
        place: Option<&Place>,
        above: &mut Vec<String>,
    ) -> Result<(), ExpandError> {
        if let (Some(place), true) = (place, above.iter().any(|one| one == name)) {
            let chain = above.iter().map(String::as_str).chain([name]).collect::<Vec<_>>().join(" -> ");
            return Err(ExpandError::Cycle { place: place.clone(), name: name.to_owned(), chain });
        }
        let lines = self.lines;
        let defined =
            |line: &&RcLine| line.config.as_deref() == Some(name) && self.sections.contains(&&*line.section);
        let Some(known) = lines.iter().find(defined).and_then(|line| line.config.as_deref()) else {
            let sections: Vec<_> = self.sections.iter().map(|section| format!("{section}:{name}")).collect();
            return Err(ExpandError::Undefined {
                place: place.cloned(),
                name: name.to_owned(),
                command: self.command.to_owned(),
                sections: sections.join(", "),
            });
        };
        if self.expanded.configs.len() >= CONFIGS_MAX || above.len() >= DEPTH_MAX {
            return Err(ExpandError::TooMany { name: name.to_owned() });
        }
        self.expanded.configs.push(name.to_owned());
        above.push(name.to_owned());
        for word in self.words(Some(known)) {
            match word.text.strip_prefix("--config") {
                Some("") => {
                    return Err(ExpandError::TwoWords { place: word.place.clone() });
                }
                Some(rest) if rest.starts_with('=') => self.config(&rest[1..], Some(&word.place), above)?,
                _ => self.expanded.words.push(word.clone()),
            }
        }
        above.pop();
        Ok(())
    }
}
