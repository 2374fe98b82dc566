//! What an action's tags keep which strategy from.

use std::collections::BTreeSet;

use super::RegexFilter;
use crate::flags::Flags;

/// Tags of an action: those of its target, of its platform's `exec_properties`, and what `--modify_execution_info` makes of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tags(BTreeSet<String>);

impl Tags {
    /// The tags of an action with this mnemonic, after `--modify_execution_info`.
    ///
    /// Modifications whose expression can't be read are passed over; the lint names them.
    pub fn of(tags: &[String], mnemonic: &str, flags: &Flags) -> Self {
        let mut all: BTreeSet<String> = tags.iter().cloned().collect();
        let modifications = flags.modify_execution_info.iter().flat_map(|flag| flag.value.split(','));
        for (expression, change) in modifications.filter_map(|one| one.rsplit_once('=')) {
            // The whole mnemonic has to match, unlike in a filter.
            let Ok(filter) = RegexFilter::parse(&format!("^(?:{expression})$")) else { continue };
            if filter.matches(mnemonic) {
                match change.split_at_checked(1) {
                    Some(("+", tag)) => drop(all.insert(tag.to_owned())),
                    Some(("-", tag)) => drop(all.remove(tag)),
                    _ => {}
                }
            }
        }
        Self(all)
    }

    fn one_of(&self, tags: &[&'static str]) -> Option<&'static str> {
        tags.iter().copied().find(|tag| self.0.contains(*tag))
    }

    /// Why a strategy can't run the action; `None` if it can. `strategy` is what a name stands for.
    pub(super) fn keep_from(&self, strategy: &str) -> Option<String> {
        let tagged = |tag: &str| format!("the action is tagged {tag}");
        match strategy {
            "remote" => self.one_of(&["no-remote", "no-remote-exec", "local"]).map(tagged),
            // Also what is tagged no-local: seen with 7.7.1.
            "local" => None,
            "worker" => match self.one_of(&["supports-workers", "supports-multiplex-workers"]) {
                Some(_) => None,
                None => {
                    Some("the action does not say that it can run in a worker (supports-workers)".to_owned())
                }
            },
            // All others are sandboxes.
            _ => self.one_of(&["no-sandbox", "local", "legacy-local"]).map(tagged),
        }
    }
}
