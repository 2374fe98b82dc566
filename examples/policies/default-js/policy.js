// The default policy in JavaScript: the platform of old clients comes from the Command, and workers are shared out
// fairly between builds. The same in Rust: policies/default/src/lib.rs.

import * as action from 'pointsman:policy/action@0.1.0';
import * as command from 'pointsman:policy/command@0.1.0';
import * as route from 'pointsman:policy/route@0.1.0';

// What a level of fairness groups can be made of.
const SOURCES = {
  correlated_invocations_id: action.correlatedInvocationsId,
  tool_invocation_id: action.invocationId,
  principal: action.principal,
};

// Every key of the configuration, with its default.
const DEFAULTS = {
  platform_from_command: true,
  invocation_keys: ['correlated_invocations_id', 'tool_invocation_id'],
};

const SCHEMA = {
  $schema: 'https://json-schema.org/draft/2020-12/schema',
  type: 'object',
  additionalProperties: false,
  properties: {
    platform_from_command: { type: 'boolean', default: DEFAULTS.platform_from_command },
    invocation_keys: {
      type: 'array',
      items: { enum: Object.keys(SOURCES) },
      default: DEFAULTS.invocation_keys,
    },
  },
};

let settings = DEFAULTS;

export const lifecycle = {
  configure(text) {
    settings = readSettings(text);
    if (settings.platform_from_command) command.request('without-platform');
    return { name: 'default-js', version: '0.1.0', configSchema: JSON.stringify(SCHEMA) };
  },
};

export const onAction = {
  routeAction() {
    if (settings.platform_from_command && !action.hasPlatform()) {
      route.setPlatform(command.platform());
    }
    const keys = settings.invocation_keys.map((source) => SOURCES[source]()).filter((key) => key !== '');
    // Without a group of its own, an action of a silent client would compete with whole groups.
    if (keys.length === 0 && settings.invocation_keys.length > 0) keys.push('(no invocation)');
    route.setInvocationKeys(keys);
  },
};

// Throws the list of all that is wrong, which the server shows to the operator.
function readSettings(text) {
  let config;
  try {
    config = JSON.parse(text.trim() || '{}');
  } catch (error) {
    throw [{ path: '', message: `not JSON: ${error.message}` }];
  }
  if (kind(config) !== 'an object') {
    throw [{ path: '', message: `expected an object, found ${kind(config)}` }];
  }
  const errors = [];
  const { platform_from_command, invocation_keys, ...unknown } = { ...DEFAULTS, ...config };
  if (typeof platform_from_command !== 'boolean') {
    const message = `expected true or false, found ${kind(platform_from_command)}`;
    errors.push({ path: '/platform_from_command', message });
  }
  if (!Array.isArray(invocation_keys)) {
    const message = `expected a list of strings, found ${kind(invocation_keys)}`;
    errors.push({ path: '/invocation_keys', message });
  } else {
    invocation_keys.forEach((source, index) => {
      const path = `/invocation_keys/${index}`;
      if (typeof source !== 'string') {
        errors.push({ path, message: `expected a string, found ${kind(source)}` });
      } else if (!Object.hasOwn(SOURCES, source)) {
        const known = Object.keys(SOURCES).join(', ');
        errors.push({ path, message: `unknown source ${JSON.stringify(source)}, known are ${known}` });
      }
    });
  }
  for (const key of Object.keys(unknown).sort()) {
    const path = `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    const known = Object.keys(DEFAULTS).join(', ');
    errors.push({ path, message: `unknown key ${JSON.stringify(key)}: known keys are ${known}` });
  }
  if (errors.length > 0) throw errors;
  return { platform_from_command, invocation_keys };
}

function kind(value) {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'a list';
  return { boolean: 'a truth value', number: 'a number', string: 'a string', object: 'an object' }[typeof value];
}
