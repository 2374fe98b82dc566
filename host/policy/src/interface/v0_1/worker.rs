//! Interfaces `worker` and `terms`: a worker that asks to join, and on what terms it does.

use std::time::Duration;

use pointsman_scheduler::route::Property as Pair;

use super::convert::{names_in, optional, properties_in, properties_out, property_in, set_property};
use super::imports::types::Property;
use super::imports::{terms, worker};
use crate::hooks::HostExclusive;
use crate::state::State;

impl worker::Host for State {
    fn id(&mut self) -> wasmtime::Result<Vec<Property>> {
        let entries = &self.worker("worker.id", None)?.id;
        Ok(entries.iter().map(|(k, v)| Property { name: k.to_string(), value: v.to_string() }).collect())
    }

    fn instance_name_prefix(&mut self) -> wasmtime::Result<String> {
        Ok(self.worker("worker.instance-name-prefix", None)?.instance_name_prefix.to_string())
    }

    fn platform(&mut self) -> wasmtime::Result<Vec<Property>> {
        Ok(properties_out(&self.worker("worker.platform", None)?.platform))
    }

    fn platform_value(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        let platform = &self.worker("worker.platform-value", Some(&name))?.platform;
        Ok(optional(platform.iter().find(|p| *p.name == name).map(|p: &Pair| &p.value)))
    }

    fn size_class(&mut self) -> wasmtime::Result<u32> {
        Ok(self.worker("worker.size-class", None)?.size_class)
    }

    fn principal(&mut self) -> wasmtime::Result<String> {
        Ok(self.worker("worker.principal", None)?.principal.to_string())
    }
}

impl terms::Host for State {
    fn set_platform(&mut self, properties: Vec<Property>) -> wasmtime::Result<()> {
        let mut properties = properties_in(self, properties)?;
        properties.sort_unstable();
        properties.dedup();
        self.terms("terms.set-platform")?.platform = properties;
        Ok(())
    }

    fn set_property(&mut self, name: String, value: String) -> wasmtime::Result<()> {
        let property = property_in(self, name, value)?;
        let limit = self.limits.properties;
        set_property(&mut self.terms("terms.set-property")?.platform, property, limit)
    }

    fn remove_property(&mut self, name: String) -> wasmtime::Result<()> {
        self.terms("terms.remove-property")?.platform.retain(|known| *known.name != name);
        Ok(())
    }

    fn set_pool(&mut self, name: String) -> wasmtime::Result<()> {
        let name = self.name("the name of a pool", name)?;
        self.terms("terms.set-pool")?.pool = Some(name);
        Ok(())
    }

    fn set_size_class(&mut self, size_class: u32) -> wasmtime::Result<()> {
        self.terms("terms.set-size-class")?.size_class = size_class;
        Ok(())
    }

    fn set_strategies(&mut self, names: Vec<String>) -> wasmtime::Result<()> {
        let names = names_in(self, "set-strategies", names)?;
        self.terms("terms.set-strategies")?.strategies = Some(names);
        Ok(())
    }

    fn set_max_inflight(&mut self, actions: u32) -> wasmtime::Result<()> {
        self.terms("terms.set-max-inflight")?.max_inflight = Some(actions);
        Ok(())
    }

    fn set_exclusive(&mut self, not_more_often_than_ms: Option<u32>) -> wasmtime::Result<()> {
        self.terms("terms.set-exclusive")?.exclusive = match not_more_often_than_ms {
            Some(0) => HostExclusive::Allowed,
            Some(ms) => HostExclusive::NotMoreOftenThan(Duration::from_millis(ms.into())),
            None => HostExclusive::Never,
        };
        Ok(())
    }

    fn set_exclusive_below(&mut self, actions_in_last_minute: u32) -> wasmtime::Result<()> {
        self.terms("terms.set-exclusive-below")?.exclusive_below = Some(actions_in_last_minute);
        Ok(())
    }

    fn note(&mut self, text: String) -> wasmtime::Result<()> {
        let text = self.one_note(text)?;
        self.terms("terms.note")?.notes.push(text);
        Ok(())
    }
}
