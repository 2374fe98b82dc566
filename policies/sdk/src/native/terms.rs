//! Interface `terms`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::{admitting, sort};
use crate::Property;
use crate::testing::{HostExclusive, Terms};

fn edit(name: &str, f: impl FnOnce(&mut Terms)) {
    admitting(name, |now| f(&mut now.call.terms));
}

pub fn set_platform(properties: &[Property]) {
    edit("terms.set-platform", |terms| {
        terms.platform = properties.to_vec();
        sort(&mut terms.platform);
    });
}

pub fn set_property(name: &str, value: &str) {
    edit("terms.set-property", |terms| {
        terms.platform.retain(|property| property.name != name);
        terms.platform.push(Property::new(name, value));
        sort(&mut terms.platform);
    });
}

pub fn remove_property(name: &str) {
    edit("terms.remove-property", |terms| terms.platform.retain(|property| property.name != name));
}

pub fn set_pool(name: &str) {
    edit("terms.set-pool", |terms| terms.pool = Some(name.into()));
}

pub fn set_size_class(size_class: u32) {
    edit("terms.set-size-class", |terms| terms.size_class = size_class);
}

pub fn set_strategies(names: &[String]) {
    edit("terms.set-strategies", |terms| terms.strategies = Some(names.to_vec()));
}

pub fn set_max_inflight(actions: u32) {
    edit("terms.set-max-inflight", |terms| terms.max_inflight = Some(actions));
}

pub fn set_exclusive(not_more_often_than_ms: Option<u32>) {
    edit("terms.set-exclusive", |terms| {
        terms.exclusive = match not_more_often_than_ms {
            None => HostExclusive::Never,
            Some(0) => HostExclusive::Allowed,
            Some(ms) => HostExclusive::NotMoreOftenThanMs(ms),
        };
    });
}

pub fn set_exclusive_below(actions_in_last_minute: u32) {
    edit("terms.set-exclusive-below", |terms| terms.exclusive_below = Some(actions_in_last_minute));
}

pub fn note(text: &str) {
    edit("terms.note", |terms| terms.notes.push(text.into()));
}
