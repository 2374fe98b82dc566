//! Interface `route`: the decision so far, and edits of it. An edit that can't be is a trap: to drop it quietly would
//! route the action by something the policy did not decide.

use std::time::Duration;

use pointsman_scheduler::route::Affinity;

use super::convert::{
    exclusivity_in, exclusivity_out, ms, names_in, optional, properties_in, properties_out, property_in,
    set_property, size_in, size_out, strings, variable_in,
};
use super::imports::route;
use super::imports::types::{Exclusivity, Property, SizeClass};
use crate::state::{State, bad};

impl route::Host for State {
    fn platform(&mut self) -> wasmtime::Result<Vec<Property>> {
        Ok(properties_out(&self.route("route.platform", None)?.platform))
    }

    fn platform_value(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        Ok(optional(self.route("route.platform-value", Some(&name))?.property(&name)))
    }

    fn set_platform(&mut self, properties: Vec<Property>) -> wasmtime::Result<()> {
        let properties = properties_in(self, properties)?;
        let route = self.edit_route("route.set-platform")?;
        route.platform = properties;
        route.sort_platform();
        Ok(())
    }

    fn set_property(&mut self, name: String, value: String) -> wasmtime::Result<()> {
        let property = property_in(self, name, value)?;
        let limit = self.limits.properties;
        set_property(&mut self.edit_route("route.set-property")?.platform, property, limit)
    }

    fn remove_property(&mut self, name: String) -> wasmtime::Result<()> {
        self.edit_route("route.remove-property")?.platform.retain(|known| *known.name != name);
        Ok(())
    }

    fn pool(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(optional(self.route("route.pool", None)?.pool.as_ref()))
    }

    fn set_pool(&mut self, name: Option<String>) -> wasmtime::Result<()> {
        let name = match name {
            Some(name) => Some(self.name("the name of a pool", name)?),
            None => None,
        };
        self.edit_route("route.set-pool")?.pool = name;
        Ok(())
    }

    fn size(&mut self) -> wasmtime::Result<SizeClass> {
        Ok(size_out(self.route("route.size", None)?.size))
    }

    fn set_size(&mut self, size: SizeClass) -> wasmtime::Result<()> {
        self.edit_route("route.set-size")?.size = size_in(size);
        Ok(())
    }

    fn exclusive(&mut self) -> wasmtime::Result<Exclusivity> {
        Ok(exclusivity_out(&self.route("route.exclusive", None)?.exclusivity))
    }

    fn set_exclusive(&mut self, exclusivity: Exclusivity) -> wasmtime::Result<()> {
        let exclusivity = exclusivity_in(self, exclusivity)?;
        self.edit_route("route.set-exclusive")?.exclusivity = exclusivity;
        Ok(())
    }

    fn strategies(&mut self) -> wasmtime::Result<Option<Vec<String>>> {
        Ok(self.route("route.strategies", None)?.strategies.as_deref().map(strings))
    }

    fn set_strategies(&mut self, names: Option<Vec<String>>) -> wasmtime::Result<()> {
        let names = match names {
            Some(names) => Some(names_in(self, "set-strategies", names)?),
            None => None,
        };
        self.edit_route("route.set-strategies")?.strategies = names;
        Ok(())
    }

    fn invocation_keys(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(strings(&self.route("route.invocation-keys", None)?.invocation_keys))
    }

    fn set_invocation_keys(&mut self, keys: Vec<String>) -> wasmtime::Result<()> {
        let keys = names_in(self, "set-invocation-keys", keys)?;
        self.edit_route("route.set-invocation-keys")?.invocation_keys = keys;
        Ok(())
    }

    fn priority(&mut self) -> wasmtime::Result<i32> {
        Ok(self.route("route.priority", None)?.priority)
    }

    fn set_priority(&mut self, priority: i32) -> wasmtime::Result<()> {
        self.edit_route("route.set-priority")?.priority = priority;
        Ok(())
    }

    fn timeout_ms(&mut self) -> wasmtime::Result<Option<u32>> {
        Ok(self.route("route.timeout-ms", None)?.timeout.map(ms))
    }

    fn set_timeout_ms(&mut self, timeout: u32) -> wasmtime::Result<()> {
        let route = self.edit_route("route.set-timeout-ms")?;
        if timeout == 0 {
            return Err(bad("set-timeout-ms was given 0, and no action ends in no time"));
        }
        route.timeout = Some(Duration::from_millis(timeout.into()));
        Ok(())
    }

    fn set_shared(&mut self, shared: bool) -> wasmtime::Result<()> {
        self.edit_route("route.set-shared")?.shared = shared;
        Ok(())
    }

    fn affinity(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(optional(self.route("route.affinity", None)?.affinity.as_ref().map(|affinity| &affinity.key)))
    }

    fn set_affinity(&mut self, key: String, wait_ms: u32) -> wasmtime::Result<()> {
        let key = self.name("an affinity key", key)?;
        let wait = Duration::from_millis(wait_ms.into());
        self.edit_route("route.set-affinity")?.affinity = Some(Affinity { key, wait });
        Ok(())
    }

    fn learning_key(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(optional(self.route("route.learning-key", None)?.learning_key.as_ref()))
    }

    fn set_learning_key(&mut self, key: String) -> wasmtime::Result<()> {
        let key = self.name("a learning key", key)?;
        self.edit_route("route.set-learning-key")?.learning_key = Some(key);
        Ok(())
    }

    fn set_environment(&mut self, name: String, value: String) -> wasmtime::Result<()> {
        let (name, value) = variable_in(self, name, value)?;
        let (count_max, bytes_max) = (self.limits.variables, self.limits.variables_bytes);
        let variables = &mut self.edit_route("route.set-environment")?.environment;
        variables.retain(|(known, _)| *known != name);
        variables.push((name, value));
        let bytes: usize = variables.iter().map(|(name, value)| name.len() + value.len()).sum();
        if variables.len() > count_max || bytes > bytes_max {
            return Err(bad(format!(
                "set-environment makes it {} variables of {bytes} bytes, allowed are {count_max} of {bytes_max} bytes",
                variables.len()
            )));
        }
        Ok(())
    }

    fn rank_candidates(&mut self, at_most: u32) -> wasmtime::Result<()> {
        self.edit_route("route.rank-candidates")?.rank_candidates = at_most;
        Ok(())
    }

    fn note(&mut self, text: String) -> wasmtime::Result<()> {
        let text = self.one_note(text)?;
        self.edit_route("route.note")?.notes.push(text);
        Ok(())
    }
}
