//! Execution strategies: the ways in which a worker may run an action.
use crate::error::Failure;
use pointsman_proto::{unpack, v1::ExecutionStrategy};
use prost::Name as _;
use prost_types::Any;
use std::fmt::{self, Display};
use tonic::Code;

/// Metadata of each `Synchronize` call in which a worker says by which strategies it can run actions: their names with commas
/// between them. Buildbarn's workers send none; schedulers that don't know it pass it over.
pub const STRATEGIES_HEADER: &str = "pointsman-strategies";

/// How the bundled worker can run an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strategy {
    /// As a process group of this machine.
    Local,
    /// The same in namespaces of its own, by bubblewrap; see `sandbox`.
    Sandboxed,
}

impl Strategy {
    /// Each of them; those that are cheaper come first.
    pub const ALL: [Self; 2] = [Self::Local, Self::Sandboxed];

    /// As routes and configurations name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Sandboxed => "sandboxed",
        }
    }

    /// The strategy of that name.
    ///
    /// # Errors
    /// The names that there are.
    pub fn parse(name: &str) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|strategy| strategy.name() == name);
        named.ok_or_else(|| format!("the bundled worker can't do {name:?}, only {}", list(&Self::ALL)))
    }
}

impl Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Their names with commas between them.
pub(crate) fn list(strategies: &[Strategy]) -> String {
    strategies.iter().map(|strategy| strategy.name()).collect::<Vec<_>>().join(", ")
}

/// The strategy for an action whose worker was told that of it; where nothing is said, the first that is offered.
pub(crate) fn strategy(told: &[Any], offered: &[Strategy]) -> Result<Strategy, Failure> {
    let name = ExecutionStrategy::full_name();
    let said = told.iter().rfind(|any| any.type_url.rsplit('/').next() == Some(&*name));
    let Some(said) = said else { return Ok(offered.first().copied().unwrap_or(Strategy::Local)) };
    let ExecutionStrategy { name } = unpack(said)
        .map_err(|e| Failure::new(Code::Internal, format!("the scheduler sent a broken strategy: {e}")))?;
    offered.iter().copied().find(|strategy| strategy.name() == name).ok_or_else(|| {
        let text = format!(
            "the scheduler wants the action run by the strategy {name:?}, and this worker offers {}: let the policy that \
             admits workers name no others",
            list(offered)
        );
        Failure::new(Code::Internal, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use pointsman_proto::pack;

    fn told(name: &str) -> Vec<Any> {
        vec![Any::default(), pack(&ExecutionStrategy { name: name.into() })]
    }

    #[test]
    fn what_is_told_is_done_and_nothing_else() {
        let offered = [Strategy::Sandboxed, Strategy::Local];
        assert_eq!(strategy(&[], &offered).unwrap(), Strategy::Sandboxed);
        assert_eq!(strategy(&told("local"), &offered).unwrap(), Strategy::Local);
        let text = strategy(&told("docker"), &offered).unwrap_err();
        assert!(text.message().contains("\"docker\", and this worker offers sandboxed, local"), "{}", text.message());
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        assert!(Strategy::ALL.iter().all(|s| Strategy::parse(s.name()) == Ok(*s)));
        assert_eq!(Strategy::parse("worker"), Err("the bundled worker can't do \"worker\", only local, sandboxed".into()));
    }
}
