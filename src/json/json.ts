/**
 * Reads JSON objects as text. A gateway relays most of a message unread, so a message is cut into the raw text of its members. Unknown
 * members, member order and long numbers stay exactly as they came.
 */

import {
  CLOSE_OBJECT,
  CLIENT_BOUNDS,
  COMMA,
  duplicateMember,
  type JsonBounds,
  MAX_DEPTH,
  OPEN_OBJECT,
  QUOTE,
  scanner,
  scanStrictly,
  skipColon,
  skipName,
  skipSpace,
  skipValue,
  unquote,
} from './scan.ts';
import { JsonTextError } from './json-text-error.ts';
import { detach } from './kept-text.ts';
import { RecentTexts, TextCache } from './text-cache.ts';

export { JsonTextError } from './json-text-error.ts';
export { CLIENT_BOUNDS, type JsonBounds, MAY_BE_BROKEN, UNAMBIGUOUS_BOUNDS, UPSTREAM_BOUNDS } from './scan.ts';

/** An object with more members gets an index. */
const INDEX_THRESHOLD = 12;

/** A name that needs no escapes. */
const PLAIN = /^[\w$./-]*$/;

/** The member that clients repeat in most messages, and its recent values. Those of upstreams are short. */
const REPEATED = '_meta';
const repeated = new RecentTexts();

/** The member that is parsed together with its message. */
export type Preparsed = 'params' | 'result';

/** Names of the members of objects that are kept: tools, for example, mostly have the same. */
const sharedNames = new TextCache<readonly string[]>();

/** The text that an object was read from: its range, and the start and raw text of each value. */
interface SourceText {
  readonly text: string;
  readonly from: number;
  readonly to: number;
  readonly starts: readonly number[];
  readonly raws: readonly string[];
}

/**
 * The members of one JSON object, each as the raw text of its value, in their original order. Immutable.
 *
 * Only the object's own level is parsed: member names are unique, and values are well-formed up to string escapes.
 */
export class RawObject {
  static readonly EMPTY: RawObject = new RawObject([], [], undefined, '{}');

  readonly #names: readonly string[];
  readonly #raws: readonly string[];
  /** The source it was read from. The first members are those of the source, possibly changed. */
  readonly #source: SourceText | undefined;
  #text: string | undefined;
  #index: Map<string, number> | undefined;
  /** The member that was parsed together with the object. */
  #preparsedName: Preparsed | undefined;
  #preparsed: RawObject | undefined;

  private constructor(
    names: readonly string[],
    raws: readonly string[],
    source: SourceText | undefined,
    text?: string,
  ) {
    this.#names = names;
    this.#raws = raws;
    this.#source = source;
    this.#text = text;
  }

  /**
   * Parses the text of one JSON object.
   *
   * @param preparsed a member that the caller will read as an object: it is parsed now, so that it is scanned once
   *   only.
   * @throws {JsonTextError} if `text` is not one JSON object, or if the object or the preparsed member names a member
   *   twice.
   */
  static parse(text: string, preparsed?: Preparsed): RawObject {
    scanner.values = 0;
    const object = RawObject.#read(text, 0, preparsed, MAX_DEPTH);
    const rest = skipSpace(text, scanner.objectEnd);
    if (rest < text.length) throw new JsonTextError('text after the object', rest);
    object.#text = text;
    return object;
  }

  /**
   * Parses the text of one JSON object that must be JSON at all levels, strings included, and within these bounds.
   * @throws {JsonTextError}
   */
  static parseStrictly(text: string, bounds: JsonBounds, preparsed?: Preparsed): RawObject {
    return scanStrictly(text, bounds, () => RawObject.parse(text, preparsed));
  }

