//! Labels of targets, compared as Bazel compares those of execution platforms: parsed in the main repository, apparent and
//! canonical spelling alike.

use std::fmt;

/// The label of one target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// Without its `@`s; empty for the main repository.
    repository: String,
    package: String,
    name: String,
}

/// What a label may not have. Bazel allows more in names than most think, but no space, colon or backslash.
const REFUSED: [char; 4] = [' ', ':', '\\', '\t'];

impl Label {
    /// Reads a label as one that stands in a `.bazelrc`: `//pkg:name`, `//pkg`, `@repo//pkg:name`, `@@repo//pkg:name`, `:name`, `@repo`.
    ///
    /// # Errors
    /// It is none; the text says why.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (repository, path) = match text.strip_prefix('@') {
            None => ("", text),
            Some(rest) => {
                let rest = rest.strip_prefix('@').unwrap_or(rest);
                match rest.split_once("//") {
                    Some((repository, path)) => (repository, &text[text.len() - path.len() - 2..]),
                    None => return Self::of(rest, "", rest),
                }
            }
        };
        let Some(path) = path.strip_prefix("//") else {
            // Relative to the top of the main repository.
            return Self::of(repository, "", path.strip_prefix(':').unwrap_or(path));
        };
        match path.split_once(':') {
            Some((package, name)) => Self::of(repository, package, name),
            None => Self::of(repository, path, path.rsplit('/').next().unwrap_or(path)),
        }
    }

    fn of(repository: &str, package: &str, name: &str) -> Result<Self, String> {
        if name.is_empty() {
            return Err("it names no target".to_owned());
        }
        let parts = [repository, package, name];
        if let Some(odd) = parts.iter().flat_map(|part| part.chars()).find(|c| REFUSED.contains(c)) {
            return Err(format!("a label has no {odd:?}"));
        }
        if package.starts_with('/') || package.ends_with('/') || package.contains("//") {
            return Err("its package begins or ends with a slash, or has two in a row".to_owned());
        }
        if name.ends_with("...") || package.ends_with("...") {
            return Err("it is a pattern of several targets".to_owned());
        }
        Ok(Self { repository: repository.to_owned(), package: package.to_owned(), name: name.to_owned() })
    }

    /// The target's package, as `//package`.
    pub fn package(&self) -> &str {
        &self.package
    }

    /// The target's name in its package.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is in the main repository.
    pub fn is_main(&self) -> bool {
        self.repository.is_empty()
    }

    /// The target that usually is the host platform.
    pub fn host() -> Self {
        Self { repository: "platforms".to_owned(), package: "host".to_owned(), name: "host".to_owned() }
    }

    /// Whether it only points at the host platform, whose information then has another label.
    pub fn is_alias_of_host(&self) -> bool {
        let known = [("bazel_tools", "tools", "host_platform"), ("local_config_platform", "", "host")];
        known.contains(&(&self.repository, &self.package, &self.name))
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.repository.is_empty() {
            write!(f, "@{}", self.repository)?;
        }
        write!(f, "//{}:{}", self.package, self.name)
    }
}

/// What `--extra_execution_platforms` may have for one item: a label, or a pattern of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPattern {
    /// One target.
    One(Label),
    /// Several: `//pkg:all`, `//pkg:*`, `//pkg/...`, or whatever begins with a minus.
    Several(String),
}

impl TargetPattern {
    /// Reads an item of the list.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, String> {
        let several = [":all", ":*", ":all-targets", "/...", "//..."].iter().any(|end| text.ends_with(end));
        if several || text.starts_with('-') || text.contains("...:") {
            return Ok(Self::Several(text.to_owned()));
        }
        Label::parse(text).map(Self::One)
    }

    /// Whether a target is among them. Patterns that take targets away have none.
    pub fn has(&self, label: &Label) -> bool {
        match self {
            Self::One(one) => one == label,
            Self::Several(pattern) => among(pattern, label),
        }
    }
}

fn among(pattern: &str, label: &Label) -> bool {
    let repository =
        if label.repository.is_empty() { String::new() } else { format!("@{}", label.repository) };
    let pattern = pattern.replacen("@@", "@", 1);
    let Some(rest) = pattern.strip_prefix(&*repository).and_then(|rest| rest.strip_prefix("//")) else {
        return false;
    };
    let (package, targets) = rest.split_once(':').unwrap_or((rest, "..."));
    match package.strip_suffix("...") {
        Some("") => true,
        Some(above) => {
            let above = above.trim_end_matches('/');
            label.package == above
                || label.package.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
        }
        None => package == label.package && targets != "...",
    }
}

#[cfg(test)]
mod tests {
    use super::{Label, TargetPattern};

    #[test]
    fn apparent_and_canonical_spelling_are_one_label() {
        let same = |a: &str, b: &str| assert_eq!(Label::parse(a), Label::parse(b), "{a} {b}");
        same("@platforms//host:host", "@@platforms//host");
        same("//a/b", "//a/b:b");
        same("@//a:c", "//a:c");
        same("@@//a:c", "//a:c");
        same(":c", "//:c");
        same("@repo", "@repo//:repo");
        assert_eq!(Label::parse("@@platforms//host:host"), Ok(Label::host()));
        assert_eq!(Label::host().to_string(), "@platforms//host:host");
    }

    #[test]
    fn what_is_no_label_is_refused_with_a_reason() {
        for text in ["", "//", "//a:", "//a b:c", "///a", "//a//b:c", "//a:b:c", "//a/...", "@"] {
            assert!(Label::parse(text).is_err(), "{text:?} is taken for {:?}", Label::parse(text));
        }
    }

    #[test]
    fn patterns_have_what_bazel_finds_by_them() {
        let has = |pattern: &str, label: &str| {
            TargetPattern::parse(pattern).unwrap().has(&Label::parse(label).unwrap())
        };
        assert!(has("//platforms:all", "//platforms:a") && !has("//platforms:all", "//platforms/x:a"));
        assert!(has("//platforms/...", "//platforms/x:a") && has("//platforms/...", "//platforms:a"));
        assert!(has("//...", "//p:a") && !has("//...", "@r//p:a") && has("@@r//p:all", "@r//p:a"));
        assert!(!has("//plat/...", "//platforms:a") && !has("-//p:all", "//p:a"));
    }
}
