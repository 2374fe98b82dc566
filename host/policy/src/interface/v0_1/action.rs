//! Interfaces `action` and `command`: what a policy reads about an action.

use super::convert::{attempt_out, ms, optional, properties_out, strings, trigger_out};
use super::imports::types::{Attempt, CommandWhen, Property, Trigger};
use super::imports::{action, command, types};
use crate::state::{self, State};

impl types::Host for State {}

impl action::Host for State {
    fn instance_name(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.instance-name")?.instance_name.to_string())
    }

    fn digest(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.digest")?.digest.to_string())
    }

    fn has_platform(&mut self) -> wasmtime::Result<bool> {
        Ok(self.action("action.has-platform")?.platform.is_some())
    }

    fn platform(&mut self) -> wasmtime::Result<Vec<Property>> {
        let mut platform =
            properties_out(self.action("action.platform")?.platform.as_deref().unwrap_or_default());
        // Promised to be in order, whatever the client sent.
        platform.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        Ok(platform)
    }

    fn platform_value(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        let platform =
            self.action_about("action.platform-value", Some(&name))?.platform.as_deref().unwrap_or_default();
        Ok(optional(platform.iter().filter(|p| *p.name == name).map(|p| &p.value).min()))
    }

    fn priority(&mut self) -> wasmtime::Result<i32> {
        Ok(self.action("action.priority")?.priority)
    }

    fn timeout_ms(&mut self) -> wasmtime::Result<Option<u32>> {
        Ok(self.action("action.timeout-ms")?.timeout.map(ms))
    }

    fn do_not_cache(&mut self) -> wasmtime::Result<bool> {
        Ok(self.action("action.do-not-cache")?.do_not_cache)
    }

    fn skip_cache_lookup(&mut self) -> wasmtime::Result<bool> {
        Ok(self.action("action.skip-cache-lookup")?.skip_cache_lookup)
    }

    fn tool_name(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.tool-name")?.tool_name.to_string())
    }

    fn tool_version(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.tool-version")?.tool_version.to_string())
    }

    fn invocation_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.invocation-id")?.invocation_id.to_string())
    }

    fn correlated_invocations_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.correlated-invocations-id")?.correlated_invocations_id.to_string())
    }

    fn mnemonic(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.mnemonic")?.mnemonic.to_string())
    }

    fn target_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.target-id")?.target_id.to_string())
    }

    fn configuration_id(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.configuration-id")?.configuration_id.to_string())
    }

    fn principal(&mut self) -> wasmtime::Result<String> {
        Ok(self.action("action.principal")?.principal.to_string())
    }

    fn attempts(&mut self) -> wasmtime::Result<Vec<Attempt>> {
        Ok(self.action("action.attempts")?.attempts.iter().map(attempt_out).collect())
    }

    fn cause(&mut self) -> wasmtime::Result<Trigger> {
        Ok(trigger_out(self.action("action.cause")?.trigger))
    }
}

impl command::Host for State {
    fn request(&mut self, when: CommandWhen) -> wasmtime::Result<()> {
        self.request_command(match when {
            CommandWhen::WithoutPlatform => state::CommandWhen::WithoutPlatform,
            CommandWhen::Always => state::CommandWhen::Always,
        })
    }

    fn arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(self
            .command("command.arguments", None)?
            .map(|command| strings(&command.arguments))
            .unwrap_or_default())
    }

    fn argument(&mut self, index: u32) -> wasmtime::Result<Option<String>> {
        let command = self.command("command.argument", Some(&index.to_string()))?;
        Ok(optional(command.and_then(|command| command.arguments.get(usize::try_from(index).ok()?))))
    }

    fn environment(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        let command = self.command("command.environment", Some(&name))?;
        let mut variables = command.into_iter().flat_map(|command| &command.environment);
        Ok(variables.find(|(known, _)| **known == *name).map(|(_, value)| value.to_string()))
    }

    fn environment_variables(&mut self) -> wasmtime::Result<Vec<Property>> {
        let command = self.command("command.environment-variables", None)?;
        let variables = command.into_iter().flat_map(|command| &command.environment);
        let mut variables: Vec<Property> = variables
            .map(|(name, value)| Property { name: name.to_string(), value: value.to_string() })
            .collect();
        // Promised to be in order, whatever the client sent.
        variables.sort_by(|a, b| (&a.name, &a.value).cmp(&(&b.name, &b.value)));
        Ok(variables)
    }

    fn platform(&mut self) -> wasmtime::Result<Vec<Property>> {
        Ok(self
            .command("command.platform", None)?
            .map(|command| properties_out(&command.platform))
            .unwrap_or_default())
    }

    fn output_paths(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(self
            .command("command.output-paths", None)?
            .map(|command| strings(&command.output_paths))
            .unwrap_or_default())
    }

    fn working_directory(&mut self) -> wasmtime::Result<String> {
        let command = self.command("command.working-directory", None)?;
        Ok(command.map(|command| command.working_directory.to_string()).unwrap_or_default())
    }
}
