//! The options that decide where an action runs, taken out of all that a command is given.

use crate::place::Place;
use crate::rc::Word;

/// A value, and where it was given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag<T> {
    /// The value.
    pub value: T,
    /// The line.
    pub place: Place,
}

/// `KEY=ITEM,ITEM`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assignment {
    /// What stands before the first `=`; empty if there is none.
    pub key: String,
    /// The items. An empty list is allowed, an empty item is not.
    pub items: Vec<String>,
}

/// A value that Bazel refuses, or takes for something that nobody means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadValue {
    /// The line.
    pub place: Place,
    /// The option with its value.
    pub what: String,
    /// Why it is refused.
    pub why: &'static str,
    /// The form that it should have.
    pub form: String,
}

/// The options, each list in the order in which it was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--spawn_strategy`; the last one counts.
    pub spawn_strategy: Option<Flag<Vec<String>>>,
    /// `--genrule_strategy`; the last one counts.
    pub genrule_strategy: Option<Flag<Vec<String>>>,
    /// `--strategy=MNEMONIC=…`; the last one of a mnemonic counts.
    pub strategy: Vec<Flag<Assignment>>,
    /// `--strategy_regexp=FILTER=…`; the last one that matches counts.
    pub strategy_regexp: Vec<Flag<Assignment>>,
    /// `--allowed_strategies_by_exec_platform=LABEL=…`; the last one of a label counts.
    pub allowed: Vec<Flag<Assignment>>,
    /// `--dynamic_local_strategy=[MNEMONIC=]…`
    pub dynamic_local: Vec<Flag<Assignment>>,
    /// `--dynamic_remote_strategy=[MNEMONIC=]…`
    pub dynamic_remote: Vec<Flag<Assignment>>,
    /// `--extra_execution_platforms`, of which only the last one counts.
    pub extra_execution_platforms: Vec<Flag<Vec<String>>>,
    /// `--host_platform`
    pub host_platform: Option<Flag<String>>,
    /// `--remote_executor`
    pub remote_executor: Option<Flag<String>>,
    /// `--remote_local_fallback`
    pub remote_local_fallback: Option<Flag<bool>>,
    /// `--remote_local_fallback_strategy`
    pub fallback_strategy: Option<Flag<String>>,
    /// `--internal_spawn_scheduler`
    pub internal_spawn_scheduler: Option<Flag<bool>>,
    /// `--experimental_use_windows_sandbox`
    pub windows_sandbox: bool,
    /// `--experimental_enable_docker_sandbox`
    pub docker_sandbox: bool,
    /// `--modify_execution_info`
    pub modify_execution_info: Vec<Flag<String>>,
}

/// Options that take a value, in the same word or in the next.
const WITH_VALUE: [&str; 13] = [
    "spawn_strategy",
    "genrule_strategy",
    "strategy",
    "strategy_regexp",
    "allowed_strategies_by_exec_platform",
    "dynamic_local_strategy",
    "dynamic_remote_strategy",
    "extra_execution_platforms",
    "host_platform",
    "remote_executor",
    "remote_local_fallback_strategy",
    "experimental_use_windows_sandbox",
    "modify_execution_info",
];

/// Options that are on or off.
const BOOLEAN: [&str; 3] =
    ["remote_local_fallback", "internal_spawn_scheduler", "experimental_enable_docker_sandbox"];

const EMPTY_ITEM: &str = "an item of the list is empty";

const TRUE: [&str; 5] = ["true", "1", "yes", "t", "y"];
const FALSE: [&str; 5] = ["false", "0", "no", "f", "n"];

/// The name of one of these options in a word, with `no` taken off, or none.
pub fn name(word: &str) -> Option<&'static str> {
    let name = word.strip_prefix("--")?.split('=').next()?;
    let known = |name: &str| WITH_VALUE.iter().chain(&BOOLEAN).copied().find(|known| *known == name);
    known(name).or_else(|| name.strip_prefix("no").and_then(known).filter(|name| BOOLEAN.contains(name)))
}