  static #read(text: string, at: number, preparsed: Preparsed | undefined, maxDepth: number): RawObject {
    const names: string[] = [];
    const raws: string[] = [];
    let i = skipSpace(text, at);
    const source = { text, from: i, to: i, starts: new Array<number>(), raws };
    const object = new RawObject(names, raws, source);
    if (text.charCodeAt(i) !== OPEN_OBJECT) throw new JsonTextError('expected an object', i);
    i = skipSpace(text, i + 1);
    if (text.charCodeAt(i) === CLOSE_OBJECT) {
      source.to = scanner.objectEnd = i + 1;
      return object;
    }
    const { bounds } = scanner;
    for (let count = 1; ; count++) {
      if (count > bounds.members.max) {
        throw new JsonTextError(`more than ${bounds.members.max} members in one object`, i, bounds.members.limit);
      }
      const nameAt = i;
      i = skipName(text, nameAt);
      const name = scanner.nameHasEscape ? unquote(text.slice(nameAt, i), nameAt) : text.slice(nameAt + 1, i - 1);
      if (object.#find(name) >= 0) throw duplicateMember(name, nameAt);
      const value = skipColon(text, i);
      // Only inside a preparsed member, so that all cached texts have been checked to the same depth.
      const isRepeated = name === REPEATED && maxDepth < MAX_DEPTH && bounds === CLIENT_BOUNDS;
      let raw = isRepeated ? repeated.at(text, value) : undefined;
      if (raw !== undefined) {
        i = value + raw.length;
      } else if (name === preparsed && text.charCodeAt(value) === OPEN_OBJECT) {
        object.#preparsedName = name;
        object.#preparsed = RawObject.#read(text, value, undefined, maxDepth - 1);
        i = scanner.objectEnd;
        raw = text.slice(value, i);
        object.#preparsed.#text = raw;
      } else {
        i = skipValue(text, value, maxDepth);
        raw = text.slice(value, i);
        if (isRepeated) raw = repeated.keep(raw);
      }
      object.#index?.set(name, names.length);
      names.push(name);
      raws.push(raw);
      source.starts.push(value);
      i = skipSpace(text, i);
      const next = text.charCodeAt(i);
      if (next === CLOSE_OBJECT) break;
      if (next !== COMMA) throw new JsonTextError('expected "," or "}"', i);
      i = skipSpace(text, i + 1);
    }
    source.to = scanner.objectEnd = i + 1;
    return object;
  }

