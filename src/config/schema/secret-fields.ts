/**
 * The form in which a setting may hold a secret. It is its whole value, each value of a map, or a part of a URL (its path, query or user
 * name). Of a command, it is the words after the first one.
 */
export type Secrecy = 'value' | 'map' | 'url' | 'command';

/**
 * The settings that may hold secrets, by their key at any depth of a config file. Logs, errors and the lists of settings show
 * none of their values. A test keeps the table complete: each key of the schema is in it or known to hold no secret.
 */
export const SECRET_FIELDS: ReadonlyMap<string, Secrecy> = new Map([
  ['sha256', 'value'],
  ['key', 'value'],
  ['wrappingKeys', 'value'],
  ['chainKeys', 'value'],
  ['bearer_token', 'value'],
  ['command', 'command'],
  ['cmd', 'command'],
  ['args', 'value'],
  ['envFile', 'value'],
  ['env', 'map'],
  ['environment', 'map'],
  ['envs', 'map'],
  ['headers', 'map'],
  ['http_headers', 'map'],
  ['url', 'url'],
  ['serverUrl', 'url'],
  ['httpUrl', 'url'],
  ['uri', 'url'],
  ['jwksUrl', 'url'],
  ['clientSecret', 'value'],
  ['privateKey', 'value'],
  ['parameters', 'map'],
  ['settings', 'value'],
  ['dev', 'value'],
  ['tokenUrl', 'url'],
  ['proxy', 'url'],
  ['endpoint', 'url'],
]);
