/** Finds its way through JSON text without reading it: where a value ends, and that it is one. Offsets are in UTF-16 units. */

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

/** Characters of a string that are looked at one by one. */
const NEAR = 12;
/** A string up to this long is quicker looked through than searched. */
const SHORT = 40;

/** What a string holds before its end, an escape or a control character. */
// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
const CLEAN = /[^"\\\u0000-\u001f]*/y;

/** Without any of these, text that was looked through is JSON to the last escape. */
// oxlint-disable-next-line no-control-regex -- control characters are what is looked for
export const MAY_BE_BROKEN = /[\\\u0000-\u001f]/;

/** One JSON number or literal. Python's `NaN` and `Infinity` are the usual strangers. */
const PRIMITIVE = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,\]}]|$)/y;

/** Nesting deeper than this is refused: it parses, but no serializer survives it. */
export const MAX_DEPTH = 64;

/** The text is not JSON, or not JSON we carry. `offset` is in UTF-16 units. */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
  readonly offset: number;

  constructor(what: string, offset: number) {
    super(`${what} at offset ${offset}`);
    this.offset = offset;
  }
}

/** Whether anybody wants to know of doubts about what stands in strings, and whether there are any. */
let isJudged = false;
let isDoubtful = false;

/** What `read` gives, for text that has to be JSON throughout, strings included. @throws {SyntaxError} */
export function judged<T>(text: string, read: () => T): T {
  isJudged = true;
  isDoubtful = false;
  try {
    const value = read();
    if (isDoubtful) JSON.parse(text);
    return value;
  } finally {
    isJudged = false;
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

/** Returns the offset after the closing quote. Escapes are stepped over, not judged. */
function skipString(text: string, at: number): number {
  let end = at;
  // Most strings are short, and a search costs more than it saves.
  for (const near = at + NEAR; end < near;) {
    const c = text.charCodeAt(++end);
    if (c === QUOTE) return end + 1;
    if (c === BACKSLASH || c < SPACE) {
      isDoubtful = true;
      break;
    }
  }
  if (isJudged && !isDoubtful && end < text.length) {
    CLEAN.lastIndex = end;
    CLEAN.test(text);
    end = CLEAN.lastIndex;
    if (text.charCodeAt(end) === QUOTE) return end + 1;
    isDoubtful = true;
  }
  end--;
  for (;;) {
    end = text.indexOf('"', end + 1);
    if (end < 0) throw new JsonTextError('unterminated string', at);
    let back = end - 1;
    while (text.charCodeAt(back) === BACKSLASH) back--;
    if ((end - back) & 1) return end + 1;
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

/** What closes what is open, outermost first. No value is begun while another is looked through. */
const closers = new Uint8Array(MAX_DEPTH);

/** Returns the offset after one whole value that starts at `at`; checks brackets, commas, colons and literals on the way. */
export function skipValue(text: string, at: number, maxDepth = MAX_DEPTH): number {
  let depth = 0;
  let i = skipSpace(text, at);
  for (;;) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      i = skipString(text, i);
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      if (depth === maxDepth) throw new JsonTextError('nested too deeply', i);
      const closer = c === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      i = skipSpace(text, i + 1);
      if (text.charCodeAt(i) === closer) {
        i++;
      } else {
        closers[depth++] = closer;
        if (c === OPEN_OBJECT) i = skipColon(text, skipName(text, i));
        continue;
      }
    } else {
      i = skipPrimitive(text, i);
    }

    for (;;) {
      if (depth === 0) return i;
      const closer = closers[depth - 1] === CLOSE_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY;
      i = skipSpace(text, i);
      const next = text.charCodeAt(i);
      if (next === COMMA) {
        i = skipSpace(text, i + 1);
        if (closer === CLOSE_OBJECT) i = skipColon(text, skipName(text, i));
        break;
      }
      if (next !== closer) throw new JsonTextError(`expected "," or "${String.fromCharCode(closer)}"`, i);
      depth--;
      i++;
    }
  }
}

/** Whether the name that was stepped over last has an escape, or should have one. */
export let isOdd = false;

export function skipName(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) throw new JsonTextError('expected a member name', at);
  let end = at;
  let c;
  do c = text.charCodeAt(++end);
  while (c !== QUOTE && c !== BACKSLASH && c >= SPACE);
  isOdd = c !== QUOTE;
  return isOdd ? skipString(text, at) : end + 1;
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