  /** Returns the same object in less memory, for one that is kept: nothing is reserved for growth, and equal lists of names are one. */
  compacted(): RawObject {
    const source = this.#source;
    if (source?.raws !== this.#raws || this.#preparsed !== undefined) return this;
    const names = sharedNames.of(JSON.stringify(this.#names), () => this.#names.map((name) => detach(name)));
    const raws = this.#raws.slice();
    const text = this.#text;
    return new RawObject(names, raws, { ...source, starts: source.starts.slice(), raws }, text);
  }

  /** Returns the same object, for one that is kept: it does not keep the text around it in memory. */
  detached(): RawObject {
    return RawObject.parse(detach(this.toString()));
  }

  static of(value: object): RawObject {
    const names: string[] = [];
    const raws: string[] = [];
    for (const [key, member] of Object.entries(value)) {
      if (member === undefined) continue;
      names.push(key);
      raws.push(JSON.stringify(member));
    }
    return new RawObject(names, raws, undefined);
  }

  get size(): number {
    return this.#names.length;
  }

  keys(): readonly string[] {
    return this.#names;
  }

  #find(name: string): number {
    const names = this.#names;
    if (names.length > INDEX_THRESHOLD) {
      this.#index ??= new Map(names.map((one, at) => [one, at]));
      return this.#index.get(name) ?? -1;
    }
    for (let at = 0; at < names.length; at++) if (names[at] === name) return at;
    return -1;
  }

  /** Returns the raw text of a member's value. */
  raw(key: string): string | undefined {
    const at = this.#find(key);
    return at < 0 ? undefined : this.#raws[at];
  }

  /** Returns a member's value if it is a string. @throws {JsonTextError} if it has an invalid escape. */
  string(key: string): string | undefined {
    const raw = this.raw(key);
    return raw?.charCodeAt(0) === QUOTE ? unquote(raw, 0) : undefined;
  }

  /** Returns a member's value if it is an object. @throws {JsonTextError} */
  object(key: string): RawObject | undefined {
    if (key === this.#preparsedName) return this.#preparsed;
    const raw = this.raw(key);
    return isObjectText(raw) ? RawObject.parse(raw) : undefined;
  }

  /** Returns a member that was parsed together with this object, if it is an object. */
  preparsed(key: string): RawObject | undefined {
    return key === this.#preparsedName ? this.#preparsed : undefined;
  }

  value(key: string): unknown {
    const raw = this.raw(key);
    return raw === undefined ? undefined : JSON.parse(raw);
  }

  /**
   * Returns the object with one member set to raw JSON text (in its old position, if it has one), or removed if
   * undefined.
   */
  with(key: string, raw: string | undefined): RawObject {
    const at = this.#find(key);
    const names = this.#names;
    if (at < 0) {
      if (raw === undefined) return this;
      return new RawObject([...names, key], [...this.#raws, raw], this.#source);
    }
    if (this.#raws[at] === raw) return this;
    if (raw !== undefined) return new RawObject(names, this.#raws.with(at, raw), this.#source);
    return new RawObject(names.toSpliced(at, 1), this.#raws.toSpliced(at, 1), undefined);
  }

  without(names: readonly string[]): RawObject {
    return this.filter((name) => !names.includes(name));
  }

  /** Returns the object with these members only. */
  filter(isKept: (name: string) => boolean): RawObject {
    if (this.#names.every(isKept)) return this;
    const names = this.#names.filter(isKept);
    const raws = this.#raws.filter((_, at) => isKept(this.#names[at] ?? ''));
    return new RawObject(names, raws, undefined);
  }

  /** Returns the object with the raw text of every member transformed by `change`. */
  map(change: (raw: string, key: string) => string): RawObject {
    const raws = this.#raws.map((raw, at) => change(raw, this.#names[at] ?? ''));
    return raws.every((raw, at) => raw === this.#raws[at]) ? this : new RawObject(this.#names, raws, this.#source);
  }

  /** Returns the JSON text: the original, except for changed members. */
  toString(): string {
    this.#text ??= this.#source === undefined ? this.#joined(0, '{') : this.#spliced(this.#source);
    return this.#text;
  }

  #spliced({ text, from, to, starts, raws }: SourceText): string {
    let spliced = '';
    let at = from;
    for (let i = 0; i < raws.length; i++) {
      const was = raws[i] ?? '';
      const raw = this.#raws[i];
      if (raw === was) continue;
      const start = starts[i] ?? at;
      spliced += text.slice(at, start) + raw;
      at = start + was.length;
    }
    if (raws.length === this.#raws.length) return spliced + text.slice(at, to);
    return this.#joined(raws.length, spliced + text.slice(at, to - 1));
  }

  /** Returns `before` followed by the text of the members from index `from` on. */
  #joined(from: number, before: string): string {
    let text = before;
    for (let at = from; at < this.#names.length; at++) {
      text += `${at > 0 ? ',' : ''}${quoted(this.#names[at] ?? '')}:${this.#raws[at]}`;
    }
    return `${text}}`;
  }
}

export function quoted(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}

export function isObjectText(raw: string | undefined): raw is `{${string}` {
  return raw?.startsWith('{') === true;
}

export function isArrayText(raw: string | undefined): raw is `[${string}` {
  return raw?.startsWith('[') === true;
}

/** Returns a JSON array of these raw texts; the inverse of {@link rawItems}. */
export function arrayText(items: readonly string[]): string {
  return `[${items.join(',')}]`;
}

/**
 * Returns the raw text of each item of a JSON array.
 *
 * @param most items that are wanted: of a longer array, one item more is returned, and the rest is not read.
 * @throws {JsonTextError}
 */
export function rawItems(text: string, most = Infinity): string[] {
  scanner.values = 0;
  let i = skipSpace(text, 0);
  if (text[i] !== '[') throw new JsonTextError('expected an array', i);
  const items: string[] = [];
  i = skipSpace(text, i + 1);
  if (text[i] !== ']') {
    for (;;) {
      const end = skipValue(text, i);
      items.push(text.slice(i, end));
      if (items.length > most) return items;
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

/** Checks that the text is one JSON value, at all levels and within these bounds. @throws {JsonTextError} */
export function checkJson(text: string, bounds: JsonBounds): void {
  scanStrictly(text, bounds, () => {
    scanner.values = 0;
    const rest = skipSpace(text, skipValue(text, 0));
    if (rest < text.length) throw new JsonTextError('text after the value', rest);
  });
}

/** Returns the raw items of an array that must be JSON at all levels, within these bounds. @throws {JsonTextError} */
export function rawItemsStrictly(text: string, bounds: JsonBounds, most = Infinity): string[] {
  return scanStrictly(text, bounds, () => rawItems(text, most));
}

/** Returns the same JSON without line breaks, which JSON allows only between tokens, for a line or an event. */
export function oneLine(text: string): string {
  return text.includes('\n') || text.includes('\r') ? text.replaceAll(/[\r\n]+/g, ' ') : text;
}
