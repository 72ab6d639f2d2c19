import { basename } from 'node:path';

import { type Document, parseText } from './document/document.ts';
import { ConfigError, problemOfWhole } from './document/problem.ts';
import { isJsonFile } from './files/config-files.ts';
import { parseLargeJson } from './document/large-json.ts';
import { MAP_KEYS, WEAK_MAP_KEYS } from './schema/schema.ts';
import { parseToml } from './document/toml.ts';
import { withoutByteOrderMark } from '../protocol/framing/byte-order-mark.ts';

/** A larger JSON file is a client's own state, with the servers as a small part. */
const LARGE_CHARS = 1_048_576;

const OUR_KEYS: ReadonlySet<string> = new Set(['gateway', ...MAP_KEYS, ...WEAK_MAP_KEYS]);

/** Parses the text of a config file as TOML, JSON or YAML, according to its name. @throws {ConfigError} */
export function parseFile(file: string, text: string): Document {
  const unmarked = withoutByteOrderMark(text);
  const isClientState = basename(file) === '.claude.json' || (isJsonFile(file) && text.length > LARGE_CHARS);
  try {
    if (/\.toml$/i.test(file)) return parseToml(file, unmarked);
    return isClientState ? parseLargeJson(file, unmarked, (key) => OUR_KEYS.has(key)) : parseText(file, text);
  } catch (thrown) {
    // The parsers are recursive, so endless brackets exhaust the stack.
    if (thrown instanceof RangeError) throw new ConfigError([problemOfWhole(file, 'nested too deeply')], thrown);
    throw thrown;
  }
}
