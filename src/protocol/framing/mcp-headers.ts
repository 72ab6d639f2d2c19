/**
 * Makes and checks the headers of a 2026-07-28 request that repeat parts of its body, for intermediaries that route
 * without reading it.
 *
 * @see
 *   https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers
 */

import { decodeHeaderValue, encodeHeaderValue, trimBlanks } from './header-value.ts';
import { isArrayText, isObjectText, type RawObject } from '../../json/json.ts';
import type { Notification, Request } from '../jsonrpc.ts';
import { TextCache } from '../../json/text-cache.ts';
import type { MirroredParam } from './mirrored-params.ts';

/** Name and value of a header. The value holds no control character. */
export type Header = readonly [name: string, value: string];

/** Returns the value of a received header by its lower-case name. */
export type HeaderLookup = (name: string) => string | undefined;

/** The parameter that `Mcp-Name` repeats, by method, and headers by that name. The `tasks/…` methods belong to an extension. */
const NAMED = new Map(
  [
    ['tools/call', 'name'],
    ['prompts/get', 'name'],
    ['resources/read', 'uri'],
    ['tasks/get', 'taskId'],
    ['tasks/update', 'taskId'],
    ['tasks/cancel', 'taskId'],
  ].map(([method = '', member = '']) => [method, { member, headers: new TextCache<readonly Header[]>() }]),
);

/** Headers of requests without a name, by method. */
const nameless = new TextCache<readonly Header[]>();

const INTEGER = /^-?(?:0|[1-9]\d*)$/;
const NUMBER = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function nameIn(method: string, params: RawObject | undefined): string | undefined {
  const named = NAMED.get(method);
  return named === undefined ? undefined : params?.string(named.member);
}

/**
 * Returns `Mcp-Method` and, if the method has a name, `Mcp-Name`. Returns the same array for equal headers, mostly.
 *
 * @throws {JsonTextError} if the name has an invalid escape.
 */
export function standardHeaders({ method, params }: Pick<Request, 'method' | 'params'>): readonly Header[] {
  const named = NAMED.get(method);
  const name = named && params?.string(named.member);
  if (named === undefined || name === undefined) {
    return nameless.of(method, (own) => [['Mcp-Method', encodeHeaderValue(own)]]);
  }
  return named.headers.of(name, (own) => [
    ['Mcp-Method', encodeHeaderValue(method)],
    ['Mcp-Name', encodeHeaderValue(own)],
  ]);
}

/**
 * Compares `Mcp-Method` and `Mcp-Name` with the body. Returns undefined if they match, else the fault in words.
 * Requests must have both headers; for notifications the specification leaves that open, so only headers that are
 * present are compared.
 *
 * @throws {JsonTextError} if the name has an invalid escape.
 */
export function standardHeaderFault(message: Request | Notification, lookup: HeaderLookup): string | undefined {
  const isNeeded = message.kind === 'request';
  const method = lookup('mcp-method');
  if (method === undefined) {
    if (isNeeded) return 'the Mcp-Method header is missing';
  } else if (method !== message.method && trimBlanks(method) !== message.method) {
    return 'the Mcp-Method header does not match the method in the body';
  }

  const name = nameIn(message.method, message.params);
  if (name === undefined) return undefined;
  const header = lookup('mcp-name');
  if (header === undefined) return isNeeded ? 'the Mcp-Name header is missing' : undefined;
  const decodedValue = decodeHeaderValue(header);
  if (decodedValue === undefined) return 'the Mcp-Name header is malformed';
  return decodedValue === name || decodedValue === name.toWellFormed()
    ? undefined
    : 'the Mcp-Name header does not match the body';
}

/** Returns a JSON number as decimal text, or undefined if it exceeds the range of a double. */
function decimal(raw: string): string | undefined {
  const value = Number(raw);
  if (!Number.isFinite(value)) return undefined;
  if (Number.isSafeInteger(value) || !Number.isInteger(value)) return String(value);
  return INTEGER.test(raw) ? raw : BigInt(value).toString();
}

/** Returns the text of an argument for its header. Returns undefined for null, absent values, objects and arrays. */
function mirroredText(holder: RawObject, key: string): string | undefined {
  const raw = holder.raw(key);
  if (raw === undefined || raw === 'null' || isObjectText(raw) || isArrayText(raw)) return undefined;
  if (raw === 'true' || raw === 'false') return raw;
  return raw.startsWith('"') ? holder.string(key) : decimal(raw);
}

/** Returns the object that holds the argument at this path, and the argument's name in it. */
function holderOf(args: RawObject | undefined, path: readonly string[]): [RawObject | undefined, string] {
  let holder = args;
  for (const key of path.slice(0, -1)) holder = holder?.object(key);
  return [holder, path.at(-1) ?? ''];
}

/**
 * Returns the `Mcp-Param-…` headers of a call with these arguments.
 *
 * @throws {JsonTextError} if an argument is not well-formed JSON.
 */
export function paramHeaders(mirrored: readonly MirroredParam[], args: RawObject | undefined): Header[] {
  const headers: Header[] = [];
  for (const { header, path } of mirrored) {
    const [holder, key] = holderOf(args, path);
    const text = holder === undefined ? undefined : mirroredText(holder, key);
    if (text !== undefined) headers.push([`Mcp-Param-${header}`, encodeHeaderValue(text)]);
  }
  return headers;
}

/**
 * Returns whether a header value and a raw JSON number are equal. Integers beyond 2^53 are never equal, since doubles
 * cannot tell them apart.
 */
function isSameNumber(decodedValue: string, raw: string): boolean {
  if (!NUMBER.test(decodedValue)) return false;
  const [a, b] = [Number(decodedValue), Number(raw)];
  return a === b && (Number.isSafeInteger(a) || !Number.isInteger(a));
}

/**
 * Compares the `Mcp-Param-…` headers with the arguments. Returns undefined if they match, else the fault in words.
 * Headers that the schema does not name are ignored.
 *
 * @throws {JsonTextError} if an argument is not well-formed JSON.
 */
export function paramHeaderFault(
  mirrored: readonly MirroredParam[],
  args: RawObject | undefined,
  lookup: HeaderLookup,
): string | undefined {
  for (const { header, path } of mirrored) {
    const [holder, key] = holderOf(args, path);
    const text = holder === undefined ? undefined : mirroredText(holder, key);
    const value = lookup(`mcp-param-${header.toLowerCase()}`);
    if (value === undefined) {
      if (text !== undefined) return `the Mcp-Param-${header} header is missing`;
      continue;
    }
    const decodedValue = decodeHeaderValue(value);
    if (decodedValue === undefined) return `the Mcp-Param-${header} header is malformed`;
    if (text === undefined) return `the Mcp-Param-${header} header has no argument to match`;
    if (decodedValue === text.toWellFormed()) continue;
    const raw = holder?.raw(key) ?? '';
    if (raw.startsWith('"') || !isSameNumber(decodedValue, raw)) {
      return `the Mcp-Param-${header} header does not match the argument`;
    }
  }
  return undefined;
}
