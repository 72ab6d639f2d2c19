/**
 * The headers in which a 2026-07-28 request says again what is in its body, for those who route without reading it.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http#standard-request-headers
 */

import { decodeHeaderValue, encodeHeaderValue, withoutBlanks } from './header-value.ts';
import { isArrayText, isObjectText, type RawObject } from '../json/json.ts';
import type { Notification, Request } from './jsonrpc.ts';
import { TextCache } from '../json/memo.ts';
import type { MirroredParam } from './mirrored-params.ts';

/** A header's name and its value, which never holds a control character. */
export type Header = readonly [name: string, value: string];

/** Looks a received header up, by its name in lower case. */
export type HeaderLookup = (name: string) => string | undefined;

/** The member of the parameters that `Mcp-Name` repeats, by method. Tasks are an extension's. */
const NAME_MEMBER: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);

const INTEGER = /^-?(?:0|[1-9]\d*)$/;
const NUMBER = /^-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?$/;

function nameIn(method: string, params: RawObject | undefined): string | undefined {
  const member = NAME_MEMBER.get(method);
  return member === undefined ? undefined : params?.string(member);
}

/** The headers of requests without a name, by method; and of those with one, by method and name. */
const nameless = new TextCache<readonly Header[]>();
const named = new TextCache<(name: string) => readonly Header[]>();

/**
 * `Mcp-Method` and, where the method has one, `Mcp-Name`. Where these are the same, mostly the same array.
 *
 * @throws {JsonTextError} when the name has a bad escape.
 */
export function standardHeaders({ method, params }: Pick<Request, 'method' | 'params'>): readonly Header[] {
  const name = nameIn(method, params);
  if (name === undefined) return nameless.of(method, (own) => [['Mcp-Method', encodeHeaderValue(own)]]);
  return named.of(method, headersByName)(name);
}

function headersByName(method: string): (name: string) => readonly Header[] {
  const byName = new TextCache<readonly Header[]>();
  return (name) =>
    byName.of(name, (own) => [
      ['Mcp-Method', encodeHeaderValue(method)],
      ['Mcp-Name', encodeHeaderValue(own)],
    ]);
}

/** What header values stand for. */
const decoded = new TextCache<string | undefined>();

/**
 * Whether `Mcp-Method` and `Mcp-Name` say what the body says: undefined, or what is wrong in words. A request needs them; for
 * a notification the specification leaves that open, so there only what is sent is compared.
 *
 * @throws {JsonTextError} when the name has a bad escape.
 */
export function standardHeaderFault(message: Request | Notification, lookup: HeaderLookup): string | undefined {
  const isNeeded = message.kind === 'request';
  const method = lookup('mcp-method');
  if (method === undefined) {
    if (isNeeded) return 'the Mcp-Method header is missing';
  } else if (method !== message.method && withoutBlanks(method) !== message.method) {
    return 'the Mcp-Method header does not match the method in the body';
  }

  const name = nameIn(message.method, message.params);
  if (name === undefined) return undefined;
  const header = lookup('mcp-name');
  if (header === undefined) return isNeeded ? 'the Mcp-Name header is missing' : undefined;
  const said = decoded.of(header, decodeHeaderValue);
  if (said === undefined) return 'the Mcp-Name header is malformed';
  return said === name || said === name.toWellFormed() ? undefined : 'the Mcp-Name header does not match the body';
}

/** A number as digits; undefined for what is too large for anybody to read. */
function decimal(raw: string): string | undefined {
  const value = Number(raw);
  if (!Number.isFinite(value)) return undefined;
  if (Number.isSafeInteger(value) || !Number.isInteger(value)) return String(value);
  return INTEGER.test(raw) ? raw : BigInt(value).toString();
}

/** What of an argument goes into a header. Null and absent ones have none; nor have those that are not as their schema says. */
function mirroredText(holder: RawObject, key: string): string | undefined {
  const raw = holder.raw(key);
  if (raw === undefined || raw === 'null' || isObjectText(raw) || isArrayText(raw)) return undefined;
  if (raw === 'true' || raw === 'false') return raw;
  return raw.startsWith('"') ? holder.string(key) : decimal(raw);
}

/** The object that holds the argument at this path, and the argument's name in it. */
function holderOf(args: RawObject | undefined, path: readonly string[]): [RawObject | undefined, string] {
  let holder = args;
  for (const key of path.slice(0, -1)) holder = holder?.object(key);
  return [holder, path.at(-1) ?? ''];
}

/**
 * The `Mcp-Param-…` headers of a call with these arguments.
 *
 * @throws {JsonTextError} when an argument is no well-formed JSON after all.
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

/** Equal as numbers, as far as numbers can tell: beyond 2^53 two different integers look the same. */
function isSameNumber(said: string, raw: string): boolean {
  if (!NUMBER.test(said)) return false;
  const [a, b] = [Number(said), Number(raw)];
  return a === b && (Number.isSafeInteger(a) || !Number.isInteger(a));
}

/**
 * Whether the `Mcp-Param-…` headers say what the arguments say: undefined, or what is wrong in words. Headers that the schema
 * does not name are nobody's business.
 *
 * @throws {JsonTextError} when an argument is no well-formed JSON after all.
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
    const said = decodeHeaderValue(value);
    if (said === undefined) return `the Mcp-Param-${header} header is malformed`;
    if (text === undefined) return `the Mcp-Param-${header} header has no argument to match`;
    if (said === text.toWellFormed()) continue;
    const raw = holder?.raw(key) ?? '';
    if (raw.startsWith('"') || !isSameNumber(said, raw)) {
      return `the Mcp-Param-${header} header does not match the argument`;
    }
  }
  return undefined;
}
