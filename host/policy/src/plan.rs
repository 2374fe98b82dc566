//! What the operator wants: which policies, in which chains, under which conditions.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::generation::{DEFAULT_LINK, OnError};
use crate::policy::Isolation;
use crate::probation::ProbationRules;
use crate::signature::SigningKey;
use crate::trial::Mode;

/// All of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Links by name.
    pub links: BTreeMap<Arc<str>, LinkPlan>,
    /// By instance name prefix, names of links in the order in which they are asked. Names that no prefix covers have the
    /// built-in default policy.
    pub chains: BTreeMap<Arc<str>, Vec<Arc<str>>>,
    /// What a new version may do wrong.
    pub probation: ProbationRules,
}

impl Plan {
    /// Configuration of the built-in default policy where it has to decide for one that failed: that of the first link that
    /// it is the policy of.
    pub fn default_config(&self) -> &str {
        let of_default = self.links.values().find(|link| link.source == Source::Default);
        of_default.map_or("{}", |link| &link.config)
    }
}

impl Default for Plan {
    /// The built-in default policy for all, to be replaced by a push.
    fn default() -> Self {
        let name: Arc<str> = DEFAULT_LINK.into();
        Self {
            links: BTreeMap::from([(name.clone(), LinkPlan::default())]),
            chains: BTreeMap::from([("".into(), vec![name])]),
            probation: ProbationRules::default(),
        }
    }
}

/// One link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkPlan {
    /// Where its versions come from, beside a push.
    pub source: Source,
    /// Given to each version, as JSON.
    pub config: String,
    /// Where the configuration was written down.
    pub places: Places,
    /// What is done when its policy fails.
    pub on_error: OnError,
    /// SHA-256 in lower-case hex: no other version is let in.
    pub pin: Option<String>,
    /// Keys of minisign, one of which must have signed a version; none: nobody need.
    pub public_keys: Vec<SigningKey>,
    /// Warm instances or new ones.
    pub isolation: Isolation,
    /// How a new version of the file begins.
    pub rollout: Rollout,
}

impl Default for LinkPlan {
    fn default() -> Self {
        Self {
            source: Source::Default,
            config: "{}".into(),
            places: Places::default(),
            on_error: OnError::default(),
            pin: None,
            public_keys: Vec::new(),
            isolation: Isolation::default(),
            rollout: Rollout::InForce,
        }
    }
}

/// Where places of a configuration (JSON pointers) were written down, for whoever has to mend one: file, line and column.
#[derive(Clone, Default)]
pub struct Places(Option<Arc<Find>>);

type Find = dyn Fn(&str) -> Option<String> + Send + Sync;

impl Places {
    /// Asks `find` for each place.
    pub fn new(find: impl Fn(&str) -> Option<String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    /// Where this one was written down; `None`: nobody knows.
    pub fn of(&self, pointer: &str) -> Option<String> {
        self.0.as_ref().and_then(|find| find(pointer))
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").finish_non_exhaustive()
    }
}

/// Plans are compared to see whether something has to be done, and lines that have moved are no such thing.
impl PartialEq for Places {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Where versions come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in default policy.
    Default,
    /// A file, watched. Its signature lies beside it, with `.minisig` at the end of its name.
    File(PathBuf),
}

/// How a version begins.
#[derive(Clone, Debug, PartialEq)]
pub enum Rollout {
    /// It is put in force at once, on probation.
    InForce,
    /// It is tried out until somebody promotes it.
    Trial(Mode),
}

impl LinkPlan {
    /// Must a version be loaded anew for this plan to hold, if that one did before?
    pub(crate) fn needs_reload(&self, before: &Self) -> bool {
        let same = (&self.config, self.isolation, &self.source)
            == (&before.config, before.isolation, &before.source);
        !same || self.pin != before.pin || self.public_keys != before.public_keys
    }
}
