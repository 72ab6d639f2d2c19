import {
  type Document as YamlDocument,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  type Pair,
  parseDocument,
  visit,
} from 'yaml';

import { isJsonFile } from '../files/config-files.ts';
import { jsonTree } from './json-problem.ts';
import { ConfigError, keyText, type Path, type Problem, withoutValue } from './problem.ts';
import { firstFaults, isUnclosed, yamlMessage } from './yaml-problem.ts';
import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';

/** Any value of a config file. */
export type Data = string | number | boolean | null | readonly Data[] | { readonly [key: string]: Data };

/** A parsed file: plain data, and the position of each value. */
export interface Document {
  /** The path as the caller gave it. */
  readonly file: string;
  readonly data: Data;
  /** Returns the source text of a scalar: `08080`, although `data` has 8080. */
  source(path: Path): string | undefined;
  /**
   * Returns the offset of a value or of its key. For a missing value, returns the offset of the nearest value around
   * it.
   */
  offset(path: Path, part: 'key' | 'value'): number;
  problem(path: Path, message: string, part?: 'key' | 'value'): Problem;
}

/** A value in the text of a file: the offsets of its key and of itself. */
export interface Spot {
  readonly key: number | undefined;
  readonly value: number;
  /** The text of a scalar; see {@link Document.source}. */
  readonly source?: string | undefined;
}

export type ProblemAt = (offset: number, path: Path, message: string) => Problem;

/** @param lines of the file; see {@link linesOf}. */
export function problemAtOf(file: string, lines: LineCounter): ProblemAt {
  return (offset, path, message) => {
    const { line, col } = lines.linePos(offset);
    return { file, line: Math.max(line, 1), column: Math.max(col, 1), key: keyText(path), message };
  };
}

/** Returns the lines of a text. The parser of YAML misses some after a mistake, and the others count none. */
export function linesOf(text: string): LineCounter {
  const lines = new LineCounter();
  lines.addNewLine(0);
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) lines.addNewLine(at + 1);
  return lines;
}

/** @param spots by path, as JSON. */
export function documentOf(file: string, data: Data, spots: ReadonlyMap<string, Spot>, problemAt: ProblemAt): Document {
  const spotOf = (path: Path): Spot | undefined => spots.get(JSON.stringify(path));
  const offset = (path: Path, part: 'key' | 'value'): number => {
    for (let length = path.length; length >= 0; length--) {
      const spot = spotOf(path.slice(0, length));
      if (spot !== undefined) return length < path.length || part === 'key' ? (spot.key ?? spot.value) : spot.value;
    }
    return 0;
  };
  return {
    file,
    data,
    source: (path) => spotOf(path)?.source,
    offset,
    problem: (path, message, part = 'value') => problemAt(offset(path, part), path, message),
  };
}

/** Returns a problem of a key that should not be there, or is no name. It shows no value that stands in the key. */
export function problemOfKey(document: Document, path: Path, message: string): Problem {
  const shown = [...path.slice(0, -1), withoutValue(String(path.at(-1)))];
  return { ...document.problem(path, message, 'key'), key: keyText(shown) };
}

/** Bounds against anchors and merge keys that expand a small file; real files stay far below. */
const MAX_VALUES = 20_000;
export const MAX_DEPTH = 64;

// A text without quotes, such as a password, may begin with these characters. So no message quotes the name.
const UNKNOWN_ALIAS = 'no anchor of this name stands before this; a text that begins with "*" needs quotes';
const EMPTY_ANCHOR = 'an anchor without a value; a text that begins with "&" needs quotes';

class ReadError extends Error {
  readonly offset: number;
  readonly path: Path;

  constructor(message: string, offset: number, path: Path = []) {
    super(message);
    this.offset = offset;
    this.path = path;
  }
}

/** Converts the YAML tree of one file to data, and records the position of every value. One instance per file. */
class Reader {
  readonly spots = new Map<string, Spot>();
  readonly #anchors = new Map<string, Node>();
  #values = 0;

  read(node: unknown, path: Path, key: number | undefined): Data {
    const begin = startOf(node) ?? key ?? 0;
    this.#values++;
    if (this.#values > MAX_VALUES)
      throw new ReadError(`more than ${MAX_VALUES} values (aliases count each time)`, begin);
    if (path.length > MAX_DEPTH) throw new ReadError(`nested deeper than ${MAX_DEPTH} levels`, begin);

    const target = this.#resolve(node, path);
    const source = isScalar(target) ? target.source : undefined;
    this.spots.set(JSON.stringify(path), { key, value: begin, source });
    if (isSeq(target)) return target.items.map((item, index) => this.read(item, [...path, index], undefined));
    if (isMap(target)) return this.#readMap(target.items, path);
    return scalarOf(isScalar(target) ? target.value : null);
  }

  #resolve(node: unknown, path: Path): unknown {
    if (isAlias(node)) {
      const target = this.#anchors.get(node.source);
      if (target === undefined) throw new ReadError(UNKNOWN_ALIAS, startOf(node) ?? 0, path);
      return target;
    }
    if ((isScalar(node) || isMap(node) || isSeq(node)) && node.anchor !== undefined) {
      if (isScalar(node) && node.value === null && node.source === '')
        throw new ReadError(EMPTY_ANCHOR, startOf(node) ?? 0, path);
      this.#anchors.set(node.anchor, node);
    }
    return node;
  }

