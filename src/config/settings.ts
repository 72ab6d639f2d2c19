import { isRecord } from '../json/record.ts';
import { z } from 'zod';
import type { Data, Document } from './document/document.ts';
import { type Expanded, isList, valueAt } from './document/expanded.ts';
import { keyText, type Path, withoutValue } from './document/problem.ts';
import { gatewaySchema } from './schema/gateway-schema.ts';
import { SECRET_FIELDS } from './schema/secret-fields.ts';
import { upstreamSchema } from './schema/upstream-schema.ts';
import { shownCommand } from './shown-command.ts';
import { shownUrl } from './shown-url.ts';

/** One value of the running config, as the file spells it, with its origin. */
export interface Setting {
  /** As in `gateway.sessions.idle`. */
  readonly key: string;
  /** Secrets are replaced by `[redacted]`. */
  readonly value: z.core.util.JSONType;
  readonly origin: 'default' | 'file' | 'command line';
  /** `file:line:column`, or the name of the option; absent for a default. */
  readonly place?: string | undefined;
}

/** The parts of a loaded file that its settings are read from. */
export interface SettingsSource {
  readonly document: Document;
  /** The settings of the gateway with variables expanded. */
  readonly gateway: Expanded;
  /** The document with the upstreams: `document`, or an earlier version of it. */
  readonly upstreamDocument: Document;
  readonly upstreams: readonly Path[];
  /** Values of command-line options by key. */
  readonly options: ReadonlyMap<string, { readonly option: string; readonly value: string | false }>;
}

const JSON_VALUE = z.json();
const REDACTED = '[redacted]';

/** Returns every setting of the gateway and of its upstreams: those of the file, and the defaults of all others. */
export function settingsOf(source: SettingsSource): readonly Setting[] {
  const { document, gateway, upstreamDocument, upstreams, options } = source;
  const schema = z.toJSONSchema(gatewaySchema, { io: 'input' });
  const ofGateway = leaves(schema, ['gateway']).map(({ path, fallback }): Setting => {
    const key = keyText(path);
    const option = options.get(key);
    if (option !== undefined) return { key, value: option.value, origin: 'command line', place: option.option };
    const given = valueAt(gateway.data, path.slice(1));
    if (given === undefined) return { key, value: fallback, origin: 'default' };
    // Access rules compare with values of any kind, which stay unexpanded as in upstreams.
    const written = path[1] === 'access' ? valueAt(document.data, path) : undefined;
    return fromFile(document, path, typeof written === 'object' ? written : given);
  });
  // A schema with a name is a reference to its definition.
  const { $defs, ...whole } = z.toJSONSchema(upstreamSchema, { io: 'input' });
  const entry = $defs?.['upstream'] ?? whole;
  const inEntry = leaves(entry, []);
  const ofUpstreams = upstreams.flatMap((path) => upstreamSettings(upstreamDocument, path, entry, inEntry));
  return [...ofGateway, ...ofUpstreams];
}

/** Returns the settings of one upstream. Variables stay unexpanded, because their values may be secrets. */
function upstreamSettings(
  document: Document,
  path: Path,
  schema: unknown,
  declared: readonly Leaf[],
): readonly Setting[] {
  const data = knownPart(valueAt(document.data, path) ?? null, schema);
  const given = Object.entries(isRecord(data) ? data : {}).flatMap(([name, value]): Setting[] => {
    const at = [...path, name];
    if (name === 'timeouts' && isRecord(value)) {
      return Object.entries(value).map(([part, text]) => fromFile(document, [...at, part], text));
    }
    return [fromFile(document, at, value)];
  });
  const known = new Set(given.map(({ key }) => key));
  const defaults = declared
    .map(({ path: at, fallback }): Setting => ({ key: keyText([...path, ...at]), value: fallback, origin: 'default' }))
    .filter(({ key, value }) => value !== null && !known.has(key));
  return [...given, ...defaults];
}

/**
 * Returns a value with only those members of its maps that a JSON Schema describes. Others may hold secrets of any name, and so may a
 * text in the place of a map or list.
 */
function knownPart(value: Data, schema: unknown): Data {
  const forms = formsOf(schema);
  if (isList(value)) {
    const anyOf = forms.map(({ items }) => items);
    return value.map((item) => knownPart(item, { anyOf }));
  }
  if (!isRecord(value)) {
    const types = forms.flatMap(({ type }) => type ?? []);
    const isOfMap = types.length > 0 && types.every((type) => type === 'object' || type === 'array');
    return isOfMap && value !== null ? REDACTED : value;
  }
  const known = Object.entries(value).flatMap(([key, member]): [string, Data][] => {
    const anyOf = forms.flatMap(({ properties, additionalProperties: free }) => {
      if (isRecord(properties) && Object.hasOwn(properties, key)) return [properties[key]];
      // An empty schema allows anything.
      return isRecord(free) && Object.keys(free).length > 0 ? [free] : [];
    });
    return anyOf.length === 0 ? [] : [[key, knownPart(member, { anyOf })]];
  });
  return Object.fromEntries(known);
}

/** Returns a JSON Schema with all its alternatives. */
function formsOf(schema: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (!isRecord(schema)) return [];
  const { anyOf, oneOf, allOf } = schema;
  return [schema, ...[anyOf, oneOf, allOf].flat().flatMap((form) => formsOf(form))];
}

function fromFile(document: Document, path: Path, value: Data): Setting {
  const { file, line, column } = document.problem(path, '');
  return { key: keyText(path), value: redacted(value, path), origin: 'file', place: `${file}:${line}:${column}` };
}

interface Leaf {
  readonly path: Path;
  /** The default as the file would spell it; null if there is none. */
  readonly fallback: z.core.util.JSONType;
}

/** Returns the settings that a JSON Schema declares, without the maps around them. */
function leaves(schema: unknown, path: Path): readonly Leaf[] {
  // A key with `not` only has an explanation, and accepts nothing.
  if (!isRecord(schema) || 'not' in schema) return [];
  const { properties, default: fallback = null } = schema;
  if (isRecord(properties)) {
    return Object.entries(properties).flatMap(([name, member]) => leaves(member, [...path, name]));
  }
  return [{ path, fallback: JSON_VALUE.parse(fallback) }];
}

/** Returns a value without its secrets. */
function redacted(value: Data, path: Path): z.core.util.JSONType {
  const name = String(path.at(-1));
  const secrecy = SECRET_FIELDS.get(name);
  if (secrecy === 'value') return REDACTED;
  if (secrecy === 'map') {
    if (!isRecord(value)) return REDACTED;
    // A name without a value may have it in itself.
    const names = Object.entries(value).map(([key, member]) =>
      member === null || member === '' ? withoutValue(key) : key,
    );
    return Object.fromEntries(names.map((key) => [key, REDACTED]));
  }
  if (secrecy === 'url') {
    const url = typeof value === 'string' ? URL.parse(value) : null;
    return url === null ? REDACTED : shownUrl(url);
  }
  if (secrecy === 'command') {
    if (typeof value === 'string') return shownCommand(value);
    if (isList(value)) return value.map((item, index) => (index === 0 ? redacted(item, path) : REDACTED));
  }
  if (isList(value)) return value.map((item, index) => redacted(item, [...path, index]));
  if (isRecord(value)) {
    // Zed has the command in a map.
    const at = (key: string) => (secrecy === 'command' && key === 'path' ? path : [...path, key]);
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, redacted(member, at(key))]));
  }
  return value;
}
