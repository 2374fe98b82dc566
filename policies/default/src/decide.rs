//! The decisions, apart from where facts come from and edits go to.

use crate::config::KeySource;

/// The group of all actions whose client said nothing about itself. Without it they would stand in no group and
/// compete with whole groups.
pub(crate) const NOBODY: &str = "(no invocation)";

/// The path of groups, coarsest first: what the client said for each source, without what it left empty.
/// No sources: no groups, that is, one queue for all.
pub(crate) fn invocation_keys(
    sources: &[KeySource],
    mut read: impl FnMut(KeySource) -> String,
) -> Vec<String> {
    let mut keys: Vec<String> =
        sources.iter().map(|source| read(*source)).filter(|key| !key.is_empty()).collect();
    if keys.is_empty() && !sources.is_empty() {
        keys.push(NOBODY.into());
    }
    keys
}
