//! Where what a machine was too small for could run instead.

use crate::classes::Demand;
use crate::declared::Wanted;
use crate::explain::{Meant, obstacle_of};
use crate::ids::Text;
use crate::properties::Asked;
use crate::route::{Route, SizeClass};
use crate::scheduler::Scheduler;

impl Scheduler {
    /// The size for a route to name, so that such an action runs on a larger class than `than`: the smallest that workers
    /// have which take work and could run it, or else that of a declared pool, for whose workers it then waits. `None`:
    /// there is no larger one. What the route names itself is not looked at.
    ///
    /// Looks at each kind of worker, and at the hosts of larger ones that match until one has room enough in all; meant
    /// for results that show a machine to be too small, which are few.
    pub fn larger_than(&self, than: u32, instance: &Text, route: &Route, asked: &Asked) -> Option<SizeClass> {
        let demand = Demand::new(asked);
        // Larger ones are compared with one another, whatever is meant now.
        let meant = Meant::of_prefix(self.index.longest_prefix(&asked.atoms, instance));
        let larger = self.index.kinds.iter().filter(|(id, kind)| {
            self.index.probe();
            kind.key.size_class > than
                && obstacle_of(&kind.key, instance, route, asked, &meant).is_none()
                && kind.hosts.iter().any(|host| self.fleet.hosts[*host].serves(*id, &demand))
        });
        let there = larger.map(|(_, kind)| kind.key.size_class).min().map(SizeClass::AtLeast);
        there.or_else(|| self.declared_larger(than, instance, route, asked).map(SizeClass::Exactly))
    }

    fn declared_larger(&self, than: u32, instance: &Text, route: &Route, asked: &Asked) -> Option<u32> {
        let wanted = Wanted {
            instance,
            pool: route.pool.as_ref(),
            size_class: None,
            strategies: route.strategies.as_deref(),
            atoms: asked.atoms.iter().collect(),
            demand: &asked.demand,
        };
        // A pool that names no size may have nothing larger.
        let sizes = self.index.declared.iter().filter_map(|pool| Some((pool.size_class?, pool)));
        sizes.filter(|(size, pool)| *size > than && pool.could_run(&wanted)).map(|(size, _)| size).min()
    }
}
