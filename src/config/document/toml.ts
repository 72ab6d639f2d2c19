import { parse, TomlDate, TomlError } from 'smol-toml';

import { type Data, type Document, documentOf, linesOf, problemAtOf, scalarOf, type Spot } from './document.ts';
import { ConfigError, type Path } from './problem.ts';

/** Matches a line that begins a table, `[a."b c"]` or `[[a]]`. */
const TABLE = /^\s*\[{1,2}\s*([^\]]+?)\s*\]{1,2}\s*(?:#.*)?$/;
/** Matches a line that begins with a key: bare, quoted or dotted. */
const KEY = /^(\s*)((?:[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"(?:[^"\\]|\\.)*"|'[^']*'))*)\s*=/;

/**
 * Parses TOML, as in Codex's `config.toml`. The parser reports no positions of values, so a problem names the line of
 * the key or of its table.
 *
 * @throws {ConfigError}
 */
export function parseToml(file: string, text: string): Document {
  return documentOf(file, read(file, text), spotsIn(text), problemAtOf(file, linesOf(text)));
}

const EXPECTED_LINE = 'expected a line such as name = "value" or [mcp_servers.name]';
const UNCLOSED = 'a text in quotes is not closed in this line';

/** Our messages for the parser's, which do not say what to do. */
const MESSAGES: ReadonlyMap<string, string> = new Map([
  ['control characters are not allowed in strings', UNCLOSED],
  ['illegal character in key', EXPECTED_LINE],
  ['incomplete key-value: cannot find end of key', EXPECTED_LINE],
  ['invalid value', 'a text needs quotes'],
  ['trying to redefine an already defined table or value', 'this key is here twice; keep one'],
  ['trying to redefine an already defined value', 'this key is here twice; keep one'],
  ['unfinished string', UNCLOSED],
]);

function read(file: string, text: string): Data {
  try {
    return toData(parse(text, { maxDepth: 64 }));
  } catch (thrown) {
    if (!(thrown instanceof TomlError)) throw thrown;
    // The other lines of the parser's message quote the file, which may hold secrets.
    const [first = ''] = thrown.message.split('\n');
    const { line, column } = thrown;
    const message = first.replace(/^Invalid TOML document: /, '');
    throw new ConfigError([{ file, line, column, key: '', message: MESSAGES.get(message) ?? message }]);
  }
}

function toData(value: unknown): Data {
  if (value instanceof TomlDate) return value.toISOString();
  if (Array.isArray(value)) return value.map((item) => toData(item));
  if (typeof value !== 'object' || value === null) return scalarOf(value);
  return Object.fromEntries(
    Object.entries(value).flatMap(([key, member]): [string, Data][] =>
      key === '__proto__' ? [] : [[key, toData(member)]],
    ),
  );
}

/** Returns the spot of each table and key that begins a line, by path. */
function spotsIn(text: string): ReadonlyMap<string, Spot> {
  const spots = new Map<string, Spot>();
  const add = (path: Path, offset: number): void => {
    for (let length = 1; length <= path.length; length++) {
      const name = JSON.stringify(path.slice(0, length));
      if (!spots.has(name)) spots.set(name, { key: offset, value: offset });
    }
  };
  let table: Path = [];
  let start = 0;
  for (const line of text.split('\n')) {
    const [, name] = TABLE.exec(line) ?? [];
    const [, indent = '', key] = KEY.exec(line) ?? [];
    if (name !== undefined) {
      table = pathOf(name);
      add(table, start + line.indexOf('['));
    } else if (key !== undefined) {
      add([...table, ...pathOf(key)], start + indent.length);
    }
    start += line.length + 1;
  }
  return spots;
}

/**
 * Parses a dotted key: `mcp_servers."my server"` → `['mcp_servers', 'my server']`. Returns an empty path for other
 * text, such as a line inside a long string.
 */
function pathOf(dotted: string): Path {
  const steps: string[] = [];
  try {
    let value = toData(parse(`${dotted} = 1`));
    while (typeof value === 'object' && value !== null && !Array.isArray(value)) {
      const [entry] = Object.entries(value);
      if (entry === undefined) return [];
      steps.push(entry[0]);
      value = entry[1];
    }
  } catch (thrown) {
    if (thrown instanceof TomlError) return [];
    throw thrown;
  }
  return steps;
}
