//! The choice of a strategy, step by step.

use super::{Os, RegexFilter, Registry, Tags};
use crate::flags::{Assignment, Flag, Flags};
use crate::label::Label;
use crate::place::Place;
use crate::version::Version;

/// The mnemonic that `--strategy_regexp` never applies to.
const TEST_RUNNER: &str = "TestRunner";

/// An action that is about to run.
#[derive(Clone, Debug)]
pub struct Spawn<'a> {
    /// Its mnemonic.
    pub mnemonic: &'a str,
    /// What Bazel shows while it runs, such as `Compiling a.cc`; actions without one are out of reach for `--strategy_regexp`.
    pub description: Option<&'a str>,
    /// Its execution platform.
    pub platform: &'a Label,
    /// Its tags, with those of the platform.
    pub tags: &'a [String],
}

/// Where a list comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `--strategy_regexp`, with its filter.
    Regexp(String, Place),
    /// `--strategy` of the mnemonic.
    Mnemonic(Place),
    /// `--genrule_strategy`.
    Genrule(Place),
    /// `--spawn_strategy`.
    Default(Place),
    /// No flag.
    BuiltIn,
}

/// The list of the execution platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restriction {
    /// What it allows.
    pub allowed: Vec<String>,
    /// The line.
    pub place: Place,
}

/// What is left of the two sides of `dynamic`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Legs {
    /// Before the platform's list.
    pub asked: [Vec<String>; 2],
    /// After it: here, and remotely.
    pub left: [Vec<String>; 2],
}

/// One strategy of the list that was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Its name as it was written.
    pub name: String,
    /// Why it can't run the action, if it can't.
    pub refused: Option<String>,
    /// Its sides, if it is `dynamic`.
    pub legs: Option<Legs>,
}

/// What becomes of an action, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Flags that come first and say nothing about this action, in words.
    pub passed_over: Vec<String>,
    /// Where the list comes from.
    pub source: Source,
    /// The list before the platform's takes anything out.
    pub before: Vec<String>,
    /// The platform's list; none: nothing is taken out.
    pub restriction: Option<Restriction>,
    /// Names of either list that are not registered on the host: Bazel stops before it runs anything.
    pub unregistered: Vec<String>,
    /// What is left, in order.
    pub candidates: Vec<Candidate>,
    /// The index of the candidate that runs the action; none: it fails.
    pub runs: Option<usize>,
}

impl Decision {
    /// The list that is left.
    pub fn after(&self) -> Vec<&str> {
        self.candidates.iter().map(|candidate| &*candidate.name).collect()
    }
}