impl Flags {
    /// Takes the options out of the words, and says which values are none. Other options are passed over.
    pub fn read(words: &[Word]) -> (Self, Vec<BadValue>) {
        let mut flags = Self::default();
        let mut bad = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let place = &word.place;
            if word.text == "--experimental_spawn_scheduler" {
                // Stands for these two.
                flags.internal_spawn_scheduler = Some(Flag { value: true, place: place.clone() });
                flags.spawn_strategy = Some(Flag { value: vec!["dynamic".to_owned()], place: place.clone() });
                continue;
            }
            let Some(name) = name(&word.text) else { continue };
            let value = word.text.split_once('=').map(|(_, value)| value);
            if BOOLEAN.contains(&name) {
                match boolean(&word.text, value) {
                    Some(on) => flags.switch(name, on, place),
                    None => bad.push(refused(
                        word,
                        word.text.clone(),
                        "it is neither true nor false",
                        format!("--{name} or --no{name}"),
                    )),
                }
                continue;
            }
            match value.or_else(|| words.next().map(|next| &*next.text)) {
                Some(value) => bad.extend(flags.set(name, value, word)),
                None => {
                    let form = format!("--{name}=VALUE");
                    bad.push(refused(word, word.text.clone(), "nothing stands behind it", form));
                }
            }
        }
        (flags, bad)
    }

    fn switch(&mut self, name: &str, on: bool, place: &Place) {
        let flag = Some(Flag { value: on, place: place.clone() });
        match name {
            "remote_local_fallback" => self.remote_local_fallback = flag,
            "internal_spawn_scheduler" => self.internal_spawn_scheduler = flag,
            _ => self.docker_sandbox = on,
        }
    }

    fn set(&mut self, name: &str, value: &str, word: &Word) -> Option<BadValue> {
        let place = &word.place;
        let text = Flag { value: value.to_owned(), place: place.clone() };
        let list = match name {
            "host_platform" => return set(&mut self.host_platform, text),
            "remote_executor" => return set(&mut self.remote_executor, text),
            "remote_local_fallback_strategy" => return set(&mut self.fallback_strategy, text),
            "experimental_use_windows_sandbox" => {
                self.windows_sandbox = value == "auto" || TRUE.contains(&value);
                return None;
            }
            "modify_execution_info" => {
                self.modify_execution_info.push(text);
                return None;
            }
            // No list at all is fine, and an empty item isn't.
            "spawn_strategy" | "genrule_strategy"
                if format!(",{value},").contains(",,") && !value.is_empty() =>
            {
                let form = format!("--{name}=STRATEGY,STRATEGY, without a comma more");
                return Some(refused(word, format!("--{name}={value}"), EMPTY_ITEM, form));
            }
            "spawn_strategy" => return set(&mut self.spawn_strategy, listed(value, place)),
            "genrule_strategy" => return set(&mut self.genrule_strategy, listed(value, place)),
            // Of this one they are dropped.
            "extra_execution_platforms" => {
                self.extra_execution_platforms.push(listed(value, place));
                return None;
            }
            "strategy" => &mut self.strategy,
            "strategy_regexp" => &mut self.strategy_regexp,
            "allowed_strategies_by_exec_platform" => &mut self.allowed,
            "dynamic_local_strategy" => &mut self.dynamic_local,
            _ => &mut self.dynamic_remote,
        };
        let what = || format!("--{name}={value}");
        let (key, items) = value.split_once('=').unwrap_or(("", value));
        if key.is_empty() && !name.starts_with("dynamic_") {
            let form = format!("--{name}=KEY=STRATEGY,STRATEGY");
            return Some(refused(word, what(), "nothing stands before a second =", form));
        }
        let items: Vec<String> =
            if items.is_empty() { Vec::new() } else { items.split(',').map(str::to_owned).collect() };
        if items.iter().any(String::is_empty) {
            let form = format!("--{name}={key}=STRATEGY,STRATEGY, without a comma more");
            return Some(refused(word, what(), EMPTY_ITEM, form));
        }
        list.push(Flag { value: Assignment { key: key.to_owned(), items }, place: place.clone() });
        None
    }
}

fn set<T>(slot: &mut Option<Flag<T>>, flag: Flag<T>) -> Option<BadValue> {
    *slot = Some(flag);
    None
}

fn listed(value: &str, place: &Place) -> Flag<Vec<String>> {
    let value = value.split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect();
    Flag { value, place: place.clone() }
}

fn boolean(word: &str, value: Option<&str>) -> Option<bool> {
    match value {
        None => Some(!word.starts_with("--no")),
        Some(value) if TRUE.contains(&value) => Some(true),
        Some(value) if FALSE.contains(&value) => Some(false),
        Some(_) => None,
    }
}

fn refused(word: &Word, what: String, why: &'static str, form: String) -> BadValue {
    BadValue { place: word.place.clone(), what, why, form }
}

#[cfg(test)]
mod tests {
    use super::Flags;
    use crate::place::Place;
    use crate::rc::Word;

    fn read(words: &[&str]) -> (Flags, Vec<&'static str>) {
        let word = |(index, text): (usize, &&str)| Word {
            text: (*text).to_owned(),
            place: Place { file: "rc".into(), line: index + 1 },
        };
        let words: Vec<Word> = words.iter().enumerate().map(word).collect();
        let (flags, bad) = Flags::read(&words);
        (flags, bad.into_iter().map(|bad| bad.why).collect())
    }

    #[test]
    fn values_stand_in_the_same_word_or_in_the_next() {
        let (flags, bad) = read(&[
            "--copt=-x",
            "--spawn_strategy",
            "remote,local",
            "--noremote_local_fallback",
            "--strategy=A=b,c",
        ]);
        assert_eq!(flags.spawn_strategy.unwrap().value, ["remote", "local"]);
        assert!(!flags.remote_local_fallback.unwrap().value);
        assert_eq!((&*flags.strategy[0].value.key, flags.strategy[0].place.line), ("A", 5));
        assert!(bad.is_empty());
    }

    #[test]
    fn the_first_equals_sign_ends_the_key() {
        let (flags, _) = read(&["--strategy_regexp=a=b=local", "--dynamic_local_strategy=worker"]);
        assert_eq!(
            (&*flags.strategy_regexp[0].value.key, &*flags.strategy_regexp[0].value.items[0]),
            ("a", "b=local")
        );
        assert_eq!(flags.dynamic_local[0].value.key, "");
    }

    #[test]
    fn what_bazel_refuses_is_told() {
        assert_eq!(read(&["--strategy=A=b,,c"]).1, ["an item of the list is empty"]);
        assert_eq!(
            read(&["--allowed_strategies_by_exec_platform=//:a"]).1,
            ["nothing stands before a second ="]
        );
        assert_eq!(read(&["--remote_local_fallback=maybe"]).1, ["it is neither true nor false"]);
        assert_eq!(read(&["--spawn_strategy"]).1, ["nothing stands behind it"]);
        assert_eq!(read(&["--spawn_strategy=a,,b"]).1, ["an item of the list is empty"]);
        assert_eq!(read(&["--genrule_strategy=a,"]).1, ["an item of the list is empty"]);
        assert!(
            read(&["--strategy=A=", "--spawn_strategy=", "--extra_execution_platforms=//a,,//b"])
                .1
                .is_empty()
        );
    }
}