  #readMap(pairs: readonly Pair[], path: Path): Record<string, Data> {
    const data: Record<string, Data> = {};
    const merged: unknown[] = [];
    for (const { key, value } of pairs) {
      const at = startOf(key) ?? 0;
      const name = nameOf(key);
      if (name === undefined) throw new ReadError('expected a name as the key', at, path);
      if (name === '__proto__') throw new ReadError('"__proto__" cannot be a key', at, path);
      if (name === '<<') {
        merged.push(value);
        continue;
      }
      if (Object.hasOwn(data, name)) throw new ReadError('this key is here twice; keep one', at, [...path, name]);
      data[name] = this.read(value, [...path, name], at);
    }
    for (const value of merged) this.#merge(data, value, path);
    return data;
  }

  /** Applies a merge key (`<<: *defaults`): adds members that the map does not have. */
  #merge(data: Record<string, Data>, value: unknown, path: Path): void {
    const target = this.#resolve(value, path);
    if (isSeq(target)) {
      for (const item of target.items) this.#merge(data, item, path);
      return;
    }
    if (!isMap(target)) throw new ReadError('expected a map to merge', startOf(value) ?? 0, path);
    const others = target.items.filter(({ key }) => {
      const name = nameOf(key);
      return name === undefined || !Object.hasOwn(data, name);
    });
    // The map may itself merge one that has a member of `data`.
    for (const [name, one] of Object.entries(this.#readMap(others, path))) {
      if (!Object.hasOwn(data, name)) data[name] = one;
    }
  }
}

/** Returns a text, a number or a boolean of a parser as it is, and null for anything else. */
export function scalarOf(value: unknown): Data {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : null;
}

/** Returns the text of a key; undefined if it is no scalar. */
function nameOf(key: unknown): string | undefined {
  if (!isScalar(key)) return undefined;
  return typeof key.value === 'string' ? key.value : key.source;
}

function startOf(node: unknown): number | undefined {
  return isAlias(node) || isScalar(node) || isMap(node) || isSeq(node) ? node.range?.[0] : undefined;
}

/**
 * Parses YAML, JSON, or JSON with comments.
 *
 * @throws {ConfigError} with the first few syntax errors.
 */
export function parseText(file: string, raw: string): Document {
  const unmarked = withoutByteOrderMark(raw);
  const json = isJson(file, unmarked);
  const text = json ? blankComments(unmarked) : unmarked;
  const lines = linesOf(text);
  const problemAt = problemAtOf(file, lines);

  const reader = new Reader();
  const read = (): Data => {
    // The reader checks for duplicate keys, because the library does so in quadratic time.
    const document = parseDocument(text, { prettyErrors: false, uniqueKeys: false });
    const wrong = [...document.errors, ...document.warnings];
    if (wrong.length > 0) {
      const fault = json ? jsonTree(unmarked).fault : undefined;
      if (fault !== undefined) throw new ConfigError([problemAt(fault.offset, [], fault.message)]);
      const shown = firstFaults(wrong, (offset) => lines.linePos(offset).line);
      throw new ConfigError(
        shown.map((fault) => {
          const [at] = fault.pos;
          const place = isUnclosed(fault) ? startOfQuoted(document, at) : at;
          return problemAt(place, [], `${yamlMessage(fault)}${quoteHint(text, at)}`);
        }),
      );
    }
    return reader.read(document.contents, [], undefined);
  };

  try {
    return documentOf(file, read(), reader.spots, problemAt);
  } catch (thrown) {
    if (thrown instanceof ReadError)
      throw new ConfigError([problemAt(thrown.offset, thrown.path, thrown.message)], thrown);
    throw thrown;
  }
}

/** Returns where the text in quotes begins that ends at an offset. */
function startOfQuoted(document: YamlDocument, offset: number): number {
  let start = offset;
  visit(document, {
    Scalar: (_, { type, range }) => {
      const isQuoted = type === 'QUOTE_DOUBLE' || type === 'QUOTE_SINGLE';
      if (isQuoted && range && range[0] <= offset && offset <= range[2]) [start] = range;
    },
  });
  return start;
}

/** Returns a hint for `${VAR}` inside `{…}`, where YAML treats its brace as syntax. */
function quoteHint(text: string, offset: number): string {
  const line = text.slice(text.lastIndexOf('\n', offset - 1) + 1, offset + 80).split('\n', 1)[0] ?? '';
  return /[{,].*[:,[]\s*\$\{/.test(line) ? ' (inside {…} and […], text with ${…} needs quotes)' : '';
}

/**
 * Matches one JSON string, line comment or block comment. Strings match first, so that their content is not taken for a
 * comment.
 */
const TOKENS = /"(?:[^"\\\n]|\\.)*"|\/\/[^\n\r]*|\/\*[^]*?(?:\*\/|$)/g;

/** Replaces comments with spaces, so that every offset, line and column stays the same. */
function blankComments(text: string): string {
  return text.replace(TOKENS, (token) => (token.startsWith('"') ? token : token.replace(/[^\n\r]/g, ' ')));
}

/** Returns whether a file is JSON: by its name, or else by its first characters. */
function isJson(file: string, text: string): boolean {
  if (isJsonFile(file)) return true;
  if (/\.ya?ml$/i.test(file)) return false;
  return /^\s*(?:\{|\/\/|\/\*)/.test(text);
}
