//! A decision in words, for whoever asks why.

use std::fmt;

use super::{Candidate, Decision, Source};
use crate::label::Label;

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Regexp(filter, place) => write!(f, "--strategy_regexp={filter} ({place})"),
            Self::Mnemonic(place) => write!(f, "--strategy ({place})"),
            Self::Genrule(place) => write!(f, "--genrule_strategy ({place})"),
            Self::Default(place) => write!(f, "--spawn_strategy ({place})"),
            Self::BuiltIn => f.write_str("what Bazel tries when no flag says anything"),
        }
    }
}

/// A list in brackets.
pub(crate) fn list(items: &[impl AsRef<str>]) -> String {
    let items: Vec<&str> = items.iter().map(AsRef::as_ref).collect();
    format!("[{}]", items.join(", "))
}

impl Decision {
    /// The steps, one a line, and at the end what becomes of the action.
    pub fn steps(&self, mnemonic: &str, platform: &Label) -> String {
        let mut lines: Vec<String> =
            self.passed_over.iter().map(|one| format!("passed over  {one}")).collect();
        lines.push(format!("list         {} by {}", list(&self.before), self.source));
        lines.push(match &self.restriction {
            Some(one) => format!("platform     {platform} allows {} ({})", list(&one.allowed), one.place),
            None => format!("platform     {platform} has no list, so nothing is taken out"),
        });
        lines.push(format!("left         {}", list(&self.after())));
        lines.extend(self.candidates.iter().map(|candidate| format!("tried        {}", tried(candidate))));
        lines.push(self.end(mnemonic, platform));
        lines.join("\n")
    }

    /// What becomes of the action; if it fails, with the list before and what took from it.
    pub fn end(&self, mnemonic: &str, platform: &Label) -> String {
        if let Some(runs) = self.runs {
            return format!("runs         {}", self.candidates[runs].name);
        }
        if let Some(name) = self.unregistered.first() {
            return format!(
                "stops        {name:?} is no strategy that Bazel registers on this host, so it ends before it runs anything"
            );
        }
        let by = match &self.restriction {
            Some(one) => format!("; the list of {platform} allows {} ({})", list(&one.allowed), one.place),
            None => String::new(),
        };
        format!(
            "fails        {mnemonic} can be run by none of {}: asked for were {} by {}{by}. No other execution platform is tried",
            list(&self.after()),
            list(&self.before),
            self.source,
        )
    }
}

fn tried(candidate: &Candidate) -> String {
    let mut text = format!("{}: {}", candidate.name, candidate.refused.as_deref().unwrap_or("can run it"));
    if let Some(legs) = &candidate.legs {
        for (side, (asked, left)) in ["here", "remotely"].iter().zip(legs.asked.iter().zip(&legs.left)) {
            text.push_str(&format!("; {side} {} of {}", list(left), list(asked)));
        }
    }
    text
}
