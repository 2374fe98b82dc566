//! Pools that the operator declares. Who works there may all be gone now and come when something waits for them, so what
//! a declared pool could run is never given up.

use std::sync::Arc;

use crate::classes::{Class, ClassKey, Index};
use crate::ids::Text;
use crate::properties::{Amounts, Asked, Atom, Offered};
use crate::scheduler::Scheduler;
use crate::shapes::is_path_prefix;
use crate::workers::fits;

/// A pool, and what its workers are like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeclaredPool {
    /// Its name.
    pub name: Text,
    /// Instance names that its workers serve begin with this; `None`: any.
    pub instance_name_prefix: Option<Text>,
    /// The size class of its workers; `None`: any.
    pub size_class: Option<u32>,
    /// Its platform as an action's: whoever meets it is one of its workers.
    pub asks: Asked,
    /// Its platform as a worker's: what its workers meet at least.
    pub offers: Offered,
    /// Execution strategies that its workers offer, where they don't say so themselves.
    pub strategies: Vec<Text>,
    /// Actions that each host of the pool runs at once; 0: as many as it has workers.
    pub max_inflight_tasks: u32,
}

impl DeclaredPool {
    /// A worker like this is one of its own.
    pub fn has(&self, prefix: &str, size_class: u32, offered: &Offered) -> bool {
        self.instance_name_prefix.as_deref().is_none_or(|p| p == prefix)
            && self.size_class.is_none_or(|s| s == size_class)
            && self.asks.atoms.iter().all(|a| offered.atoms.binary_search(a).is_ok())
            && fits(&self.asks.demand, &offered.totals)
    }

    pub(crate) fn could_run(&self, wanted: &Wanted<'_>) -> bool {
        let prefix = self.instance_name_prefix.as_deref().unwrap_or_default();
        is_path_prefix(prefix, wanted.instance)
            && wanted.pool.is_none_or(|p| *p == self.name)
            && (self.size_class.is_none() || wanted.size_class.is_none_or(|s| Some(s) == self.size_class))
            && wanted.strategies.is_none_or(|list| list.iter().any(|s| self.strategies.contains(s)))
            && wanted.atoms.iter().all(|a| self.offers.atoms.binary_search(a).is_ok())
            && fits(wanted.demand, &self.offers.totals)
    }
}

/// What an action asks of a pool.
pub(crate) struct Wanted<'a> {
    pub(crate) instance: &'a str,
    pub(crate) pool: Option<&'a Text>,
    pub(crate) size_class: Option<u32>,
    pub(crate) strategies: Option<&'a [Text]>,
    pub(crate) atoms: Vec<&'a Atom>,
    pub(crate) demand: &'a Amounts,
}

impl Scheduler {
    /// Declares the pools there are, in the order in which workers are put into them.
    pub fn declare(&mut self, pools: Arc<[DeclaredPool]>) {
        pools.iter().for_each(|pool| self.fleet.census.declare(&pool.name));
        self.index.declare(pools);
    }

    /// The first declared pool whose workers could run it, were there any.
    pub(crate) fn declared_for(&self, wanted: &Wanted<'_>) -> Option<&DeclaredPool> {
        self.index.declared.iter().find(|pool| pool.could_run(wanted))
    }

    pub(crate) fn is_declared(&self, class: &Class) -> bool {
        self.declared_for(&self.index.wanted(&class.key)).is_some()
    }
}

impl Index {
    fn declare(&mut self, pools: Arc<[DeclaredPool]>) {
        self.declared = pools;
        self.refresh_relative();
    }

    /// What tasks of a class ask of a pool.
    fn wanted<'a>(&'a self, key: &'a ClassKey) -> Wanted<'a> {
        Wanted {
            instance: &key.instance,
            pool: key.pool.as_ref(),
            size_class: key.size.exact(),
            strategies: key.strategies.as_deref(),
            atoms: key.atoms.iter().map(|a| &self.atoms[*a].atom).collect(),
            demand: &self.demands[key.demand].asked,
        }
    }

    /// Size classes of declared pools that could run tasks of a class, were there workers of them.
    pub(crate) fn declared_sizes<'a>(&'a self, key: &'a ClassKey) -> impl Iterator<Item = u32> + 'a {
        self.sizes_of_pools(self.wanted(key))
    }

    /// Size classes of declared pools that could run such an action.
    pub(crate) fn sizes_of_pools<'a>(&'a self, wanted: Wanted<'a>) -> impl Iterator<Item = u32> + 'a {
        self.declared.iter().filter(move |pool| pool.could_run(&wanted)).filter_map(|pool| pool.size_class)
    }
}
