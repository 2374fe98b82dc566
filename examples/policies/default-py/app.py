"""The default policy in Python: the platform of old clients comes from the Command, and workers are shared out fairly
between builds. The same in Rust: policies/default/src/lib.rs."""

import json

from componentize_py_types import Err
from wit_world import exports
from wit_world.exports.lifecycle import ConfigError, Manifest
from wit_world.imports import action, command, route
from wit_world.imports.types import CommandWhen

# What a level of fairness groups can be made of.
SOURCES = {
    "correlated_invocations_id": action.correlated_invocations_id,
    "tool_invocation_id": action.invocation_id,
    "principal": action.principal,
}

# Every key of the configuration, with its default.
DEFAULTS = {
    "platform_from_command": True,
    "invocation_keys": ["correlated_invocations_id", "tool_invocation_id"],
}

SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "platform_from_command": {"type": "boolean", "default": DEFAULTS["platform_from_command"]},
        "invocation_keys": {
            "type": "array",
            "items": {"enum": list(SOURCES)},
            "default": DEFAULTS["invocation_keys"],
        },
    },
}

settings = DEFAULTS


class Lifecycle(exports.Lifecycle):
    def configure(self, config: str) -> Manifest:
        global settings
        settings = read_settings(config)
        if settings["platform_from_command"]:
            command.request(CommandWhen.WITHOUT_PLATFORM)
        return Manifest("default-py", "0.1.0", json.dumps(SCHEMA))


class OnAction(exports.OnAction):
    def route_action(self) -> None:
        if settings["platform_from_command"] and not action.has_platform():
            route.set_platform(command.platform())
        sources = settings["invocation_keys"]
        keys = [key for key in (SOURCES[source]() for source in sources) if key]
        # Without a group of its own, an action of a silent client would compete with whole groups.
        if sources and not keys:
            keys = ["(no invocation)"]
        route.set_invocation_keys(keys)


def read_settings(text: str) -> dict:
    """Raises the list of all that is wrong, which the server shows to the operator."""
    try:
        config = json.loads(text.strip() or "{}")
    except ValueError as error:
        raise Err([ConfigError("", f"not JSON: {error}")])
    if not isinstance(config, dict):
        raise Err([ConfigError("", f"expected an object, found {kind(config)}")])
    errors = []
    read = DEFAULTS | config
    if not isinstance(read["platform_from_command"], bool):
        message = f"expected true or false, found {kind(read['platform_from_command'])}"
        errors.append(ConfigError("/platform_from_command", message))
    if not isinstance(read["invocation_keys"], list):
        message = f"expected a list of strings, found {kind(read['invocation_keys'])}"
        errors.append(ConfigError("/invocation_keys", message))
    else:
        for index, source in enumerate(read["invocation_keys"]):
            path = f"/invocation_keys/{index}"
            if not isinstance(source, str):
                errors.append(ConfigError(path, f"expected a string, found {kind(source)}"))
            elif source not in SOURCES:
                message = f"unknown source {quoted(source)}, known are {', '.join(SOURCES)}"
                errors.append(ConfigError(path, message))
    for key in sorted(config.keys() - DEFAULTS.keys()):
        path = "/" + key.replace("~", "~0").replace("/", "~1")
        errors.append(ConfigError(path, f"unknown key {quoted(key)}: known keys are {', '.join(DEFAULTS)}"))
    if errors:
        raise Err(errors)
    return read


def quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def kind(value) -> str:
    if value is None:
        return "null"
    names = {bool: "a truth value", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "a number")
