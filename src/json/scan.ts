/** Scans JSON text without building values: finds the end of a value and checks its syntax. Offsets are in UTF-16 units. */

import { LIMITS, type LimitName } from '../limits.ts';
import { JsonTextError } from './json-text-error.ts';
import { checkEscapes, controlAfter, hasControl, hasDenseEscapes, checkedStringEnd } from './strings.ts';

const SPACE = 0x20;
export const QUOTE = 0x22;
export const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
export const OPEN_ARRAY = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_ARRAY = 0x5d;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;

/** Characters of a string that are checked one by one before a search: most strings are short, and a search has a fixed cost. */
const STEPPED_CHARS = 12;
/** Up to this number, the member names of an object are kept in an array; more are kept in a set. */
const FEW_NAMES = 8;

/** Matches the characters without which scanned text needs no further check of its strings. */
// oxlint-disable-next-line no-control-regex -- the expression searches for control characters
export const MAY_BE_BROKEN = /[\\\u0000-\u001f]/;

/** Matches one JSON number or literal. Python's `NaN` and `Infinity` are the most common invalid ones. */
const PRIMITIVE = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,\]}]|$)/y;

/** Deeper nesting is refused: it can be parsed, but serializers overflow the stack. */
export const MAX_DEPTH: number = LIMITS.jsonDepth;

export interface JsonBounds {
  readonly members: { readonly max: number; readonly limit: LimitName };
  readonly values: { readonly max: number; readonly limit: LimitName };
  /** Refuses an object with a repeated member name, at any depth. */
  readonly unique: boolean;
}

/** The bounds of messages from clients. Parts of these messages are forwarded, and decisions depend on them. */
export const CLIENT_BOUNDS: JsonBounds = {
  members: { max: LIMITS.clientObjectMembers, limit: 'clientObjectMembers' },
  values: { max: LIMITS.clientMessageValues, limit: 'clientMessageValues' },
  unique: true,
};

/** The bounds of messages from upstreams, and of all other JSON text. */
export const UPSTREAM_BOUNDS: JsonBounds = {
  members: { max: LIMITS.upstreamObjectMembers, limit: 'upstreamObjectMembers' },
  values: { max: LIMITS.upstreamMessageValues, limit: 'upstreamMessageValues' },
  unique: false,
};

/** The bounds of texts from upstreams in which no object may name a member twice. */
export const UNAMBIGUOUS_BOUNDS: JsonBounds = { ...UPSTREAM_BOUNDS, unique: true };

/**
 * The state of the scan in progress, and the second results of functions that have two. One object serves the whole process: a
 * scan is synchronous, and no code that runs within it may begin another. Callers read a second result before the next call.
 */
export const scanner = {
  /** Second result of `skipName`: true if the name contains an escape or a control character. */
  nameHasEscape: false,
  /** Second result of the object reader in `json.ts`: the offset after the object. */
  objectEnd: 0,
  /** Number of values scanned so far. Each caller that begins a text sets it to 0. */
  values: 0,
  bounds: UPSTREAM_BOUNDS,
  /** Offset of the first control character at or after the last string; `Infinity` if there is none or each string is checked. */
  nextControl: Infinity,
  /** True if each string is checked when it is scanned, instead of the whole text in advance. */
  checksEachString: false,
};

/** By depth, for each open object or array of the current value: its closing character, its member count, its member names. */
const closers = new Uint8Array(MAX_DEPTH);
const members = new Uint32Array(MAX_DEPTH);
const names: (string[] | Set<string>)[] = Array.from({ length: MAX_DEPTH }, () => []);

/**
 * Runs `read` while the text is checked completely, including its strings, and against these bounds. Returns its result.
 *
 * @throws {JsonTextError} if the text is not JSON or exceeds a bound.
 */
export function scanStrictly<T>(text: string, bounds: JsonBounds, read: () => T): T {
  scanner.bounds = bounds;
  try {
    scanner.checksEachString = hasDenseEscapes(text);
    if (!scanner.checksEachString) {
      checkEscapes(text);
      if (hasControl(text)) scanner.nextControl = controlAfter(text, 0);
    }
    return read();
  } catch (thrown) {
    // The names of objects whose end was not reached are still there.
    for (let depth = 0; depth < MAX_DEPTH; depth++) forgetNames(depth);
    throw thrown;
  } finally {
    scanner.bounds = UPSTREAM_BOUNDS;
    scanner.nextControl = Infinity;
    scanner.checksEachString = false;
  }
}

/** Returns the offset of the first character at or after `at` that is not JSON whitespace. Without one, returns the length of the text. */
export function skipSpace(text: string, at: number): number {
  let i = at;
  // V8 calls a function for each character once a read beyond the end was seen here.
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i);
    if (c > SPACE || (c !== SPACE && c !== 0x0a && c !== 0x0d && c !== 0x09)) return i;
  }
  return i;
}

/** Returns the offset after the closing quote of the string at `at`. @throws {JsonTextError} */
function skipString(text: string, at: number): number {
  if (scanner.checksEachString) return checkedStringEnd(text, at);
  const end = stringEnd(text, at);
  if (scanner.nextControl < end) {
    if (scanner.nextControl < at) scanner.nextControl = controlAfter(text, at);
    if (scanner.nextControl < end) {
      throw new JsonTextError('control character in a string', scanner.nextControl);
    }
  }
  return end;
}

