//! Under which key the server learns how much actions need: what they have in common from one build to the next, without
//! what differs each time.

use std::fmt::Write as _;
use std::hash::Hasher as _;

use fnv::FnvHasher;
use pointsman_policy_sdk::{CommandWhen, Config, command};
use regex_lite::Regex;

use crate::pattern::{Patterns, regex};
use crate::{Facts, package};

/// Bytes of one part of a key that are written out; what is longer is told by its hash.
const TEXT_BYTES_MAX: usize = 200;

/// How a key is made.
#[derive(Clone, Debug)]
pub(super) struct LearningKey {
    parts: Vec<KeyPart>,
    /// Variables that are left out of `environment`, by name.
    without_environment: Patterns,
    /// Arguments that are left out of `arguments`.
    without_arguments: Patterns,
    /// Replaced in every text, one after the other.
    replace: Vec<(Regex, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyPart {
    Instance,
    Tool,
    Mnemonic,
    Target,
    Package,
    Executable,
    FirstOutput,
    Arguments,
    Outputs,
    Environment,
    Platform,
}

/// In the order in which they stand in a key.
pub(super) const PARTS: [(&str, KeyPart); 11] = [
    ("instance", KeyPart::Instance),
    ("tool", KeyPart::Tool),
    ("mnemonic", KeyPart::Mnemonic),
    ("target", KeyPart::Target),
    ("package", KeyPart::Package),
    ("executable", KeyPart::Executable),
    ("first_output", KeyPart::FirstOutput),
    ("arguments", KeyPart::Arguments),
    ("outputs", KeyPart::Outputs),
    ("environment", KeyPart::Environment),
    ("platform", KeyPart::Platform),
];

impl LearningKey {
    pub(super) fn read(config: &mut Config) -> Self {
        let given = config.has("parts");
        let parts = config.words("parts", &PARTS);
        if !given || parts.as_ref().is_some_and(Vec::is_empty) {
            let text = "names what actions of one key have in common, as in [\"mnemonic\", \"target\"]";
            config.error(config.path_of("parts"), text);
        }
        let parts = parts.unwrap_or_default();
        let without_environment = Patterns::read(config, "without_environment");
        let without_arguments = Patterns::read(config, "without_arguments");
        for (key, given, part) in [
            ("without_environment", without_environment.is_some(), KeyPart::Environment),
            ("without_arguments", without_arguments.is_some(), KeyPart::Arguments),
        ] {
            if given && !parts.contains(&part) {
                config.error(config.path_of(key), "has no effect, as these are not among `parts`");
            }
        }
        let mut replace = Vec::new();
        for mut item in config.objects("replace").unwrap_or_default() {
            let with = item.string("with").unwrap_or_default();
            let text = item.string("regex").unwrap_or_default();
            match regex(&text) {
                Ok(_) if text.is_empty() => item.error(item.path_of("regex"), "is needed: what is replaced"),
                Ok(regex) => replace.push((regex, with)),
                Err(error) => item.error(item.path_of("regex"), error),
            }
            config.close(item);
        }
        Self {
            parts,
            without_environment: without_environment.unwrap_or_default(),
            without_arguments: without_arguments.unwrap_or_default(),
            replace,
        }
    }

    pub(super) fn commands(&self) -> Option<CommandWhen> {
        let of_command = |part: &KeyPart| {
            use KeyPart::{Arguments, Environment, Executable, FirstOutput, Outputs};
            matches!(part, Executable | FirstOutput | Arguments | Outputs | Environment)
        };
        self.parts.iter().any(of_command).then_some(CommandWhen::Always)
    }

    /// The key of one action, such as `mnemonic=CppLink target=//a:b arguments#8c4f…`. Parts that the client left empty
    /// are left out, and `~=` stands before a text in which something was replaced.
    pub(super) fn of(&self, facts: &Facts) -> String {
        let mut key = String::new();
        for (name, part) in PARTS {
            if self.parts.contains(&part) {
                self.add(&mut key, name, part, facts);
            }
        }
        if key.is_empty() { "(nothing known)".into() } else { key }
    }

    fn add(&self, key: &mut String, name: &str, part: KeyPart, facts: &Facts) {
        let mut hash = Fnv::default();
        let whole = match part {
            KeyPart::Instance => facts.instance(),
            KeyPart::Tool => facts.tool(),
            KeyPart::Mnemonic => facts.mnemonic(),
            KeyPart::Target => facts.target(),
            KeyPart::Package => package(facts.target()),
            KeyPart::Executable => facts.executable(),
            KeyPart::FirstOutput => facts.outputs().first().map_or("", String::as_str),
            KeyPart::Arguments => {
                let kept = facts.arguments().iter().filter(|text| !self.without_arguments.matches(text));
                kept.for_each(|text| hash.add(&self.clean(text)));
                ""
            }
            KeyPart::Outputs => {
                facts.outputs().iter().for_each(|text| hash.add(&self.clean(text)));
                ""
            }
            KeyPart::Environment => {
                let variables = command::environment_variables().into_iter();
                for variable in variables.filter(|known| !self.without_environment.matches(&known.name)) {
                    hash.add(&variable.name);
                    hash.add(&self.clean(&variable.value));
                }
                ""
            }
            KeyPart::Platform => {
                facts.platform(|platform| {
                    for property in platform {
                        hash.add(&property.name);
                        hash.add(&self.clean(&property.value));
                    }
                });
                ""
            }
        };
        let text = self.clean(whole);
        // So that whoever turns keys back into conditions sees that this one is not what the action says.
        let is = if text == whole { "=" } else { "~=" };
        if text.len() > TEXT_BYTES_MAX {
            hash.add(&text);
        }
        let space = if key.is_empty() { "" } else { " " };
        // Writing to a string does not fail.
        _ = match (hash.texts, &*text) {
            (0, "") => Ok(()),
            (0, text) => write!(key, "{space}{name}{is}{text}"),
            _ => write!(key, "{space}{name}#{:016x}", hash.hasher.finish()),
        };
    }

    /// A text without what differs each time.
    fn clean(&self, text: &str) -> String {
        let replaced = |text: String, (regex, with): &(Regex, String)| match regex.is_match(&text) {
            true => regex.replace_all(&text, with.as_str()).into_owned(),
            false => text,
        };
        self.replace.iter().fold(text.to_owned(), replaced)
    }
}

/// FNV-1a of 64 bits: the same on every server and in every version, which a hash of the standard library is not.
#[derive(Default)]
struct Fnv {
    hasher: FnvHasher,
    texts: usize,
}

impl Fnv {
    fn add(&mut self, text: &str) {
        self.hasher.write(text.as_bytes());
        // A byte that no text has keeps "ab", "c" and "a", "bc" apart.
        self.hasher.write_u8(0xff);
        self.texts += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher as _;

    use super::Fnv;

    #[test]
    fn texts_are_kept_apart() {
        let [mut one, mut other] = [Fnv::default(), Fnv::default()];
        ["ab", "c"].iter().for_each(|text| one.add(text));
        ["a", "bc"].iter().for_each(|text| other.add(text));
        assert_ne!(one.hasher.finish(), other.hasher.finish());
    }
}
