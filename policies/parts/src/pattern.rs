//! Patterns over texts: words, globs, and small regular expressions.
//!
//! | Written | Matches |
//! | --- | --- |
//! | `"gcc"` | that text |
//! | `"//third_party/*"` | by glob: `*` is any text, `/` included, `?` one character, `\` takes a meaning away |
//! | `{ "equals": "*" }` | that text, whatever is in it |
//! | `{ "regex": "^lib.*[.]so$" }` | texts in which it is found |
//! | `[…]` | what any of these matches |
//!
//! Words are looked up, so a list of thousands of them costs no more than one; globs and regular expressions are tried one
//! after the other.

use std::collections::BTreeSet;

use pointsman_policy_sdk::Config;
use regex_lite::{Regex, RegexBuilder};
use serde_json::Value;

/// Bytes of one pattern.
pub const PATTERN_BYTES_MAX: usize = 1_000;

/// Bytes of one compiled regular expression, which also bounds its time for a text of a given length.
const REGEX_SIZE_MAX: usize = 64 << 10;

/// Regular expressions of one list: each is tried.
const REGEXES_MAX: usize = 100;

/// Several patterns, of which one has to match.
#[derive(Clone, Debug, Default)]
pub struct Patterns {
    words: BTreeSet<String>,
    globs: Vec<Glob>,
    regexes: Vec<Regex>,
}

impl Patterns {
    /// Reads the value of a key; `None` when there is none, or it is no pattern.
    pub fn read(config: &mut Config, key: &'static str) -> Option<Self> {
        let value = config.take(key)?;
        let path = config.path_of(key);
        Self::of(config, &path, &value)
    }

    /// Reads a value that lies at `path`. What is wrong with it is reported to `config`.
    pub fn of(config: &mut Config, path: &str, value: &Value) -> Option<Self> {
        let mut patterns = Self::default();
        let ok = match value {
            Value::Array(items) if items.is_empty() => {
                config.error(
                    path,
                    "an empty list of patterns matches nothing; leave the key out, or name some",
                );
                false
            }
            Value::Array(items) => {
                let mut ok = true;
                for (index, item) in items.iter().enumerate() {
                    if let Err(problem) = patterns.add(item) {
                        config.error(format!("{path}/{index}"), problem);
                        ok = false;
                    }
                }
                ok
            }
            one => patterns.add(one).inspect_err(|problem| config.error(path, &**problem)).is_ok(),
        };
        if patterns.regexes.len() > REGEXES_MAX {
            let text = format!(
                "has {} regular expressions, allowed are {REGEXES_MAX}, as each is tried; use words or globs",
                patterns.regexes.len()
            );
            config.error(path, text);
        }
        ok.then_some(patterns)
    }

    fn add(&mut self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => {
                within_limit(text)?;
                match Glob::parse(text)? {
                    Parsed::Word(word) => _ = self.words.insert(word),
                    Parsed::Glob(glob) => self.globs.push(glob),
                }
            }
            Value::Object(object) if object.len() == 1 => match (object.get("equals"), object.get("regex")) {
                (Some(Value::String(word)), _) => {
                    within_limit(word)?;
                    self.words.insert(word.clone());
                }
                (_, Some(Value::String(text))) => self.regexes.push(regex(text)?),
                _ => return Err(EXPECTED.to_owned()),
            },
            _ => return Err(EXPECTED.to_owned()),
        }
        Ok(())
    }

    /// Is there a pattern that matches this text?
    pub fn matches(&self, text: &str) -> bool {
        self.words.contains(text)
            || self.globs.iter().any(|glob| glob.matches(text))
            || self.regexes.iter().any(|regex| regex.is_match(text))
    }

    /// The same for a fact that clients may leave out: when it is empty only the empty word matches, so that `"*"` means
    /// those who say something.
    pub fn matches_fact(&self, fact: &str) -> bool {
        if fact.is_empty() { self.words.contains("") } else { self.matches(fact) }
    }
}

const EXPECTED: &str =
    "expected a pattern: a text (with * and ?), { \"regex\": … }, { \"equals\": … }, or a list of these";

fn within_limit(text: &str) -> Result<(), String> {
    let bytes = text.len();
    if bytes > PATTERN_BYTES_MAX {
        return Err(format!("the pattern has {bytes} bytes, allowed are {PATTERN_BYTES_MAX}"));
    }
    Ok(())
}

/// A regular expression within the limits.
///
/// # Errors
/// It is none, or too large.
pub fn regex(text: &str) -> Result<Regex, String> {
    within_limit(text)?;
    RegexBuilder::new(text)
        .size_limit(REGEX_SIZE_MAX)
        .build()
        .map_err(|error| format!("{text:?} is no regular expression that can be used: {error}"))
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(String),
    /// `?`
    One,
    /// `*`
    Any,
}

#[derive(Clone, Debug)]
struct Glob(Vec<Token>);

enum Parsed {
    Word(String),
    Glob(Glob),
}

