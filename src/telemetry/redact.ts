import { SECRET_FIELDS } from '../config/schema/secret-fields.ts';
import { shownCommand } from '../config/shown-command.ts';
import { shownUrl } from '../config/shown-url.ts';

type Fields = Readonly<Record<string, unknown>>;

const REDACTED = '[redacted]';

/** Fields with secrets of peers, and the arguments of a program in an error of Node. */
const OTHER_SECRETS: ReadonlySet<string> = new Set([
  'authorization',
  'cookie',
  'token',
  'apiKey',
  'password',
  'secret',
  'spawnargs',
]);

/** Values below this depth are not logged. Cycles end there too. */
const MAX_DEPTH = 8;

/**
 * Returns the fields of a log line without the values of settings that may hold secrets ({@link SECRET_FIELDS}), at any depth. The
 * names of headers and of environment variables stay, and of a URL its origin. A URL at the top is one of the gateway itself.
 */
export function redacted(fields: Fields, depth = 0): Record<string, unknown> {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, fieldOf(name, value, depth)]));
}

function fieldOf(name: string, value: unknown, depth: number): unknown {
  // Errors under `err` have a serializer.
  if (value === undefined || value === null || (name === 'err' && depth === 0)) return value;
  const secrecy = OTHER_SECRETS.has(name) ? 'value' : SECRET_FIELDS.get(name);
  switch (secrecy) {
    case undefined:
      return valueOf(value, depth);
    case 'value':
      return REDACTED;
    case 'command':
      return typeof value === 'string' ? shownCommand(value) : REDACTED;
    case 'map':
      return isPlain(value) ? Object.fromEntries(Object.keys(value).map((key) => [key, REDACTED])) : REDACTED;
    case 'url': {
      if (depth === 0) return value;
      const url = typeof value === 'string' ? URL.parse(value) : null;
      return url === null ? REDACTED : shownUrl(url);
    }
  }
}

function valueOf(value: unknown, depth: number): unknown {
  if (Array.isArray(value)) {
    return depth >= MAX_DEPTH ? REDACTED : value.map((item: unknown) => valueOf(item, depth + 1));
  }
  if (value instanceof Error) return redacted(Object.fromEntries(Object.entries(value)), depth + 1);
  if (!isPlain(value)) return value;
  return depth >= MAX_DEPTH ? REDACTED : redacted(value, depth + 1);
}

/** Returns whether a value is an object with fields, and not an instance of a class with a form of its own. */
export function isPlain(value: unknown): value is Fields {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || (typeof prototype === 'object' && prototype.constructor === Object);
}