/// The flags of one command, ready to be asked.
#[derive(Debug)]
pub struct Model<'a> {
    flags: &'a Flags,
    /// What is registered on the host.
    pub registry: Registry,
    /// `--strategy_regexp`, those that can be read, with their line.
    regexps: Vec<(RegexFilter, &'a Flag<Assignment>)>,
    /// Those that can't, and why.
    unreadable: Vec<(&'a Flag<Assignment>, String)>,
    has_allow_lists: bool,
}

impl<'a> Model<'a> {
    /// The model of a command with these flags.
    pub fn new(flags: &'a Flags, os: Os, version: Version) -> Self {
        let mut regexps = Vec::new();
        let mut unreadable = Vec::new();
        for flag in &flags.strategy_regexp {
            match RegexFilter::parse(&flag.value.key) {
                Ok(filter) => regexps.push((filter, flag)),
                Err(why) => unreadable.push((flag, why)),
            }
        }
        let has_allow_lists = version.has_allow_lists();
        Self {
            flags,
            registry: Registry::new(os, flags, has_allow_lists),
            regexps,
            unreadable,
            has_allow_lists,
        }
    }

    /// `--strategy_regexp` that can't be judged here, and why.
    pub fn unreadable(&self) -> &[(&'a Flag<Assignment>, String)] {
        &self.unreadable
    }

    /// The list of a platform: of several for its label the last, if that one is not empty.
    pub fn restriction(&self, platform: &Label) -> Option<Restriction> {
        let of_label = |flag: &&Flag<Assignment>| Label::parse(&flag.value.key).as_ref() == Ok(platform);
        let last = self.flags.allowed.iter().rfind(of_label)?;
        (self.has_allow_lists && !last.value.items.is_empty())
            .then(|| Restriction { allowed: last.value.items.clone(), place: last.place.clone() })
    }

    /// What becomes of an action.
    pub fn decide(&self, spawn: &Spawn<'_>) -> Decision {
        let mut passed_over = Vec::new();
        let (source, before) = self
            .by_description(spawn, &mut passed_over)
            .or_else(|| self.by_mnemonic(spawn.mnemonic, &mut passed_over))
            .unwrap_or_else(|| self.by_default());
        let restriction = self.restriction(spawn.platform);
        let left = self.filtered(&before, restriction.as_ref());
        let tags = Tags::of(spawn.tags, spawn.mnemonic, self.flags);
        let candidates: Vec<_> = left
            .into_iter()
            .map(|name| self.candidate(name, spawn.mnemonic, restriction.as_ref(), &tags))
            .collect();
        let allowed = restriction.iter().flat_map(|one| &one.allowed);
        let unregistered =
            before.iter().chain(allowed).filter(|name| self.registry.stands_for(name).is_none());
        let unregistered: Vec<_> = unregistered.cloned().collect();
        let can_run = candidates.iter().position(|candidate| candidate.refused.is_none());
        let runs = can_run.filter(|_| unregistered.is_empty());
        Decision { passed_over, source, before, restriction, unregistered, candidates, runs }
    }

    fn by_description(
        &self,
        spawn: &Spawn<'_>,
        passed_over: &mut Vec<String>,
    ) -> Option<(Source, Vec<String>)> {
        let last = self.flags.strategy_regexp.last()?;
        let skipped = match spawn.description {
            _ if spawn.mnemonic == TEST_RUNNER => "does not apply to the mnemonic TestRunner",
            None => "applies to actions with a description only",
            Some(description) => {
                // Only the last that matches is looked at, also when its list is empty.
                return match self.regexps.iter().rfind(|(filter, _)| filter.matches(description)) {
                    Some((_, flag)) if flag.value.items.is_empty() => {
                        passed_over.push(format!(
                            "{}: --strategy_regexp={} matches, and its list is empty",
                            flag.place, flag.value.key
                        ));
                        None
                    }
                    Some((_, flag)) => {
                        let source = Source::Regexp(flag.value.key.clone(), flag.place.clone());
                        Some((source, flag.value.items.clone()))
                    }
                    None => {
                        passed_over.push(format!("no --strategy_regexp matches {description:?}"));
                        None
                    }
                };
            }
        };
        passed_over.push(format!("{}: --strategy_regexp {skipped}", last.place));
        None
    }

    fn by_mnemonic(&self, mnemonic: &str, passed_over: &mut Vec<String>) -> Option<(Source, Vec<String>)> {
        if let Some(flag) = self.flags.strategy.iter().rfind(|flag| flag.value.key == mnemonic) {
            if !flag.value.items.is_empty() {
                return Some((Source::Mnemonic(flag.place.clone()), flag.value.items.clone()));
            }
            passed_over.push(format!("{}: --strategy={mnemonic}= asks for the default", flag.place));
            return None;
        }
        let genrule = self
            .flags
            .genrule_strategy
            .as_ref()
            .filter(|flag| mnemonic == "Genrule" && !flag.value.is_empty())?;
        Some((Source::Genrule(genrule.place.clone()), genrule.value.clone()))
    }

    fn by_default(&self) -> (Source, Vec<String>) {
        match &self.flags.spawn_strategy {
            Some(flag) if !flag.value.is_empty() => (Source::Default(flag.place.clone()), flag.value.clone()),
            _ => (Source::BuiltIn, self.registry.default_list()),
        }
    }

    fn filtered(&self, list: &[String], restriction: Option<&Restriction>) -> Vec<String> {
        match restriction {
            Some(restriction) => self.registry.allowed(list, &restriction.allowed),
            None => list.to_vec(),
        }
    }

    fn candidate(
        &self,
        name: String,
        mnemonic: &str,
        restriction: Option<&Restriction>,
        tags: &Tags,
    ) -> Candidate {
        match self.registry.stands_for(&name) {
            None => {
                let known = self.registry.names().join(", ");
                let refused =
                    format!("no strategy of that name is registered, so Bazel stops; there are {known}");
                Candidate { name, refused: Some(refused), legs: None }
            }
            Some("dynamic") => {
                let legs = self.legs(mnemonic, restriction);
                let can = |leg: &Vec<String>| {
                    leg.iter().any(|one| {
                        self.registry.stands_for(one).is_some_and(|one| tags.keep_from(one).is_none())
                    })
                };
                let refused = (!legs.left.iter().any(can))
                    .then(|| "neither of its sides can run the action".to_owned());
                Candidate { name, refused, legs: Some(legs) }
            }
            Some(one) => Candidate { refused: tags.keep_from(one), name, legs: None },
        }
    }

    /// The two sides of `dynamic`, each filtered by the same list.
    pub fn legs(&self, mnemonic: &str, restriction: Option<&Restriction>) -> Legs {
        let asked = [
            leg(&self.flags.dynamic_local, mnemonic, &["worker", "sandboxed"]),
            leg(&self.flags.dynamic_remote, mnemonic, &["remote"]),
        ];
        let left = asked.each_ref().map(|list| self.filtered(list, restriction));
        Legs { asked, left }
    }
}

/// The last list of a mnemonic, else the last for all, else the usual one.
fn leg(flags: &[Flag<Assignment>], mnemonic: &str, usual: &[&str]) -> Vec<String> {
    let last = |key: &str| flags.iter().rfind(|flag| flag.value.key == key);
    match last(mnemonic).or_else(|| last("")) {
        Some(flag) => flag.value.items.clone(),
        None => usual.iter().map(|name| (*name).to_owned()).collect(),
    }
}