impl Glob {
    fn parse(text: &str) -> Result<Parsed, String> {
        // Most are words, and there may be thousands of them.
        if !text.bytes().any(|byte| matches!(byte, b'*' | b'?' | b'\\')) {
            return Ok(Parsed::Word(text.to_owned()));
        }
        let (mut tokens, mut word) = (Vec::new(), String::new());
        let mut chars = text.chars();
        while let Some(char) = chars.next() {
            let token = match char {
                '*' => Token::Any,
                '?' => Token::One,
                '\\' => {
                    let escaped = chars.next();
                    word.push(escaped.ok_or("a pattern can't end with \\; write \\\\ for a backslash")?);
                    continue;
                }
                other => {
                    word.push(other);
                    continue;
                }
            };
            if !word.is_empty() {
                tokens.push(Token::Text(std::mem::take(&mut word)));
            }
            // Two in a row mean no more than one.
            if token != Token::Any || tokens.last() != Some(&Token::Any) {
                tokens.push(token);
            }
        }
        if tokens.is_empty() {
            return Ok(Parsed::Word(word));
        }
        if !word.is_empty() {
            tokens.push(Token::Text(word));
        }
        Ok(Parsed::Glob(Self(tokens)))
    }

    /// Goes back to the last `*` only: what an earlier one could take, that one can take too.
    fn matches(&self, text: &str) -> bool {
        let (mut token, mut rest) = (0, text);
        let mut last_any: Option<(usize, &str)> = None;
        loop {
            let next = match self.0.get(token) {
                None if rest.is_empty() => return true,
                None => None,
                Some(Token::Any) => {
                    last_any = Some((token + 1, rest));
                    Some(rest)
                }
                Some(Token::One) => without_first(rest),
                Some(Token::Text(text)) => rest.strip_prefix(&**text),
            };
            if let Some(next) = next {
                (token, rest) = (token + 1, next);
                continue;
            }
            let Some((after, from)) = last_any else { return false };
            let Some(shorter) = without_first(from) else { return false };
            last_any = Some((after, shorter));
            (token, rest) = (after, shorter);
        }
    }
}

fn without_first(text: &str) -> Option<&str> {
    let mut chars = text.chars();
    chars.next().map(|_| chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(json: &str) -> Result<Patterns, Vec<String>> {
        let mut config = Config::parse(&format!("{{\"p\": {json}}}")).unwrap();
        let patterns = Patterns::read(&mut config, "p");
        match config.finish() {
            Ok(()) => Ok(patterns.unwrap()),
            Err(errors) => Err(errors.into_iter().map(|e| format!("{}: {}", e.path, e.message)).collect()),
        }
    }

    #[test]
    fn globs() {
        let cases = [
            ("*", "", true),
            ("*", "any/thing", true),
            ("a*c", "abc", true),
            ("a*c", "abcb", false),
            ("a*c", "abcbc", true),
            ("*.o", "x/y.o", true),
            ("*.o", ".o.d", false),
            ("a?c", "aüc", true),
            ("a?c", "ac", false),
            ("*ab*ab*", "xabyab", true),
            ("*ab*ab*", "xaby", false),
            ("a**b", "ab", true),
            (r"\*x*", "*xy", true),
            (r"\*x*", "axy", false),
            ("ü*ß", "üß", true),
            ("?*", "", false),
        ];
        for (glob, text, expected) in cases {
            let json = serde_json::to_string(glob).unwrap();
            assert_eq!(patterns(&json).unwrap().matches(text), expected, "{glob} on {text}");
        }
    }

    #[test]
    fn many_stars_are_no_bomb() {
        let glob = serde_json::to_string(&"*a".repeat(300)).unwrap();
        let text = "a".repeat(299) + &"b".repeat(10_000);
        assert!(!patterns(&glob).unwrap().matches(&text));
    }

    #[test]
    fn words_lists_and_regular_expressions() {
        let list = patterns(r#"["gcc", "g++*", { "regex": "^clang-[0-9]+$" }, { "equals": "c*" }]"#).unwrap();
        for (text, expected) in [
            ("gcc", true),
            ("g++-12", true),
            ("clang-19", true),
            ("clang-x", false),
            ("c*", true),
            ("cc", false),
            ("", false),
        ] {
            assert_eq!(list.matches(text), expected, "{text}");
        }
        assert!(!patterns("\"*\"").unwrap().matches_fact(""), "who says nothing is not meant by *");
        assert!(patterns("\"\"").unwrap().matches_fact(""));
    }

    #[test]
    fn what_is_no_pattern_is_told_with_its_place() {
        let errors = patterns(r#"["ok", 3, { "regex": "(" }, { "rgex": "x" }, "a\\"]"#).unwrap_err();
        let places: Vec<&str> = errors.iter().map(|error| error.split(':').next().unwrap()).collect();
        assert_eq!(places, ["/p/1", "/p/2", "/p/3", "/p/4"]);
        let long = serde_json::to_string(&"x".repeat(1_001)).unwrap();
        assert_eq!(patterns(&long).unwrap_err(), ["/p: the pattern has 1001 bytes, allowed are 1000"]);
        let large = r#"{ "regex": "(((x{50}){50}){50}){50}" }"#;
        assert!(patterns(large).unwrap_err()[0].starts_with("/p: "));
        assert_eq!(patterns("[]").unwrap_err().len(), 1);
    }
}
