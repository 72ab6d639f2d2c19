/**
 * JSON as text. A gateway passes most of what it carries on unread, so a message is cut into the raw text of its members
 * instead of being rebuilt: unknown fields, member order and long numbers travel exactly as they came.
 */

const QUOTE = 0x22;
const COMMA = 0x2c;
const ZERO = 0x30;
const NINE = 0x39;
const COLON = 0x3a;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Characters of a string that are looked at one by one. */
const NEAR = 24;

/** One JSON number or literal. Python's `NaN` and `Infinity` are the usual strangers. */
const PRIMITIVE = /(?:true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)(?=[\s,\]}]|$)/y;

/** Nesting deeper than this is refused: it parses, but no serializer survives it. */
const MAX_DEPTH = 64;

/** The text is not JSON, or not JSON we carry. `offset` is in UTF-16 units. */
export class JsonTextError extends Error {
  override readonly name = 'JsonTextError';
  readonly offset: number;

  constructor(what: string, offset: number) {
    super(`${what} at offset ${offset}`);
    this.offset = offset;
  }
}

function skipSpace(text: string, at: number): number {
  let i = at;
  for (;;) {
    const c = text.charCodeAt(i);
    if (c === 0x20 || c === 0x0a || c === 0x0d || c === 0x09) i++;
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
    if (c === BACKSLASH) break;
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
function skipValue(text: string, at: number): number {
  let depth = 0;
  let i = skipSpace(text, at);
  for (;;) {
    const c = text.charCodeAt(i);
    if (c === QUOTE) {
      i = skipString(text, i);
    } else if (c === OPEN_OBJECT || c === OPEN_ARRAY) {
      if (depth === MAX_DEPTH) throw new JsonTextError('nested too deeply', i);
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

function skipName(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) throw new JsonTextError('expected a member name', at);
  return skipString(text, at);
}

function skipColon(text: string, at: number): number {
  const colon = skipSpace(text, at);
  if (text.charCodeAt(colon) !== COLON) throw new JsonTextError('expected ":"', colon);
  return skipSpace(text, colon + 1);
}

/** The text a string literal stands for; `at` is where it starts, for the complaint. */
function unquote(raw: string, at: number): string {
  if (!raw.includes('\\')) return raw.slice(1, -1);
  try {
    return String(JSON.parse(raw));
  } catch {
    throw new JsonTextError('bad escape in a string', at);
  }
}

/**
 * The members of one JSON object, each as the raw text of its value, in the order they came. Immutable.
 *
 * Only its own level has been looked into: member names are unique and values are well-formed up to string escapes.
 */
export class RawObject {
  static readonly EMPTY: RawObject = new RawObject(new Map(), '{}');

  readonly #members: ReadonlyMap<string, string>;
  #text: string | undefined;

  private constructor(members: ReadonlyMap<string, string>, text?: string) {
    this.#members = members;
    this.#text = text;
  }

  /** @throws {JsonTextError} when `text` is not one JSON object, or names a member twice. */
  static parse(text: string): RawObject {
    const members = new Map<string, string>();
    let i = skipSpace(text, 0);
    if (text.charCodeAt(i) !== OPEN_OBJECT) throw new JsonTextError('expected an object', i);
    i = skipSpace(text, i + 1);
    if (text.charCodeAt(i) === CLOSE_OBJECT) {
      i++;
    } else {
      for (;;) {
        const nameEnd = skipName(text, i);
        const name = text.slice(i + 1, nameEnd - 1);
        const key = name.includes('\\') ? unquote(text.slice(i, nameEnd), i) : name;
        if (members.has(key)) throw new JsonTextError(`member "${key.slice(0, 40)}" appears twice`, i);
        const value = skipColon(text, nameEnd);
        const end = skipValue(text, value);
        members.set(key, text.slice(value, end));
        i = skipSpace(text, end);
        const next = text.charCodeAt(i);
        if (next === CLOSE_OBJECT) {
          i++;
          break;
        }
        if (next !== COMMA) throw new JsonTextError('expected "," or "}"', i);
        i = skipSpace(text, i + 1);
      }
    }
    const rest = skipSpace(text, i);
    if (rest < text.length) throw new JsonTextError('text after the object', rest);
    return new RawObject(members, text);
  }

  static of(value: object): RawObject {
    const members = new Map<string, string>();
    for (const [key, member] of Object.entries(value)) {
      if (member !== undefined) members.set(key, JSON.stringify(member));
    }
    return new RawObject(members);
  }

  get size(): number {
    return this.#members.size;
  }

  keys(): Iterable<string> {
    return this.#members.keys();
  }

  /** Raw text of a member's value. */
  raw(key: string): string | undefined {
    return this.#members.get(key);
  }

  /** A member's value when it is a string. @throws {JsonTextError} when it has an escape that is none. */
  string(key: string): string | undefined {
    const raw = this.#members.get(key);
    return raw?.charCodeAt(0) === QUOTE ? unquote(raw, 0) : undefined;
  }

  /** A member's value when it is an object. */
  object(key: string): RawObject | undefined {
    const raw = this.#members.get(key);
    return isObjectText(raw) ? RawObject.parse(raw) : undefined;
  }

  /** A member's value, parsed afresh. */
  value(key: string): unknown {
    const raw = this.#members.get(key);
    return raw === undefined ? undefined : JSON.parse(raw);
  }

  /** The same object with one member set to raw JSON text (in its old place, if it had one) or, given undefined, left out. */
  with(key: string, raw: string | undefined): RawObject {
    if (this.#members.get(key) === raw) return this;
    const members = new Map(this.#members);
    if (raw === undefined) members.delete(key);
    else members.set(key, raw);
    return new RawObject(members);
  }

  /** The same object with the raw text of every member put through `change`. */
  map(change: (raw: string, key: string) => string): RawObject {
    const members = new Map<string, string>();
    let isChanged = false;
    for (const [key, raw] of this.#members) {
      const changed = change(raw, key);
      isChanged ||= changed !== raw;
      members.set(key, changed);
    }
    return isChanged ? new RawObject(members) : this;
  }

  /** The JSON text: the original when nothing was changed. */
  toString(): string {
    if (this.#text === undefined) {
      let text = '{';
      for (const [key, raw] of this.#members) {
        text += `${text.length > 1 ? ',' : ''}${JSON.stringify(key)}:${raw}`;
      }
      this.#text = `${text}}`;
    }
    return this.#text;
  }
}

export function isObjectText(raw: string | undefined): raw is `{${string}` {
  return raw?.startsWith('{') === true;
}

export function isArrayText(raw: string | undefined): raw is `[${string}` {
  return raw?.startsWith('[') === true;
}

/** A JSON array of these raw texts: the opposite of {@link rawItems}. */
export function arrayText(items: readonly string[]): string {
  return `[${items.join(',')}]`;
}

/** The raw text of each item of a JSON array. @throws {JsonTextError} */
export function rawItems(text: string): string[] {
  let i = skipSpace(text, 0);
  if (text[i] !== '[') throw new JsonTextError('expected an array', i);
  const items: string[] = [];
  i = skipSpace(text, i + 1);
  if (text[i] !== ']') {
    for (;;) {
      const end = skipValue(text, i);
      items.push(text.slice(i, end));
      const next = skipSpace(text, end);
      if (text[next] === ']') {
        i = next;
        break;
      }
      if (text[next] !== ',') throw new JsonTextError('expected "," or "]"', next);
      i = skipSpace(text, next + 1);
    }
  }
  const rest = skipSpace(text, i + 1);
  if (rest < text.length) throw new JsonTextError('text after the array', rest);
  return items;
}

/** The same JSON without line breaks, which JSON allows only between tokens: what a line or an event can carry. */
export function oneLine(text: string): string {
  return text.includes('\n') || text.includes('\r') ? text.replaceAll(/[\r\n]+/g, ' ') : text;
}
