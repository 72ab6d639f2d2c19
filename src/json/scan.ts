/** Finds its way through JSON text without reading it: where a value ends, and that it is one. Offsets are in UTF-16 units. */

import { LIMITS, type LimitName } from '../limits.ts';
import { JsonTextError } from './json-text-error.ts';
import { checkEscapes, controlAfter, hasControl, hasDenseEscapes, judgedStringEnd } from './strings.ts';

const SPACE = 0x20;
export const QUOTE = 0x22;
export const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;

/** Characters of a string that are looked at one by one: most strings are short, and a search costs more than it saves. */
const NEAR = 12;
/** A string up to this long is quicker looked through than searched. */
const SHORT = 40;
/** Up to so many names of one object are compared with each other; more are put into a set. */
const FEW_NAMES = 8;

/** Without any of these, text that was scanned is JSON to the last escape. */
// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
export const MAY_BE_BROKEN = /[\\\u0000-\u001f]/;

/** One JSON number or literal. Python's `NaN` and `Infinity` are the usual strangers. */
const PRIMITIVE = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,\]}]|$)/y;

/** Nesting deeper than this is refused: it parses, but no serializer survives it. */
export const MAX_DEPTH: number = LIMITS.jsonDepth;

/** How much one message may hold. */
export interface JsonBounds {
  readonly members: { readonly max: number; readonly limit: LimitName };
  readonly values: { readonly max: number; readonly limit: LimitName };
  /** Whether an object that names a member twice is refused, at any depth. */
  readonly unique: boolean;
}

/** Of messages that clients send. Pieces of them are forwarded, and decisions depend on them. */
export const CLIENT_BOUNDS: JsonBounds = {
  members: { max: LIMITS.clientObjectMembers, limit: 'clientObjectMembers' },
  values: { max: LIMITS.clientMessageValues, limit: 'clientMessageValues' },
  unique: true,
};

/** Of messages that upstreams send, and of everything we read ourselves. */
export const UPSTREAM_BOUNDS: JsonBounds = {
  members: { max: LIMITS.upstreamObjectMembers, limit: 'upstreamObjectMembers' },
  values: { max: LIMITS.upstreamMessageValues, limit: 'upstreamMessageValues' },
  unique: false,
};

/**
 * State of the scan in progress, and the second results of functions that have two. There is one for the whole process: a scan is
 * synchronous, and nothing that runs within it may begin another. Whoever calls a function with a second result reads it before
 * the next call.
 */
export const scanner = {
  /** Second result of `skipName`: whether the name holds an escape, or something that should have been one. */
  isNameOdd: false,
  /** Second result of the reader of objects: the offset after the object. */
  objectEnd: 0,
  /** Values of the text that were scanned so far. Whoever begins with a text sets it to 0. */
  values: 0,
  bounds: UPSTREAM_BOUNDS,
  /** Offset of the first control character at or after the last string, where strings are judged all at once; else beyond any text. */
  nextControl: Infinity,
  /** Whether strings are judged one by one, as they are scanned. */
  judgesStrings: false,
};

/** Of the value being scanned: what closes each object and array that is open, how many members it has, and their names. */
const closers = new Uint8Array(MAX_DEPTH);
const members = new Uint32Array(MAX_DEPTH);
const names: (string[] | Set<string>)[] = Array.from({ length: MAX_DEPTH }, () => []);

/**
 * Returns what `read` returns, for text that has to be JSON throughout, strings included, and within these bounds.
 *
 * @throws {JsonTextError}
 */
export function scanStrictly<T>(text: string, bounds: JsonBounds, read: () => T): T {
  scanner.bounds = bounds;
  try {
    scanner.judgesStrings = hasDenseEscapes(text);
    if (!scanner.judgesStrings) {
      checkEscapes(text);
      if (hasControl(text)) scanner.nextControl = controlAfter(text, 0);
    }
    return read();
  } catch (thrown) {
    // Of objects that were not scanned to their end.
    for (let depth = 0; depth < MAX_DEPTH; depth++) forgetNames(depth);
    throw thrown;
  } finally {
    scanner.bounds = UPSTREAM_BOUNDS;
    scanner.nextControl = Infinity;
    scanner.judgesStrings = false;
  }
}

export function skipSpace(text: string, at: number): number {
  let i = at;
  for (;;) {
    const c = text.charCodeAt(i);
    if (c > SPACE) return i;
    if (c === SPACE || c === 0x0a || c === 0x0d || c === 0x09) i++;
    else return i;
  }
}

/** Returns the offset after the closing quote. Escapes are stepped over. @throws {JsonTextError} */
function skipString(text: string, at: number): number {
  if (scanner.judgesStrings) return judgedStringEnd(text, at);
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
    for (const near = i + NEAR; i < near; i++) {
      const c = text.charCodeAt(i);
      if (c === QUOTE) return i + 1;
      if (c === BACKSLASH) i++;
    }
    const end = text.indexOf('"', i);
    if (end < 0) throw new JsonTextError('unterminated string', at);
    let back = end - 1;
    while (back >= i && text.charCodeAt(back) === BACKSLASH) back--;
    if ((end - back) & 1) return end + 1;
    // The quote is escaped, and more of the kind may be near.
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
 * Returns the offset after one whole value that starts at `at`; checks brackets, commas, colons and literals on the way, and counts
 * values and members.
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

/** Returns the offset of the value of a member that starts at `at`. */
function skipMember(text: string, at: number, depth: number, bounds: JsonBounds): number {
  const end = skipName(text, at);
  const count = (members[depth] ?? 0) + 1;
  members[depth] = count;
  if (count > bounds.members.max) {
    throw new JsonTextError(`more than ${bounds.members.max} members in one object`, at, bounds.members.limit);
  }
  if (bounds.unique) {
    const name = scanner.isNameOdd ? unquote(text.slice(at, end), at) : text.slice(at + 1, end - 1);
    if (!addName(name, depth)) throw duplicate(name, at);
  }
  return skipColon(text, end);
}

/** Remembers the name of a member of the object that is open at this depth. Returns whether it is new there. */
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
  else if (known !== undefined) known.length = 0;
}

export function duplicate(name: string, at: number): JsonTextError {
  return new JsonTextError(`member "${name.slice(0, 40)}" appears twice`, at, 'duplicate');
}

/** Returns the offset after the closing quote of a member's name. Leaves in `scanner.isNameOdd` whether it has an escape. */
export function skipName(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) throw new JsonTextError('expected a member name', at);
  let end = at;
  let c;
  do c = text.charCodeAt(++end);
  while (c !== QUOTE && c !== BACKSLASH && c >= SPACE);
  scanner.isNameOdd = c !== QUOTE;
  return scanner.isNameOdd ? skipString(text, at) : end + 1;
}

export function skipColon(text: string, at: number): number {
  const colon = skipSpace(text, at);
  if (text.charCodeAt(colon) !== COLON) throw new JsonTextError('expected ":"', colon);
  return skipSpace(text, colon + 1);
}

function hasEscape(raw: string): boolean {
  if (raw.length > SHORT) return raw.includes('\\');
  for (let at = 1; at < raw.length; at++) if (raw.charCodeAt(at) === BACKSLASH) return true;
  return false;
}

/** The text a string literal stands for; `at` is where it starts, for the complaint. */
export function unquote(raw: string, at: number): string {
  if (!hasEscape(raw)) return raw.slice(1, -1);
  try {
    return String(JSON.parse(raw));
  } catch {
    throw new JsonTextError('bad escape in a string', at);
  }
}
