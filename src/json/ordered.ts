import { arrayText, checkJson, CLIENT_BOUNDS, type JsonBounds, JsonTextError, quoted } from './json.ts';
import {
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  scanner,
  skipColon,
  skipName,
  skipSpace,
  skipValue,
  unquote,
} from './scan.ts';

/** How ordered texts are spelled. */
export interface Spelling {
  readonly bounds: JsonBounds;
  readonly maxDepth: number;
  /** Returns the text of a string, number or literal. */
  scalar(text: string): string;
  /** Returns the text of a list. @param name of the member that has the list; empty for other lists. */
  list(items: readonly string[], name: string): string;
}

/** The spelling of a client's message, as it came. */
const AS_SENT: Spelling = { bounds: CLIENT_BOUNDS, maxDepth: Infinity, scalar: (text) => text, list: arrayText };

/**
 * Returns the text of a JSON value without spaces, and with the members of objects in the order of their names. Reads the text once,
 * however deep it is nested.
 *
 * @param name of the member that has the value.
 * @throws {JsonTextError} if the text is not JSON, or an object in it names a member twice.
 */
export function orderedText(raw: string, spelling: Spelling = AS_SENT, name = ''): string {
  checkJson(raw, spelling.bounds);
  return orderedValue({ text: raw, at: skipSpace(raw, 0), spelling }, name, 0);
}

/** Returns the text of an object with these members, in the order of their names. The values are JSON texts. */
export function objectText(members: readonly (readonly [name: string, value: string])[]): string {
  let text = '';
  // Unlike join(), `+=` does not copy the values.
  for (const [name, value] of members.toSorted(([a], [b]) => (a < b ? -1 : 1))) {
    text += `${text === '' ? '' : ','}${quoted(name)}:${value}`;
  }
  return `{${text}}`;
}

/** A place in well-formed JSON. */
interface Cursor {
  readonly text: string;
  at: number;
  readonly spelling: Spelling;
}

/** Returns the ordered text of the value at the cursor, and moves the cursor behind it. */
function orderedValue(cursor: Cursor, name: string, depth: number): string {
  const { text, at, spelling } = cursor;
  if (depth > spelling.maxDepth) throw new JsonTextError('nested too deeply', at, 'jsonDepth');
  const first = text.charCodeAt(at);
  if (first === OPEN_OBJECT) {
    const members: [name: string, value: string][] = [];
    cursor.at++;
    while (moveToNext(cursor, CLOSE_OBJECT)) {
      const member = readName(cursor);
      members.push([member, orderedValue(cursor, member, depth + 1)]);
    }
    return objectText(members);
  }
  if (first === OPEN_ARRAY) {
    const items: string[] = [];
    cursor.at++;
    while (moveToNext(cursor, CLOSE_ARRAY)) items.push(orderedValue(cursor, '', depth + 1));
    return spelling.list(items, name);
  }
  scanner.values = 0;
  cursor.at = skipValue(text, at);
  return spelling.scalar(text.slice(at, cursor.at));
}

/** Moves the cursor to the next item or member. Returns false if the object or array ends, and moves the cursor behind it. */
function moveToNext(cursor: Cursor, closer: number): boolean {
  const { text } = cursor;
  const at = skipSpace(text, cursor.at);
  const next = text.charCodeAt(at);
  cursor.at = next === COMMA ? skipSpace(text, at + 1) : next === closer ? at + 1 : at;
  return next !== closer;
}

/** Returns the name of the member at the cursor, and moves the cursor to its value. */
function readName(cursor: Cursor): string {
  const { text, at } = cursor;
  const end = skipName(text, at);
  cursor.at = skipColon(text, end);
  return unquote(text.slice(at, end), at);
}