function stringEnd(text: string, at: number): number {
  let i = at + 1;
  for (;;) {
    for (const near = i + STEPPED_CHARS; i < near; i++) {
      const c = text.charCodeAt(i);
      if (c === QUOTE) return i + 1;
      if (c === BACKSLASH) i++;
    }
    const end = text.indexOf('"', i);
    if (end < 0) throw new JsonTextError('unterminated string', at);
    let back = end - 1;
    while (back >= i && text.charCodeAt(back) === BACKSLASH) back--;
    if ((end - back) & 1) return end + 1;
    // The quote is escaped, and further escaped quotes are likely to be near.
    i = end + 1;
  }
}

/** Returns the offset after a number or literal. */
function skipPrimitive(text: string, at: number): number {
  let i = at;
  let c = text.charCodeAt(i);
  if (c > ZERO && c <= NINE) {
    do c = text.charCodeAt(++i);
    while (c >= ZERO && c <= NINE);
    if (c === COMMA || c === CLOSE_OBJECT) return i;
  }
  PRIMITIVE.lastIndex = at;
  if (!PRIMITIVE.test(text)) throw new JsonTextError('unexpected text', at);
  return PRIMITIVE.lastIndex;
}

/**
 * Returns the offset after the value that starts at `at`. Checks brackets, commas, colons and literals, and counts values and
 * members.
 *
 * @throws {JsonTextError} if the value is not JSON or exceeds a bound.
 */
export function skipValue(text: string, at: number, maxDepth = MAX_DEPTH): number {
  const { bounds } = scanner;
  const maxValues = bounds.values.max;
  let values = scanner.values;
  let depth = 0;
  let i = skipSpace(text, at);
  for (;;) {
    const c = text.charCodeAt(i);
    if (++values > maxValues) {
      throw new JsonTextError(`more than ${maxValues} values in one message`, i, bounds.values.limit);
    }
    if (c === QUOTE) {
      i = skipString(text, i);
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      if (depth === maxDepth) throw new JsonTextError('nested too deeply', i, 'jsonDepth');
      const closer = c === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      i = skipSpace(text, i + 1);
      if (text.charCodeAt(i) === closer) {
        i++;
      } else {
        closers[depth] = closer;
        members[depth] = 0;
        if (c === OPEN_OBJECT) i = skipMember(text, i, depth, bounds);
        depth++;
        continue;
      }
    } else {
      i = skipPrimitive(text, i);
    }

    for (;;) {
      if (depth === 0) {
        scanner.values = values;
        return i;
      }
      const closer = closers[depth - 1] === CLOSE_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      i = skipSpace(text, i);
      const next = text.charCodeAt(i);
      if (next === COMMA) {
        i = skipSpace(text, i + 1);
        if (closer === CLOSE_OBJECT) i = skipMember(text, i, depth - 1, bounds);
        break;
      }
      if (next !== closer) throw new JsonTextError(`expected "," or "${String.fromCharCode(closer)}"`, i);
      depth--;
      if (bounds.unique) forgetNames(depth);
      i++;
    }
  }
}

/** Returns the offset of the value of the member whose name starts at `at`. @throws {JsonTextError} */
function skipMember(text: string, at: number, depth: number, bounds: JsonBounds): number {
  const end = skipName(text, at);
  const count = (members[depth] ?? 0) + 1;
  members[depth] = count;
  if (count > bounds.members.max) {
    throw new JsonTextError(`more than ${bounds.members.max} members in one object`, at, bounds.members.limit);
  }
  if (bounds.unique) {
    const name = scanner.nameHasEscape ? unquote(text.slice(at, end), at) : text.slice(at + 1, end - 1);
    if (!addName(name, depth)) throw duplicateMember(name, at);
  }
  return skipColon(text, end);
}

/** Adds a member name of the open object at this depth. Returns whether the name is new there. */
function addName(name: string, depth: number): boolean {
  const known = names[depth];
  if (known instanceof Set) {
    const size = known.size;
    return known.add(name).size > size;
  }
  if (known === undefined || known.includes(name)) return false;
  known.push(name);
  if (known.length > FEW_NAMES) names[depth] = new Set(known);
  return true;
}

function forgetNames(depth: number): void {
  const known = names[depth];
  if (known instanceof Set) names[depth] = [];
  // Keeps the memory of the array, which setting its length would release.
  else while (known?.pop() !== undefined);
}

export function duplicateMember(name: string, at: number): JsonTextError {
  return new JsonTextError(`member "${name.slice(0, 40)}" appears twice`, at, 'duplicate');
}

/** Returns the offset after the closing quote of a member name, and sets `scanner.nameHasEscape`. @throws {JsonTextError} */
export function skipName(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) throw new JsonTextError('expected a member name', at);
  let end = at;
  let c;
  do c = text.charCodeAt(++end);
  while (c !== QUOTE && c !== BACKSLASH && c >= SPACE);
  scanner.nameHasEscape = c !== QUOTE;
  return scanner.nameHasEscape ? skipString(text, at) : end + 1;
}

/** Returns the offset of the value after the colon. @throws {JsonTextError} if there is no colon. */
export function skipColon(text: string, at: number): number {
  const colon = skipSpace(text, at);
  if (text.charCodeAt(colon) !== COLON) throw new JsonTextError('expected ":"', colon);
  return skipSpace(text, colon + 1);
}

/** Returns the value of a string literal. @param at its offset, for the error. @throws {JsonTextError} */
export function unquote(raw: string, at: number): string {
  if (!raw.includes('\\')) return raw.slice(1, -1);
  try {
    return String(JSON.parse(raw));
  } catch {
    throw new JsonTextError('bad escape in a string', at);
  }
}
