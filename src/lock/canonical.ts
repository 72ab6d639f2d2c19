import { arrayText, isArrayText, isObjectText, RawObject, rawItems, UNAMBIGUOUS_BOUNDS } from '../json/json.ts';
import { orderedText, type Spelling } from '../json/ordered.ts';
import { LIMITS } from '../limits.ts';
import { escapeHidden } from './hidden-characters.ts';

/** Objects and lists around a definition in the lock file, which must stay readable itself, and some more. */
const OUTER_DEPTH = 8;

/** Members whose text may be written as a list of its lines. So a diff of the lock file shows the line that changed. */
const TEXTS: ReadonlySet<string> = new Set(['description', 'instructions']);

const CANONICAL: Spelling = {
  bounds: UNAMBIGUOUS_BOUNDS,
  maxDepth: LIMITS.jsonDepth - OUTER_DEPTH,
  scalar: (text) => (isString(text) ? JSON.stringify(stringOf(text)) : text),
  list: (items, name) => {
    const areTexts = items.every(isString);
    if (TEXTS.has(name) && areTexts && items.length > 1) return JSON.stringify(items.map(stringOf).join('\n'));
    return arrayText(name === 'required' && areTexts ? items.toSorted() : items);
  },
};

/**
 * Returns the canonical JSON text of a value: members in the order of their names, no spaces, one spelling for each string. Two
 * definitions are the same exactly if their canonical texts are equal. A list of lines and the text that they make are equal, and
 * so are two orders of `required`. Numbers keep their digits.
 *
 * @param name of the member that the value belongs to.
 * @throws {JsonTextError} if the text is not JSON, or an object in it names a member twice.
 */
export function canonicalText(raw: string, name = ''): string {
  return orderedText(raw, CANONICAL, name);
}

/**
 * Returns a canonical text in the form of the lock file, with one member or item on each line. Texts of several lines are lists of lines.
 * Hidden characters are escapes, so that a reviewer sees them.
 */
export function reviewableText(canonical: string, name = '', indent = ''): string {
  const inner = `${indent}  `;
  if (isObjectText(canonical)) {
    const object = RawObject.parse(canonical);
    const members = object.keys().map((key) => {
      const value = reviewableText(object.raw(key) ?? 'null', key, inner);
      return `${inner}${escapeHidden(JSON.stringify(key))}: ${value}`;
    });
    return members.length === 0 ? '{}' : `{\n${members.join(',\n')}\n${indent}}`;
  }
  if (isArrayText(canonical)) return listText(rawItems(canonical), inner, indent);
  if (TEXTS.has(name) && isString(canonical)) {
    const lines = stringOf(canonical).split('\n');
    if (lines.length > 1) {
      const texts = lines.map((line) => JSON.stringify(line));
      return listText(texts, inner, indent);
    }
  }
  return escapeHidden(canonical);
}

function listText(items: readonly string[], inner: string, indent: string): string {
  if (items.length === 0) return '[]';
  return `[\n${items.map((item) => `${inner}${reviewableText(item, '', inner)}`).join(',\n')}\n${indent}]`;
}

function isString(text: string): boolean {
  return text.startsWith('"');
}

function stringOf(text: string): string {
  const value: unknown = JSON.parse(text);
  return typeof value === 'string' ? value : '';
}
