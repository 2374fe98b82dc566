//! Interface `command`.
#![expect(missing_docs, reason = "`wit/policy.wit` explains the functions")]

use super::{Place, always, routing};
use crate::testing::Command;
use crate::{CommandWhen, Property};

pub fn request(when: CommandWhen) {
    always("command.request", |now| {
        assert_eq!(now.place, Place::Configure, "command.request can only be called in configure");
        now.requested = Some(when);
    });
}

/// Like the server, shows nothing that was not asked for.
fn read<R: Default>(name: &str, f: impl FnOnce(&Command) -> R) -> R {
    routing(name, |now| {
        let visible = match now.requested {
            Some(CommandWhen::Always) => true,
            Some(CommandWhen::WithoutPlatform) => now.call.action.platform.is_none(),
            None => false,
        };
        if visible { f(&now.call.command) } else { R::default() }
    })
}

pub fn arguments() -> Vec<String> {
    read("command.arguments", |command| command.arguments.clone())
}

pub fn argument(index: u32) -> Option<String> {
    read("command.argument", |command| command.arguments.get(index as usize).cloned())
}

pub fn environment(name: &str) -> Option<String> {
    read("command.environment", |command| command.environment.get(name).cloned())
}

pub fn environment_variables() -> Vec<Property> {
    read("command.environment-variables", |command| {
        command.environment.iter().map(|(name, value)| Property::new(name, value)).collect()
    })
}

pub fn platform() -> Vec<Property> {
    read("command.platform", |command| command.platform.clone())
}

pub fn output_paths() -> Vec<String> {
    read("command.output-paths", |command| command.output_paths.clone())
}

pub fn working_directory() -> String {
    read("command.working-directory", |command| command.working_directory.clone())
}
