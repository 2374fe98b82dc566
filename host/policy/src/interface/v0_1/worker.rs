//! Interfaces `worker` and `terms`: offered, so that policies with such hooks load, but they speak of a worker that
//! asks to join, and no hook about one is called yet.

use super::imports::types::Property;
use super::imports::{terms, worker};
use crate::state::State;

impl worker::Host for State {
    fn id(&mut self) -> wasmtime::Result<Vec<Property>> {
        self.no_worker("worker.id")
    }

    fn instance_name_prefix(&mut self) -> wasmtime::Result<String> {
        self.no_worker("worker.instance-name-prefix")
    }

    fn platform(&mut self) -> wasmtime::Result<Vec<Property>> {
        self.no_worker("worker.platform")
    }

    fn platform_value(&mut self, _name: String) -> wasmtime::Result<Option<String>> {
        self.no_worker("worker.platform-value")
    }

    fn size_class(&mut self) -> wasmtime::Result<u32> {
        self.no_worker("worker.size-class")
    }

    fn principal(&mut self) -> wasmtime::Result<String> {
        self.no_worker("worker.principal")
    }
}

impl terms::Host for State {
    fn set_platform(&mut self, _properties: Vec<Property>) -> wasmtime::Result<()> {
        self.no_worker("terms.set-platform")
    }

    fn set_property(&mut self, _name: String, _value: String) -> wasmtime::Result<()> {
        self.no_worker("terms.set-property")
    }

    fn remove_property(&mut self, _name: String) -> wasmtime::Result<()> {
        self.no_worker("terms.remove-property")
    }

    fn set_pool(&mut self, _name: String) -> wasmtime::Result<()> {
        self.no_worker("terms.set-pool")
    }

    fn set_size_class(&mut self, _size_class: u32) -> wasmtime::Result<()> {
        self.no_worker("terms.set-size-class")
    }

    fn set_strategies(&mut self, _names: Vec<String>) -> wasmtime::Result<()> {
        self.no_worker("terms.set-strategies")
    }

    fn set_max_inflight(&mut self, _actions: u32) -> wasmtime::Result<()> {
        self.no_worker("terms.set-max-inflight")
    }

    fn set_exclusive(&mut self, _not_more_often_than_ms: Option<u32>) -> wasmtime::Result<()> {
        self.no_worker("terms.set-exclusive")
    }

    fn set_exclusive_below(&mut self, _actions_in_last_minute: u32) -> wasmtime::Result<()> {
        self.no_worker("terms.set-exclusive-below")
    }

    fn note(&mut self, _text: String) -> wasmtime::Result<()> {
        self.no_worker("terms.note")
    }
}
