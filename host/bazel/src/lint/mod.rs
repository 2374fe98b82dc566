//! What is wrong with the flags of a `.bazelrc` that decide where actions run.
//!
//! Bazel itself says nothing of most of it until an action fails, and no flag makes it ask for a list for each execution
//! platform.

mod dynamic;
mod finding;
mod flags;
mod lists;
mod platforms;
mod reading;
mod results;

use crate::flags::Flags;
use crate::label::{Label, TargetPattern};
use crate::model::{Model, Os};
use crate::place::Place;
use crate::rc::{ExpandError, Rc, expand};
use crate::version::Version;
pub use finding::{Finding, Severity};

/// What is known besides the `.bazelrc`.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The host that runs Bazel.
    pub os: Os,
    /// Which Bazel.
    pub version: Version,
    /// Configs that are given on the command line.
    pub configs: Vec<String>,
    /// The commands that are looked at, those that build.
    pub commands: Vec<String>,
    /// Platforms that are registered elsewhere (`register_execution_platforms`), or that a pattern may find.
    pub registered: Vec<Label>,
    /// Platforms of pools, in the order in which they are to be tried.
    pub pools: Vec<PoolPlatform>,
    /// The file that the pools are from, for advice.
    pub pools_file: Option<String>,
    /// A remote executor is given on the command line.
    pub remote: bool,
}

/// A pool's platform on Bazel's side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPlatform {
    /// The pool.
    pub pool: String,
    /// Its platform.
    pub platform: Label,
    /// What its actions may run by.
    pub strategies: Vec<String>,
}

/// Everything that is wrong, in the order of the files; each thing once, whichever commands have it.
///
/// # Errors
/// The options of a command can't be told, as [`expand`] says; Bazel fails then.
pub fn lint(rc: &Rc, around: &Surroundings) -> Result<Vec<Finding>, ExpandError> {
    let mut findings = reading::findings(rc);
    for command in &around.commands {
        let words = expand(&rc.lines, command, &around.configs, around.os)?.words;
        let (flags, bad) = Flags::read(&words);
        findings.extend(bad.into_iter().map(reading::refused));
        let look = Look::new(&flags, around);
        flags::findings(&look, &mut findings);
        platforms::findings(&look, &mut findings);
        lists::findings(&look, &mut findings);
        dynamic::findings(&look, &mut findings);
        results::findings(&look, &mut findings);
    }
    let mut once: Vec<Finding> = Vec::new();
    for finding in findings {
        if !once.contains(&finding) {
            once.push(finding);
        }
    }
    // Those without a line are about the whole, and come last.
    once.sort_by(|a, b| (a.place.is_none(), &a.place).cmp(&(b.place.is_none(), &b.place)));
    Ok(once)
}

/// A platform that actions may be given, and where it is registered.
#[derive(Clone, Debug)]
struct Platform {
    label: Label,
    /// Its line; none: elsewhere.
    place: Option<Place>,
}

/// One command's flags, and what follows from them.
struct Look<'a> {
    flags: &'a Flags,
    around: &'a Surroundings,
    model: Model<'a>,
    /// Registered platforms in the order in which Bazel tries them, without the host.
    platforms: Vec<Platform>,
    /// Patterns that find nothing of what is known here.
    unresolved: Vec<(String, Place)>,
    /// Items of the list of platforms that are no label, and why.
    broken: Vec<(String, String, Place)>,
    host: Label,
}

impl<'a> Look<'a> {
    fn new(flags: &'a Flags, around: &'a Surroundings) -> Self {
        let host = flags.host_platform.as_ref().and_then(|flag| Label::parse(&flag.value).ok());
        let mut look = Self {
            flags,
            around,
            model: Model::new(flags, around.os, around.version),
            platforms: Vec::new(),
            unresolved: Vec::new(),
            broken: Vec::new(),
            host: host.filter(|label| !label.is_alias_of_host()).unwrap_or_else(Label::host),
        };
        look.register();
        look
    }

    fn register(&mut self) {
        let known: Vec<Label> = self
            .around
            .registered
            .iter()
            .chain(self.around.pools.iter().map(|pool| &pool.platform))
            .cloned()
            .collect();
        if let Some(flag) = self.flags.extra_execution_platforms.last() {
            for item in &flag.value {
                match TargetPattern::parse(item) {
                    Ok(TargetPattern::One(label)) => self.add(label, Some(&flag.place)),
                    Ok(pattern) => {
                        let mut found: Vec<_> =
                            known.iter().filter(|label| pattern.has(label)).cloned().collect();
                        // A pattern's targets come by name, whatever the order of the pools.
                        found.sort();
                        if found.is_empty() {
                            self.unresolved.push((item.clone(), flag.place.clone()));
                        }
                        found.into_iter().for_each(|label| self.add(label, Some(&flag.place)));
                    }
                    Err(why) => self.broken.push((item.clone(), why, flag.place.clone())),
                }
            }
        }
        for label in &self.around.registered {
            self.add(label.clone(), None);
        }
    }

    fn add(&mut self, label: Label, place: Option<&Place>) {
        if label != self.host && !self.platforms.iter().any(|known| known.label == label) {
            self.platforms.push(Platform { label, place: place.cloned() });
        }
    }

    /// The platforms that have a list, with the host.
    fn restricted(&self) -> impl Iterator<Item = (&Label, crate::model::Restriction)> {
        let labels = self.platforms.iter().map(|platform| &platform.label).chain([&self.host]);
        labels.filter_map(|label| Some((label, self.model.restriction(label)?)))
    }
}

#[cfg(test)]
mod tests;
