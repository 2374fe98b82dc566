//! All policies that are in force at one moment. A generation never changes: whoever begins with one ends with it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use pointsman_scheduler::is_path_prefix;

use crate::decision::Hook;
use crate::policy::Policy;
use crate::trial::Trial;

/// What is done when a policy fails: traps, uses too much, or answers what can't be. What it had edited and stored in
/// that call is dropped in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnError {
    /// The version before it answers. Where there is none: the built-in default policy if the link is the only one of its
    /// chain, else nobody.
    #[default]
    LastGood,
    /// The chain goes on as if the link were not there.
    Skip,
    /// The action, or worker, is refused with `UNAVAILABLE`.
    Reject,
}

impl OnError {
    /// As in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::LastGood => "last_good",
            Self::Skip => "skip",
            Self::Reject => "reject",
        }
    }
}

/// A place in chains, and who has it.
#[derive(Debug)]
pub struct Link {
    /// Its name in the configuration.
    pub name: Arc<str>,
    /// What is done when its policy fails.
    pub on_error: OnError,
    /// The version in force.
    pub active: Arc<Policy>,
    /// The version that was in force before, ready to answer.
    pub previous: Option<Arc<Policy>>,
    /// A version that is tried out.
    pub trial: Option<Arc<Trial>>,
}

/// The policies for some instance names, in order.
#[derive(Debug)]
pub struct Chain {
    /// The path that those instance names begin with.
    pub prefix: Arc<str>,
    /// Who is asked, in order.
    pub links: Box<[Arc<Link>]>,
    hooks: [bool; Hook::ALL.len()],
    /// For actions without and with a platform.
    wants_command: [bool; 2],
    /// It is the built-in default policy and nothing more.
    pub(crate) is_plain: bool,
}

impl Chain {
    /// A chain of these. `last` is who decides when all else fails.
    pub(crate) fn new(prefix: Arc<str>, links: Vec<Arc<Link>>, last: &Policy) -> Self {
        let candidates = || links.iter().filter_map(|link| link.trial.as_ref()).map(|trial| &trial.policy);
        let spare = || links.iter().filter_map(|link| link.previous.as_ref());
        let policies = || links.iter().map(|link| &link.active).chain(spare()).chain(candidates());
        let hooks = Hook::ALL.map(|hook| policies().any(|policy| policy.hooks().contains(&hook)));
        let wants = |has_platform| {
            policies().any(|policy| policy.wants_command(has_platform)) || last.wants_command(has_platform)
        };
        let is_plain = links.iter().all(|l| l.active.policy() == last.policy() && l.trial.is_none());
        Self { prefix, hooks, wants_command: [wants(false), wants(true)], is_plain, links: links.into() }
    }

    pub(crate) fn has(&self, hook: Hook) -> bool {
        self.hooks[hook as usize]
    }

    pub(crate) fn wants_command(&self, has_platform: bool) -> bool {
        self.wants_command[usize::from(has_platform)]
    }

    pub(crate) fn is_slow(&self) -> bool {
        self.links.iter().any(|link| link.active.tally.is_slow())
    }

    fn covers(&self, instance_name: &str) -> bool {
        is_path_prefix(&self.prefix, instance_name)
    }
}

/// What is in force from one swap to the next.
pub struct Generation {
    number: u64,
    /// The longest prefix first; the last one covers all.
    chains: Box<[Chain]>,
    links: BTreeMap<Arc<str>, Arc<Link>>,
    last: Arc<Policy>,
}

impl Generation {
    /// `chains`: by prefix, names of links. What no chain covers goes to the default policy alone.
    pub(crate) fn new(
        links: BTreeMap<Arc<str>, Arc<Link>>,
        chains: &BTreeMap<Arc<str>, Vec<Arc<str>>>,
        last: &Arc<Policy>,
    ) -> Self {
        let chain = |(prefix, names): (&Arc<str>, &Vec<Arc<str>>)| {
            let named = names.iter().filter_map(|name| links.get(name).cloned()).collect();
            Chain::new(prefix.clone(), named, last)
        };
        let mut chains: Vec<Chain> = chains.iter().map(chain).collect();
        if !chains.iter().any(|chain| chain.prefix.is_empty()) {
            chains.push(Chain::new("".into(), vec![Arc::new(Link::plain(last.clone()))], last));
        }
        chains.sort_by_key(|chain| std::cmp::Reverse(chain.prefix.len()));
        Self { number: 0, chains: chains.into(), links, last: last.clone() }
    }

    pub(crate) fn numbered(mut self, number: u64) -> Self {
        self.number = number;
        self
    }

    /// Position in the sequence of generations since the server started, from 1.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The built-in default policy, which decides when all else fails.
    pub(crate) fn last(&self) -> &Arc<Policy> {
        &self.last
    }

    /// All links by name.
    pub fn links(&self) -> &BTreeMap<Arc<str>, Arc<Link>> {
        &self.links
    }

    /// All chains, that of the longest prefix first.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// The chain of an instance name: the one of the longest prefix that covers it.
    pub(crate) fn chain(&self, instance_name: &str) -> &Chain {
        let found = self.chains.iter().find(|chain| chain.covers(instance_name));
        // The last one has the empty prefix, which covers all.
        found.unwrap_or(&self.chains[self.chains.len() - 1])
    }

    /// The policy that the chain of an instance name begins with.
    pub fn first(&self, instance_name: &str) -> Option<&Arc<Policy>> {
        self.chain(instance_name).links.first().map(|link| &link.active)
    }
}

impl Link {
    /// The built-in default policy, for instance names that no chain covers.
    pub(crate) fn plain(default: Arc<Policy>) -> Self {
        let name = DEFAULT_LINK.into();
        Self { name, on_error: OnError::LastGood, active: default, previous: None, trial: None }
    }
}

/// Name of the link that has the built-in default policy.
pub const DEFAULT_LINK: &str = "default";

impl fmt::Debug for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generation")
            .field("number", &self.number)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}
