//! Interface `worker`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::{admitting, first_value};
use crate::Property;
use crate::testing::Worker;

fn read<R>(name: &str, f: impl FnOnce(&Worker) -> R) -> R {
    admitting(name, |now| f(&now.call.worker))
}

pub fn id() -> Vec<Property> {
    read("worker.id", |worker| worker.id.clone())
}

pub fn instance_name_prefix() -> String {
    read("worker.instance-name-prefix", |worker| worker.instance_name_prefix.clone())
}

pub fn platform() -> Vec<Property> {
    read("worker.platform", |worker| worker.platform.clone())
}

pub fn platform_value(name: &str) -> Option<String> {
    read("worker.platform-value", |worker| first_value(&worker.platform, name))
}

pub fn size_class() -> u32 {
    read("worker.size-class", |worker| worker.size_class)
}

pub fn principal() -> String {
    read("worker.principal", |worker| worker.principal.clone())
}
