//! Which Bazel a configuration is for.

use std::fmt;
use std::str::FromStr;

/// A version of Bazel. What follows the numbers (`rc1`, `-pre.2025…`) is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    /// The first one that has `--allowed_strategies_by_exec_platform`; nothing before 9.0.0 was seen to.
    pub const ALLOW_LISTS: Self = Self { major: 9, minor: 0, patch: 0 };

    /// Whether it knows `--allowed_strategies_by_exec_platform`.
    pub fn has_allow_lists(self) -> bool {
        self >= Self::ALLOW_LISTS
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || format!("{text:?} is no version of Bazel; give one such as 9.0.0 or 7.7.1");
        let numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next().unwrap_or_default();
        let mut parts = numbers.trim_end_matches('.').split('.').map(str::parse);
        let mut next = || parts.next().transpose().map_err(|_| refused());
        let major = next()?.ok_or_else(refused)?;
        Ok(Self { major, minor: next()?.unwrap_or(0), patch: next()?.unwrap_or(0) })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::Version;

    #[test]
    fn versions_are_read_as_bazel_writes_them() {
        let has = |text: &str| text.parse::<Version>().map(Version::has_allow_lists);
        assert_eq!(has("9.0.0"), Ok(true));
        assert_eq!(has("9.0.0rc3"), Ok(true));
        assert_eq!(has("10"), Ok(true));
        assert_eq!(has("8.5.0"), Ok(false));
        assert_eq!(has("7.7.1- (@non-git)"), Ok(false));
        assert!(has("").is_err() && has("latest").is_err() && has("9..1").is_err());
        assert_eq!("9.1".parse::<Version>().unwrap().to_string(), "9.1.0");
    }
}
