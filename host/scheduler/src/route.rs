//! What a policy decides about one action, as plain data.
//!
//! A [`Route`] starts as what the client asked for, is edited by the policies of the chain, and is
//! then handed to the core with the action. The core never sees the policy, only this.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

/// One platform property of REv2 `Platform`. Values are opaque and compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Property {
    /// Name of the property; case matters.
    pub name: Arc<str>,
    /// Value of the property; the empty value is a value.
    pub value: Arc<str>,
}

impl Property {
    /// A property from its two strings.
    pub fn new(name: impl Into<Arc<str>>, value: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), value: value.into() }
    }
}

/// On which size class of worker an action is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SizeClass {
    /// The class learned for the route's learning key. While nothing is learned: any class.
    #[default]
    Learned,
    /// The smallest class that eligible workers have.
    Smallest,
    /// The largest class that eligible workers have.
    Largest,
    /// Exactly this class (the `uint32` of Buildbarn's Synchronize).
    Exactly(u32),
    /// The smallest class of those that are this or larger, or else the largest: what `Learned` comes to when something
    /// is. So what was learned keeps no action from running. Classes of declared pools are there even if no worker is.
    AtLeast(u32),
}

impl SizeClass {
    /// The class that is meant, whichever there are.
    pub(crate) fn exact(self) -> Option<u32> {
        match self {
            Self::Exactly(n) => Some(n),
            Self::Learned | Self::Smallest | Self::Largest | Self::AtLeast(_) => None,
        }
    }

    /// Which class is meant depends on which there are.
    pub(crate) fn is_relative(self) -> bool {
        matches!(self, Self::Smallest | Self::Largest | Self::AtLeast(_))
    }

    /// The class that is meant where workers of these are able; `None`: any, or none is there.
    pub(crate) fn among(self, there: impl IntoIterator<Item = u32>) -> Option<u32> {
        let there = there.into_iter();
        match self {
            Self::Learned => None,
            Self::Exactly(n) => Some(n),
            Self::Smallest => there.min(),
            Self::Largest => there.max(),
            // Smaller ones only if there are no others, and then the largest.
            Self::AtLeast(n) => {
                there.min_by_key(|s| if *s >= n { (false, *s) } else { (true, u32::MAX - *s) })
            }
        }
    }
}

impl Display for SizeClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Learned => f.write_str("learned"),
            Self::Smallest => f.write_str("smallest"),
            Self::Largest => f.write_str("largest"),
            Self::Exactly(class) => write!(f, "{class}"),
            Self::AtLeast(class) => write!(f, "at least {class}"),
        }
    }
}

/// Within what a group of exclusive actions is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// One worker host.
    Host,
    /// One pool.
    Pool,
    /// All workers of this scheduler.
    Cluster,
}

/// Whether an action tolerates others beside it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Exclusivity {
    /// It does.
    #[default]
    Shared,
    /// It executes alone on its worker host.
    Host,
    /// At most `at_most` actions of the group execute at once within the scope.
    Group {
        /// Name of the group.
        name: Arc<str>,
        /// Within what it is counted.
        scope: Scope,
        /// How many at once; at least 1.
        at_most: u32,
    },
}

impl Display for Exclusivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shared => f.write_str("shared"),
            Self::Host => f.write_str("host"),
            Self::Group { name, scope, at_most } => {
                let scope = match scope {
                    Scope::Host => "host",
                    Scope::Pool => "pool",
                    Scope::Cluster => "cluster",
                };
                write!(f, "group {name}: at most {at_most} in the {scope}")
            }
        }
    }
}

/// A preference for the worker that last ran the same key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Affinity {
    /// What has to be equal.
    pub key: Arc<str>,
    /// How long to wait for that worker at most.
    pub wait: Duration,
}

/// The decision about one action.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// Properties that workers are matched by, sorted by (name, value), without doubles.
    pub platform: Vec<Property>,
    /// Only workers of this pool; `None`: any whose workers match.
    pub pool: Option<Arc<str>>,
    /// Size class to run on.
    pub size: SizeClass,
    /// Alone or together.
    pub exclusivity: Exclusivity,
    /// Execution strategies that may be used, most wanted first; `None`: any.
    pub strategies: Option<Vec<Arc<str>>>,
    /// Path of groups among which workers are shared out, coarsest first.
    pub invocation_keys: Vec<Arc<str>>,
    /// REv2 priority: smaller goes first.
    pub priority: i32,
    /// Execution timeout; `None`: the server's default.
    pub timeout: Option<Duration>,
    /// An identical action of another client may share this execution.
    pub shared: bool,
    /// Preferred worker.
    pub affinity: Option<Affinity>,
    /// Key under which execution statistics are learned.
    pub learning_key: Option<Arc<str>>,
    /// Variables offered to the action's environment, each name once. Only data here: who runs it may set them.
    pub environment: Vec<(Arc<str>, Arc<str>)>,
    /// Ask the policy's `rank` hook about so many candidates before a worker is chosen; 0: don't.
    pub rank_candidates: u32,
    /// Remarks of policies for whoever asks why.
    pub notes: Vec<Arc<str>>,
}

impl Route {
    /// Puts `platform` into the order that matching and workers rely on: by name, then value, without doubles.
    pub fn sort_platform(&mut self) {
        self.platform.sort_unstable();
        self.platform.dedup();
    }

    /// The execution strategy that a worker uses which offers these: the most wanted of them. `None`: it is the worker's own
    /// affair.
    pub fn strategy_on(&self, offered: &[Arc<str>]) -> Option<&Arc<str>> {
        self.strategies.as_ref()?.iter().find(|s| offered.contains(s))
    }

    /// The first value of a property.
    pub fn property(&self, name: &str) -> Option<&Arc<str>> {
        self.platform.iter().find(|p| &*p.name == name).map(|p| &p.value)
    }
}
